//! Aligned columns.

use super::clock::Stamp;
use super::form::{Failed, Form, Lost, Notice};
use super::json;
use super::labels::{Beside, labels};
use super::names::{Named, Names};
use super::value::Shown;
use crate::resolve::event::{TraceEvent, Value};
use crate::resolve::probe::Probe;
use crate::resolve::shape::Shape;
use probe_sys::escape::Escaped;
use std::fmt::Display;

/// A task's name has at most 15 bytes.
const COMM_WIDTH: usize = 15;
const PROBE_WIDTH: usize = 24;

/// Writes an event on each line.
#[derive(Debug)]
pub(super) struct Table {
    /// What each probe is called, by its number.
    labels: Vec<String>,
}

impl Table {
    pub(super) fn new(probes: &[Probe]) -> Self {
        Self { labels: labels(probes.iter(), Beside::Nothing) }
    }
}

/// The headings of stacks end in this column, below the ends of the times.
const STACK_WIDTH: usize = 16;

impl Form for Table {
    fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &TraceEvent<'_>,
        probe: &Probe,
        stamp: Stamp<'_>,
        names: &mut Names<'_>,
    ) {
        let Some(label) = self.labels.get(event.probe as usize) else { return };
        time(out, event.time, stamp);
        for (number, width) in [(event.cpu, 3), (event.task.pid, 7), (event.task.tid, 7)] {
            out.push(b' ');
            right(out, number, width, b' ');
        }
        out.push(b' ');
        comm(out, event.task.comm());
        let width = text(out, label.as_bytes());
        // Do not pad the end of a line.
        if probe.fields().len() != 0 {
            blanks(out, PROBE_WIDTH.saturating_sub(width));
        }
        for (field, value) in event.values(probe) {
            if matches!(value, Value::Stack(_)) {
                continue;
            }
            out.push(b' ');
            text(out, field.name.as_bytes());
            out.push(b'=');
            if let Some(name) = names.value(field, value) {
                text(out, name.as_bytes());
                continue;
            }
            match (&field.shape, value) {
                // Fast paths for the common cases: formatting takes several times as long as everything else.
                (Shape::Unsigned, Value::Integer(value)) => json::number(out, value),
                (Shape::Signed, Value::Integer(value)) => json::number(out, value.cast_signed()),
                (Shape::Text, Value::Bytes(bytes)) if bytes.iter().all(json::is_itself) => {
                    out.push(b'"');
                    out.extend_from_slice(bytes);
                    out.push(b'"');
                }
                (Shape::Symbol, Value::Integer(address)) => match names.symbol(address) {
                    Some(symbol) => put!(out, "{symbol}"),
                    None => put!(out, "{}", Shown(&field.shape, value)),
                },
                (shape, value) => put!(out, "{}", Shown(shape, value)),
            }
        }
        out.push(b'\n');
        for (field, value) in event.values(probe) {
            if let Value::Stack(addresses) = value {
                stack(out, &field.name, &names.stack(&field.shape, addresses));
            }
        }
    }

    fn notice(&mut self, out: &mut Vec<u8>, notice: &Notice<'_>) {
        match *notice {
            Notice::Trace { .. } => {
                row(out, ["TIME", "CPU", "PID", "TID", "COMM", "PROBE"]);
                out.extend_from_slice(b" ARGS\n");
            }
            Notice::Lost(Lost { cpu, records, outputs }) => {
                row(out, ["-", &cpu.to_string(), "-", "-", "-", "LOST"]);
                if let Some(records) = records {
                    put!(out, " records={records}");
                }
                put!(out, " outputs={outputs}\n");
            }
            Notice::Failed(Failed { cpu, records, reason }) => {
                row(out, ["-", &cpu.to_string(), "-", "-", "-", "FAILED"]);
                put!(out, " records={records} reason=\"{}\"\n", reason.name());
            }
            _ => {}
        }
    }
}

/// Writes a line that is not an event, except for its last column.
fn row(out: &mut Vec<u8>, [time, cpu, pid, tid, comm, probe]: [&str; 6]) {
    put!(out, "{time:>16} {cpu:>3} {pid:>7} {tid:>7} {comm:<COMM_WIDTH$} {probe:<PROBE_WIDTH$}");
}

/// Writes a line for each function of a stack, the innermost first.
fn stack(out: &mut Vec<u8>, name: &str, stack: &[Named]) {
    let mut heading = name;
    let mut line = |function: &dyn Display| {
        put!(out, "{:>STACK_WIDTH$}  {function}\n", Escaped(heading.as_bytes()).to_string());
        heading = "";
    };
    for (address, frames) in stack {
        match &**frames {
            [] => line(&format_args!("{address:#x}")),
            frames => frames.iter().for_each(|frame| line(frame)),
        }
    }
    if stack.is_empty() {
        line(&"none");
    }
}

/// Writes seconds, or the time of day in microseconds.
fn time(out: &mut Vec<u8>, time: u64, stamp: Stamp<'_>) {
    let parts = |time: u64| (time / 1_000_000_000, time % 1_000_000_000);
    match stamp {
        Stamp::Mono => {
            let (seconds, nanoseconds) = parts(time);
            right(out, seconds, 6, b' ');
            out.push(b'.');
            right(out, nanoseconds, 9, b'0');
        }
        Stamp::Delta(delta) => {
            let sign = if delta < 0 { '-' } else { '+' };
            let (seconds, nanoseconds) = parts(delta.unsigned_abs());
            put!(out, "{sign}{seconds:>5}.{nanoseconds:09}");
        }
        Stamp::Local { date_and_time, nanoseconds, .. } => {
            let clock = date_and_time.split_once('T').map_or("", |(_, clock)| clock);
            put!(out, " {clock}.{:06}", nanoseconds / 1000);
        }
    }
}

