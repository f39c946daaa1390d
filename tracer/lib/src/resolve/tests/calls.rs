use super::*;
use probe_perf::Event;
use probe_tracer_common::fetch::base;

/// The fields of a call of `look`.
fn call() -> FunctionFields {
    function("look", Moment::Call)
}

#[test]
fn a_call_has_arguments_result_and_latency() {
    let mut machine = machine();
    machine.registers[usize::from(base::LATENCY)] = 1_500;
    let source = call();
    assert_eq!(integer(&source, &machine, "retval"), (-2, Shape::Result));
    assert_eq!(integer(&source, &machine, "latency"), (1_500, Shape::Duration));
    assert_eq!(integer(&source, &machine, "count"), integer(&look(), &machine, "count"));
    let (defaults, at_entry) = (source.defaults(), look().defaults());
    let expected = [&names(&at_entry)[..], &["retval", "latency"]].concat();
    assert_eq!(names(&defaults), expected);
    assert_eq!(error(&source, "latency->x"), "9: latency has no members");
    let nothing = function("by_value", Moment::Call);
    assert_eq!(error(&nothing, "retval"), "0: by_value returns nothing");
    assert!(names(&nothing.defaults()).contains(&"latency"));
}

#[test]
fn counters_have_the_names_of_their_events_and_are_late() {
    let mut machine = machine();
    machine.registers[usize::from(base::COUNTER)..][..4].copy_from_slice(&[77, 78, 79, 80]);
    let shapes = [Shape::Unsigned, Shape::Duration, Shape::Unsigned, Shape::Unsigned];
    let all = Event::list("page-faults,cpu-clock:k,sched:sched_switch,software/config=2/").unwrap();
    for count in 1..=all.len() {
        let (events, shapes) = (&all[..count], &shapes[..count]);
        let source = CountedFields::new(Box::new(call()), events);
        let also: Vec<_> = fields_of(events).collect();
        let names = &["counter", "counter2", "counter3", "counter4"][..count];
        for (n, (name, shape)) in names.iter().zip(shapes).enumerate() {
            assert_eq!(integer(&source, &machine, name), (77 + n as i64, shape.clone()));
            let no_members = format!("{}: {name} has no members", name.len() + 2);
            assert_eq!(error(&source, &format!("{name}->x")), no_members);
        }
        for other in ["counter0", "counter1", &format!("counter{}", count + 1)] {
            assert!(error(&source, other).starts_with("0: "), "{other}");
        }
        let fields = |fields: Option<&[FieldSpec]>| {
            let plan = plan(&source, fields, &also, None).unwrap();
            let (own, last) = plan.fields.split_at(plan.fields.len() - count);
            assert!(last.iter().all(|field| plan.table.late_fields >> field.slot & 1 == 1));
            (own.len(), last.iter().map(|one| one.field.clone()).collect::<Vec<_>>())
        };
        let field_of = |(event, shape): (&Event, &Shape)| Field {
            name: event.to_string(),
            shape: shape.clone(),
            names: None,
        };
        let counted: Vec<_> = events.iter().zip(shapes).map(field_of).collect();
        assert_eq!(fields(None), (call().defaults().len(), counted.clone()));
        assert_eq!(fields(Some(&[])), (0, counted.clone()));
        // A field that is given another name is not added a second time.
        let last = names[count - 1];
        let cost = FieldSpec { name: Some("cost".into()), ..field(last, None) };
        let cost_field =
            Field { name: "cost".into(), shape: shapes[count - 1].clone(), names: None };
        let (_, renamed) = fields(Some(&[cost]));
        assert_eq!((renamed.len(), &renamed[0]), (count, &cost_field));
        assert_eq!(renamed[1..], counted[..count - 1]);
        for event in events {
            let taken = FieldSpec { name: Some(event.to_string()), ..field("count", None) };
            let error = plan(&source, Some(&[taken]), &also, None).unwrap_err().what;
            assert!(error.contains(&format!("two fields are called {event}")), "{error}");
        }
    }
    assert!(error(&call(), "counter").contains("counter"));
}

#[test]
fn untyped_calls_have_registers_result_and_latency() {
    for source in [UntypedFields::Kernel(Moment::Call), UntypedFields::User(Moment::Call)] {
        let fields = ["arg0", "retval", "latency"].map(|text| field(text, None));
        let plan = plan(&source, Some(&fields), &[], None).unwrap();
        let late = plan.fields.iter().map(|one| plan.table.late_fields >> one.slot & 1);
        assert_eq!(late.collect::<Vec<_>>(), [0, 1, 1], "{source:?}");
        let expected = ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5", "retval", "latency"];
        assert_eq!(names(&source.defaults()), expected);
        assert!(error(&source, "x").ends_with("only arg0 to arg5, retval and latency can be read"));
    }
    // Both point to user memory.
    for text in ["arg0", "retval"] {
        let is_user = |source: fn(Moment) -> UntypedFields| {
            let fields = [field(text, Some(FieldType::Str))];
            let plan = plan(&source(Moment::Call), Some(&fields), &[], None).unwrap();
            plan.table.fields[0].user & 1 == 1
        };
        assert!(is_user(UntypedFields::User) && !is_user(UntypedFields::Kernel), "{text}");
    }
    let hint = "; --ret reports arguments, retval and latency";
    for source in [UntypedFields::User(Moment::Entry), UntypedFields::Kernel(Moment::Entry)] {
        for text in ["retval", "latency"] {
            assert!(error(&source, text).ends_with(hint), "{text}");
        }
        assert!(error(&source, "x").ends_with(": only arg0 to arg5 can be read"));
    }
    let message = error(&UntypedFields::User(Moment::Return), "arg0");
    assert!(message.ends_with(&format!("only retval can be read{hint}")), "{message}");
}

#[test]
fn result_and_latency_are_read_at_the_return() {
    let fields = ["text", "latency", "count", "retval"].map(|text| field(text, None));
    let plan_of = |source: &FunctionFields| plan(source, Some(&fields), &[], None);
    let call = plan_of(&call()).unwrap();
    let late = |name: &str| {
        let planned = call.fields.iter().find(|one| one.field.name == name).unwrap();
        call.table.late_fields >> planned.slot & 1 == 1
    };
    assert_eq!(["text", "latency", "count", "retval"].map(late), [false, true, false, true]);
    let returning = function("look", Moment::Return);
    let returned = plan(&returning, Some(&[field("retval", None)]), &[], None).unwrap();
    assert_eq!(returned.table.late_fields, 0);
}

#[test]
fn checks_of_arguments_are_decided_at_the_entry() {
    use Operator::{Equal, Greater, Less};
    let comm = || compare("comm", Equal, Operand::Text(b"dd".into()));
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
        let plan = plan(&call(), Some(&[]), &[], Some(&predicate)).unwrap();
        let table = &plan.table;
        let counts = (table.early_checks, table.check_count - table.early_checks);
        assert_eq!((counts, table.checks_text), ((early, late), text), "{predicate:?}");
        // The result does not depend on when it is decided.
        for (latency, comm) in [(999, "dd"), (1_001, "dd"), (1_001, "cat"), (0, "cat")] {
            let mut machine = machine();
            machine.registers[usize::from(base::LATENCY)] = latency;
            machine.comm = comm.into();
            let count = integer(&call(), &machine, "count").0 > -100;
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
    // At a function's return, everything is decided at once.
    let returning = function("look", Moment::Return);
    let table = plan(&returning, None, &[], Some(&failed())).unwrap().table;
    assert_eq!((table.early_checks, table.check_count), (1, 1));
}
