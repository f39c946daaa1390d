//! Aligned columns.

use super::clock::Stamp;
use super::form::{About, Form};
use super::json;
use super::names::{Named, Names};
use super::value::Shown;
use crate::consumer::Loss;
use crate::escape::Escaped;
use crate::trace::event::{TraceEvent, Value};
use crate::trace::probe::Probe;
use crate::trace::shape::Shape;
use std::fmt::Display;
use std::io::Write;

/// A task's name has up to 15 bytes.
const COMM_WIDTH: usize = 15;
const PROBE_WIDTH: usize = 24;

/// Writes a line for each event.
#[derive(Debug)]
pub(super) struct Table;

/// The names of stacks end here, under the ends of the times.
const STACK_WIDTH: usize = 16;

/// Appends text. A Vec takes everything.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {{ let _ = write!($out, $($text)*); }};
}

impl Form for Table {
    fn start(&mut self, out: &mut Vec<u8>, _: &About<'_>) {
        put!(
            out,
            "{:>16} {:>3} {:>7} {:>7} {:<COMM_WIDTH$} {:<PROBE_WIDTH$} ARGS\n",
            "TIME",
            "CPU",
            "PID",
            "TID",
            "COMM",
            "PROBE"
        );
    }

    fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &TraceEvent<'_>,
        probe: &Probe,
        stamp: Stamp<'_>,
        names: &mut Names<'_>,
    ) {
        time(out, event.time, stamp);
        for (number, width) in [(event.cpu, 3), (event.task.pid, 7), (event.task.tid, 7)] {
            out.push(b' ');
            right(out, number, width, b' ');
        }
        out.push(b' ');
        comm(out, event.task.comm());
        let name = probe.spec().name();
        out.extend_from_slice(name.as_bytes());
        // Nothing pads the end of a line.
        if probe.fields().len() != 0 {
            blanks(out, PROBE_WIDTH.saturating_sub(name.len()));
        }
        for (field, value) in event.values(probe) {
            if matches!(value, Value::Stack(_)) {
                continue;
            }
            out.push(b' ');
            out.extend_from_slice(field.name.as_bytes());
            out.push(b'=');
            match (&field.shape, value) {
                // The usual ones; formatting takes several times as long as all the rest.
                (Shape::Unsigned, Value::Integer(value)) => json::number(out, value),
                (Shape::Signed, Value::Integer(value)) => json::number(out, value.cast_signed()),
                (Shape::Text, Value::Bytes(text)) if text.iter().all(is_plain) => {
                    out.push(b'"');
                    out.extend_from_slice(text);
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

    fn lost(&mut self, out: &mut Vec<u8>, loss: &Loss) {
        put!(
            out,
            "{:>16} {:>3} {:>7} {:>7} {:<COMM_WIDTH$} {:<PROBE_WIDTH$}",
            "-",
            loss.cpu,
            "-",
            "-",
            "-",
            "LOST"
        );
        if let Some(records) = loss.records {
            put!(out, " records={records}");
        }
        put!(out, " outputs={}\n", loss.count);
    }
}

/// A line for each function, the innermost first.
fn stack(out: &mut Vec<u8>, name: &str, stack: &[Named]) {
    let mut heading = name;
    let mut line = |function: &dyn Display| {
        put!(out, "{heading:>STACK_WIDTH$}  {function}\n");
        heading = "";
    };
    for Named { address, frames } in stack {
        match &**frames {
            [] => line(&format_args!("{address:#x}")),
            frames => frames.iter().for_each(|frame| line(frame)),
        }
    }
    if stack.is_empty() {
        line(&"none");
    }
}

/// Seconds, or the time of day to microseconds.
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

/// A task's name, and blanks up to the next column.
fn comm(out: &mut Vec<u8>, name: &[u8]) {
    let start = out.len();
    let width = if name.iter().all(is_plain) {
        out.extend_from_slice(name);
        name.len()
    } else {
        put!(out, "{}", Escaped(name));
        String::from_utf8_lossy(&out[start..]).chars().count()
    };
    blanks(out, 1 + COMM_WIDTH.saturating_sub(width));
}

/// Whether a character is shown as itself.
fn is_plain(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// A number at the right of a column, which is filled with this.
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
    use super::super::tests::{probe, write};
    use super::*;
    use crate::escape::tests::{hostile, reaches_the_terminal_raw};
    use crate::trace::event::Value;
    use crate::trace::event::tests::Hit;
    use crate::trace::origin::Origin;
    use crate::trace::shape::Shape;
    use proptest::prelude::*;

    #[test]
    fn columns_are_under_their_headings() {
        let mut bytes = Vec::new();
        Table.start(&mut bytes, &About { probes: &[], origin: &Origin::here() });
        let read = Hit::new(b"evil\x1b[2J", 0, &[Value::Integer(0), Value::Integer(u64::MAX)]);
        let fields = [("file", Shape::Pointer), ("ret", Shape::Result)];
        write(&mut Table, &mut bytes, &read, &probe("vfs_read", &fields), Stamp::Mono);
        let exec = Hit::new(b"sh", 0, &[Value::Bytes(b"/bin/a\nb")]);
        let fields = [("filename", Shape::Text)];
        let spec = "tracepoint:sched:sched_process_exec";
        let local = Stamp::Local {
            date_and_time: "2026-11-22T07:16:40",
            nanoseconds: 1_999,
            offset: "+05:30",
        };
        write(&mut Table, &mut bytes, &exec, &probe(spec, &fields), local);
        let nothing = Hit::new(b"sh", 0, &[]);
        write(&mut Table, &mut bytes, &nothing, &probe("rt:x", &[]), Stamp::Delta(-1_000_000_002));
        write(&mut Table, &mut bytes, &nothing, &probe("rt:x", &[]), Stamp::Delta(3));
        Table.lost(&mut bytes, &Loss { cpu: 3, count: 2, records: Some(90) });
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "            TIME CPU     PID     TID COMM            PROBE                    ARGS",
                "    12.000000345   3     100     101 evil\\u{1b}[2J   vfs_read                 file=NULL ret=-1 EPERM",
                " 07:16:40.000001   3     100     101 sh              sched:sched_process_exec filename=\"/bin/a\\nb\"",
                "-    1.000000002   3     100     101 sh              x",
                "+    0.000000003   3     100     101 sh              x",
                "               -   3       -       - -               LOST                     records=90 outputs=2",
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_line(comm in hostile(6), filename in hostile(40)) {
            let hit = Hit::new(&comm[..comm.len().min(15)], 0, &[Value::Bytes(&filename)]);
            let mut bytes = Vec::new();
            let fields = [("filename", Shape::Text)];
            write(&mut Table, &mut bytes, &hit, &probe("t:a:b", &fields), Stamp::Mono);
            let text = String::from_utf8(bytes).unwrap();
            let line = text.strip_suffix('\n').unwrap();
            prop_assert!(!line.chars().any(reaches_the_terminal_raw), "{line:?}");
        }
    }
}
