//! Who receives what a drain finds.

use crate::batch::Batch;
use crate::error::OpenError;
use probe_common::{BlockError, RawRecord, RecordKind};
use std::fmt;
use std::ops::ControlFlow;

/// Receives records, losses and malformed bytes in the order in which their CPU emitted them.
///
/// [`EvHandlers`](crate::EvHandlers) is the usual one; implement it yourself to see every record,
/// of whatever kind, in one place. To return [`ControlFlow::Break`] stops the drain, which is not a
/// failure: what was given is consumed, and the next drain goes on behind it.
pub trait Consumer {
    /// A record, borrowed from the ring.
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()>;

    /// Records, one after another: by default, gives each to [`record`](Self::record). Implement it
    /// to handle many records at a time.
    ///
    /// A record is consumed when it is taken out of the batch. What an implementation leaves in
    /// there goes to `record`, unless it breaks.
    #[inline]
    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        while let Some((kind, len)) = batch.next_shape() {
            batch.take_run(kind, len, |record| self.record(cpu, record))?;
        }
        ControlFlow::Continue(())
    }

    /// The kernel had no room for some records, before the one that comes next.
    fn lost(&mut self, loss: Loss) -> ControlFlow<()>;

    /// Bytes that are not what they have to be. They have been skipped.
    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()>;

    /// A CPU has come or gone. Nothing needs to be done about it.
    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        let _ = change;
    }

    /// A dump of a flight recorder ([`Options::overwrite`](crate::Options::overwrite)) follows. Nothing needs
    /// to be done about it.
    fn dump(&mut self, dump: Dump) {
        let _ = dump;
    }

    /// A drain has given something, and nothing more is there at this moment: the time to pass on
    /// what is buffered.
    fn caught_up(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<C: Consumer + ?Sized> Consumer for &mut C {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        (**self).record(cpu, record)
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        (**self).batch(cpu, batch)
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        (**self).lost(loss)
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        (**self).malformed(malformed)
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        (**self).cpu_changed(change);
    }

    fn dump(&mut self, dump: Dump) {
        (**self).dump(dump);
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        (**self).caught_up()
    }
}

/// Outputs that a full ring did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The CPU whose ring was full.
    pub cpu: u32,
    /// How many outputs were lost. Each of them is a record; or, with
    /// [`Wakeup::Adaptive`](crate::Wakeup::Adaptive), a block of them. 0 if they were told before, and not
    /// all of their records were.
    pub count: u64,
    /// How many records were in them, as far as the eBPF side has counted when this is told: what it
    /// counts a moment later is told with the CPU's next loss, or when the pipe is closed. `None` where the
    /// pipe has no [`Tally`](crate::Tally).
    pub records: Option<u64>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.records {
            Some(records) => write!(f, "{records} records lost on CPU {}", self.cpu),
            None => write!(f, "{} outputs lost on CPU {}", self.count, self.cpu),
        }
    }
}

/// What a dump of a flight recorder has found in the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dump {
    /// How many dumps there were before.
    pub number: u64,
    /// Records that came since the last dump, and are there: they follow, by time.
    pub records: u64,
    /// Records that came since the last dump, and were overwritten. `None` where the pipe has no
    /// [`Tally`](crate::Tally).
    pub overwritten: Option<u64>,
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = if self.records == 1 { "event" } else { "events" };
        write!(f, "dump {}: {} {events}", self.number + 1, self.records)?;
        match self.overwritten {
            Some(before) => write!(f, ", {before} before them overwritten"),
            None => Ok(()),
        }
    }
}

/// A CPU has come or gone while the pipe was open.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CpuChange<'e> {
    /// It is online, and has a queue now.
    Covered {
        /// The CPU.
        cpu: u32,
    },
    /// It is offline. What it has emitted is in its ring still, or in its open block, which it sends
    /// when it comes back.
    Offline {
        /// The CPU.
        cpu: u32,
    },
    /// It is online, and has no queue: what it emits fails, and is counted.
    Uncovered {
        /// The CPU.
        cpu: u32,
        /// Why.
        error: &'e OpenError,
    },
}

impl fmt::Display for CpuChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Covered { cpu } => write!(f, "CPU {cpu} is online"),
            Self::Offline { cpu } => write!(f, "CPU {cpu} is offline"),
            Self::Uncovered { cpu, error } => {
                write!(f, "CPU {cpu} is online, and its events are lost: {error}")
            }
        }
    }
}

