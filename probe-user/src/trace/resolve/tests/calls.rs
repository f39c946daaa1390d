use super::*;
use crate::perf::Event;
use probe_common::fetch::base;

fn look() -> FunctionScope {
    FunctionScope::call(btf(), "look").unwrap()
}

fn number(text: &str, operator: Operator, value: i128) -> Predicate {
    compare(text, operator, Literal::Integer(value))
}

#[test]
fn a_call_has_arguments_result_and_latency() {
    let mut machine = machine();
    machine.registers[usize::from(base::LATENCY)] = 1_500;
    let scope = look();
    assert_eq!(integer(&scope, &machine, "retval"), (-2, Shape::Result));
    assert_eq!(integer(&scope, &machine, "latency"), (1_500, Shape::Duration));
    let count = integer(&scope, &machine, "count");
    assert_eq!(count, integer(&FunctionScope::entry(btf(), "look").unwrap(), &machine, "count"));
    let defaults = scope.defaults();
    let names: Vec<_> = defaults.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names[names.len() - 2..], ["retval", "latency"]);
    assert_eq!(names.len(), FunctionScope::entry(btf(), "look").unwrap().defaults().len() + 2);
    assert_eq!(error(&scope, "latency->x"), "9: latency has no members");
    let nothing = FunctionScope::call(btf(), "by_value").unwrap();
    assert_eq!(error(&nothing, "retval"), "0: by_value returns nothing");
    assert!(nothing.defaults().iter().any(|(name, ..)| name == "latency"));
}

#[test]
fn what_is_counted_has_the_events_name_and_is_known_last() {
    let mut machine = machine();
    machine.registers[usize::from(base::COUNTER)..][..4].copy_from_slice(&[77, 78, 79, 80]);
    let shapes = [Shape::Unsigned, Shape::Duration, Shape::Unsigned, Shape::Unsigned];
    let all = Event::list("page-faults,cpu-clock:k,sched:sched_switch,software/config=2/").unwrap();
    for count in 1..=all.len() {
        let (events, shapes) = (&all[..count], &shapes[..count]);
        let scope = CountedScope::new(Box::new(look()), events);
        let also: Vec<_> = fields_of(events).collect();
        let names = &["counter", "counter2", "counter3", "counter4"][..count];
        for (n, (name, shape)) in names.iter().zip(shapes).enumerate() {
            assert_eq!(integer(&scope, &machine, name), (77 + n as i64, shape.clone()));
            let no_members = format!("{}: {name} has no members", name.len() + 2);
            assert_eq!(error(&scope, &format!("{name}->x")), no_members);
        }
        for other in ["counter0", "counter1", &format!("counter{}", count + 1)] {
            assert!(error(&scope, other).starts_with("0: "), "{other}");
        }
        let fields = |fields: Option<&[FieldSpec]>| {
            let plan = plan(&scope, fields, &also, None).unwrap();
            let (own, last) = plan.fields.split_at(plan.fields.len() - count);
            assert!(last.iter().all(|field| plan.table.late_fields >> field.slot & 1 == 1));
            (own.len(), last.iter().map(|one| one.field.clone()).collect::<Vec<_>>())
        };
        let field_of = |(event, shape): (&Event, &Shape)| Field {
            name: event.to_string(),
            shape: shape.clone(),
        };
        let counted: Vec<_> = events.iter().zip(shapes).map(field_of).collect();
        assert_eq!(fields(None), (look().defaults().len(), counted.clone()));
        assert_eq!(fields(Some(&[])), (0, counted.clone()));
        // Who gives it another name has it once.
        let last = names[count - 1];
        let cost = FieldSpec { name: Some("cost".into()), ..field(last, None) };
        let cost_field = Field { name: "cost".into(), shape: shapes[count - 1].clone() };
        let (_, told) = fields(Some(&[cost]));
        assert_eq!((told.len(), &told[0]), (count, &cost_field));
        assert_eq!(told[1..], counted[..count - 1]);
        for event in events {
            let taken = FieldSpec { name: Some(event.to_string()), ..field("count", None) };
            let error = plan(&scope, Some(&[taken]), &also, None).unwrap_err().what;
            assert!(error.contains(&format!("two fields are called {event}")), "{error}");
        }
    }
    assert!(error(&look(), "counter").contains("counter"));
}

