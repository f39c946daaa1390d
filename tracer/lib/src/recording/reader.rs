//! Reads a recording.

use super::format::{BLOCK_AT, MAGIC, Preamble, Tag, VERSION};
use super::header::Header;
use super::input::{Input, RecordingError, Section, malformed};
use super::name_sizes::NameSizes;
use super::notes::{CpuNote, DumpNote, FailureNote, LossNote, MalformedNote};
use crate::output::{ClockChanges, ClockNotes, Origin};
use crate::resolve::event::TraceEvent;
use crate::resolve::probe::Probe;
use crate::session::ledger::Account;
use crate::symbolize::{Learnt, Symbols};
use probe_common::limits::RECORD_ALIGN;
use probe_common::{BlockPrefix, Records};
use probe_sys::escape::Escaped;
use probe_tracer_common::fetch::FIELDS;
use probe_user::{Consumer, CpuChange, EvHandlers, Loss, Merge, OpenError};
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A recorded trace.
///
/// The file need not be trusted: any bytes are either replayed or reported as an error.
#[derive(Debug)]
pub struct Recording<R> {
    input: Input<R>,
    origin: Origin,
    probes: Vec<Probe>,
    /// Receives names, if anything does.
    names: Option<Sender<Learnt>>,
    /// Receives changes of the wall clock, if anything does.
    clock: Option<ClockNotes>,
    /// The current section of records, and the bytes of it that were delivered, from the first record.
    block: Option<(Section, usize)>,
    ledger: Option<Account>,
    /// Events that were delivered late although order by time was requested.
    late: u64,
    /// Whether the consumer has caught up once it has received a section of records.
    is_live: bool,
}

/// The memory for records held during a merge by time, in bytes. A record that is older than everything already
/// released is late.
const HELD: usize = 64 << 20;

impl<R: Read> Recording<R> {
    /// Reads the header. `reader` is read in small steps, so a [`BufReader`](std::io::BufReader) is advisable.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a recording in this version of the format.
    pub fn open(reader: R) -> Result<Self, RecordingError> {
        let mut input = Input::new(reader);
        let mut preamble = Preamble::new_zeroed();
        let read = input.fill(preamble.as_mut_bytes())?;
        let begun = read.min(MAGIC.len());
        if read == 0 || preamble.magic[..begun] != MAGIC[..begun] {
            return Err(RecordingError::NotARecording);
        }
        if read < size_of::<Preamble>() {
            return Err(input.cut());
        }
        if preamble.version.get() != VERSION {
            return Err(RecordingError::Version { found: preamble.version.get() });
        }
        let Some(section) = input.section()? else { return Err(input.cut()) };
        if section.tag != Tag::Header {
            return Err(malformed(section.at, "the first section is not a header"));
        }
        let header: Header = input.json(&section)?;
        let origin = header.origin.clone();
        let probes =
            header.probes().map_err(|_| malformed(section.at, "a probe has an invalid spec"))?;
        if probes.iter().any(|probe| probe.fields().len() > FIELDS) {
            return Err(malformed(section.at, "a probe has too many fields"));
        }
        let fields = probes.iter().flat_map(Probe::fields);
        if fields.filter_map(|field| field.names.as_ref()).any(|names| names.are_too_many()) {
            return Err(malformed(section.at, "a field has too many names for its values"));
        }
        let (names, clock, block, ledger) = (None, None, None, None);
        Ok(Self { input, origin, probes, names, clock, block, ledger, late: 0, is_live: false })
    }

    /// The probes with their fields, in the order of their numbers.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Where it was recorded.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The recorded names of addresses, for the output that receives the events. Each name is available before
    /// the events that need it. Call this before [`replay`](Self::replay); only the result of the last call
    /// receives names.
    pub fn symbols(&mut self) -> Symbols {
        let (names, symbols) = Symbols::channel();
        self.names = Some(names);
        symbols
    }

    /// The changes of the wall clock, for the output that receives the events. Each is available before the events that
    /// need it. Call this before [`replay`](Self::replay); only the result of the last call receives changes.
    pub fn clock_changes(&mut self) -> ClockChanges {
        let (clock, changes) = ClockChanges::channel();
        self.clock = Some(clock);
        changes
    }

    /// For a recording that is still being written: tells the consumer of [`replay`](Self::replay) that it has
    /// [caught up](Consumer::caught_up) whenever the rest may be a while in coming, so that it can show what it has. Without this,
    /// it has caught up at the end.
    #[must_use]
    pub fn live(mut self, is_live: bool) -> Self {
        self.is_live = is_live;
        self
    }

