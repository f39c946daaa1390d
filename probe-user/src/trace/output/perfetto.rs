//! Chrome's trace event format, as Perfetto and `chrome://tracing` open it: a JSON array of objects, one a
//! line. The bracket at the end may be missing, so that a trace which is cut off opens, too.

use super::clock::Stamp;
use super::form::{About, Form};
use super::json;
use super::names::Names;
use crate::consumer::Loss;
use crate::trace::account::Account;
use crate::trace::event::{TraceEvent, Value};
use crate::trace::probe::Probe;
use crate::trace::shape::Shape;
use probe_common::trace::{COMM_LEN, Task};
use std::collections::HashMap;

/// Where events are shown that are of no process.
const NOBODY: u32 = 0;

/// Writes an event for each event, on the track of its thread.
#[derive(Debug, Default)]
pub(super) struct Perfetto {
    threads: HashMap<u32, Comm>,
    processes: HashMap<u32, Comm>,
    /// Losses have no time of their own.
    last: u64,
}

type Comm = [u8; COMM_LEN];

impl Perfetto {
    /// Tells the names of a thread, and of its process, once and whenever they change.
    fn name(&mut self, out: &mut Vec<u8>, task: &Task) {
        if self.threads.insert(task.tid, task.comm) != Some(task.comm) {
            name(out, "thread_name", task);
        }
        // A process is called as its first thread is; until that is seen, as whichever is.
        let is_its_name = task.tid == task.pid || !self.processes.contains_key(&task.pid);
        if is_its_name && self.processes.insert(task.pid, task.comm) != Some(task.comm) {
            name(out, "process_name", task);
        }
    }
}

impl Form for Perfetto {
    fn start(&mut self, out: &mut Vec<u8>, _: &About<'_>) {
        out.extend_from_slice(b"[\n");
    }

    fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &TraceEvent<'_>,
        probe: &Probe,
        _: Stamp<'_>,
        names: &mut Names<'_>,
    ) {
        self.name(out, event.task);
        self.last = event.time;
        out.extend_from_slice(b"{\"name\":");
        json::string(out, probe.spec().name().as_bytes());
        out.extend_from_slice(b",\"cat\":");
        json::string(out, probe.spec().provider().name().as_bytes());
        match latency(event, probe) {
            Some(latency) => {
                out.extend_from_slice(b",\"ph\":\"X\",\"ts\":");
                microseconds(out, event.time.saturating_sub(latency));
                out.extend_from_slice(b",\"dur\":");
                microseconds(out, latency);
            }
            None => {
                out.extend_from_slice(b",\"ph\":\"i\",\"s\":\"t\",\"ts\":");
                microseconds(out, event.time);
            }
        }
        track(out, event.task);
        out.extend_from_slice(b",\"args\":{\"cpu\":");
        json::number(out, event.cpu);
        for (field, value) in event.values(probe) {
            out.push(b',');
            json::string(out, field.name.as_bytes());
            out.push(b':');
            json::value(out, &field.shape, value, names);
        }
        out.extend_from_slice(b"}},\n");
    }

    fn lost(&mut self, out: &mut Vec<u8>, loss: &Loss) {
        out.extend_from_slice(
            b"{\"name\":\"LOST\",\"cat\":\"probe\",\"ph\":\"i\",\"s\":\"g\",\"ts\":",
        );
        microseconds(out, self.last);
        track(out, &Task { pid: NOBODY, tid: NOBODY, comm: [0; COMM_LEN] });
        out.extend_from_slice(b",\"args\":{\"cpu\":");
        json::number(out, loss.cpu);
        if let Some(records) = loss.records {
            out.extend_from_slice(b",\"records\":");
            json::number(out, records);
        }
        out.extend_from_slice(b",\"outputs\":");
        json::number(out, loss.count);
        out.extend_from_slice(b"}},\n");
    }

    fn end(&mut self, out: &mut Vec<u8>, _: u64, ledger: &Account) {
        // Behind the last one comes no comma.
        out.extend_from_slice(b"{\"name\":\"ledger\",\"ph\":\"M\",\"pid\":0,\"args\":{\"ledger\":");
        json::string(out, ledger.to_string().as_bytes());
        out.extend_from_slice(b"}}\n]\n");
    }
}

/// How long an event took, if it tells: it is shown as a slice that ends at its time then, and else as an
/// instant.
fn latency(event: &TraceEvent<'_>, probe: &Probe) -> Option<u64> {
    event.values(probe).find_map(|(field, value)| match (&field.shape, value) {
        (Shape::Duration, Value::Integer(nanoseconds)) => Some(nanoseconds),
        _ => None,
    })
}

