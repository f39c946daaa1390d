//! Trace events: the tracer's records, as one type.

use super::probe::Probe;
use super::resolve::PlannedField;
use super::shape::{Field, Shape};
use probe_common::trace::{ProbeHit, Task};
use probe_common::{RawRecord, Record};

/// A probe was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent<'r> {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The CPU that it was hit on.
    pub cpu: u32,
    /// Who hit it.
    pub task: &'r Task,
    /// Which of the tracer's probes, in the order in which they were given.
    pub probe: u32,
    /// Which fields could not be read, a bit each.
    faults: u32,
    /// A word for each field, then strings and arrays.
    tail: &'r [u8],
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value<'r> {
    /// An integer, as its [`Shape`] says.
    Integer(u64),
    /// A string or bytes.
    Bytes(&'r [u8]),
    /// Where functions were, from the innermost on.
    Stack(Addresses<'r>),
    /// It could not be read: the memory is not there, or not in memory right now; or, of a
    /// [counter](super::TracerBuilder::counter), what was counted is not known.
    Fault,
}

/// The addresses of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<'r>(&'r [[u8; 8]]);

impl<'r> Addresses<'r> {
    /// Words of 8 bytes, as they are in memory.
    pub fn new(bytes: &'r [u8]) -> Self {
        Self(bytes.as_chunks().0)
    }

    /// Each of them, from the innermost on: the first is where the hook is, the others are where calls
    /// return to.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + use<'r> {
        self.0.iter().copied().map(u64::from_ne_bytes)
    }
}

impl<'r> TraceEvent<'r> {
    /// Reads a record. `None` if it is none of the tracer's, or too short for its kind.
    #[inline]
    pub fn decode(cpu: u32, record: RawRecord<'r>) -> Option<Self> {
        if record.kind != ProbeHit::KIND {
            return None;
        }
        let (hit, tail) = record.read::<ProbeHit>()?;
        let &ProbeHit { probe, faults, .. } = hit;
        Some(Self { time: record.time, cpu, task: &hit.task, probe, faults, tail })
    }

    /// The fields of `probe`, which has to be the one that was hit, and their values.
    pub fn values<'e>(
        &'e self,
        probe: &'e Probe,
    ) -> impl ExactSizeIterator<Item = (&'e Field, Value<'r>)> + use<'e, 'r> {
        probe.slots().iter().map(|field| (&field.field, self.value(field)))
    }

    fn value(&self, field: &PlannedField) -> Value<'r> {
        if self.faults.checked_shr(field.slot.into()).is_none_or(|faults| faults & 1 != 0) {
            return Value::Fault;
        }
        let Some(word) = self.tail.get(8 * usize::from(field.slot)..).and_then(<[u8]>::first_chunk)
        else {
            return Value::Fault;
        };
        let word = u64::from_ne_bytes(*word);
        let bytes = || {
            let (begin, len) = ((word & 0xffff_ffff) as usize, (word >> 32) as usize);
            self.tail.get(begin..).and_then(|rest| rest.get(..len))
        };
        match field.field.shape {
            Shape::Text | Shape::Bytes => bytes().map_or(Value::Fault, Value::Bytes),
            Shape::KernelStack | Shape::UserStack => {
                bytes().map_or(Value::Fault, |bytes| Value::Stack(Addresses::new(bytes)))
            }
            _ => Value::Integer(word),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use probe_common::trace::COMM_LEN;
    use zerocopy::{FromBytes, IntoBytes};

    /// A record's bytes: integers and strings, field by field.
    pub(crate) struct Hit {
        bytes: Vec<u64>,
        len: usize,
    }

    impl Hit {
        pub(crate) fn new(comm: &[u8], faults: u32, values: &[Value<'_>]) -> Self {
            let mut name = [0; COMM_LEN];
            name[..comm.len()].copy_from_slice(comm);
            let task = Task { pid: 100, tid: 101, comm: name };
            let hit = ProbeHit { task, probe: 0, faults };
            let (mut words, mut data) = (Vec::new(), Vec::new());
            for value in values {
                words.push(match value {
                    Value::Integer(integer) => *integer,
                    Value::Bytes(bytes) => {
                        let begin = 8 * values.len() + data.len();
                        data.extend_from_slice(bytes);
                        begin as u64 | (bytes.len() as u64) << 32
                    }
                    Value::Stack(addresses) => {
                        let begin = 8 * values.len() + data.len();
                        data.extend_from_slice(addresses.0.as_flattened());
                        begin as u64 | (addresses.0.as_flattened().len() as u64) << 32
                    }
                    Value::Fault => 0,
                });
            }
            let bytes = [hit.as_bytes(), words.as_bytes(), &data].concat();
            let mut aligned = vec![0u64; bytes.len().div_ceil(8)];
            aligned.as_mut_bytes()[..bytes.len()].copy_from_slice(&bytes);
            Self { bytes: aligned, len: bytes.len() }
        }

        /// It is an event of this process.
        pub(crate) fn set_pid(&mut self, pid: u32) {
            let (hit, _) = ProbeHit::mut_from_prefix(self.bytes.as_mut_bytes()).unwrap();
            hit.task.pid = pid;
        }

        pub(crate) fn record(&self) -> RawRecord<'_> {
            let payload = &self.bytes.as_bytes()[..self.len];
            RawRecord { kind: ProbeHit::KIND, time: 12_000_000_345, payload }
        }

        pub(crate) fn event(&self) -> TraceEvent<'_> {
            TraceEvent::decode(3, self.record()).unwrap()
        }
    }
}
