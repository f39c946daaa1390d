//! Writes the events of a drain in one of the formats.

use super::clock::{Time, Times};
use super::form::{Failed, Form, Lost, Notice};
use super::jsonl::Jsonl;
use super::names::Names;
use super::perfetto::Perfetto;
use super::table::Table;
use super::wall_clock::ClockChanges;
use super::{Format, Origin, log_cpu_change};
use crate::output::pieces::Pieces;
use crate::resolve::event::TraceEvent;
use crate::resolve::probe::Probe;
use crate::session::ledger::Account;
use crate::symbolize::Symbols;
use probe_common::RawRecord;
use probe_user::flight::Dump;
use probe_user::{Consumer, CpuChange, Failure, Loss, Malformed};
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Writes every event that it receives, up to a limit.
///
/// It breaks the drain at the limit and when writing fails; [`finish`](Self::finish) returns the error.
#[derive(Debug)]
pub struct Printer<W> {
    pieces: Pieces<W>,
    form: Box<dyn Form>,
    probes: Vec<Probe>,
    times: Times,
    symbols: Symbols,
    origin: Origin,
    /// Whether the events come from a recording.
    is_replay: bool,
}

impl<W: Write> Printer<W> {
    /// Writes events of [`Tracer::probes`](crate::Tracer::probes) to `writer`, which receives many events at a
    /// time.
    pub fn new(writer: W, format: Format, probes: Vec<Probe>) -> Self {
        let form: Box<dyn Form> = match format {
            Format::Table => Box::new(Table::new(&probes)),
            Format::Jsonl => Box::new(Jsonl::new(&probes)),
            Format::Perfetto => Box::new(Perfetto::new(&probes)),
        };
        let origin = Origin::here();
        let times = Times::new(Time::Mono, origin.realtime_offset);
        let (pieces, symbols) = (Pieces::new(writer), Symbols::none());
        Self { pieces, form, probes, times, symbols, origin, is_replay: false }
    }

    /// Stops after this many events.
    #[must_use]
    pub fn limit(mut self, events: Option<u64>) -> Self {
        self.pieces.left = events;
        self
    }

    /// How times are printed; by default, as `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.times = self.times.with(time);
        self
    }

    /// The origin of the events; by default, this process.
    #[must_use]
    pub fn origin(mut self, origin: Origin) -> Self {
        self.times.begun = origin.realtime_offset;
        (self.origin, self.is_replay) = (origin, true);
        self
    }

    /// Follows the changes of the wall clock during a recording, whose [`origin`](Self::origin) has the time of its
    /// beginning.
    #[must_use]
    pub fn clock_changes(mut self, changes: ClockChanges) -> Self {
        self.times.follow(changes);
        self
    }

    /// Where names of addresses come from; without it, addresses are printed as numbers.
    #[must_use]
    pub fn symbols(mut self, symbols: Symbols) -> Self {
        self.symbols = symbols;
        self
    }

    /// The number of events written.
    pub fn printed(&self) -> u64 {
        self.pieces.events
    }

    /// Writes what the format has before the events, if anything. Call this before any event arrives.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn start(&mut self) -> io::Result<()> {
        if self.times.time == Time::Local
            && !self.is_replay
            && let Some(changes) = ClockChanges::of_this_machine(self.origin.realtime_offset)
        {
            self.times.follow(changes);
        }
        self.form.notice(&mut self.pieces.out, &Notice::start(&self.probes, &self.origin));
        self.pieces.start()
    }

    /// Writes everything still buffered and the format's end with the ledger, which is a
    /// [`TraceLedger`](crate::TraceLedger) or comes from a recording.
    ///
    /// # Errors
    ///
    /// If writing fails or has failed before.
    pub fn finish(&mut self, ledger: impl Into<Account>) -> io::Result<()> {
        if !self.pieces.has_failed() {
            let (events, account) = (self.pieces.events, &ledger.into());
            self.form.notice(&mut self.pieces.out, &Notice::Ledger { events, account });
        }
        self.pieces.finish()
    }

    /// Writes everything still buffered, for an input that was truncated: the output has no ledger.
    ///
    /// # Errors
    ///
    /// If writing fails or has failed before.
    pub fn cut_off(&mut self) -> io::Result<()> {
        self.pieces.finish()
    }

    /// Prints an event of one of the probes.
    fn print(&mut self, event: &TraceEvent<'_>) -> ControlFlow<()> {
        self.pieces.accepts()?;
        let probe = &self.probes[event.probe as usize];
        let stamp = self.times.stamp(event.time);
        let mut names = Names::of(event, &mut self.symbols);
        self.form.event(&mut self.pieces.out, event, probe, stamp, &mut names);
        let flow = self.pieces.count();
        self.pieces.flush_piece()?;
        flow
    }

    fn notice(&mut self, notice: &Notice<'_>) -> ControlFlow<()> {
        self.pieces.accepts()?;
        self.form.notice(&mut self.pieces.out, notice);
        self.pieces.flush_piece()
    }
}

