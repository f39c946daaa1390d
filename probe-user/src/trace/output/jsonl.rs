//! One JSON object a line, as `docs/events.schema.json` describes them.

use super::clock::Stamp;
use super::form::{About, Form};
use super::json;
use super::lines::{CpuLine, DumpLine, LedgerLine, LostLine, MalformedLine, TraceLine};
use super::names::Names;
use super::value::error_of;
use crate::consumer::{CpuChange, Dump, Loss, Malformed};
use crate::trace::account::Account;
use crate::trace::event::{TraceEvent, Value};
use crate::trace::probe::Probe;
use crate::trace::shape::Shape;
use serde::Serialize;
use std::io::Write;

/// Writes a line for everything that happens.
#[derive(Debug)]
pub(super) struct Jsonl {
    /// By the numbers of the probes.
    keys: Vec<Keys>,
}

/// What is the same in all events of a probe.
#[derive(Debug)]
struct Keys {
    /// Before the time.
    start: Vec<u8>,
    /// From behind the task's name to the first field.
    probe: Vec<u8>,
    /// Before each field's value.
    fields: Vec<Vec<u8>>,
}

impl Jsonl {
    pub(super) fn new(probes: &[Probe]) -> Self {
        Self { keys: probes.iter().map(Keys::of).collect() }
    }
}

impl Keys {
    fn of(probe: &Probe) -> Self {
        let (mut start, mut middle) = (b"{\"type\":".to_vec(), b",\"probe\":".to_vec());
        json::string(&mut start, probe.kind().as_bytes());
        start.extend_from_slice(b",\"time\":");
        json::string(&mut middle, probe.spec().name().as_bytes());
        middle.extend_from_slice(b",\"args\":{");
        let key = |(n, name): (usize, &str)| {
            let mut key = if n == 0 { Vec::new() } else { vec![b','] };
            json::string(&mut key, name.as_bytes());
            key.push(b':');
            key
        };
        let names = probe.fields().map(|field| field.name.as_str());
        Self { start, probe: middle, fields: names.enumerate().map(key).collect() }
    }
}

impl Form for Jsonl {
    fn start(&mut self, out: &mut Vec<u8>, about: &About<'_>) {
        line(out, &TraceLine::of(about));
    }

    fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &TraceEvent<'_>,
        probe: &Probe,
        stamp: Stamp<'_>,
        names: &mut Names<'_>,
    ) {
        let Some(keys) = self.keys.get(event.probe as usize) else { return };
        out.extend_from_slice(&keys.start);
        json::number(out, event.time);
        time(out, stamp);
        out.extend_from_slice(b",\"cpu\":");
        json::number(out, event.cpu);
        out.extend_from_slice(b",\"pid\":");
        json::number(out, event.task.pid);
        out.extend_from_slice(b",\"tid\":");
        json::number(out, event.task.tid);
        out.extend_from_slice(b",\"comm\":");
        json::string(out, event.task.comm());
        out.extend_from_slice(&keys.probe);
        let (mut faults, mut error) = (false, None);
        for (key, (field, value)) in keys.fields.iter().zip(event.values(probe)) {
            out.extend_from_slice(key);
            json::value(out, &field.shape, value, names);
            match value {
                Value::Fault => faults = true,
                Value::Integer(value) if field.shape == Shape::Result => error = error_of(value),
                _ => {}
            }
        }
        out.push(b'}');
        if faults {
            out.extend_from_slice(b",\"faults\":");
            let of_fault = event.values(probe).filter(|(_, value)| *value == Value::Fault);
            json::serialize(out, &of_fault.map(|(field, _)| &*field.name).collect::<Vec<_>>());
        }
        if let Some(error) = error {
            // A Vec takes everything.
            let _ = write!(out, ",\"errno\":\"{error:?}\"");
        }
        out.extend_from_slice(b"}\n");
    }

    fn lost(&mut self, out: &mut Vec<u8>, loss: &Loss) {
        line(out, &LostLine::of(loss));
    }

    fn malformed(&mut self, out: &mut Vec<u8>, malformed: &Malformed) {
        line(out, &MalformedLine::of(malformed));
    }

    fn cpu_changed(&mut self, out: &mut Vec<u8>, change: &CpuChange<'_>) {
        line(out, &CpuLine::of(change));
    }

    fn dump(&mut self, out: &mut Vec<u8>, dump: &Dump) {
        line(out, &DumpLine::of(dump));
    }

    fn end(&mut self, out: &mut Vec<u8>, printed: u64, ledger: &Account) {
        line(out, &LedgerLine::of(printed, ledger));
    }
}

