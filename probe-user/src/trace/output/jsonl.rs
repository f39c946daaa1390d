//! One JSON object a line.

use crate::consumer::Loss;
use crate::escape::is_unsafe;
use crate::trace::event::{Detail, TraceEvent};
use crate::trace::spec::{ProbeSpec, Provider};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::Formatter;
use std::borrow::Cow;
use std::io::{self, Write};

/// An event, with its members in the order in which they are written.
#[derive(Serialize)]
struct Line<'e> {
    r#type: &'static str,
    time: u64,
    cpu: u32,
    pid: u32,
    tid: u32,
    comm: Cow<'e, str>,
    probe: &'e str,
    args: Args<'e>,
}

struct Args<'e>(Detail<'e>);

impl Serialize for Args<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const NAMES: [&str; 6] = ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"];
        let mut map = serializer.serialize_map(None)?;
        match self.0 {
            Detail::Args(args) => {
                for (name, arg) in NAMES.iter().zip(args) {
                    map.serialize_entry(name, arg)?;
                }
            }
            Detail::Exec { filename, old_tid } => {
                map.serialize_entry("filename", &String::from_utf8_lossy(filename))?;
                map.serialize_entry("old_tid", &old_tid)?;
            }
            Detail::None => {}
        }
        map.end()
    }
}

/// Escapes what JSON allows as it is and a terminal does not show as itself.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, char)) = rest.char_indices().find(|&(_, char)| is_unsafe(char)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + char.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

pub(super) fn event(
    mut writer: &mut impl Write,
    event: &TraceEvent<'_>,
    spec: &ProbeSpec,
) -> io::Result<()> {
    let r#type = match (event.detail, spec.provider()) {
        (Detail::Exec { .. }, _) => "exec",
        (_, Provider::Kprobe) => "kprobe",
        (_, Provider::Tracepoint) => "tracepoint",
        (_, Provider::RawTracepoint) => "rawtp",
    };
    let line = Line {
        r#type,
        time: event.time,
        cpu: event.cpu,
        pid: event.task.pid,
        tid: event.task.tid,
        comm: String::from_utf8_lossy(event.task.comm()),
        probe: spec.name(),
        args: Args(event.detail),
    };
    line.serialize(&mut serde_json::Serializer::with_formatter(&mut writer, Harmless))?;
    writer.write_all(b"\n")
}

/// Records that are missing here.
#[derive(Serialize)]
struct LostLine {
    r#type: &'static str,
    cpu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    outputs: u64,
}

pub(super) fn lost(mut writer: &mut impl Write, loss: &Loss) -> io::Result<()> {
    let &Loss { cpu, records, count: outputs } = loss;
    serde_json::to_writer(&mut writer, &LostLine { r#type: "lost", cpu, records, outputs })?;
    writer.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::task;
    use super::*;
    use crate::escape::tests::{hostile, reaches_the_terminal_raw};
    use proptest::prelude::*;

    fn written(hit: &TraceEvent<'_>, spec: &str) -> String {
        let mut bytes = Vec::new();
        event(&mut bytes, hit, &spec.parse().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_event_is_one_valid_line() {
        let task = task(b"a\"\n\x1b\xff");
        let args = [0, 1, 2, 3, 4, u64::MAX];
        let hit =
            TraceEvent { time: 7, cpu: 3, task: &task, probe: 0, detail: Detail::Args(&args) };
        assert_eq!(
            written(&hit, "vfs_read"),
            "{\"type\":\"kprobe\",\"time\":7,\"cpu\":3,\"pid\":100,\"tid\":101,\
             \"comm\":\"a\\\"\\n\\u001b\u{fffd}\",\"probe\":\"vfs_read\",\"args\":{\"arg0\":0,\
             \"arg1\":1,\"arg2\":2,\"arg3\":3,\"arg4\":4,\"arg5\":18446744073709551615}}\n"
        );
        let exec = TraceEvent { detail: Detail::Exec { filename: b"/a b", old_tid: 9 }, ..hit };
        let line = written(&exec, "tracepoint:sched:sched_process_exec");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["type"], "exec");
        assert_eq!(value["args"], serde_json::json!({"filename": "/a b", "old_tid": 9}));
        let mut bytes = Vec::new();
        lost(&mut bytes, &Loss { cpu: 3, count: 2, records: Some(90) }).unwrap();
        assert_eq!(bytes, b"{\"type\":\"lost\",\"cpu\":3,\"records\":90,\"outputs\":2}\n");
        let raw = TraceEvent { detail: Detail::None, ..hit };
        let value: serde_json::Value = serde_json::from_str(&written(&raw, "rt:x")).unwrap();
        assert_eq!((&value["type"], &value["probe"]), (&"rawtp".into(), &"x".into()));
        assert_eq!(value["args"], serde_json::json!({}));
    }

    #[test]
    fn what_json_leaves_alone_is_escaped_too() {
        let task = task("\u{9b}\u{7f}\u{202e}".as_bytes());
        let filename = "/\u{e0041}ä\u{2028}".as_bytes();
        let detail = Detail::Exec { filename, old_tid: 9 };
        let hit = TraceEvent { time: 7, cpu: 3, task: &task, probe: 0, detail };
        let line = written(&hit, "tracepoint:sched:sched_process_exec");
        assert!(line.contains(r#""comm":"\u009b\u007f\u202e""#), "{line}");
        assert!(line.contains(r#""filename":"/\udb40\udc41ä\u2028""#), "{line}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_line_that_round_trips(comm in hostile(6), filename in hostile(40)) {
            let task = task(&comm[..comm.len().min(15)]);
            let detail = Detail::Exec { filename: &filename, old_tid: 9 };
            let hit = TraceEvent { time: 7, cpu: 3, task: &task, probe: 0, detail };
            let line = written(&hit, "tracepoint:sched:sched_process_exec");
            let text = line.strip_suffix('\n').unwrap();
            prop_assert!(!text.chars().any(reaches_the_terminal_raw), "{text:?}");
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            prop_assert_eq!(&value["comm"], &*String::from_utf8_lossy(task.comm()));
            prop_assert_eq!(&value["args"]["filename"], &*String::from_utf8_lossy(&filename));
        }
    }
}
