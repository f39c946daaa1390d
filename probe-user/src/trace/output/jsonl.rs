//! One JSON object a line.

use crate::consumer::Loss;
use crate::trace::event::{Detail, TraceEvent};
use crate::trace::spec::{ProbeSpec, Provider};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
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
    serde_json::to_writer(&mut writer, &line)?;
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
}
