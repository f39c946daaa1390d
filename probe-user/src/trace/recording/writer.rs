//! Writing a recording.

use super::block::Block;
use super::format::{ALIGN, MAGIC, Preamble, SectionHeader, Tag, VERSION};
use super::header::Header;
use super::notes::{CpuNote, LossNote, MalformedNote};
use super::symbols::look_up;
use crate::consumer::{Consumer, CpuChange, Loss, Malformed};
use crate::trace::account::Account;
use crate::trace::event::TraceEvent;
use crate::trace::origin::Origin;
use crate::trace::pieces::Pieces;
use crate::trace::probe::Probe;
use crate::trace::symbolize::Symbols;
use probe_common::RawRecord;
use probe_common::limits::MAX_PAYLOAD;
use serde::Serialize;
use std::io::{self, Write};
use std::ops::ControlFlow;
use zerocopy::IntoBytes;

/// Writes everything that it is given, up to a limit of events, for a [`Recording`](super::Recording) to
/// give it again.
///
/// It breaks the drain at the limit, and when writing fails: [`finish`](Self::finish) tells.
#[derive(Debug)]
pub struct Recorder<W> {
    pieces: Pieces<W>,
    /// Nothing is passed on while there is something in it: no event is taken for passed on that is in it.
    block: Block,
    probes: Vec<Probe>,
    symbols: Symbols,
    origin: Origin,
}

impl<W: Write> Recorder<W> {
    /// Records events of [`Tracer::probes`](crate::trace::Tracer::probes), and the names that `symbols` has
    /// for their addresses. `writer` gets many events at a time.
    pub fn new(writer: W, probes: Vec<Probe>, symbols: Symbols) -> Self {
        let (pieces, block) = (Pieces::new(writer), Block::default());
        Self { pieces, block, probes, symbols: symbols.noting(), origin: Origin::here() }
    }

    /// Stops after so many events.
    #[must_use]
    pub fn limit(mut self, events: Option<u64>) -> Self {
        self.pieces.limit(events);
        self
    }

    /// Where the events are from; from here, by default.
    #[must_use]
    pub fn origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// How many events were recorded.
    pub fn recorded(&self) -> u64 {
        self.pieces.events()
    }

    /// Writes what is traced: to be called before there are events.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn start(&mut self) -> io::Result<()> {
        let preamble = Preamble { magic: MAGIC, version: VERSION.into(), reserved: 0.into() };
        self.pieces.out.extend_from_slice(preamble.as_bytes());
        let header = Header::new(self.origin.clone(), &self.probes);
        self.section(Tag::Header, 0, &header)?;
        self.pieces.start()
    }

    /// Writes what is still buffered, and what became of everything, without which a recording is cut off.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or could not be earlier.
    pub fn finish(&mut self, ledger: impl Into<Account>) -> io::Result<()> {
        if !self.pieces.has_failed() {
            self.block.write(&mut self.pieces.out);
            self.section(Tag::Ledger, 0, &ledger.into())?;
        }
        self.pieces.finish()
    }

    /// Writes a section behind what was recorded before.
    fn section(&mut self, tag: Tag, cpu: u32, content: &impl Serialize) -> io::Result<()> {
        self.block.write(&mut self.pieces.out);
        let bytes = serde_json::to_vec(content)?;
        let Some(header) = SectionHeader::new(tag, cpu, bytes.len()) else {
            let what = format!("{} bytes are too many for a section", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let out = &mut self.pieces.out;
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(&bytes);
        out.resize(out.len().next_multiple_of(ALIGN), 0);
        Ok(())
    }

    /// The same for what happens between events.
    fn note(&mut self, tag: Tag, cpu: u32, content: &impl Serialize) -> ControlFlow<()> {
        if self.pieces.is_done() {
            return ControlFlow::Break(());
        }
        match self.section(tag, cpu, content) {
            Ok(()) => self.pieces.flush_piece(),
            Err(error) => self.pieces.fail(error),
        }
    }

    /// Writes the names that an event needs, and that none needed before.
    fn name(&mut self, event: &TraceEvent<'_>, probe: usize) -> ControlFlow<()> {
        look_up(event, &self.probes[probe], &mut self.symbols);
        let learnt = self.symbols.learnt();
        if learnt.is_empty() {
            return ControlFlow::Continue(());
        }
        self.note(Tag::Symbols, 0, &learnt)
    }
}

impl<W: Write> Consumer for Recorder<W> {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        if self.pieces.is_done() {
            return ControlFlow::Break(());
        }
        if record.payload.len() > MAX_PAYLOAD {
            let what = "a record is longer than any that a ring carries";
            return self.pieces.fail(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let event = TraceEvent::decode(cpu, record);
        let event = event.filter(|event| (event.probe as usize) < self.probes.len());
        if let Some(event) = &event {
            self.name(event, event.probe as usize)?;
        }
        if !self.block.has_room(cpu, &record) {
            self.block.write(&mut self.pieces.out);
            self.pieces.flush_piece()?;
        }
        self.block.push(cpu, &record);
        if event.is_some() { self.pieces.count() } else { ControlFlow::Continue(()) }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.note(Tag::Lost, loss.cpu, &LossNote::of(&loss))
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        self.note(Tag::Malformed, malformed.cpu, &MalformedNote::of(&malformed))
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        match change {
            CpuChange::Uncovered { .. } => log::warn!("{change}"),
            _ => log::info!("{change}"),
        }
        let (cpu, note) = CpuNote::of(&change);
        // It breaks with the next record.
        let _ = self.note(Tag::Cpu, cpu, &note);
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.block.write(&mut self.pieces.out);
        self.pieces.flush()
    }
}
