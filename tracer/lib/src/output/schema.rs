//! The published schema of JSON lines, against which tests and fuzzing check all output.

use super::clock::{Stamp, Time};
use super::jsonl::Jsonl;
use super::tests::{probe, shapes, write};
use super::{Format, Printer};
use crate::resolve::event::tests::Hit;
use crate::resolve::event::{Addresses, Value};
use crate::resolve::shape::{Enumeration, Shape};
use crate::session::ledger::{TraceLedger, reason_key};
use jsonschema::Validator;
use probe_common::tally::FailureClass;
use probe_sys::escape::hostile::reaches_the_terminal_raw;
use probe_user::OpenError;
use probe_user::flight::Dump;
use probe_user::{Consumer, CpuChange, Failure, Loss, Malformed, MalformedReason};
use proptest::prelude::*;
use serde_json::Value as Json;
use std::sync::LazyLock;

static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../events.schema.json")).expect("it is written as JSON")
});
static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    jsonschema::meta::validate(&SCHEMA).expect("it is a schema");
    jsonschema::validator_for(&SCHEMA).expect("it is a schema")
});

/// Parses a line and checks it against the schema.
///
/// # Panics
///
/// If the line is not JSON or violates the schema.
pub(crate) fn valid(line: &str) -> Json {
    let json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    if let Err(error) = VALIDATOR.validate(&json) {
        panic!("{line}: {error}");
    }
    json
}

fn enumerations() -> impl Strategy<Value = Enumeration> {
    let names = vec![(0, "ZERO".to_owned()), (u64::MAX, "NONE\u{202e}".to_owned())];
    any::<bool>().prop_map(move |is_signed| Enumeration { is_signed, names: names.clone() })
}

/// Integers around the largest exact one of JSON, and any other.
fn integers() -> impl Strategy<Value = u64> {
    let about =
        prop::sample::select(vec![0, 1 << 31, 1 << 53, 1 << 63, 0u64.wrapping_sub(1 << 53)]);
    prop_oneof![any::<u64>(), (about, -2i64..=2).prop_map(|(one, by)| one.wrapping_add_signed(by))]
}

proptest! {
    #[test]
    fn any_event_is_one_line_that_validates(
        fields in prop::collection::vec(("\\PC{0,9}", shapes(enumerations()), integers(), prop::collection::vec(any::<u8>(), 0..20)), 0..6),
        faults in any::<u32>(),
        comm in prop::collection::vec(any::<u8>(), 0..16),
        spec in prop::sample::select(vec!["vfs_read", "kr:vfs_read", "t:a:b", "rt:x"]),
        stamp in prop::sample::select(vec![
            Stamp::Mono,
            Stamp::Delta(-3),
            Stamp::Local { date_and_time: "2026-11-22T07:16:40", nanoseconds: 7, offset: "+05:30" },
        ]),
    ) {
        let (mut named, mut values) = (Vec::new(), Vec::new());
        for (n, (name, shape, integer, bytes)) in fields.iter().enumerate() {
            named.push((format!("{name}{n}"), shape.clone()));
            values.push(match shape {
                Shape::Text | Shape::Bytes | Shape::Buffer | Shape::List { .. } | Shape::Bits => {
                    if integer % 2 == 0 { Value::Bytes(bytes) } else { Value::Truncated(bytes) }
                }
                Shape::KernelStack | Shape::UserStack => Value::Stack(Addresses::new(bytes)),
                _ => Value::Integer(*integer),
            });
        }
        let named: Vec<_> = named.iter().map(|(name, shape)| (name.as_str(), shape.clone())).collect();
        let probe = probe(spec, &named);
        let hit = Hit::new(&comm[..comm.len().min(15)], faults, &values);
        let mut bytes = Vec::new();
        write(&mut Jsonl::new(std::slice::from_ref(&probe)), &mut bytes, &hit, &probe, stamp);
        let text = String::from_utf8(bytes).unwrap();
        let line = text.strip_suffix('\n').unwrap();
        prop_assert!(!line.chars().any(reaches_the_terminal_raw), "{line:?}");
        let json = valid(line);
        let args = json["args"].as_object().unwrap();
        prop_assert_eq!(args.len(), fields.len());
        let listed = json["faults"].as_array().map_or(0, Vec::len);
        prop_assert_eq!(listed, args.values().filter(|value| value.is_null()).count());
        for (n, (name, value)) in named.iter().map(|(name, _)| name).zip(values).enumerate() {
            let is_fault = faults >> n & 1 != 0;
            prop_assert_eq!(args[*name].is_null(), is_fault);
            if let (Value::Integer(value), Shape::Unsigned, false) = (value, &named[n].1, is_fault) {
                // A parser must get exactly this number.
                let shown = args[*name].to_string();
                prop_assert_eq!(shown.trim_matches('"'), value.to_string());
            }
        }
    }
}

