use super::*;
use probe_testing::pattern::matches;
use probe_tracer_common::fetch::kind;
use proptest::prelude::*;
use zerocopy::IntoBytes;

fn accepts(predicate: &Predicate) -> bool {
    machine().hit(&plan(&look(), Some(&[]), &[], Some(predicate)).unwrap().table).1
}

fn name(text: &str, value: &str) -> Predicate {
    compare(text, Operator::Equal, Operand::Name(value.to_owned()))
}

fn refusal(predicate: &Predicate) -> (usize, String) {
    let error = plan(&look(), Some(&[]), &[], Some(predicate)).unwrap_err();
    (error.at, error.what)
}

#[test]
fn names_of_values_are_known() {
    assert!(accepts(&name("file->mode", "NONE")));
    assert!(!accepts(&name("file->mode", "READ")));
    assert!(accepts(&name("file->is_open", "true")));
    assert!(!accepts(&name("file->data", "NULL")));
    // A number may be a pointer if it is as wide as one.
    assert!(!accepts(&name("file", "NULL")));
    assert!(refusal(&name("count", "NULL")).1.starts_with("unknown constant or field NULL"));
    assert!(refusal(&name("comm", "NULL")).1.ends_with("as in == \"dd\""));
    let text = refusal(&compare("file->data", Operator::Equal, Operand::Text(b"dd".into()))).1;
    assert!(text.contains("write file.data:ustr for one of the process"), "{text}");
    // An enumerator of another enumeration.
    assert!(!accepts(&name("count", "WRITE")));
    assert_eq!(
        refusal(&name("count", "-ENOENT|-EACCES")).1,
        "| joins bits, but no value is both -ENOENT and -EACCES; to match either, write count == -ENOENT || \
         count == -EACCES"
    );
    let neither = compare("count", Operator::NotEqual, Operand::Name("-ENOENT|-EACCES".into()));
    let advice = "to exclude both, write count != -ENOENT && count != -EACCES";
    assert!(refusal(&neither).1.ends_with(advice), "{}", refusal(&neither).1);
    assert_eq!(
        refusal(&name("file->mode", "REED")),
        (200, "unknown constant or field REED; did you mean `READ`?".to_owned())
    );
}

#[test]
fn values_that_a_field_cannot_have_are_refused() {
    use Operator::{Equal, Greater, HasBits, Less, Like, NotLike};
    let string =
        |field, operator, text: &[u8]| compare(field, operator, Operand::Text(text.into()));
    for (predicate, what) in [
        (
            number("file", Equal, -1),
            "-1 is out of range: the field is unsigned with 64 bits, from 0 to 18446744073709551615; write file:s64 == -1 \
             to compare a signed number",
        ),
        (
            number("file->high", Equal, 1 << 16),
            "65536 is out of range: the field is unsigned with 16 bits, from 0 to 65535",
        ),
        (
            number("file->b", Less, 16),
            "16 is out of range: the field is signed with 5 bits, from -16 to 15",
        ),
        (
            number("count", Equal, 0xffff_ffff),
            "4294967295 is out of range: the field is signed with 32 bits, from -2147483648 to 2147483647; write count == -1",
        ),
        (
            number("comm", Equal, 0),
            "the field is a string: compare it with a string, as in == \"dd\"",
        ),
        (
            number("file->id", Equal, 0),
            "the field is bytes: compare it with a string, as in == \"dd\"",
        ),
        (
            number("pid", Less, 0),
            "this is never true: the field is unsigned with 32 bits, from 0 to 4294967295; write pid:s32 < 0 to compare a \
             signed number",
        ),
        (
            number("count", Greater, 0x7fff_ffff),
            "this is never true: the field is signed with 32 bits, from -2147483648 to 2147483647; write \
             count:u32 > 2147483647 to compare an unsigned number",
        ),
        (number("pid", HasBits, 0), "this is never true: 0 has no bits"),
        (string("count", Equal, b"dd"), "this is a string, but the field is an integer"),
        (string("comm", Less, b"dd"), "strings can be compared with ==, !=, ~ and !~ only"),
        (string("count", Like, b"d*"), "~ compares strings, but the field is an integer"),
        (
            string("text", Like, &b"ab*".repeat(22)),
            "the pattern is too long: it has 66 bytes, and at most 64 can be compared here",
        ),
        (string("text", NotLike, b"**"), "every string matches this pattern"),
        (string("text", Like, b"a\0*"), "a pattern has no zero byte; ? stands for any byte"),
        (
            string("comm", Like, b"*x234567890123456*"),
            "the string is too long: it has 16 bytes, and at most 15 can be compared here",
        ),
        (
            string("comm", Equal, &[b'x'; 16]),
            "the string is too long: it has 16 bytes, and at most 15 can be compared here",
        ),
        (
            string("text", Equal, &[b'x'; 65]),
            "the string is too long: it has 65 bytes, and at most 64 can be compared here",
        ),
        (
            string("text", Equal, b"a\0"),
            "a string ends at its first zero byte, unless it is the name of an abstract socket; bytes[N] reads what is \
             behind it",
        ),
    ] {
        assert_eq!(refusal(&predicate), (200, what.to_owned()));
    }
    assert!(accepts(&number("count", HasBits, 0x8000_0000)));
    assert!(accepts(&number("count", HasBits, -1)));
    assert!(!accepts(&number("count", HasBits, 1)));
}