    /// Delivers everything to `consumer` in recorded order, until the end or until it breaks. Another call
    /// continues after the last delivered record.
    ///
    /// # Errors
    ///
    /// If the recording is truncated or malformed. Everything before the fault was delivered.
    pub fn replay<C: Consumer>(
        &mut self,
        consumer: &mut C,
    ) -> Result<ControlFlow<()>, RecordingError> {
        loop {
            let had_records = self.block.is_some();
            if self.records(consumer)?.is_break()
                || self.is_live && had_records && consumer.caught_up().is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            if self.ledger.is_some() {
                return Ok(consumer.caught_up());
            }
            let Some(section) = self.input.section()? else { return Err(self.input.cut()) };
            if self.section(&section, consumer)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Like [`replay`](Self::replay), but merges the records of all CPUs by time, holding at most 64 MiB. A
    /// record that arrives too late to be ordered is still delivered, and counted in [`Account::late`]. Records
    /// that are still held when `consumer` breaks are dropped. Losses stay between the records of their CPU;
    /// other notes are delivered at once. Dumps of a flight recorder are merged one by one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`replay`](Self::replay).
    pub fn replay_by_time<C: Consumer>(
        &mut self,
        consumer: &mut C,
    ) -> Result<ControlFlow<()>, RecordingError> {
        // The clock of a replay is past every recorded time.
        let mut merge = Merge::new(0, HELD, || u64::MAX);
        // An earlier record may follow.
        self.is_live = false;
        let replayed = self.replay(&mut merge.intake(consumer));
        let released = match replayed {
            Ok(ControlFlow::Break(())) => ControlFlow::Break(()),
            _ => merge.release(u64::MAX, consumer),
        };
        self.late += merge.late();
        let _ = replayed?;
        Ok(if released.is_continue() { consumer.caught_up() } else { released })
    }

    /// Reads the rest, and returns the ledger at the end.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`replay`](Self::replay).
    pub fn close(mut self) -> Result<Account, RecordingError> {
        (self.names, self.clock) = (None, None);
        // Without handlers, nothing breaks.
        let _ = self.replay(&mut EvHandlers::new())?;
        let mut ledger = self.ledger.take().ok_or_else(|| self.input.cut())?;
        ledger.late = ledger.late.saturating_add(self.late);
        Ok(ledger)
    }

    fn section<C: Consumer>(
        &mut self,
        section: &Section,
        consumer: &mut C,
    ) -> Result<ControlFlow<()>, RecordingError> {
        let (input, cpu) = (&mut self.input, section.cpu);
        Ok(match section.tag {
            Tag::Header => return Err(malformed(section.at, "there is a second header")),
            Tag::Symbols => {
                let learnt: Vec<Learnt> = input.json(section)?;
                let sizes: Vec<NameSizes> = input.json(section)?;
                if let Some(names) = &self.names {
                    for (mut learnt, sizes) in learnt.into_iter().zip(&sizes) {
                        learnt.keep(sizes.are_usual());
                        // The receiver may be closed.
                        drop(names.send(learnt));
                    }
                }
                ControlFlow::Continue(())
            }
            Tag::Clock => {
                let change = input.json(section)?;
                if let Some(clock) = &self.clock {
                    clock.note(change);
                }
                ControlFlow::Continue(())
            }
            Tag::Records => {
                if !section.is_whole {
                    shorten(input.bytes_mut().get_mut(BLOCK_AT..).unwrap_or_default());
                }
                self.block = Some((*section, 0));
                ControlFlow::Continue(())
            }
            Tag::Lost => {
                let LossNote { outputs, records } = input.json(section)?;
                consumer.lost(Loss::new(cpu, outputs, records))
            }
            Tag::Failed => consumer.failed(input.json::<FailureNote>(section)?.failure(cpu)),
            Tag::Malformed => {
                consumer.malformed(input.json::<MalformedNote>(section)?.malformed(cpu))
            }
            Tag::Cpu => {
                match input.json(section)? {
                    CpuNote::Covered => consumer.cpu_changed(CpuChange::Covered { cpu }),
                    CpuNote::Offline => consumer.cpu_changed(CpuChange::Offline { cpu }),
                    CpuNote::Uncovered { why } => {
                        let message = Escaped(why.as_bytes()).to_string();
                        let error = OpenError::Reported { message };
                        consumer.cpu_changed(CpuChange::Uncovered { cpu, error: &error });
                    }
                }
                ControlFlow::Continue(())
            }
            Tag::Dump => {
                consumer.dump(input.json::<DumpNote>(section)?.dump());
                ControlFlow::Continue(())
            }
            Tag::Ledger => {
                let ledger = input.json(section)?;
                let end = input.at;
                if input.fill(&mut [0])? != 0 {
                    return Err(malformed(end, "there is data after the ledger"));
                }
                self.ledger = Some(ledger);
                ControlFlow::Continue(())
            }
        })
    }

    /// Delivers the rest of the current section of records, if any.
    fn records<C: Consumer>(
        &mut self,
        consumer: &mut C,
    ) -> Result<ControlFlow<()>, RecordingError> {
        let Some((section, offset)) = &mut self.block else { return Ok(ControlFlow::Continue(())) };
        let Section { cpu, at, is_whole, .. } = *section;
        let block = self.input.bytes().get(BLOCK_AT..).unwrap_or_default();
        let mut records = match Records::new(block) {
            Ok(records) => records.resume(*offset),
            Err(_) if !is_whole => return Err(self.input.cut()),
            Err(error) => return Err(malformed(at, error)),
        };
        while let Some(record) = records.next() {
            match record {
                Ok(record) if TraceEvent::of(&self.probes, cpu, record).is_none() => {
                    let before = BLOCK_AT + size_of::<BlockPrefix>() + *offset;
                    return Err(malformed(at + before as u64, "a record that belongs to no probe"));
                }
                Ok(record) => {
                    *offset = records.offset();
                    if consumer.record(cpu, record).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Err(_) if !is_whole => break,
                Err(error) => return Err(malformed(at, error)),
            }
        }
        if !is_whole {
            return Err(self.input.cut());
        }
        self.block = None;
        Ok(ControlFlow::Continue(()))
    }
}

/// Corrects the prefix of a truncated block, so that it claims no more than there is.
fn shorten(block: &mut [u8]) {
    let Some((prefix, records)) = block.split_at_mut_checked(size_of::<BlockPrefix>()) else {
        return;
    };
    let words = records.len() / RECORD_ALIGN;
    if let Ok(prefix) = BlockPrefix::mut_from_bytes(prefix) {
        prefix.used = prefix.used.min(words as u16);
    }
}
