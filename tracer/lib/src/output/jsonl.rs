//! JSON lines: one object on each line, as described by `events.schema.json`.

use super::clock::Stamp;
use super::form::{Form, Notice};
use super::json;
use super::labels::{Beside, labels};
use super::names::Names;
use super::value::{Hex, error_of};
use crate::resolve::event::{TraceEvent, Value};
use crate::resolve::probe::Probe;
use crate::resolve::shape::Shape;

/// Writes JSON lines.
#[derive(Debug)]
pub(super) struct Jsonl {
    /// The keys of each probe, by its number.
    keys: Vec<Keys>,
}

/// The text that all events of a probe have in common.
#[derive(Debug)]
struct Keys {
    /// The text before the time.
    start: Vec<u8>,
    /// The text between the task's name and the first field.
    probe: Vec<u8>,
    /// The text before each field's value.
    fields: Vec<Vec<u8>>,
    /// Whether any field may have a name besides its number.
    has_names: bool,
}

impl Jsonl {
    pub(super) fn new(probes: &[Probe]) -> Self {
        let labels = labels(probes.iter(), Beside::Type);
        Self {
            keys: probes.iter().zip(&labels).map(|(probe, label)| Keys::of(probe, label)).collect(),
        }
    }
}

impl Keys {
    fn of(probe: &Probe, label: &str) -> Self {
        let (mut start, mut middle) = (br#"{"type":"#.to_vec(), br#","probe":"#.to_vec());
        json::string(&mut start, probe.kind().as_bytes());
        start.extend_from_slice(br#","time":"#);
        let site = probe.spec().site();
        json::string(&mut middle, site.as_bytes());
        if label != site {
            middle.extend_from_slice(br#","spec":"#);
            json::string(&mut middle, label.as_bytes());
        }
        middle.extend_from_slice(br#","args":{"#);
        let key = |(n, name): (usize, &str)| {
            let mut key = if n == 0 { Vec::new() } else { vec![b','] };
            json::string(&mut key, name.as_bytes());
            key.push(b':');
            key
        };
        let names = probe.fields().map(|field| field.name.as_str());
        let has_names = probe.fields().any(|field| {
            field.names.is_some() || matches!(field.shape, Shape::Enum(_) | Shape::Symbol)
        });
        Self { start, probe: middle, fields: names.enumerate().map(key).collect(), has_names }
    }
}

impl Form for Jsonl {
    fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &TraceEvent<'_>,
        probe: &Probe,
        stamp: Stamp<'_>,
        names: &mut Names<'_>,
    ) {
        let Some(keys) = self.keys.get(event.probe as usize) else { return };
        json::keyed(out, &keys.start, event.time);
        match stamp {
            Stamp::Mono => {}
            Stamp::Local { date_and_time, nanoseconds, offset } => {
                put!(out, ",\"local\":\"{date_and_time}.{nanoseconds:09}{offset}\"");
            }
            Stamp::Delta(delta) => json::keyed(out, br#","delta":"#, delta),
        }
        json::keyed(out, br#","cpu":"#, event.cpu);
        json::ids(out, event.task.pid, event.task.tid);
        out.extend_from_slice(br#","comm":"#);
        let comm = event.task.comm();
        if json::string(out, comm) {
            put!(out, ",\"comm_bytes\":\"{}\"", Hex(comm));
        }
        out.extend_from_slice(&keys.probe);
        let (mut faults, mut truncated, mut binary, mut lossy) = (false, false, false, false);
        let mut error = None;
        for (key, (field, value)) in keys.fields.iter().zip(event.values(probe)) {
            out.extend_from_slice(key);
            lossy |= json::value(out, &field.shape, value, names);
            match value {
                Value::Fault => faults = true,
                Value::Truncated(_) => truncated = true,
                Value::Integer(value) if field.shape.error(value).is_some() => {
                    error = error_of(value).or(error);
                }
                _ => {}
            }
            binary |= json::is_binary(field, value);
        }
        out.push(b'}');
        if faults {
            json::list_fields(out, "faults", event, probe, |_, value| value == Value::Fault);
        }
        if truncated {
            json::list_fields(out, "truncated", event, probe, json::is_truncated);
        }
        if binary {
            json::list_fields(out, "binary", event, probe, json::is_binary);
        }
        if lossy {
            json::bytes(out, event, probe);
        }
        if let Some(error) = error {
            put!(out, ",\"errno\":\"{error}\"");
        }
        if keys.has_names {
            json::meanings(out, event, probe, names);
        }
        out.extend_from_slice(b"}\n");
    }

    fn notice(&mut self, out: &mut Vec<u8>, notice: &Notice<'_>) {
        json::line(out, notice);
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::Lost;
    use super::super::schema::valid;
    use super::super::tests::{named_hit, named_probe, probe, write};
    use super::*;
    use crate::resolve::event::tests::Hit;
    use crate::resolve::shape::Shape;

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
            ("faulty", Shape::Text),
            ("ok", Shape::Bool),
            ("ret", Shape::PointerOrError),
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
             \"comm\":\"a\\\"\\n\\u001b\u{fffd}\",\"comm_bytes\":\"61220a1bff\",\"probe\":\"vfs_read\",\"args\":{\"dfd\":-100,\
             \"filename\":\"/etc/\\u001b\u{fffd}\",\"big\":\"18446744073709551615\",\
             \"small\":\"-9223372036854775808\",\"at\":\"0xfff0\",\"bytes\":\"00ff\",\"faulty\":null,\
             \"ok\":false,\"ret\":-2},\"faults\":[\"faulty\"],\
             \"bytes\":{\"filename\":\"2f6574632f1bff\"},\"errno\":\"ENOENT\"}\n"
        );
        let mut bytes = Vec::new();
        let lost = Notice::Lost(Lost { cpu: 3, records: Some(90), outputs: 2 });
        Jsonl::new(&[]).notice(&mut bytes, &lost);
        assert_eq!(bytes, b"{\"type\":\"lost\",\"cpu\":3,\"records\":90,\"outputs\":2}\n");
        let raw = written(&Hit::new(b"a", 0, &[]), &probe("rt:x", &[]));
        let value: serde_json::Value = serde_json::from_str(&raw).unwrap();
        assert_eq!((&value["type"], &value["probe"]), (&"rawtp".into(), &"x".into()));
        assert_eq!(value["args"], serde_json::json!({}));
    }

    #[test]
    fn names_and_numbers_stand_beside_each_other() {
        let line = written(&named_hit(1), &named_probe());
        let expected = r#""args":{"state":1,"address":"020000507f000001","next":"SLEEPING"},"names":{"state":"SLEEPING","address":"127.0.0.1:80"},"numbers":{"next":1}}"#;
        assert!(line.trim_end().ends_with(expected), "{line}");
        valid(&line);
        let line = written(&named_hit(2), &named_probe());
        let expected = r#""next":2},"names":{"address":"127.0.0.1:80"}}"#;
        assert!(line.trim_end().ends_with(expected), "{line}");
        let line = written(&named_hit(1), &named_probe().with_raw_values());
        let expected = r#""args":{"state":1,"address":"020000507f000001","next":1}}"#;
        assert!(line.trim_end().ends_with(expected), "{line}");
    }

    #[test]
    fn incomplete_values_and_bytes_are_named() {
        let list = Shape::List { size: 1, of: Box::new(Shape::Signed) };
        let fields = [
            ("path", Shape::Text),
            ("text", Shape::Buffer),
            ("data", Shape::Buffer),
            ("list", list),
            ("cpus", Shape::Bits),
        ];
        let values = [
            Value::Truncated(b"/a"),
            Value::Bytes(b"00"),
            Value::Truncated(&[0, 1]),
            Value::Bytes(&[1, 255]),
            Value::Bytes(&[0b1001, 0, 0, 0, 0, 0, 0, 0]),
        ];
        let line = written(&Hit::new(b"a", 0, &values), &probe("vfs_read", &fields));
        let json = super::super::schema::valid(line.trim_end());
        let args = r#"{"path":"/a","text":"00","data":"0001","list":[1,-1],"cpus":[0,3]}"#;
        assert!(line.contains(&format!("\"args\":{args}")), "{line}");
        assert_eq!(json["truncated"], serde_json::json!(["path", "data"]));
        assert_eq!(json["binary"], serde_json::json!(["data"]));
    }

    #[test]
    fn a_text_that_is_cut_within_a_character_has_its_bytes() {
        let values = [Value::Truncated(b"h\xc3"), Value::Bytes("hä".as_bytes())];
        let fields = [("cut", Shape::Buffer), ("whole", Shape::Buffer)];
        let line = written(&Hit::new(b"a", 0, &values), &probe("vfs_read", &fields));
        let json = super::super::schema::valid(line.trim_end());
        assert_eq!(json["args"]["cut"], "h\u{fffd}");
        assert_eq!(json["bytes"], serde_json::json!({"cut": "68c3"}));
    }

    #[test]
    fn characters_that_json_need_not_escape_are_escaped() {
        let filename = "/\u{e0041}ä\u{2028}".as_bytes();
        let hit = Hit::new("\u{9b}\u{7f}\u{202e}".as_bytes(), 0, &[Value::Bytes(filename)]);
        let line = written(&hit, &probe("t:a:b", &[("filename", Shape::Text)]));
        assert!(line.contains(r#""comm":"\u009b\u007f\u202e""#), "{line}");
        assert!(line.contains(r#""filename":"/\udb40\udc41ä\u2028""#), "{line}");
    }
}