#[test]
fn a_trace_has_a_line_for_everything_and_all_validate() {
    let probes = vec![
        probe("vfs_read/comm == \"\u{202e}\"/", &[("file", Shape::Pointer)]),
        probe("t:a:b", &[]),
    ];
    let mut bytes = Vec::new();
    let mut printer = Printer::new(&mut bytes, Format::Jsonl, probes).time(Time::Local);
    printer.start().unwrap();
    let hit = Hit::new(b"cat", 0, &[Value::Integer(4096)]);
    assert!(printer.record(3, hit.record()).is_continue());
    assert!(printer.lost(Loss::new(1, 2, Some(9))).is_continue());
    assert!(printer.lost(Loss::new(1, 2, None)).is_continue());
    assert!(printer.failed(Failure::new(1, FailureClass::Nested, 3)).is_continue());
    let reason = MalformedReason::RecordSize;
    assert!(printer.malformed(Malformed::new(0, 8, reason)).is_continue());
    let error = OpenError::Poll { cause: std::io::ErrorKind::OutOfMemory.into() };
    for change in [
        CpuChange::Covered { cpu: 2 },
        CpuChange::Offline { cpu: 2 },
        CpuChange::Uncovered { cpu: 2, error: &error },
    ] {
        printer.cpu_changed(change);
    }
    for overwritten in [Some(7), None] {
        printer.dump(Dump::new(0, 1, overwritten));
    }
    printer.finish(&TraceLedger::default()).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<_> = text.lines().map(valid).collect();
    let types: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let expected = "trace kprobe lost lost failed malformed cpu cpu cpu dump dump ledger";
    assert_eq!(types.join(" "), expected);
    assert_eq!(lines[0]["version"], 1);
    assert_eq!(
        lines[0]["probes"][0]["fields"][0],
        serde_json::json!({"name": "file", "shape": "pointer"})
    );
    assert_eq!((&lines[11]["events"], &lines[11]["verdict"]), (&1.into(), &"complete".into()));
    // The offset and the local time must refer to the same moment.
    let offset: i128 = lines[0]["realtime_offset"].as_str().unwrap().parse().unwrap();
    let local: jiff::Timestamp = lines[1]["local"].as_str().unwrap().parse().unwrap();
    assert_eq!(local.as_nanosecond(), lines[1]["time"].as_i64().unwrap() as i128 + offset);
}

#[test]
fn lines_that_the_schema_does_not_describe_are_invalid() {
    for line in [
        r#"{"type":"event"}"#,
        r#"{"type":"kprobe","time":1,"cpu":0,"pid":1,"tid":1,"comm":"a","probe":"b"}"#,
        r#"{"type":"kprobe","time":1,"cpu":0,"pid":1,"tid":1,"comm":"a","probe":"b","args":{"c":9007199254740992}}"#,
        r#"{"type":"kprobe","time":1,"cpu":0,"pid":1,"tid":1,"comm":"a","probe":"b","args":{},"more":1}"#,
        r#"{"type":"lost","cpu":0}"#,
        "1",
    ] {
        assert!(!VALIDATOR.is_valid(&serde_json::from_str(line).unwrap()), "{line}");
    }
}

#[test]
fn the_schema_has_the_names_of_all_providers_and_reasons() {
    let listed = |path: &str| -> Vec<String> {
        serde_json::from_value(SCHEMA.pointer(path).unwrap().clone()).unwrap()
    };
    let providers = crate::spec::Provider::ALL.map(crate::spec::Provider::name);
    assert_eq!(listed("/$defs/sort/enum"), [&["call"], &providers[..]].concat());
    let reasons = FailureClass::ALL.map(reason_key);
    assert_eq!(listed("/$defs/reason/enum"), reasons);
}
