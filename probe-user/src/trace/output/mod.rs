//! Writing trace events for people and for programs.

mod jsonl;
mod table;

use super::event::TraceEvent;
use super::spec::ProbeSpec;
use crate::consumer::{Consumer, CpuChange, Loss, Malformed};
use probe_common::RawRecord;
use std::io::{self, Write};
use std::ops::ControlFlow;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Aligned columns, one event a line.
    #[default]
    Table,
    /// One JSON object a line.
    ///
    /// Names of tasks and files are strings: whatever a terminal would not show as itself is
    /// written as `\u` escapes, which a JSON parser turns back; what is not UTF-8 is U+FFFD, as
    /// [`String::from_utf8_lossy`] has it.
    Jsonl,
}

/// Writes every event that it is given, up to a limit.
///
/// It breaks the drain at the limit, and when writing fails: [`finish`](Self::finish) tells.
#[derive(Debug)]
pub struct Printer<W> {
    writer: W,
    format: Format,
    specs: Vec<ProbeSpec>,
    left: Option<u64>,
    printed: u64,
    failed: Option<io::Error>,
}

impl<W: Write> Printer<W> {
    /// Writes events of the probes `specs` to `writer`, which had better be buffered.
    pub fn new(writer: W, format: Format, specs: Vec<ProbeSpec>) -> Self {
        Self { writer, format, specs, left: None, printed: 0, failed: None }
    }

    /// Stops after so many events.
    #[must_use]
    pub fn limit(mut self, events: Option<u64>) -> Self {
        self.left = events;
        self
    }

    /// How many events were written.
    pub fn printed(&self) -> u64 {
        self.printed
    }

    /// Writes what precedes the events, if the format has any such thing.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn start(&mut self) -> io::Result<()> {
        match self.format {
            Format::Table => table::header(&mut self.writer)?,
            Format::Jsonl => {}
        }
        self.writer.flush()
    }

    /// Writes what is still buffered.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or could not be earlier.
    pub fn finish(&mut self) -> io::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }

    fn is_done(&self) -> bool {
        self.left == Some(0) || self.failed.is_some()
    }

    /// Keeps the error of a write for [`finish`](Self::finish).
    fn note(&mut self, written: io::Result<()>) -> ControlFlow<()> {
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn print(&mut self, event: &TraceEvent<'_>) -> ControlFlow<()> {
        if self.is_done() {
            return ControlFlow::Break(());
        }
        let Some(spec) = self.specs.get(event.probe as usize) else {
            return ControlFlow::Continue(());
        };
        let written = match self.format {
            Format::Table => table::event(&mut self.writer, event, spec),
            Format::Jsonl => jsonl::event(&mut self.writer, event, spec),
        };
        self.note(written)?;
        self.printed += 1;
        match &mut self.left {
            Some(left) => {
                *left -= 1;
                if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            None => ControlFlow::Continue(()),
        }
    }
}

impl<W: Write> Consumer for Printer<W> {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        match TraceEvent::decode(cpu, record) {
            Some(event) => self.print(&event),
            None => ControlFlow::Continue(()),
        }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        if self.is_done() {
            return ControlFlow::Break(());
        }
        let written = match self.format {
            Format::Table => table::lost(&mut self.writer, &loss),
            Format::Jsonl => jsonl::lost(&mut self.writer, &loss),
        };
        self.note(written)
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        match change {
            CpuChange::Uncovered { .. } => log::warn!("{change}"),
            _ => log::info!("{change}"),
        }
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        ControlFlow::Continue(())
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        let flushed = self.writer.flush();
        self.note(flushed)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::trace::event::Detail;
    use probe_common::trace::Task;

    pub(crate) fn task(comm: &[u8]) -> Task {
        let mut task = Task { pid: 100, tid: 101, comm: [0; 16] };
        task.comm[..comm.len()].copy_from_slice(comm);
        task
    }

    #[test]
    fn the_limit_is_the_number_of_lines() {
        let task = task(b"cat");
        let specs = vec!["f".parse().unwrap()];
        let mut printer = Printer::new(Vec::new(), Format::Jsonl, specs).limit(Some(2));
        let event =
            TraceEvent { time: 1, cpu: 0, task: &task, probe: 0, detail: Detail::Args(&[]) };
        let flows: Vec<_> = (0..4).map(|_| printer.print(&event).is_break()).collect();
        assert_eq!(flows, [false, true, true, true]);
        assert_eq!(printer.printed(), 2);
        assert_eq!(printer.writer.iter().filter(|&&byte| byte == b'\n').count(), 2);
    }

    #[test]
    fn a_failed_write_is_told_once_and_stops() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let task = task(b"cat");
        let event =
            TraceEvent { time: 1, cpu: 0, task: &task, probe: 0, detail: Detail::Args(&[]) };
        let mut printer = Printer::new(Full, Format::Table, vec!["f".parse().unwrap()]);
        assert!(printer.print(&event).is_break());
        assert_eq!(printer.printed(), 0);
        assert_eq!(printer.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