/// Bytes that are not what they have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Malformed {
    /// The CPU in whose ring they were.
    pub cpu: u32,
    /// How many bytes of the ring were skipped.
    pub bytes: u64,
    /// What is wrong with them.
    pub reason: MalformedReason,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of CPU {}'s ring skipped: {}", self.bytes, self.cpu, self.reason)
    }
}

/// What is wrong with bytes that a drain skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MalformedReason {
    /// The head is further from the tail than the ring is long. All of it was skipped.
    Positions,
    /// A perf record's size cannot be: all that was there was skipped, since nothing tells where
    /// the next record starts.
    RecordSize,
    /// A perf record is not as long as its contents claim.
    RecordBody,
    /// The raw data is not a block, or ends early.
    Block(BlockError),
    /// The payload is shorter than the type that its kind stands for.
    Payload {
        /// The kind.
        kind: RecordKind,
        /// Bytes of payload there are.
        len: usize,
        /// Bytes that the type has.
        needed: usize,
    },
}

impl fmt::Display for MalformedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Positions => write!(f, "its positions are further apart than it is long"),
            Self::RecordSize => write!(f, "a record's size cannot be"),
            Self::RecordBody => write!(f, "a record is shorter than its contents claim"),
            Self::Block(error) => error.fmt(f),
            Self::Payload { kind, len, needed } => {
                write!(f, "a record of kind {kind} has {len} bytes and needs {needed}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Given;
    use probe_common::{BlockWriter, Records};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use zerocopy::IntoBytes;

    /// Notes payloads, and does something else at one of them.
    struct Log {
        seen: Vec<String>,
        at: &'static str,
        then: fn() -> ControlFlow<()>,
    }

    impl Consumer for Log {
        fn record(&mut self, _: u32, record: RawRecord<'_>) -> ControlFlow<()> {
            self.seen.push(String::from_utf8_lossy(record.payload).into_owned());
            if self.seen.last().is_some_and(|last| last == self.at) {
                return (self.then)();
            }
            ControlFlow::Continue(())
        }

        fn lost(&mut self, _: Loss) -> ControlFlow<()> {
            unreachable!("nothing is lost")
        }

        fn malformed(&mut self, _: Malformed) -> ControlFlow<()> {
            unreachable!("the drain tells")
        }
    }

    /// Kinds and lengths, alike and not.
    const WRITTEN: [(u32, &str); 8] = [
        (7, "a"),
        (7, "b"),
        (7, "long enough for two words"),
        (7, "c"),
        (8, "d"),
        (8, "e"),
        (7, ""),
        (9, "f"),
    ];

    fn give(log: &mut Log, block: &[u8], consumed: usize) -> (ControlFlow<()>, u64, usize) {
        let mut given = Given::default();
        let records = Records::new(block).unwrap();
        let mut batch = Batch::of_block(records, consumed, block.len(), &mut given);
        let flow = catch_unwind(AssertUnwindSafe(|| log.batch(3, &mut batch)));
        (flow.unwrap_or(ControlFlow::Break(())), batch.close(), batch.consumed())
    }

    #[test]
    fn each_record_of_a_batch_is_given_once_whatever_happens_at_one() {
        let mut words = [0u64; 64];
        let mut writer = BlockWriter::new(&mut words.as_mut_bytes()[4..], 0).unwrap();
        for (kind, payload) in WRITTEN {
            assert!(writer.push(RecordKind::user(kind), 0, payload.as_bytes()));
        }
        let block = writer.finish();
        let payloads = WRITTEN.map(|(_, payload)| payload);
        let thens: [fn() -> _; 3] =
            [|| ControlFlow::Continue(()), || ControlFlow::Break(()), || panic!("on purpose")];
        for (turn, then) in thens.into_iter().enumerate() {
            for (at, payload) in payloads.into_iter().enumerate() {
                let mut log = Log { seen: Vec::new(), at: payload, then };
                let (flow, count, consumed) = give(&mut log, block, 0);
                if turn == 0 {
                    assert_eq!((flow, count), (ControlFlow::Continue(()), 8));
                } else {
                    assert_eq!((flow, count), (ControlFlow::Break(()), at as u64 + 1));
                    assert_eq!(log.seen, payloads[..=at]);
                    if at + 1 < payloads.len() {
                        assert_eq!(give(&mut log, block, consumed).1, 7 - at as u64);
                    }
                }
                assert_eq!(log.seen, payloads);
            }
        }
    }
}