#[test]
fn the_numbers_of_checks_and_strings_are_limited() {
    let check = |n| number("count", Operator::Equal, n);
    let all = |count| Predicate::All((0..count).map(check).collect());
    assert!(plan(&look(), Some(&[]), &[], Some(&all(16))).is_ok());
    assert_eq!(
        refusal(&all(17)).1,
        "a predicate has at most 16 comparisons, where one with the name of a system call counts as two"
    );
    let text = |n: u8| compare("text", Operator::Equal, Operand::Text(vec![b'a' + n % 5]));
    let any = |count| Predicate::Any((0..count).map(text).collect());
    assert!(plan(&look(), Some(&[]), &[], Some(&any(4))).is_ok());
    assert_eq!(refusal(&any(5)).1, "a predicate has at most 4 strings, and the name of -n is one");
    let never = Predicate::Any(Vec::new());
    assert_eq!(refusal(&never).1, "the predicate is never true");
    assert!(accepts(&Predicate::All(Vec::new())));
    assert!(accepts(&Predicate::Any(vec![Predicate::Not(Box::new(never)), check(5)])));
}

/// The value of a field in [`machine`].
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

/// Evaluates a predicate directly.
fn means(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Not(inner) => !means(inner),
        Predicate::All(parts) => parts.iter().all(means),
        Predicate::Any(parts) => parts.iter().any(means),
        Predicate::Compare(comparison) => {
            let named = |path: &FieldPath| {
                let FieldBase::Name(base) = &path.base else { panic!() };
                match path.steps.first() {
                    Some((PathStep::Member(member), _)) => value(&format!("{base}->{member}")),
                    _ => value(base),
                }
            };
            let wanted = match &comparison.value {
                Operand::Integer(wanted) => Ok(*wanted),
                Operand::Text(wanted) => Err(&wanted[..]),
                Operand::Name(name) => value(name),
                Operand::Field(path, _) => named(path),
            };
            match (named(&comparison.path), wanted, comparison.operator) {
                (Ok(value), Ok(wanted), Operator::Less) => value < wanted,
                (Ok(value), Ok(wanted), Operator::LessOrEqual) => value <= wanted,
                (Ok(value), Ok(wanted), Operator::Greater) => value > wanted,
                (Ok(value), Ok(wanted), Operator::GreaterOrEqual) => value >= wanted,
                (Ok(value), Ok(wanted), Operator::HasBits) => value & wanted != 0,
                (Err(value), Err(pattern), Operator::Like) => matches(pattern, value),
                (Err(value), Err(pattern), Operator::NotLike) => !matches(pattern, value),
                (Ok(value), Ok(wanted), Operator::NotZero) => value != wanted,
                (value, wanted, Operator::Equal) => value == wanted,
                (value, wanted, Operator::NotEqual) => value != wanted,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn comparison() -> impl Strategy<Value = Predicate> {
    use Operator::*;
    const ALL: &[Operator] =
        &[Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, HasBits];
    let operators = prop::sample::select(ALL);
    let numbers = prop::sample::select(vec![
        ("count", vec![-3, -2, -1, 0, i128::from(i32::MAX), i128::from(i32::MIN)]),
        ("pid", vec![0, 99, 100, 101, i128::from(u32::MAX)]),
        ("file->mode", vec![-2, -1, 0, 1]),
        ("file", vec![0, 0xfff, 0x1000, 0x1001, i128::from(u64::MAX)]),
    ]);
    let bare = numbers.clone().prop_map(|(field, _)| number(field, NotZero, 0));
    let integer = (numbers, operators, any::<prop::sample::Index>())
        .prop_map(|((field, values), operator, n)| number(field, operator, *n.get(&values)));
    let texts =
        prop::sample::select(vec![("comm", "dd"), ("comm", "d"), ("path", "user's"), ("path", "")]);
    let text = (texts, any::<bool>()).prop_map(|((field, text), is_equal)| {
        compare(field, if is_equal { Equal } else { NotEqual }, Operand::Text(text.into()))
    });
    let patterns = prop::collection::vec(prop::sample::select(b"ders'u**?".to_vec()), 1..10);
    let pattern = (prop::sample::select(vec!["comm", "path"]), patterns, any::<bool>()).prop_map(
        |(field, pattern, is_like)| {
            compare(field, if is_like { Like } else { NotLike }, Operand::Text(pattern))
        },
    );
    // Two signed fields, two unsigned ones, one of each, and two strings.
    let pairs = prop::sample::select(vec![
        ("count", "file->mode"),
        ("pid", "file"),
        ("file->mode", "pid"),
        ("pid", "count"),
        ("pid", "pid"),
    ]);
    let pair = (pairs, prop::sample::select(ALL))
        .prop_map(|((one, two), operator)| compare(one, operator, Operand::Field(path(two), None)));
    let same = prop::sample::select(vec![Equal, NotEqual])
        .prop_map(|operator| compare("comm", operator, Operand::Name("comm".to_owned())));
    prop_oneof![6 => integer, 1 => bare, 2 => text, 2 => pattern, 2 => pair, 1 => same]
}

#[test]
fn fields_of_different_signs_are_compared_only_where_that_is_exact() {
    use Operator::{Equal, HasBits, Less};
    let two = |one, operator, other: &str| compare(one, operator, Operand::Name(other.to_owned()));
    // -2 and 5; -2 and 100, of 32 bits; 100 and an address.
    assert!(accepts(&two("count", Less, "pid")) && !accepts(&two("pid", Less, "count")));
    assert!(accepts(&two("pid", Less, "file")) && !accepts(&two("file", Less, "pid")));
    // A signed number of 32 bits, and an unsigned one of 64 bits.
    for operator in [Equal, Less] {
        let (at, what) = refusal(&two("count", operator, "file"));
        let expected = format!(
            "count is signed with 32 bits, and file is unsigned with 64 bits: write a type behind the paths, as in \
             count:s64 {operator} file:s64"
        );
        assert_eq!((at, what), (200, expected));
    }
    assert!(accepts(&two("file", HasBits, "count")));
    let expected = "the integer count cannot be compared with comm, which is not an integer";
    assert_eq!(refusal(&two("comm", Equal, "count")).1, expected);
    assert_eq!(refusal(&two("count", Equal, "comm")).1, expected);
    assert!(accepts(&two("comm", Equal, "comm")));
    assert!(!accepts(&two("comm", Equal, "path")));
    assert!(!accepts(&compare("comm", Equal, Operand::Field(path("file->id"), None))));
    // The constants of a field come before other fields.
    assert!(!accepts(&two("file->mode", Equal, "READ")));
}

#[test]
fn a_field_that_is_unreadable_equals_no_other() {
    let unreadable = "file->next->next->next->next->fd";
    let mut machine = Machine::default();
    machine.registers[0] = 0x9000;
    let is_reported = |one: &str, other: &str| {
        let predicate = compare(one, Operator::Equal, Operand::Field(path(other), None));
        machine.hit(&plan(&look(), Some(&[]), &[], Some(&predicate)).unwrap().table).1
    };
    assert!(is_reported("count", "count"));
    assert!(!is_reported("count", unreadable) && !is_reported(unreadable, "count"));
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
        let source = look();
        match plan(&source, Some(&[]), &[], Some(&predicate)) {
            Ok(plan) => prop_assert_eq!(machine().hit(&plan.table).1, means(&predicate)),
            Err(error) if error.what == "the predicate is never true" => {
                prop_assert!(!means(&predicate));
            }
            Err(error) if error.what.starts_with("this is never true: ") => {}
            Err(error) if error.what == "every string matches this pattern" => {}
            Err(error) => prop_assert!(error.what.contains("at most"), "{}", error.what),
        }
    }
}

#[test]
fn what_the_sieve_can_decide_is_compared_first() {
    let text = |field, operator, text: &[u8]| compare(field, operator, Operand::Text(text.into()));
    let is = |field, value| text(field, Operator::Equal, value);
    let five = || number("count", Operator::Equal, 5);
    let all = |parts: &[Predicate]| Predicate::All(parts.to_vec());
    let any = |parts: &[Predicate]| Predicate::Any(parts.to_vec());
    // Whether each comparison is one of an integer.
    let order = |predicate: &Predicate| {
        let table = plan(&look(), Some(&[]), &[], Some(predicate)).unwrap().table;
        let checks = &table.checks[..table.check_count.into()];
        let kinds = checks.iter().map(|check| table.fields[usize::from(check.field)].kind);
        kinds.map(|one| one != kind::STRING).collect::<Vec<_>>()
    };
    assert_eq!(order(&all(&[is("text", b"a"), five()])), [true, false]);
    assert_eq!(order(&any(&[is("text", b"a"), five()])), [true, false]);
    let inner = Predicate::Not(Box::new(any(&[is("text", b"a"), five()])));
    assert_eq!(order(&all(&[inner, five(), five()])), [true, true, true, false]);
    // The sieve compares the thread's name, but not with a pattern.
    assert_eq!(order(&all(&[is("comm", b"dd"), five()])), [false, true]);
    let pattern = text("comm", Operator::Like, b"d*d");
    assert_eq!(order(&all(&[pattern, five(), is("comm", b"dd")])), [true, false, false]);
}

/// A comparison of a field that is read as this type.
fn typed(text: &str, ty: FieldType, operator: Operator, value: i128) -> Predicate {
    let Predicate::Compare(comparison) = number(text, operator, value) else { unreachable!() };
    Predicate::Compare(Comparison { ty: Some(ty), ..comparison })
}

#[test]
fn a_field_is_compared_as_the_type_in_the_spec() {
    use FieldType::{Hex, Signed, Unsigned};
    use Operator::{Equal, Greater, HasBits, Less, NotEqual};
    const MINUS_2: i128 = 0xffff_ffff_ffff_fffe;
    // `count` is -2.
    for (ty, operator, value, expected) in [
        (Hex(64), Equal, MINUS_2, true),
        (Unsigned(64), NotEqual, MINUS_2, false),
        (Hex(64), Greater, 5, true),
        (Hex(64), Less, 5, false),
        (Hex(64), HasBits, 1 << 63, true),
        (Hex(32), Equal, 0xffff_fffe, true),
        (Signed(64), Equal, -2, true),
        (Signed(64), Less, 0, true),
        (Signed(16), Less, 0, true),
    ] {
        let predicate = typed("count", ty, operator, value);
        assert_eq!(accepts(&predicate), expected, "{predicate}");
    }
    for (ty, operator, value, what) in [
        (Hex(64), Less, 0, "this is never true: the field is unsigned with 64 bits"),
        (Hex(64), Less, 0, "; write count:s64 < 0 to compare a signed number"),
        (Hex(64), Equal, -2, "-2 is out of range: the field is unsigned with 64 bits"),
        (Hex(64), Equal, 0xffff_fffe, "extended to 64: write 0xfffffffffffffffe, or count:x32"),
        (Hex(64), NotEqual, 0xffff_fffe, "extended to 64: write 0xfffffffffffffffe, or count:x32"),
        (Hex(32), Less, 0, "; write count:s32 < 0 to compare a signed number"),
    ] {
        let (_, message) = refusal(&typed("count", ty, operator, value));
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn a_returned_pointer_may_be_an_error() {
    use Operator::*;
    let source = function("others", Moment::Return);
    let result = |value: i64| {
        let mut machine = machine();
        machine.registers[16] = value.cast_unsigned();
        machine
    };
    let text = |value: i64| match value {
        -4095..=0 => i128::from(value),
        _ => value.cast_unsigned().into(),
    };
    // An address of the kernel, and one of a process.
    let values = [-4095, -2, -1, 0, 0x1000, -0x7fff_8000_0000, -4096];
    for value in values {
        let machine = result(value);
        for constant in [-4095, -3, -2, -1, 0, 1, 0x1000, i128::from(u64::MAX) - 4095] {
            for operator in [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual] {
                let predicate = number("retval", operator, constant);
                let Ok(plan) = plan(&source, None, &[], Some(&predicate)) else {
                    assert!([-4095, i128::from(u64::MAX) - 4095].contains(&constant));
                    continue;
                };
                let value = text(value);
                let expected = match operator {
                    Equal => value == constant,
                    NotEqual => value != constant,
                    Less => value < constant,
                    LessOrEqual => value <= constant,
                    Greater => value > constant,
                    _ => value >= constant,
                };
                assert_eq!(machine.hit(&plan.table).1, expected, "{value} {predicate}");
            }
        }
    }
    let null = plan(&source, None, &[], Some(&name("retval", "NULL"))).unwrap();
    assert!(result(0).hit(&null.table).1 && !result(-2).hit(&null.table).1);
    let bits = plan(&source, None, &[], Some(&number("retval", HasBits, 1))).unwrap();
    assert!(result(0x1001).hit(&bits.table).1 && !result(0x1000).hit(&bits.table).1);
    let error = |value| {
        let predicate = number("retval", Equal, value);
        plan(&source, None, &[], Some(&predicate)).unwrap_err().what
    };
    assert!(error(-5000).contains("a pointer or a negative errno, from -4095"));
    assert!(error(u64::MAX.into()).ends_with("; write retval == -1"), "{}", error(u64::MAX.into()));
}

#[test]
fn the_sign_of_an_untyped_value_has_to_be_given() {
    use Operator::*;
    let source = UntypedFields::User(Moment::Return);
    let mut machine = machine();
    // -1 as an `int`.
    machine.registers[16] = 0xffff_ffff;
    let reported = |predicate: &Predicate| {
        plan(&source, None, &[], Some(predicate)).map(|plan| machine.hit(&plan.table).1)
    };
    for (operator, value) in [
        (Less, 0),
        (GreaterOrEqual, 1),
        (Greater, 0),
        (LessOrEqual, 0),
        (Equal, -1),
        (Less, -5),
        (Less, 300),
        (Greater, 4096),
    ] {
        let what = reported(&number("retval", operator, value)).unwrap_err().what;
        assert!(what.starts_with("the type of retval is not known"), "{what}");
        assert!(
            what.contains(&format!("write retval:s32 {operator} {value} for an int, ")),
            "{what}"
        );
    }
    assert_eq!(reported(&number("retval", NotEqual, 0)), Ok(true));
    for (ty, operator, value, expected) in [
        (FieldType::Signed(32), Less, 0, true),
        (FieldType::Signed(32), Equal, -1, true),
        (FieldType::Signed(64), Less, 0, false),
        (FieldType::Unsigned(64), Greater, 0, true),
        (FieldType::Signed(32), Less, 300, true),
        (FieldType::Signed(32), Greater, 4096, false),
    ] {
        let predicate = typed("retval", ty, operator, value);
        assert_eq!(reported(&predicate), Ok(expected), "{predicate}");
    }
}

#[test]
fn comparisons_of_unreadable_fields_are_false() {
    let number = |operator| number("file->next->next->next->next->fd", operator, 0);
    let mut machine = Machine::default();
    machine.registers[0] = 0x9000;
    let is_reported = |predicate: &Predicate| {
        machine.hit(&plan(&look(), Some(&[]), &[], Some(predicate)).unwrap().table).1
    };
    use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual, NotZero};
    for operator in [Equal, LessOrEqual, GreaterOrEqual, NotZero] {
        assert!(!is_reported(&number(operator)), "{operator}");
        let negated = Predicate::Not(Box::new(number(operator)));
        assert!(is_reported(&negated), "!({operator})");
    }
    let one = |operator| compare("file->next->next->next->next->fd", operator, Operand::Integer(1));
    assert!(!is_reported(&one(Less)) && !is_reported(&one(Greater)));
    assert!(is_reported(&number(NotEqual)), "it is not equal");
    let pair = |operator| {
        let other = Operand::Field(path("file->next->next->next->next->fd"), None);
        compare("file->fd", operator, other)
    };
    assert!(!is_reported(&pair(LessOrEqual)) && !is_reported(&pair(GreaterOrEqual)));
}

#[test]
fn a_field_is_compared_by_the_name_that_it_is_shown_by() {
    let tables = |specs: [&str; 2]| {
        specs.map(|text| {
            let spec: crate::ProbeSpec = text.parse().unwrap();
            let source = UntypedFields::User(call::Moment::Entry);
            plan(&source, spec.fields(), &[], spec.predicate()).map(|plan| plan.table)
        })
    };
    for (shown, meant) in [
        ("size > 970", "arg0:u64 > 970"),
        ("!(size == 1 && pid != 0)", "!(arg0:u64 == 1 && pid != 0)"),
        ("name == \"a\" || size", "arg1:ustr == \"a\" || arg0:u64"),
        // The task's own, as everywhere.
        ("pid == 1", "$pid == 1"),
    ] {
        let fields = "uprobe:libc:f(size=arg0:u64, name=arg1:ustr, pid=arg2)";
        let [shown, meant] = tables([&format!("{fields}/{shown}/"), &format!("{fields}/{meant}/")]);
        assert_eq!(shown.unwrap().as_bytes(), meant.unwrap().as_bytes());
    }
    let [unknown, _] = tables(["u:libc:f(size=arg0)/sizes > 1/", "u:libc:f(size=arg0)/arg0 == 1/"]);
    assert!(unknown.is_err());
}
