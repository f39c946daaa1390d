//! Writes a recording.

use super::format::{ALIGN, BLOCK_AT, MAGIC, Preamble, SectionHeader, Tag, VERSION};
use super::header::Header;
use super::notes::{CpuNote, DumpNote, FailureNote, LossNote, MalformedNote};
use crate::output::pieces::Pieces;
use crate::output::{ClockChanges, Names, Origin, log_cpu_change};
use crate::resolve::event::{TraceEvent, Value};
use crate::resolve::probe::Probe;
use crate::session::ledger::Account;
use crate::symbolize::{Learnt, Symbols};
use probe_common::block::record_span;
use probe_common::limits::{MAX_PAYLOAD, RECORD_ALIGN};
use probe_common::record::RecordHeader;
use probe_common::{BlockPrefix, RawRecord};
use probe_user::flight::Dump;
use probe_user::{Consumer, CpuChange, Failure, Loss, Malformed};
use serde::Serialize;
use std::io::{self, Write};
use std::iter;
use std::ops::ControlFlow;
use zerocopy::IntoBytes;

/// Writes everything that it receives, up to a limit of events, for a [`Recording`](super::Recording) to
/// replay.
///
/// It breaks the drain at the limit and when writing fails; [`finish`](Self::finish) returns the error.
#[derive(Debug)]
pub struct Recorder<W> {
    pieces: Pieces<W>,
    /// Pieces are passed on only while the block is empty, so that no event in it counts as passed on.
    block: Block,
    probes: Vec<Probe>,
    symbols: Symbols,
    origin: Origin,
    /// Whether the events come from elsewhere.
    is_copy: bool,
    /// The changes of this machine's wall clock.
    clock: Option<ClockChanges>,
}

impl<W: Write> Recorder<W> {
    /// Records events of [`Tracer::probes`](crate::Tracer::probes), and the names that `symbols` has for their
    /// addresses. `writer` receives many events at a time.
    pub fn new(writer: W, probes: Vec<Probe>, symbols: Symbols) -> Self {
        let (pieces, block) = (Pieces::new(writer), Block::default());
        let (origin, symbols) = (Origin::here(), symbols.noting());
        Self { pieces, block, probes, symbols, origin, is_copy: false, clock: None }
    }

    /// Stops after this many events.
    #[must_use]
    pub fn limit(mut self, events: Option<u64>) -> Self {
        self.pieces.left = events;
        self
    }

    /// The origin of the events; by default, this process.
    #[must_use]
    pub fn origin(mut self, origin: Origin) -> Self {
        (self.origin, self.is_copy) = (origin, true);
        self
    }

    /// Follows these changes of the wall clock instead of this machine's.
    #[cfg(test)]
    pub(super) fn follow(&mut self, changes: ClockChanges) {
        self.clock = Some(changes);
    }

    /// The number of events recorded.
    pub fn recorded(&self) -> u64 {
        self.pieces.events
    }