#[test]
fn of_a_call_without_types_what_comes_later_is_known_too() {
    for scope in [UntypedScope::Call, UntypedScope::UserCall] {
        let fields = ["arg0", "retval", "latency"].map(|text| field(text, None));
        let plan = plan(&scope, Some(&fields), &[], None).unwrap();
        let late = plan.fields.iter().map(|one| plan.table.late_fields >> one.slot & 1);
        assert_eq!(late.collect::<Vec<_>>(), [0, 1, 1], "{scope:?}");
        let names: Vec<_> = scope.defaults().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(
            (names.len(), &names[5..]),
            (8, &["arg5", "retval", "latency"].map(Into::into)[..])
        );
        assert!(error(&scope, "x").ends_with("only arg0 to arg5, retval and latency can be read"));
    }
    // What either points to is the process's.
    for text in ["arg0", "retval"] {
        let is_user = |scope| {
            let fields = [field(text, Some(FieldType::Str))];
            plan(&scope, Some(&fields), &[], None).unwrap().table.fields[0].user & 1 == 1
        };
        assert!(is_user(UntypedScope::UserCall) && !is_user(UntypedScope::Call), "{text}");
    }
    for scope in [UntypedScope::UserEntry, UntypedScope::Entry] {
        for text in ["retval", "latency"] {
            assert!(error(&scope, text).ends_with("; --ret tells arguments, retval and latency"));
        }
        assert!(error(&scope, "x").ends_with(": only arg0 to arg5 can be read"));
    }
    let told = error(&UntypedScope::UserReturn, "arg0");
    assert!(told.ends_with("only retval can be read; --ret tells arguments, retval and latency"));
}

#[test]
fn what_is_known_later_is_read_later() {
    let fields = ["text", "latency", "count", "retval"].map(|text| field(text, None));
    let plan_of = |scope: &FunctionScope| plan(scope, Some(&fields), &[], None);
    let call = plan_of(&look()).unwrap();
    let late = |name: &str| {
        let planned = call.fields.iter().find(|one| one.field.name == name).unwrap();
        call.table.late_fields >> planned.slot & 1 == 1
    };
    assert_eq!(["text", "latency", "count", "retval"].map(late), [false, true, false, true]);
    let returning = FunctionScope::returning(btf(), "look").unwrap();
    let returned = plan(&returning, Some(&[field("retval", None)]), &[], None).unwrap();
    assert_eq!(returned.table.late_fields, 0);
}

#[test]
fn what_can_be_decided_early_is() {
    use Operator::{Equal, Greater, Less};
    let comm = || compare("comm", Equal, Literal::Text(b"dd".into()));
    let count = || number("count", Greater, -100);
    let slow = || number("latency", Greater, 1_000);
    let failed = || number("retval", Less, 0);
    let either = |parts: Vec<Predicate>| Predicate::Any(parts);
    for (predicate, early, late, text) in [
        (Predicate::All(vec![slow(), count(), comm()]), 2, 1, 0b01),
        (Predicate::All(vec![Predicate::All(vec![count(), failed()]), slow()]), 1, 2, 0),
        (either(vec![count(), failed()]), 0, 2, 0),
        (Predicate::All(vec![count(), either(vec![comm(), slow()])]), 1, 2, 0b10),
        (Predicate::Not(Box::new(count())), 1, 0, 0),
        (failed(), 0, 1, 0),
    ] {
        let plan = plan(&look(), Some(&[]), &[], Some(&predicate)).unwrap();
        let table = &plan.table;
        let counts = (table.early_checks, table.check_count - table.early_checks);
        assert_eq!((counts, table.checks_text), ((early, late), text), "{predicate:?}");
        // It means the same, whenever it is decided.
        for (latency, comm) in [(999, "dd"), (1_001, "dd"), (1_001, "cat"), (0, "cat")] {
            let mut machine = machine();
            machine.registers[usize::from(base::LATENCY)] = latency;
            machine.comm = comm.into();
            let count = integer(&look(), &machine, "count").0 > -100;
            let (slow, comm, failed) = (latency > 1_000, comm == "dd", true);
            let expected = match (early, late, text) {
                (2, 1, _) => slow && count && comm,
                (1, 2, 0) => count && failed && slow,
                (0, 2, _) => count || failed,
                (1, 2, _) => count && (comm || slow),
                (1, 0, _) => !count,
                _ => failed,
            };
            assert_eq!(machine.hit(table).1, expected, "{predicate:?} {latency} {comm}");
        }
    }
    // Of a function that only returns, everything is decided at once.
    let returning = FunctionScope::returning(btf(), "look").unwrap();
    let table = plan(&returning, None, &[], Some(&failed())).unwrap().table;
    assert_eq!((table.early_checks, table.check_count), (1, 1));
}
