//! Reading a recording.

use super::error::RecordingError;
use super::format::{BLOCK_AT, MAGIC, MAX_RECORDS, Preamble, Tag, VERSION};
use super::header::Header;
use super::input::{Input, Section};
use super::notes::{CpuNote, LossNote, MalformedNote};
use crate::consumer::{Consumer, CpuChange, Loss, Malformed};
use crate::error::OpenError;
use crate::escape::Escaped;
use crate::merge::Merge;
use crate::trace::account::Account;
use crate::trace::origin::Origin;
use crate::trace::probe::Probe;
use crate::trace::symbolize::{Learnt, Symbols};
use probe_common::limits::RECORD_ALIGN;
use probe_common::{BlockPrefix, RawRecord, Records};
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A recorded trace.
///
/// Whatever bytes it is made of, it is read, or told where it is wrong: it may be somebody else's.
#[derive(Debug)]
pub struct Recording<R> {
    input: Input<R>,
    origin: Origin,
    probes: Vec<Probe>,
    teller: Option<Sender<Learnt>>,
    block: Option<Given>,
    ledger: Option<Account>,
    /// Events that were given out of the order of time that was asked for.
    late: u64,
}

/// Bytes of memory for records that are held until it is their turn: what is older than those, and comes
/// later, is out of order.
const HELD: usize = 64 << 20;

/// A section of records that is given, and how much of it was.
#[derive(Clone, Copy, Debug)]
struct Given {
    section: Section,
    /// In bytes, from the first record.
    offset: usize,
}

