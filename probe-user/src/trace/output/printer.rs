//! Writing what a drain gives, in one of the formats.

use super::Format;
use super::clock::{Time, Times, realtime_offset};
use super::form::{About, Form};
use super::jsonl::Jsonl;
use super::names::Names;
use super::perfetto::Perfetto;
use super::table::Table;
use crate::consumer::{Consumer, CpuChange, Loss, Malformed};
use crate::trace::event::TraceEvent;
use crate::trace::ledger::Ledger;
use crate::trace::probe::Probe;
use crate::trace::symbolize::Symbols;
use probe_common::RawRecord;
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Events are passed on in pieces of so many bytes, or whenever there are no more at hand.
const PIECE: usize = 64 << 10;

/// Writes every event that it is given, up to a limit.
///
/// It breaks the drain at the limit, and when writing fails: [`finish`](Self::finish) tells.
#[derive(Debug)]
pub struct Printer<W> {
    writer: W,
    /// What was not passed on to `writer` yet, and how many events are in there.
    out: Vec<u8>,
    pending: u64,
    form: Box<dyn Form>,
    probes: Vec<Probe>,
    times: Times,
    symbols: Symbols,
    realtime_offset: i64,
    left: Option<u64>,
    printed: u64,
    failed: Option<io::Error>,
}

impl<W: Write> Printer<W> {
    /// Writes events of [`Tracer::probes`](crate::trace::Tracer::probes) to `writer`, which gets many at a
    /// time.
    pub fn new(writer: W, format: Format, probes: Vec<Probe>) -> Self {
        let form: Box<dyn Form> = match format {
            Format::Table => Box::new(Table),
            Format::Jsonl => Box::new(Jsonl::new(&probes)),
            Format::Perfetto => Box::new(Perfetto::default()),
        };
        let realtime_offset = realtime_offset();
        let times = Times::new(Time::Mono, realtime_offset);
        let out = Vec::with_capacity(PIECE + (PIECE >> 3));
        let (left, printed, pending, failed) = (None, 0, 0, None);
        Self {
            writer,
            out,
            pending,
            form,
            probes,
            times,
            symbols: Symbols::none(),
            realtime_offset,
            left,
            printed,
            failed,
        }
    }

    /// Stops after so many events.
    #[must_use]
    pub fn limit(mut self, events: Option<u64>) -> Self {
        self.left = events;
        self
    }

    /// How times are shown; as `CLOCK_MONOTONIC`, by default.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.times = Times::new(time, self.realtime_offset);
        self
    }

    /// Where addresses get their names from; without, they are shown as numbers.
    #[must_use]
    pub fn symbols(mut self, symbols: Symbols) -> Self {
        self.symbols = symbols;
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
        let about = About { probes: &self.probes, realtime_offset: self.realtime_offset };
        self.form.start(&mut self.out, &about);
        if self.flush().is_break() {
            self.left = Some(0);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Writes what is still buffered, and what the format has after the events.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or could not be earlier.
    pub fn finish(&mut self, ledger: &Ledger) -> io::Result<()> {
        if self.failed.is_none() {
            self.form.end(&mut self.out, self.printed, ledger);
            let _ = self.flush();
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn is_done(&self) -> bool {
        self.left == Some(0) || self.failed.is_some()
    }

    /// Passes on what was written. Keeps the error for [`finish`](Self::finish).
    fn flush(&mut self) -> ControlFlow<()> {
        let written = self.writer.write_all(&self.out).and_then(|()| self.writer.flush());
        self.out.clear();
        let pending = std::mem::take(&mut self.pending);
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.printed -= pending;
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn flush_pieces(&mut self) -> ControlFlow<()> {
        if self.out.len() < PIECE { ControlFlow::Continue(()) } else { self.flush() }
    }

    fn print(&mut self, event: &TraceEvent<'_>) -> ControlFlow<()> {
        if self.is_done() {
            return ControlFlow::Break(());
        }
        let Some(probe) = self.probes.get(event.probe as usize) else {
            return ControlFlow::Continue(());
        };
        let stamp = self.times.stamp(event.time);
        let mut names = Names::of(event, &mut self.symbols);
        self.form.event(&mut self.out, event, probe, stamp, &mut names);
        self.printed += 1;
        self.pending += 1;
        self.flush_pieces()?;
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
        self.form.lost(&mut self.out, &loss);
        self.flush_pieces()
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        match change {
            CpuChange::Uncovered { .. } => log::warn!("{change}"),
            _ => log::info!("{change}"),
        }
        if !self.is_done() {
            self.form.cpu_changed(&mut self.out, &change);
        }
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        if self.is_done() {
            return ControlFlow::Break(());
        }
        self.form.malformed(&mut self.out, &malformed);
        self.flush_pieces()
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        if self.failed.is_some() {
            return ControlFlow::Break(());
        }
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::probe;
    use super::*;
    use crate::trace::event::tests::Hit;

    #[test]
    fn the_limit_is_the_number_of_events() {
        let hit = Hit::new(b"cat", 0, &[]);
        let probes = vec![probe("f", &[])];
        let mut printer = Printer::new(Vec::new(), Format::Jsonl, probes).limit(Some(2));
        let flows: Vec<_> = (0..4).map(|_| printer.print(&hit.event()).is_break()).collect();
        assert_eq!(flows, [false, true, true, true]);
        assert_eq!(printer.printed(), 2);
        assert!(printer.caught_up().is_continue());
        assert_eq!(printer.writer.iter().filter(|&&byte| byte == b'\n').count(), 2);
    }

    /// Takes so many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failed_write_is_told_once_and_stops() {
        let hit = Hit::new(b"cat", 0, &[]);
        for format in [Format::Table, Format::Jsonl] {
            let probes = vec![probe("f", &[])];
            let mut printer = Printer::new(Full(PIECE * 3 / 2), format, probes);
            let events =
                1 + (0..100_000).take_while(|_| printer.print(&hit.event()).is_continue()).count();
            let printed = printer.printed();
            assert!(0 < printed && printed < events as u64, "{printed} of {events}");
            assert!(printer.print(&hit.event()).is_break() && printer.caught_up().is_break());
            let error = printer.finish(&Ledger::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert_eq!(printer.printed(), printed);
        }
    }
}