impl<W: Write> Consumer for Printer<W> {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        match TraceEvent::of(&self.probes, cpu, record) {
            Some(event) => self.print(&event),
            None => self.malformed(TraceEvent::undecodable(cpu, record)),
        }
    }

    fn accepts(&mut self) -> ControlFlow<()> {
        self.pieces.accepts()
    }

    fn lost(&mut self, Loss { cpu, records, count: outputs, .. }: Loss) -> ControlFlow<()> {
        self.notice(&Notice::Lost(Lost { cpu, records, outputs }))
    }

    fn failed(&mut self, Failure { cpu, class: reason, records, .. }: Failure) -> ControlFlow<()> {
        self.notice(&Notice::Failed(Failed { cpu, records, reason }))
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        let Malformed { cpu, bytes, reason, .. } = malformed;
        self.notice(&Notice::Malformed { cpu, bytes, reason: reason.to_string() })
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        log_cpu_change(&change);
        // The next record breaks instead.
        let _ = self.notice(&(&change).into());
    }

    fn dump(&mut self, Dump { number, records, overwritten, .. }: Dump) {
        // The next record breaks instead.
        let _ = self.notice(&Notice::Dump { number, records, overwritten });
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.pieces.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::probe;
    use super::*;
    use crate::output::pieces::PIECE;
    use crate::output::pieces::tests::Full;
    use crate::resolve::event::Value;
    use crate::resolve::event::tests::Hit;
    use crate::resolve::shape::Shape;
    use crate::session::ledger::TraceLedger;
    use probe_sys::escape::hostile::{hostile, reaches_the_terminal_raw};
    use proptest::prelude::*;
    use serde_json::Value as Json;

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
    fn a_failed_write_is_reported_once_and_stops_the_trace() {
        let hit = Hit::new(b"cat", 0, &[]);
        for format in [Format::Table, Format::Jsonl] {
            let probes = vec![probe("f", &[])];
            let mut printer = Printer::new(Full(PIECE * 3 / 2), format, probes);
            let events =
                1 + (0..100_000).take_while(|_| printer.print(&hit.event()).is_continue()).count();
            let printed = printer.printed();
            assert!(0 < printed && printed < events as u64, "{printed} of {events}");
            assert!(printer.print(&hit.event()).is_break() && printer.caught_up().is_break());
            let error = printer.finish(&TraceLedger::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert_eq!(printer.printed(), printed);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_printed_on_one_line_and_escaped(comm in hostile(6), filename in hostile(40)) {
            let hit = Hit::new(&comm[..comm.len().min(15)], 0, &[Value::Bytes(&filename)]);
            // The timeline names the thread and the process first.
            for (format, lines) in [(Format::Table, 1), (Format::Jsonl, 1), (Format::Perfetto, 3)] {
                let probes = vec![probe("t:a:b", &[("filename", Shape::Text)])];
                let mut printer = Printer::new(Vec::new(), format, probes);
                prop_assert!(printer.print(&hit.event()).is_continue());
                let text = str::from_utf8(&printer.pieces.out).unwrap();
                let printed: Vec<_> = text.strip_suffix('\n').unwrap().split('\n').collect();
                prop_assert_eq!(printed.len(), lines);
                prop_assert!(!printed.concat().chars().any(reaches_the_terminal_raw), "{printed:?}");
                if format == Format::Table {
                    continue;
                }
                let json = |line: &str| serde_json::from_str::<Json>(line.trim_end_matches(',')).unwrap();
                let (first, last) = (json(printed[0]), json(printed[lines - 1]));
                let fields = if format == Format::Jsonl { &last["args"] } else { &last["args"]["fields"] };
                prop_assert_eq!(&fields["filename"], &*String::from_utf8_lossy(&filename));
                let name = if format == Format::Jsonl { &first["comm"] } else { &first["args"]["name"] };
                prop_assert_eq!(name, &*String::from_utf8_lossy(hit.event().task.comm()));
            }
        }
    }
}
