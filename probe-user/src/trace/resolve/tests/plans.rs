use super::*;

fn look() -> FunctionScope {
    FunctionScope::entry(btf(), "look").unwrap()
}

#[test]
fn a_field_is_read_once() {
    let fields = [field("path", None), field("count", None), field("file->fd", None)];
    let fd = || compare("arg0->fd", Operator::Less, Literal::Integer(0));
    let comm = || compare("comm", Operator::Equal, Literal::Text(b"dd".into()));
    let predicate = Predicate::All(vec![fd(), comm(), fd()]);
    let plan = plan(&look(), Some(&fields), &[], Some(&predicate)).unwrap();
    let named: Vec<_> = plan.fields.iter().map(|one| (one.field.name.as_str(), one.slot)).collect();
    assert_eq!(named, [("path", 2), ("count", 0), ("file.fd", 1)]);
    assert_eq!((plan.table.field_count, plan.table.integer_count), (4, 2));
    assert_eq!((plan.table.check_count, plan.table.checks_text), (3, 1));
    let mut machine = machine();
    assert!(machine.hit(&plan.table).1);
    machine.comm = b"ddd".to_vec();
    assert!(!machine.hit(&plan.table).1);
}

#[test]
fn there_is_an_end_to_fields() {
    let many: Vec<_> = (0..17).map(|n| field(&format!("file->tail[{n}]"), None)).collect();
    assert!(plan(&look(), Some(&many[..16]), &[], None).is_ok());
    let told = plan(&look(), Some(&many), &[], None).unwrap_err().what;
    assert_eq!(told, "a probe has at most 16 fields, those of its predicate included");
    let pid = compare("pid", Operator::Equal, Literal::Integer(1));
    assert!(plan(&look(), Some(&many[..16]), &[], Some(&pid)).is_err());
    let shared = compare("file->tail[3]", Operator::Equal, Literal::Integer(1));
    assert!(plan(&look(), Some(&many[..16]), &[], Some(&shared)).is_ok());
}

#[test]
fn names_are_given_once() {
    let twice = [field("count", None), field("count", Some(FieldType::Hex(8)))];
    let told = plan(&look(), Some(&twice), &[], None).unwrap_err().what;
    assert_eq!(told, "two fields are called count; NAME=… gives one another");
    let [one, mut other] = twice;
    other.name = Some("low".to_owned());
    let plan = plan(&look(), Some(&[one, other]), &[], None).unwrap();
    assert_eq!(plan.fields[1].field.name, "low");
}