    /// Writes the header. Call this before any event arrives.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn start(&mut self) -> io::Result<()> {
        let preamble = Preamble { magic: MAGIC, version: VERSION.into(), reserved: 0.into() };
        self.pieces.out.extend_from_slice(preamble.as_bytes());
        let header = Header::new(self.origin.clone(), &self.probes);
        self.section(Tag::Header, 0, &header)?;
        if !self.is_copy {
            self.clock = ClockChanges::of_this_machine(self.origin.realtime_offset);
        }
        self.pieces.start()
    }

    /// Writes everything still buffered, and the ledger. A recording without a ledger counts as truncated.
    ///
    /// # Errors
    ///
    /// If writing fails or has failed before.
    pub fn finish(&mut self, ledger: impl Into<Account>) -> io::Result<()> {
        if !self.pieces.has_failed() {
            self.block.write(&mut self.pieces.out);
            self.section(Tag::Ledger, 0, &ledger.into())?;
        }
        self.pieces.finish()
    }

    /// Writes a section after what was recorded before.
    fn section(&mut self, tag: Tag, cpu: u32, content: &impl Serialize) -> io::Result<()> {
        self.block.write(&mut self.pieces.out);
        let bytes = serde_json::to_vec(content)?;
        let Some(header) = SectionHeader::new(tag, cpu, bytes.len()) else {
            let what = format!("a section cannot hold {} bytes", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let out = &mut self.pieces.out;
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(&bytes);
        out.resize(out.len().next_multiple_of(ALIGN), 0);
        Ok(())
    }

    /// Writes a section between events.
    pub(super) fn note(&mut self, tag: Tag, cpu: u32, content: &impl Serialize) -> ControlFlow<()> {
        self.pieces.accepts()?;
        match self.section(tag, cpu, content) {
            Ok(()) => self.pieces.flush_piece(),
            Err(error) => self.pieces.fail(error),
        }
    }

    /// Notes the changes of the wall clock, before the records that need them.
    fn look_at_clock(&mut self) -> ControlFlow<()> {
        let Some(changes) = &mut self.clock else { return ControlFlow::Continue(()) };
        let news = changes.news();
        news.iter().try_for_each(|change| self.note(Tag::Clock, 0, change))
    }

    /// Looks up every address of the event, as outputs do. Writes the names that no earlier event has needed.
    fn name(&mut self, event: &TraceEvent<'_>, probe: usize) -> ControlFlow<()> {
        let mut names = Names::of(event, &mut self.symbols);
        for (field, value) in event.values(&self.probes[probe]) {
            match value {
                Value::Stack(addresses) => drop(names.stack(&field.shape, addresses)),
                Value::Integer(address) if field.is_symbol() => drop(names.symbol(address)),
                _ => {}
            }
        }
        match self.symbols.learnt() {
            learnt if learnt.is_empty() => ControlFlow::Continue(()),
            learnt => self.names(learnt),
        }
    }

    /// Writes names of addresses.
    pub(super) fn names(&mut self, mut learnt: Vec<Learnt>) -> ControlFlow<()> {
        self.pieces.accepts()?;
        let mut written = self.section(Tag::Symbols, 0, &learnt);
        // A recording goes on even if a traced program has such names.
        if is_too_long(&written) {
            log::warn!("functions have no names in the recording, because the names are too long");
            learnt.iter_mut().for_each(|learnt| learnt.keep(iter::empty()));
            written = self.section(Tag::Symbols, 0, &learnt);
        }
        match written {
            Err(error) => self.pieces.fail(error),
            Ok(()) => self.pieces.flush_piece(),
        }
    }
}

impl<W: Write> Consumer for Recorder<W> {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.pieces.accepts()?;
        if record.payload.len() > MAX_PAYLOAD {
            let what = "the record is longer than a ring can carry";
            return self.pieces.fail(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.look_at_clock()?;
        let Some(event) = TraceEvent::of(&self.probes, cpu, record) else {
            return self.malformed(TraceEvent::undecodable(cpu, record));
        };
        self.name(&event, event.probe as usize)?;
        if !self.block.has_room(cpu, &record) {
            self.block.write(&mut self.pieces.out);
            self.pieces.flush_piece()?;
        }
        self.block.push(cpu, &record);
        self.pieces.count()
    }

    fn accepts(&mut self) -> ControlFlow<()> {
        self.pieces.accepts()
    }

    fn lost(&mut self, Loss { cpu, count: outputs, records, .. }: Loss) -> ControlFlow<()> {
        self.note(Tag::Lost, cpu, &LossNote { outputs, records })
    }

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        self.note(Tag::Failed, failure.cpu, &FailureNote::of(failure))
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        self.note(Tag::Malformed, malformed.cpu, &MalformedNote::of(&malformed))
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        log_cpu_change(&change);
        // The next record breaks instead.
        let _ = self.note(Tag::Cpu, change.cpu(), &CpuNote::of(&change));
    }

    fn dump(&mut self, dump: Dump) {
        // The next record breaks instead.
        let _ = self.note(Tag::Dump, 0, &DumpNote::of(dump));
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.block.write(&mut self.pieces.out);
        self.pieces.flush()
    }
}

fn is_too_long(written: &io::Result<()>) -> bool {
    written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput)
}

/// The space for records in a block, in bytes.
const ROOM: usize = record_span(MAX_PAYLOAD);
const _: () = assert!(ROOM / RECORD_ALIGN <= u16::MAX as usize);

/// Consecutive records of one CPU, collected into a section.
#[derive(Debug, Default)]
struct Block {
    cpu: u32,
    records: Vec<u8>,
}

impl Block {
    /// Whether a record can be appended.
    fn has_room(&self, cpu: u32, record: &RawRecord<'_>) -> bool {
        let is_its_cpu = self.cpu == cpu || self.records.is_empty();
        is_its_cpu && self.records.len() + record_span(record.payload.len()) <= ROOM
    }

    fn push(&mut self, cpu: u32, record: &RawRecord<'_>) {
        let &RawRecord { kind, time, payload } = record;
        self.cpu = cpu;
        let end = self.records.len() + record_span(payload.len());
        let header = RecordHeader { kind, len: payload.len() as u32, time };
        self.records.extend_from_slice(header.as_bytes());
        self.records.extend_from_slice(payload);
        self.records.resize(end, 0);
    }

    /// Writes the section if it has any records, and starts a new one.
    fn write(&mut self, out: &mut Vec<u8>) {
        let words = self.records.len() / RECORD_ALIGN;
        let prefix = BlockPrefix::new(words as u16, 0, 0);
        let len = BLOCK_AT + size_of::<BlockPrefix>() + self.records.len();
        if words > 0
            && let Some(header) = SectionHeader::new(Tag::Records, self.cpu, len)
        {
            out.extend_from_slice(header.as_bytes());
            out.extend_from_slice(&[0; BLOCK_AT]);
            out.extend_from_slice(prefix.as_bytes());
            out.append(&mut self.records);
        }
    }
}
