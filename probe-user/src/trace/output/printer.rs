//! Writing what a drain gives, in one of the formats.

use super::Format;
use super::clock::{Time, Times};
use super::form::{About, Form};
use super::jsonl::Jsonl;
use super::names::Names;
use super::perfetto::Perfetto;
use super::table::Table;
use crate::consumer::{Consumer, CpuChange, Dump, Loss, Malformed};
use crate::trace::account::Account;
use crate::trace::event::TraceEvent;
use crate::trace::origin::Origin;
use crate::trace::pieces::Pieces;
use crate::trace::probe::Probe;
use crate::trace::symbolize::Symbols;
use probe_common::RawRecord;
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Writes every event that it is given, up to a limit.
///
/// It breaks the drain at the limit, and when writing fails: [`finish`](Self::finish) tells.
#[derive(Debug)]
pub struct Printer<W> {
    pieces: Pieces<W>,
    form: Box<dyn Form>,
    probes: Vec<Probe>,
    time: Time,
    times: Times,
    symbols: Symbols,
    origin: Origin,
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
        let (origin, time) = (Origin::here(), Time::Mono);
        let times = Times::new(time, origin.realtime_offset);
        let (pieces, symbols) = (Pieces::new(writer), Symbols::none());
        Self { pieces, form, probes, time, times, symbols, origin }
    }

    /// Stops after so many events.
    #[must_use]
    pub fn limit(mut self, events: Option<u64>) -> Self {
        self.pieces.limit(events);
        self
    }

    /// How times are shown; as `CLOCK_MONOTONIC`, by default.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.time = time;
        self.times = Times::new(time, self.origin.realtime_offset);
        self
    }

    /// Where the events are from; from here, by default.
    #[must_use]
    pub fn origin(mut self, origin: Origin) -> Self {
        self.times = Times::new(self.time, origin.realtime_offset);
        self.origin = origin;
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
        self.pieces.events()
    }

    /// Writes what precedes the events, if the format has any such thing.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn start(&mut self) -> io::Result<()> {
        let about = About { probes: &self.probes, origin: &self.origin };
        self.form.start(&mut self.pieces.out, &about);
        self.pieces.start()
    }

    /// Writes what is still buffered, and what the format has after the events: what became of all of them,
    /// of a [`Ledger`](crate::trace::Ledger) or as a recording has it.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or could not be earlier.
    pub fn finish(&mut self, ledger: impl Into<Account>) -> io::Result<()> {
        if !self.pieces.has_failed() {
            let printed = self.pieces.events();
            self.form.end(&mut self.pieces.out, printed, &ledger.into());
        }
        self.pieces.finish()
    }

    /// Writes what is still buffered, where nobody knows what comes after: an output that is cut off.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or could not be earlier.
    pub fn cut_off(&mut self) -> io::Result<()> {
        self.pieces.finish()
    }

    fn print(&mut self, event: &TraceEvent<'_>) -> ControlFlow<()> {
        if self.pieces.is_done() {
            return ControlFlow::Break(());
        }
        let Some(probe) = self.probes.get(event.probe as usize) else {
            return ControlFlow::Continue(());
        };
        let stamp = self.times.stamp(event.time);
        let mut names = Names::of(event, &mut self.symbols);
        self.form.event(&mut self.pieces.out, event, probe, stamp, &mut names);
        let flow = self.pieces.count();
        self.pieces.flush_piece()?;
        flow
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
        if self.pieces.is_done() {
            return ControlFlow::Break(());
        }
        self.form.lost(&mut self.pieces.out, &loss);
        self.pieces.flush_piece()
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        match change {
            CpuChange::Uncovered { .. } => log::warn!("{change}"),
            _ => log::info!("{change}"),
        }
        if !self.pieces.is_done() {
            self.form.cpu_changed(&mut self.pieces.out, &change);
        }
    }

    fn dump(&mut self, dump: Dump) {
        if !self.pieces.is_done() {
            self.form.dump(&mut self.pieces.out, &dump);
        }
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        if self.pieces.is_done() {
            return ControlFlow::Break(());
        }
        self.form.malformed(&mut self.pieces.out, &malformed);
        self.pieces.flush_piece()
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.pieces.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::probe;
    use super::*;
    use crate::trace::event::tests::Hit;
    use crate::trace::ledger::Ledger;
    use crate::trace::pieces::PIECE;
    use crate::trace::pieces::tests::Full;

    #[test]
    fn the_limit_is_the_number_of_events() {
        let hit = Hit::new(b"cat", 0, &[]);
        let probes = vec![probe("f", &[])];
        let mut printer = Printer::new(Vec::new(), Format::Jsonl, probes).limit(Some(2));
        let flows: Vec<_> = (0..4).map(|_| printer.print(&hit.event()).is_break()).collect();
        assert_eq!(flows, [false, true, true, true]);
        assert_eq!(printer.printed(), 2);
        assert!(printer.caught_up().is_continue());
        assert_eq!(printer.pieces.writer.iter().filter(|&&byte| byte == b'\n').count(), 2);
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
