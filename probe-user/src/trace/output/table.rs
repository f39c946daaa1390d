//! Aligned columns.

use crate::consumer::Loss;
use crate::escape::Escaped;
use crate::trace::event::{Detail, TraceEvent};
use crate::trace::spec::ProbeSpec;
use std::io::{self, Write};

/// A task's name has up to 15 bytes.
const COMM_WIDTH: usize = 15;
const PROBE_WIDTH: usize = 24;

pub(super) fn header(writer: &mut impl Write) -> io::Result<()> {
    writeln!(
        writer,
        "{:>16} {:>3} {:>7} {:>7} {:<COMM_WIDTH$} {:<PROBE_WIDTH$} ARGS",
        "TIME", "CPU", "PID", "TID", "COMM", "PROBE"
    )
}

pub(super) fn event(
    writer: &mut impl Write,
    event: &TraceEvent<'_>,
    spec: &ProbeSpec,
) -> io::Result<()> {
    let (seconds, nanoseconds) = (event.time / 1_000_000_000, event.time % 1_000_000_000);
    // The width of a Display is only honoured where the implementation pads: a String's does.
    let comm = Escaped(event.task.comm()).to_string();
    write!(
        writer,
        "{seconds:>6}.{nanoseconds:09} {:>3} {:>7} {:>7} {comm:<COMM_WIDTH$} {}",
        event.cpu,
        event.task.pid,
        event.task.tid,
        spec.name()
    )?;
    // Nothing pads the end of a line.
    let pad = PROBE_WIDTH.saturating_sub(spec.name().len());
    match event.detail {
        Detail::Args(args) => {
            write!(writer, "{:pad$}", "")?;
            for (number, arg) in args.iter().enumerate() {
                write!(writer, " arg{number}={arg:#x}")?;
            }
        }
        Detail::Exec { filename, .. } => {
            write!(writer, "{:pad$} filename={}", "", Escaped(filename))?
        }
        Detail::None => {}
    }
    writeln!(writer)
}

/// Where records are missing. Nobody knows exactly when they were lost.
pub(super) fn lost(writer: &mut impl Write, loss: &Loss) -> io::Result<()> {
    write!(
        writer,
        "{:>16} {:>3} {:>7} {:>7} {:<COMM_WIDTH$} {:<PROBE_WIDTH$}",
        "-", loss.cpu, "-", "-", "-", "LOST"
    )?;
    if let Some(records) = loss.records {
        write!(writer, " records={records}")?;
    }
    writeln!(writer, " outputs={}", loss.count)
}

#[cfg(test)]
mod tests {
    use super::super::tests::task;
    use super::*;
    use crate::escape::tests::{hostile, reaches_the_terminal_raw};
    use proptest::prelude::*;

    #[test]
    fn columns_are_under_their_headings() {
        let mut bytes = Vec::new();
        header(&mut bytes).unwrap();
        let task = task(b"evil\x1b[2J");
        let args = [1, u64::MAX];
        let hit = TraceEvent {
            time: 12_000_000_345,
            cpu: 3,
            task: &task,
            probe: 0,
            detail: Detail::Args(&args),
        };
        event(&mut bytes, &hit, &"vfs_read".parse().unwrap()).unwrap();
        let exec =
            TraceEvent { detail: Detail::Exec { filename: b"/bin/a\nb", old_tid: 1 }, ..hit };
        event(&mut bytes, &exec, &"tracepoint:sched:sched_process_exec".parse().unwrap()).unwrap();
        lost(&mut bytes, &Loss { cpu: 3, count: 2, records: Some(90) }).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "            TIME CPU     PID     TID COMM            PROBE                    ARGS",
                "    12.000000345   3     100     101 evil\\u{1b}[2J   vfs_read                 arg0=0x1 arg1=0xffffffffffffffff",
                "    12.000000345   3     100     101 evil\\u{1b}[2J   sched:sched_process_exec filename=/bin/a\\nb",
                "               -   3       -       - -               LOST                     records=90 outputs=2",
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_line(comm in hostile(6), filename in hostile(40)) {
            let task = task(&comm[..comm.len().min(15)]);
            let detail = Detail::Exec { filename: &filename, old_tid: 1 };
            let hit = TraceEvent { time: 1, cpu: 3, task: &task, probe: 0, detail };
            let mut bytes = Vec::new();
            event(&mut bytes, &hit, &"tracepoint:a:b".parse().unwrap()).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            let line = text.strip_suffix('\n').unwrap();
            prop_assert!(!line.chars().any(reaches_the_terminal_raw), "{line:?}");
        }
    }
}