/// Writes a task's name, padded to the next column.
fn comm(out: &mut Vec<u8>, name: &[u8]) {
    let width = text(out, name);
    blanks(out, 1 + COMM_WIDTH.saturating_sub(width));
}

/// Writes untrusted text. Returns its width.
fn text(out: &mut Vec<u8>, text: &[u8]) -> usize {
    if text.iter().all(is_plain) {
        out.extend_from_slice(text);
        return text.len();
    }
    let start = out.len();
    put!(out, "{}", Escaped(text));
    String::from_utf8_lossy(&out[start..]).chars().count()
}

/// Whether a terminal prints a character as itself.
fn is_plain(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// Writes a right-aligned number, padded with `fill`.
fn right(out: &mut Vec<u8>, value: impl itoa::Integer, width: usize, fill: u8) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value);
    out.resize(out.len() + width.saturating_sub(digits.len()), fill);
    out.extend_from_slice(digits.as_bytes());
}

fn blanks(out: &mut Vec<u8>, count: usize) {
    out.resize(out.len() + count, b' ');
}

#[cfg(test)]
mod tests {
    use super::super::tests::{named_hit, named_probe, probe, write};
    use super::*;
    use crate::output::Origin;
    use crate::resolve::event::Value;
    use crate::resolve::event::tests::Hit;
    use crate::resolve::shape::Shape;
    use probe_common::tally::FailureClass;
    use std::slice;

    #[test]
    fn names_are_shown_instead_of_numbers() {
        let shown = |state, probe: &_| {
            let mut bytes = Vec::new();
            write(
                &mut Table::new(slice::from_ref(probe)),
                &mut bytes,
                &named_hit(state),
                probe,
                Stamp::Mono,
            );
            let line = String::from_utf8(bytes).unwrap();
            line.split_once("state=").unwrap().1.trim_end().to_owned()
        };
        let probe = named_probe();
        assert_eq!(shown(1, &probe), "SLEEPING address=127.0.0.1:80 next=SLEEPING");
        assert_eq!(shown(2, &probe), "2 address=127.0.0.1:80 next=2");
        assert_eq!(shown(1, &probe.with_raw_values()), "1 address=020000507f000001 next=1");
    }

    #[test]
    fn columns_are_under_their_headings() {
        let write = |bytes: &mut Vec<u8>, hit: &Hit, probe: &Probe, stamp| {
            write(&mut Table::new(slice::from_ref(probe)), bytes, hit, probe, stamp);
        };
        let mut bytes = Vec::new();
        Table::new(&[]).notice(&mut bytes, &Notice::start(&[], &Origin::here()));
        let read = Hit::new(b"evil\x1b[2J", 0, &[Value::Integer(0), Value::Integer(u64::MAX)]);
        let fields = [("file", Shape::Pointer), ("ret", Shape::Result)];
        write(&mut bytes, &read, &probe("vfs_read", &fields), Stamp::Mono);
        let exec = Hit::new(b"sh", 0, &[Value::Bytes(b"/bin/a\nb")]);
        let deceitful = Hit::new(b"sh", 0, &[Value::Bytes(br#"a\n" flags="b"#)]);
        let fields = [("filename", Shape::Text)];
        let spec = "tracepoint:sched:sched_process_exec";
        let local = Stamp::Local {
            date_and_time: "2026-11-22T07:16:40",
            nanoseconds: 1_999,
            offset: "+05:30",
        };
        write(&mut bytes, &exec, &probe(spec, &fields), local);
        write(&mut bytes, &deceitful, &probe(spec, &fields), local);
        let nothing = Hit::new(b"sh", 0, &[]);
        write(&mut bytes, &nothing, &probe("rt:x", &[]), Stamp::Delta(-1_000_000_002));
        write(&mut bytes, &nothing, &probe("rt:x", &[]), Stamp::Delta(3));
        let lost = Notice::Lost(Lost { cpu: 3, records: Some(90), outputs: 2 });
        Table::new(&[]).notice(&mut bytes, &lost);
        let failed = Failed { cpu: 1, records: 2, reason: FailureClass::NoEvent };
        Table::new(&[]).notice(&mut bytes, &Notice::Failed(failed));
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "            TIME CPU     PID     TID COMM            PROBE                    ARGS",
                "    12.000000345   3     100     101 evil\\u{1b}[2J   vfs_read                 file=NULL ret=-1 EPERM",
                " 07:16:40.000001   3     100     101 sh              sched:sched_process_exec filename=\"/bin/a\\nb\"",
                " 07:16:40.000001   3     100     101 sh              sched:sched_process_exec filename=\"a\\\\n\\\" flags=\\\"b\"",
                "-    1.000000002   3     100     101 sh              x",
                "+    0.000000003   3     100     101 sh              x",
                "               -   3       -       - -               LOST                     records=90 outputs=2",
                "               -   1       -       - -               FAILED                   records=2 reason=\"no event for the CPU\"",
            ]
        );
    }
}