fn time(out: &mut Vec<u8>, stamp: Stamp<'_>) {
    match stamp {
        Stamp::Mono => {}
        Stamp::Local { date_and_time, nanoseconds, offset } => {
            // A Vec takes everything.
            let _ = write!(out, ",\"local\":\"{date_and_time}.{nanoseconds:09}{offset}\"");
        }
        Stamp::Delta(delta) => {
            out.extend_from_slice(b",\"delta\":");
            json::number(out, delta);
        }
    }
}

fn line(out: &mut Vec<u8>, line: &impl Serialize) {
    json::serialize(out, line);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::super::tests::{probe, write};
    use super::*;
    use crate::escape::tests::{hostile, reaches_the_terminal_raw};
    use crate::trace::event::tests::Hit;
    use proptest::prelude::*;

    fn written(hit: &Hit, probe: &Probe) -> String {
        let mut bytes = Vec::new();
        let mut form = Jsonl::new(std::slice::from_ref(probe));
        write(&mut form, &mut bytes, hit, probe, Stamp::Mono);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_event_is_one_valid_line() {
        let fields = [
            ("dfd", Shape::Signed),
            ("filename", Shape::Text),
            ("big", Shape::Unsigned),
            ("small", Shape::Signed),
            ("at", Shape::Pointer),
            ("bytes", Shape::Bytes),
            ("gone", Shape::Text),
            ("ok", Shape::Bool),
            ("ret", Shape::Result),
        ];
        let values = [
            Value::Integer(-100i64 as u64),
            Value::Bytes(b"/etc/\x1b\xff"),
            Value::Integer(u64::MAX),
            Value::Integer(i64::MIN as u64),
            Value::Integer(0xfff0),
            Value::Bytes(&[0, 255]),
            Value::Fault,
            Value::Integer(0),
            Value::Integer(-2i64 as u64),
        ];
        let hit = Hit::new(b"a\"\n\x1b\xff", 1 << 6, &values);
        assert_eq!(
            written(&hit, &probe("vfs_read", &fields)),
            "{\"type\":\"kprobe\",\"time\":12000000345,\"cpu\":3,\"pid\":100,\"tid\":101,\
             \"comm\":\"a\\\"\\n\\u001b\u{fffd}\",\"probe\":\"vfs_read\",\"args\":{\"dfd\":-100,\
             \"filename\":\"/etc/\\u001b\u{fffd}\",\"big\":\"18446744073709551615\",\
             \"small\":\"-9223372036854775808\",\"at\":\"0xfff0\",\"bytes\":\"00ff\",\"gone\":null,\
             \"ok\":false,\"ret\":-2},\"faults\":[\"gone\"],\"errno\":\"ENOENT\"}\n"
        );
        let mut bytes = Vec::new();
        Jsonl::new(&[]).lost(&mut bytes, &Loss { cpu: 3, count: 2, records: Some(90) });
        assert_eq!(bytes, b"{\"type\":\"lost\",\"cpu\":3,\"records\":90,\"outputs\":2}\n");
        let raw = written(&Hit::new(b"a", 0, &[]), &probe("rt:x", &[]));
        let value: serde_json::Value = serde_json::from_str(&raw).unwrap();
        assert_eq!((&value["type"], &value["probe"]), (&"rawtp".into(), &"x".into()));
        assert_eq!(value["args"], serde_json::json!({}));
    }

    #[test]
    fn what_json_leaves_alone_is_escaped_too() {
        let filename = "/\u{e0041}ä\u{2028}".as_bytes();
        let hit = Hit::new("\u{9b}\u{7f}\u{202e}".as_bytes(), 0, &[Value::Bytes(filename)]);
        let line = written(&hit, &probe("t:a:b", &[("filename", Shape::Text)]));
        assert!(line.contains(r#""comm":"\u009b\u007f\u202e""#), "{line}");
        assert!(line.contains(r#""filename":"/\udb40\udc41ä\u2028""#), "{line}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_line_that_round_trips(comm in hostile(6), filename in hostile(40)) {
            let hit = Hit::new(&comm[..comm.len().min(15)], 0, &[Value::Bytes(&filename)]);
            let line = written(&hit, &probe("t:a:b", &[("filename", Shape::Text)]));
            let text = line.strip_suffix('\n').unwrap();
            prop_assert!(!text.chars().any(reaches_the_terminal_raw), "{text:?}");
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            prop_assert_eq!(&value["comm"], &*String::from_utf8_lossy(hit.event().task.comm()));
            prop_assert_eq!(&value["args"]["filename"], &*String::from_utf8_lossy(&filename));
        }
    }
}
