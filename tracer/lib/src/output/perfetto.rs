//! Chrome's trace event format, for Perfetto and `chrome://tracing`: a JSON array with one object on each line.
//! The closing bracket is optional, so truncated traces open, too.

use super::clock::Stamp;
use super::form::{Form, Notice};
use super::json;
use super::labels::{Beside, labels};
use super::names::Names;
use crate::resolve::LATENCY;
use crate::resolve::event::{TraceEvent, Value};
use crate::resolve::probe::Probe;
use crate::resolve::shape::Shape;
use probe_tracer_common::trace::{COMM_LEN, Task};
use serde::Serialize;
use std::collections::HashMap;

/// Writes each event on the track of its thread.
#[derive(Debug)]
pub(super) struct Perfetto {
    /// What each probe is called, by its number.
    labels: Vec<String>,
    threads: HashMap<u32, Comm>,
    processes: HashMap<u32, Comm>,
    /// The time of the last event. Gaps are shown there, as they have no time of their own.
    last: Option<u64>,
    /// Gaps before the first event, where they are shown.
    early: Vec<Gap>,
}

/// Records that are missing: what it is called, and its JSON object.
type Gap = (&'static str, Vec<u8>);

type Comm = [u8; COMM_LEN];

/// The track of the first CPU for tasks with the id 0. No thread has such an id: they end at 2^22.
const IDLE: u32 = 1 << 30;

/// The thread whose track an event is on. Every CPU has an idle task, and all have the id 0. So have tasks outside of the
/// PID namespace.
fn track(task: &Task, cpu: u32) -> u32 {
    if task.tid == 0 { IDLE.saturating_add(cpu) } else { task.tid }
}

impl Perfetto {
    pub(super) fn new(probes: &[Probe]) -> Self {
        let labels = labels(probes.iter(), Beside::Type);
        let (threads, processes, early) = <_>::default();
        Self { labels, threads, processes, last: None, early }
    }

    /// Names a thread and its process, once and again whenever the name changes.
    fn name(&mut self, out: &mut Vec<u8>, task: &Task, track: u32) {
        if task.tid == 0 {
            // These tracks have tasks of any name.
            if self.threads.insert(track, task.comm).is_none() {
                name(out, "thread_name", 0, track, format!("CPU {}", track - IDLE).as_bytes());
            }
            if self.processes.insert(0, task.comm).is_none() {
                name(out, "process_name", 0, track, b"idle or outside");
            }
            return;
        }
        if self.threads.insert(track, task.comm) != Some(task.comm) {
            name(out, "thread_name", task.pid, track, task.comm());
        }
        // A process has the name of its first thread, or of any other thread until that one is seen.
        let is_its_name = task.tid == task.pid || !self.processes.contains_key(&task.pid);
        if is_its_name && self.processes.insert(task.pid, task.comm) != Some(task.comm) {
            name(out, "process_name", task.pid, track, task.comm());
        }
    }

    /// Writes a gap at the last event, or keeps it for the first one.
    fn gap(&mut self, out: &mut Vec<u8>, name: &'static str, args: &impl Serialize) {
        let mut object = Vec::new();
        json::serialize(&mut object, args);
        match self.last {
            Some(time) => gap(out, &(name, object), time),
            None => self.early.push((name, object)),
        }
    }
}

impl Form for Perfetto {
    fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &TraceEvent<'_>,
        probe: &Probe,
        _: Stamp<'_>,
        names: &mut Names<'_>,
    ) {
        let track = track(event.task, event.cpu);
        self.name(out, event.task, track);
        let Some(label) = self.labels.get(event.probe as usize) else { return };
        self.last = Some(event.time);
        for early in std::mem::take(&mut self.early) {
            gap(out, &early, event.time);
        }
        out.extend_from_slice(br#"{"name":"#);
        json::string(out, label.as_bytes());
        out.extend_from_slice(br#","cat":"#);
        json::string(out, probe.spec().provider().name().as_bytes());
        // Slices of one track must not overlap partly, as those of unrelated tasks may.
        let is_outside = event.task.tid == 0 && !event.task.comm().starts_with(b"swapper/");
        match latency(event, probe).filter(|_| !is_outside) {
            Some(latency) => {
                let start = event.time.saturating_sub(latency);
                microseconds(out, br#","ph":"X","ts":"#, start);
                microseconds(out, br#","dur":"#, latency);
            }
            None => microseconds(out, br#","ph":"i","s":"t","ts":"#, event.time),
        }
        json::ids(out, event.task.pid, track);
        json::keyed(out, br#","args":{"cpu":"#, event.cpu);
        out.extend_from_slice(br#","fields":{"#);
        for (n, (field, value)) in event.values(probe).enumerate() {
            if n > 0 {
                out.push(b',');
            }
            json::string(out, field.name.as_bytes());
            out.push(b':');
            json::value(out, &field.shape, value, names);
        }
        out.push(b'}');
        json::meanings(out, event, probe, names);
        json::list_fields(out, "truncated", event, probe, json::is_truncated);
        out.extend_from_slice(b"}},\n");
    }

    fn notice(&mut self, out: &mut Vec<u8>, notice: &Notice<'_>) {
        match notice {
            Notice::Trace { .. } => out.extend_from_slice(b"[\n"),
            Notice::Lost(lost) => self.gap(out, "LOST", lost),
            Notice::Failed(failed) => self.gap(out, "FAILED", failed),
            Notice::Ledger { account, .. } => {
                for early in std::mem::take(&mut self.early) {
                    gap(out, &early, 0);
                }
                out.extend_from_slice(br#"{"name":"ledger","ph":"M","pid":0,"args":{"ledger":"#);
                json::string(out, account.to_string().as_bytes());
                // The last object has no comma after it.
                out.extend_from_slice(b"}}\n]\n");
            }
            _ => {}
        }
    }
}

/// How long an event took, if it has a valid `latency` by this name: counters may be durations, too. Such an event is shown as a
/// slice that ends at the event's time, and any other as an instant.
fn latency(event: &TraceEvent<'_>, probe: &Probe) -> Option<u64> {
    event.values(probe).find_map(|(field, value)| match (&field.shape, value) {
        (Shape::Duration, Value::Integer(nanoseconds)) if field.name == LATENCY => {
            Some(nanoseconds)
        }
        _ => None,
    })
}

/// Writes `key` and a time in the format's unit, which may have fractions.
fn microseconds(out: &mut Vec<u8>, key: &[u8], nanoseconds: u64) {
    json::keyed(out, key, nanoseconds / 1000);
    let fraction = nanoseconds % 1000;
    let digit = |divisor| b'0' + (fraction / divisor % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

fn name(out: &mut Vec<u8>, what: &str, pid: u32, tid: u32, of: &[u8]) {
    put!(out, r#"{{"name":"{what}","ph":"M""#);
    json::ids(out, pid, tid);
    out.extend_from_slice(br#","args":{"name":"#);
    json::string(out, of);
    out.extend_from_slice(b"}},\n");
}

fn gap(out: &mut Vec<u8>, (name, args): &Gap, time: u64) {
    put!(out, r#"{{"name":"{name}","cat":"probe""#);
    microseconds(out, br#","ph":"i","s":"g","ts":"#, time);
    // Process 0 shows events without a process.
    out.extend_from_slice(br#","pid":0,"tid":0,"args":"#);
    out.extend_from_slice(args);
    out.extend_from_slice(b"},\n");
}

#[cfg(test)]
mod tests {
    use super::super::form::{Failed, Lost};
    use super::super::tests::{probe, write};
    use super::*;
    use crate::output::Origin;
    use crate::resolve::event::tests::Hit;
    use crate::session::ledger::{Account, TraceLedger};
    use probe_common::tally::FailureClass;
    use serde_json::{Value as Json, json};
    use std::slice;

    /// A timeline after its start.
    fn begin(probe: &Probe) -> (Perfetto, Vec<u8>) {
        let (mut form, mut out) = (Perfetto::new(slice::from_ref(probe)), Vec::new());
        form.notice(&mut out, &Notice::start(&[], &Origin::here()));
        (form, out)
    }

    /// The objects of a timeline, whether or not its array is closed.
    fn parsed(bytes: &[u8]) -> Vec<Json> {
        let text = str::from_utf8(bytes).unwrap().trim_end().trim_end_matches([',', ']']);
        serde_json::from_str(&format!("{text}]")).unwrap()
    }

    #[test]
    fn threads_have_names_and_events_are_on_their_tracks() {
        let read = probe("vfs_read", &[("count", Shape::Unsigned), ("faulty", Shape::Text)]);
        let (mut form, mut out) = begin(&read);
        let hit = Hit::new(b"cat", 2, &[Value::Integer(7), Value::Fault]);
        write(&mut form, &mut out, &hit, &read, Stamp::Mono);
        write(&mut form, &mut out, &hit, &read, Stamp::Mono);
        let renamed = Hit::new(b"\"dog", 2, &[Value::Integer(7), Value::Fault]);
        write(&mut form, &mut out, &renamed, &read, Stamp::Mono);
        form.notice(&mut out, &Notice::Lost(Lost { cpu: 1, records: Some(9), outputs: 2 }));
        // The timeline is valid without its end, too.
        assert_eq!(parsed(&out).len(), 7);
        let account = Account::from(&TraceLedger::default());
        form.notice(&mut out, &Notice::Ledger { events: 3, account: &account });
        let whole: Vec<Json> = serde_json::from_slice(&out).unwrap();
        assert_eq!(whole.len(), 8);
        assert_eq!(&whole[..7], parsed(&out[..out.len() - 2]).split_at(7).0);
        let named = |what, tid, name: &str| json!({"name": what, "ph": "M", "pid": 100, "tid": tid, "args": {"name": name}});
        assert_eq!(whole[0], named("thread_name", 101, "cat"));
        assert_eq!(whole[1], named("process_name", 101, "cat"));
        assert_eq!(
            whole[2],
            json!({"name": "vfs_read", "cat": "kprobe", "ph": "i", "s": "t", "ts": 12_000_000.345,
                "pid": 100, "tid": 101, "args": {"cpu": 3, "fields": {"count": 7, "faulty": null}}})
        );
        assert_eq!(whole[3], whole[2]);
        assert_eq!(whole[4], named("thread_name", 101, "\"dog"));
        assert_eq!((&whole[6]["name"], &whole[6]["args"]["records"]), (&"LOST".into(), &9.into()));
        assert_eq!(whole[7]["args"]["ledger"], TraceLedger::default().to_string());
    }

    #[test]
    fn gaps_before_the_first_event_are_shown_there() {
        let read = probe("f", &[]);
        let (mut form, mut out) = begin(&read);
        form.notice(&mut out, &Notice::Lost(Lost { cpu: 1, records: Some(9), outputs: 2 }));
        let failed = Failed { cpu: 1, records: 2, reason: FailureClass::NoEvent };
        form.notice(&mut out, &Notice::Failed(failed));
        write(&mut form, &mut out, &Hit::new(b"cat", 0, &[]), &read, Stamp::Mono);
        let events = parsed(&out);
        let of = |name: &str| events.iter().find(|one| one["name"] == name).unwrap();
        assert_eq!(of("LOST")["ts"], of("f")["ts"]);
        assert_eq!(of("FAILED")["ts"], of("f")["ts"]);
        let args = json!({"cpu": 1, "records": 2, "reason": "no_event_for_the_CPU"});
        assert_eq!(of("FAILED")["args"], args);
        let (mut form, mut out) = begin(&read);
        form.notice(&mut out, &Notice::Lost(Lost { cpu: 1, records: Some(9), outputs: 2 }));
        let account = Account::from(&TraceLedger::default());
        form.notice(&mut out, &Notice::Ledger { events: 0, account: &account });
        let whole: Vec<Json> = serde_json::from_slice(&out).unwrap();
        assert_eq!(whole[0]["name"], "LOST");
    }

    /// All idle tasks have the id 0, as have tasks outside of the PID namespace.
    #[test]
    fn each_cpu_has_a_track_for_tasks_without_an_id() {
        let timed = probe("f", &[("latency", Shape::Duration)]);
        let (mut form, mut out) = begin(&timed);
        for (cpu, comm) in [(0, "swapper/0"), (1, "swapper/1"), (0, "swapper/0"), (1, "other")] {
            let hit = Hit::new(comm.as_bytes(), 0, &[Value::Integer(1_000)]).without_id(cpu);
            write(&mut form, &mut out, &hit, &timed, Stamp::Mono);
        }
        let events = parsed(&out);
        let names: Vec<_> = events.iter().filter(|one| one["ph"] == "M").collect();
        let of = |what: &str| {
            let of = names.iter().filter(|one| one["name"] == what);
            of.map(|one| one["args"]["name"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            (of("thread_name"), of("process_name")),
            (vec!["CPU 0", "CPU 1"], vec!["idle or outside"])
        );
        let hits: Vec<_> = events.iter().filter(|one| one["name"] == "f").collect();
        let tracks: Vec<_> = hits.iter().map(|one| one["tid"].as_u64().unwrap()).collect();
        assert_eq!(tracks, [1 << 30, (1 << 30) + 1, 1 << 30, (1 << 30) + 1]);
        let forms: Vec<_> = hits.iter().map(|one| one["ph"].as_str().unwrap()).collect();
        assert_eq!(forms, ["X", "X", "X", "i"], "slices of unrelated tasks may overlap");
    }

    #[test]
    fn truncated_values_are_named() {
        let open = probe("f", &[("path", Shape::Text)]);
        let (mut form, mut out) = begin(&open);
        let hit = Hit::new(b"cat", 0, &[Value::Truncated(b"/a")]);
        write(&mut form, &mut out, &hit, &open, Stamp::Mono);
        let args = json!({"cpu": 3, "fields": {"path": "/a"}, "truncated": ["path"]});
        assert_eq!(parsed(&out).last().unwrap()["args"], args);
    }

    #[test]
    fn fields_may_have_the_names_of_other_members() {
        let queued = probe("f", &[("cpu", Shape::Unsigned), ("truncated", Shape::Unsigned)]);
        let (mut form, mut out) = begin(&queued);
        let hit = Hit::new(b"cat", 0, &[Value::Integer(64), Value::Integer(1)]);
        write(&mut form, &mut out, &hit, &queued, Stamp::Mono);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(r#""args":{"cpu":3,"fields":{"cpu":64,"truncated":1}}"#), "{text}");
    }

    #[test]
    fn an_event_with_a_latency_is_a_slice_that_ends_at_its_time() {
        let timed = probe("vfs_read", &[("latency", Shape::Duration)]);
        let (mut form, mut out) = begin(&timed);
        let hit = Hit::new(b"cat", 0, &[Value::Integer(1_000_000_001)]);
        write(&mut form, &mut out, &hit, &timed, Stamp::Mono);
        // Only nanoseconds count as a duration.
        let named = probe("vfs_read", &[("latency", Shape::Unsigned)]);
        write(&mut form, &mut out, &hit, &named, Stamp::Mono);
        // A counter may count nanoseconds, too.
        let counted = probe("vfs_read", &[("task-clock", Shape::Duration)]);
        write(&mut form, &mut out, &hit, &counted, Stamp::Mono);
        let events = parsed(&out);
        assert_eq!(events[4]["ph"], "i");
        let slice = &events[2];
        assert_eq!((&slice["ph"], &slice["dur"]), (&"X".into(), &1_000_000.001.into()));
        assert_eq!(slice["ts"], 11_000_000.344);
        assert_eq!((&events[3]["ph"], &events[3]["dur"]), (&"i".into(), &Json::Null));
    }
}