/// The unit of the format. It takes fractions.
fn microseconds(out: &mut Vec<u8>, nanoseconds: u64) {
    json::number(out, nanoseconds / 1000);
    let fraction = nanoseconds % 1000;
    let digit = |divisor| b'0' + (fraction / divisor % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

/// Whose event it is.
fn track(out: &mut Vec<u8>, task: &Task) {
    out.extend_from_slice(b",\"pid\":");
    json::number(out, task.pid);
    out.extend_from_slice(b",\"tid\":");
    json::number(out, task.tid);
}

fn name(out: &mut Vec<u8>, what: &str, task: &Task) {
    out.extend_from_slice(b"{\"name\":");
    json::string(out, what.as_bytes());
    out.extend_from_slice(b",\"ph\":\"M\"");
    track(out, task);
    out.extend_from_slice(b",\"args\":{\"name\":");
    json::string(out, task.comm());
    out.extend_from_slice(b"}},\n");
}

#[cfg(test)]
mod tests {
    use super::super::tests::{probe, write};
    use super::*;
    use crate::escape::tests::{hostile, reaches_the_terminal_raw};
    use crate::trace::event::tests::Hit;
    use crate::trace::ledger::Ledger;
    use crate::trace::origin::Origin;
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    /// A timeline that has begun.
    fn begin() -> (Perfetto, Vec<u8>) {
        let (mut form, mut out) = (Perfetto::default(), Vec::new());
        form.start(&mut out, &About { probes: &[], origin: &Origin::here() });
        (form, out)
    }

    /// An event for each line, whether or not the array is closed.
    fn parsed(bytes: &[u8]) -> Vec<Json> {
        let text = str::from_utf8(bytes).unwrap().trim_end().trim_end_matches([',', ']']);
        serde_json::from_str(&format!("{text}]")).unwrap()
    }

    #[test]
    fn threads_have_names_and_events_are_on_their_tracks() {
        let (mut form, mut out) = begin();
        let read = probe("vfs_read", &[("count", Shape::Unsigned), ("gone", Shape::Text)]);
        let hit = Hit::new(b"cat", 2, &[Value::Integer(7), Value::Fault]);
        write(&mut form, &mut out, &hit, &read, Stamp::Mono);
        write(&mut form, &mut out, &hit, &read, Stamp::Mono);
        let renamed = Hit::new(b"\"dog", 2, &[Value::Integer(7), Value::Fault]);
        write(&mut form, &mut out, &renamed, &read, Stamp::Mono);
        form.lost(&mut out, &Loss { cpu: 1, count: 2, records: Some(9) });
        // Cut off here, it is read as well.
        assert_eq!(parsed(&out).len(), 7);
        form.end(&mut out, 3, &Account::from(&Ledger::default()));
        let whole: Vec<Json> = serde_json::from_slice(&out).unwrap();
        assert_eq!(whole.len(), 8);
        assert_eq!(&whole[..7], parsed(&out[..out.len() - 2]).split_at(7).0);
        let named = |what, tid, name: &str| json!({"name": what, "ph": "M", "pid": 100, "tid": tid, "args": {"name": name}});
        assert_eq!(whole[0], named("thread_name", 101, "cat"));
        assert_eq!(whole[1], named("process_name", 101, "cat"));
        assert_eq!(
            whole[2],
            json!({"name": "vfs_read", "cat": "kprobe", "ph": "i", "s": "t", "ts": 12_000_000.345,
                "pid": 100, "tid": 101, "args": {"cpu": 3, "count": 7, "gone": null}})
        );
        assert_eq!(whole[3], whole[2]);
        assert_eq!(whole[4], named("thread_name", 101, "\"dog"));
        assert_eq!((&whole[6]["name"], &whole[6]["args"]["records"]), (&"LOST".into(), &9.into()));
        assert_eq!(whole[7]["args"]["ledger"], Ledger::default().to_string());
    }

    #[test]
    fn what_took_time_is_a_slice_that_ends_at_its_time() {
        let (mut form, mut out) = begin();
        let timed = probe("vfs_read", &[("latency", Shape::Duration)]);
        let hit = Hit::new(b"cat", 0, &[Value::Integer(1_000_000_001)]);
        write(&mut form, &mut out, &hit, &timed, Stamp::Mono);
        // What is no number of nanoseconds is no duration.
        let named = probe("vfs_read", &[("latency", Shape::Unsigned)]);
        write(&mut form, &mut out, &hit, &named, Stamp::Mono);
        let events = parsed(&out);
        let slice = &events[2];
        assert_eq!((&slice["ph"], &slice["dur"]), (&"X".into(), &1_000_000.001.into()));
        assert_eq!(slice["ts"], 11_000_000.344);
        assert_eq!((&events[3]["ph"], &events[3]["dur"]), (&"i".into(), &Json::Null));
    }

    proptest! {
        #[test]
        fn any_bytes_are_lines_that_parse(comm in hostile(6), filename in hostile(40)) {
            let (mut form, mut out) = begin();
            let hit = Hit::new(&comm[..comm.len().min(15)], 0, &[Value::Bytes(&filename)]);
            let probe = probe("t:a:b", &[("filename", Shape::Text)]);
            write(&mut form, &mut out, &hit, &probe, Stamp::Mono);
            let is_raw = |char| char != '\n' && reaches_the_terminal_raw(char);
            prop_assert!(!str::from_utf8(&out).unwrap().chars().any(is_raw));
            let events = parsed(&out);
            prop_assert_eq!(&events[2]["args"]["filename"], &*String::from_utf8_lossy(&filename));
        }
    }
}