impl<R: Read> Recording<R> {
    /// Reads what is traced. `reader` is asked for a section at a time, and for the few bytes before it: a
    /// [`BufReader`](std::io::BufReader) is of use.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is none that this version reads.
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
        let Some(section) = input.section(longest)? else { return Err(input.cut()) };
        if section.tag != Tag::Header {
            return Err(malformed(section.at, "it does not begin with what is traced"));
        }
        let header: Header = input.json(&section)?;
        let origin = header.origin.clone();
        let probes = header
            .probes()
            .map_err(|_| malformed(section.at, "one of its probes is written as none can be"))?;
        Ok(Self { input, origin, probes, teller: None, block: None, ledger: None, late: 0 })
    }

    /// The probes, in the order of their numbers, and what their events have.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Where it was recorded.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The names of addresses, which are there for each event once it is given: for the output that the
    /// events are replayed to. To be called before they are; whoever calls it last is told the names.
    pub fn symbols(&mut self) -> Symbols {
        let (teller, symbols) = Symbols::told();
        self.teller = Some(teller);
        symbols
    }

    /// Gives everything to `consumer`, in the order in which it was recorded, up to the end, or until it
    /// breaks; then it goes on, when it is called once more, behind what was given.
    ///
    /// # Errors
    ///
    /// If the recording ends too early, or something in it cannot be: what is before was given.
    pub fn replay<C: Consumer>(
        &mut self,
        consumer: &mut C,
    ) -> Result<ControlFlow<()>, RecordingError> {
        loop {
            if self.records(consumer)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if self.ledger.is_some() {
                return Ok(consumer.caught_up());
            }
            let Some(section) = self.input.section(longest)? else { return Err(self.input.cut()) };
            if self.section(&section, consumer)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// The same with records of all CPUs by time, as far as those that belong together are within 64 MiB:
    /// those that are not are given where they are, and [`Account::late`] has how many. What is held when
    /// `consumer` breaks is not given any more. Losses, and what else is no record, do not wait.
    ///
    /// # Errors
    ///
    /// Those of [`replay`](Self::replay).
    pub fn replay_by_time<C: Consumer>(
        &mut self,
        consumer: &mut C,
    ) -> Result<ControlFlow<()>, RecordingError> {
        // Nothing that was recorded lies ahead.
        let mut merge = Merge::new(0, HELD, || u64::MAX);
        let replayed = self.replay(&mut merge.intake(consumer));
        let given = match replayed {
            Ok(ControlFlow::Break(())) => ControlFlow::Break(()),
            _ => merge.release(u64::MAX, consumer),
        };
        self.late += merge.late();
        let _ = replayed?;
        Ok(if given.is_continue() { consumer.caught_up() } else { given })
    }

    /// What became of everything, which is behind whatever was not replayed.
    ///
    /// # Errors
    ///
    /// Those of [`replay`](Self::replay).
    pub fn close(mut self) -> Result<Account, RecordingError> {
        self.teller = None;
        // It never breaks.
        let _ = self.replay(&mut Nobody)?;
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
            Tag::Header => return Err(malformed(section.at, "it begins once more")),
            Tag::Symbols => {
                let learnt: Vec<Learnt> = input.json(section)?;
                if let Some(teller) = &self.teller {
                    // Nobody may want them any more.
                    learnt.into_iter().for_each(|learnt| drop(teller.send(learnt)));
                }
                ControlFlow::Continue(())
            }
            Tag::Records => {
                if !section.is_whole {
                    shorten(input.bytes_mut().get_mut(BLOCK_AT..).unwrap_or_default());
                }
                self.block = Some(Given { section: *section, offset: 0 });
                ControlFlow::Continue(())
            }
            Tag::Lost => consumer.lost(input.json::<LossNote>(section)?.loss(cpu)),
            Tag::Malformed => {
                consumer.malformed(input.json::<MalformedNote>(section)?.malformed(cpu))
            }
            Tag::Cpu => {
                match input.json(section)? {
                    CpuNote::Covered => consumer.cpu_changed(CpuChange::Covered { cpu }),
                    CpuNote::Offline => consumer.cpu_changed(CpuChange::Offline { cpu }),
                    CpuNote::Uncovered { why } => {
                        let error = OpenError::Told { why: Escaped(why.as_bytes()).to_string() };
                        consumer.cpu_changed(CpuChange::Uncovered { cpu, error: &error });
                    }
                }
                ControlFlow::Continue(())
            }
            Tag::Ledger => {
                let ledger = input.json(section)?;
                let end = input.at();
                if input.fill(&mut [0])? != 0 {
                    return Err(malformed(end, "there is something behind the ledger"));
                }
                self.ledger = Some(ledger);
                ControlFlow::Continue(())
            }
        })
    }

    /// Gives what is left of the section of records at hand, if there is any.
    fn records<C: Consumer>(
        &mut self,
        consumer: &mut C,
    ) -> Result<ControlFlow<()>, RecordingError> {
        let Some(given) = &mut self.block else { return Ok(ControlFlow::Continue(())) };
        let Section { cpu, at, is_whole, .. } = given.section;
        let block = self.input.bytes().get(BLOCK_AT..).unwrap_or_default();
        let mut records = match Records::new(block) {
            Ok(records) => records.resume(given.offset),
            Err(_) if !is_whole => return Err(self.input.cut()),
            Err(error) => return Err(malformed(at, error)),
        };
        while let Some(record) = records.next() {
            match record {
                Ok(record) => {
                    given.offset = records.offset();
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

/// How long a section can be.
fn longest(tag: Tag) -> usize {
    if tag == Tag::Records { MAX_RECORDS } else { u32::MAX as usize }
}

/// Has the prefix of a block that is cut off claim no more than there is.
fn shorten(block: &mut [u8]) {
    let Some((prefix, records)) = block.split_at_mut_checked(size_of::<BlockPrefix>()) else {
        return;
    };
    let words = records.len() / RECORD_ALIGN;
    if let Ok(prefix) = BlockPrefix::mut_from_bytes(prefix) {
        prefix.used = prefix.used.min(words as u16);
    }
}

fn malformed(at: u64, what: impl ToString) -> RecordingError {
    RecordingError::Malformed { at, what: what.to_string() }
}

/// Reads what nobody wants.
struct Nobody;

impl Consumer for Nobody {
    fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn lost(&mut self, _: Loss) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, _: Malformed) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
