use super::*;
use proptest::prelude::*;

fn look() -> FunctionScope {
    FunctionScope::entry(btf(), "look").unwrap()
}

fn accepts(predicate: &Predicate) -> bool {
    machine().hit(&plan(&look(), Some(&[]), &[], Some(predicate)).unwrap().table).1
}

fn number(text: &str, operator: Operator, value: i128) -> Predicate {
    compare(text, operator, Literal::Integer(value))
}

fn name(text: &str, value: &str) -> Predicate {
    compare(text, Operator::Equal, Literal::Name(value.to_owned()))
}

fn told(predicate: &Predicate) -> (usize, String) {
    let error = plan(&look(), Some(&[]), &[], Some(predicate)).unwrap_err();
    (error.at, error.what)
}

#[test]
fn names_of_values_are_known() {
    assert!(accepts(&name("file->mode", "NONE")));
    assert!(!accepts(&name("file->mode", "READ")));
    assert!(accepts(&name("file->is_open", "true")));
    assert!(!accepts(&name("file->data", "NULL")));
    // Of an enumeration that is not the field's.
    assert!(!accepts(&name("count", "WRITE")));
    assert_eq!(
        told(&name("file->mode", "REED")),
        (200, "REED is the name of no value; there is READ".to_owned())
    );
}

#[test]
fn values_that_a_field_cannot_have_are_refused() {
    use Operator::{Equal, HasBits, Less};
    let range = "is no value of this field: it is";
    for (predicate, what) in [
        (
            number("file", Equal, -1),
            format!("-1 {range} unsigned, with 64 bits, from 0 to 18446744073709551615"),
        ),
        (
            number("file->high", Equal, 1 << 16),
            format!("65536 {range} unsigned, with 16 bits, from 0 to 65535"),
        ),
        (number("file->b", Less, 16), format!("16 {range} signed, with 5 bits, from -16 to 15")),
        (
            number("count", Equal, 0xffff_ffff),
            format!("4294967295 {range} signed, with 32 bits, from -2147483648 to 2147483647"),
        ),
        (
            number("comm", Equal, 0),
            "the field is a string: it is compared with another, as in == \"dd\"".into(),
        ),
        (number("file->id", Equal, 0), "bytes cannot be compared".into()),
        (
            compare("count", Equal, Literal::Text(b"dd".into())),
            "this is a string, and the field an integer".into(),
        ),
        (
            compare("comm", Less, Literal::Text(b"dd".into())),
            "strings are compared by == and != only".into(),
        ),
        (
            compare("comm", Equal, Literal::Text(vec![b'x'; 16])),
            "the string has 16 bytes: at most 15 are compared here".into(),
        ),
        (
            compare("text", Equal, Literal::Text(vec![b'x'; 65])),
            "the string has 65 bytes: at most 64 are compared here".into(),
        ),
        (
            compare("text", Equal, Literal::Text(b"a\0".into())),
            "a string has no zeros inside".into(),
        ),
    ] {
        assert_eq!(told(&predicate), (200, what));
    }
    assert!(accepts(&number("count", HasBits, 0x8000_0000)));
    assert!(accepts(&number("count", HasBits, -1)));
    assert!(!accepts(&number("count", HasBits, 1)));
}

#[test]
fn there_is_an_end_to_checks_and_texts() {
    let check = |n| number("count", Operator::Equal, n);
    let all = |count| Predicate::All((0..count).map(check).collect());
    assert!(plan(&look(), Some(&[]), &[], Some(&all(16))).is_ok());
    assert_eq!(told(&all(17)).1, "a condition has at most 16 comparisons");
    let text = |n: u8| compare("text", Operator::Equal, Literal::Text(vec![b'a' + n % 5]));
    let any = |count| Predicate::Any((0..count).map(text).collect());
    assert!(plan(&look(), Some(&[]), &[], Some(&any(4))).is_ok());
    assert_eq!(told(&any(5)).1, "a condition has at most 4 strings");
    let never = Predicate::Any(Vec::new());
    assert_eq!(told(&never).1, "the condition is never true");
    assert!(accepts(&Predicate::All(Vec::new())));
    assert!(accepts(&Predicate::Any(vec![Predicate::Not(Box::new(never)), check(5)])));
}

/// What a field is, as [`machine`] has it.
fn value(text: &str) -> Result<i128, &'static [u8]> {
    match text {
        "count" => Ok(-2),
        "file->a" => Ok(5),
        "pid" => Ok(100),
        "file->mode" => Ok(-1),
        "file" => Ok(0x1000),
        "comm" => Err(b"dd"),
        "path" => Err(b"user's"),
        other => panic!("{other}"),
    }
}

/// What a predicate says, by what it means.
fn means(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Not(inner) => !means(inner),
        Predicate::All(parts) => parts.iter().all(means),
        Predicate::Any(parts) => parts.iter().any(means),
        Predicate::Compare(comparison) => {
            let FieldBase::Name(base) = &comparison.path.base else { panic!() };
            let text = match comparison.path.steps.first() {
                Some((PathStep::Member(member), _)) => format!("{base}->{member}"),
                _ => base.clone(),
            };
            let is = comparison.operator;
            match (value(&text), &comparison.value) {
                (Ok(value), Literal::Integer(wanted)) => match is {
                    Operator::Equal => value == *wanted,
                    Operator::NotEqual => value != *wanted,
                    Operator::Less => value < *wanted,
                    Operator::LessOrEqual => value <= *wanted,
                    Operator::Greater => value > *wanted,
                    Operator::GreaterOrEqual => value >= *wanted,
                    Operator::HasBits => value & wanted != 0,
                },
                (Err(value), Literal::Text(wanted)) => (value == wanted) == (is == Operator::Equal),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn comparison() -> impl Strategy<Value = Predicate> {
    use Operator::*;
    let operators = prop::sample::select(vec![
        Equal,
        NotEqual,
        Less,
        LessOrEqual,
        Greater,
        GreaterOrEqual,
        HasBits,
    ]);
    let numbers = prop::sample::select(vec![
        ("count", vec![-3, -2, -1, 0, i128::from(i32::MAX), i128::from(i32::MIN)]),
        ("pid", vec![0, 99, 100, 101, i128::from(u32::MAX)]),
        ("file->mode", vec![-2, -1, 0, 1]),
        ("file", vec![0, 0xfff, 0x1000, 0x1001, i128::from(u64::MAX)]),
    ]);
    let integer = (numbers, operators, any::<prop::sample::Index>())
        .prop_map(|((field, values), operator, n)| number(field, operator, *n.get(&values)));
    let texts =
        prop::sample::select(vec![("comm", "dd"), ("comm", "d"), ("path", "user's"), ("path", "")]);
    let text = (texts, any::<bool>()).prop_map(|((field, text), is_equal)| {
        compare(field, if is_equal { Equal } else { NotEqual }, Literal::Text(text.into()))
    });
    prop_oneof![3 => integer, 1 => text]
}

fn predicate() -> impl Strategy<Value = Predicate> {
    comparison().prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Predicate::Not(Box::new(inner))),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Predicate::All),
            prop::collection::vec(inner, 0..4).prop_map(Predicate::Any),
        ]
    })
}

proptest! {
    #[test]
    fn checks_say_what_predicates_mean(predicate in predicate()) {
        let scope = look();
        match plan(&scope, Some(&[]), &[], Some(&predicate)) {
            Ok(plan) => prop_assert_eq!(machine().hit(&plan.table).1, means(&predicate)),
            Err(error) if error.what == "the condition is never true" => {
                prop_assert!(!means(&predicate));
            }
            Err(error) => prop_assert!(error.what.contains("at most"), "{}", error.what),
        }
    }
}

#[test]
fn what_cannot_be_read_compares_as_false() {
    let number = |operator| number("file->next->next->next->next->fd", operator, 0);
    let mut machine = Machine::default();
    machine.registers[0] = 0x9000;
    let told = |predicate: &Predicate| {
        machine.hit(&plan(&look(), Some(&[]), &[], Some(predicate)).unwrap().table).1
    };
    assert!(!told(&number(Operator::Equal)));
    assert!(told(&number(Operator::NotEqual)), "it is not equal");
}
