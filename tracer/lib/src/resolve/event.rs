//! Trace events, decoded from the tracer's records.

use super::PlannedField;
use super::probe::Probe;
use super::shape::{Field, Shape};
use probe_common::{RawRecord, Record, record_span};
use probe_tracer_common::fetch::{NULL, SHORT, TRUNCATED};
use probe_tracer_common::trace::{ProbeHit, Task};
use probe_user::{Malformed, MalformedReason};

/// A hit of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent<'r> {
    /// The time of the hit: `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The CPU of the hit.
    pub cpu: u32,
    /// The task that hit the probe.
    pub task: &'r Task,
    /// The index of the probe, in the order in which the tracer's probes were given.
    pub probe: u32,
    /// A bit per field, set if the field could not be read.
    faults: u32,
    /// One word per field, followed by strings and arrays.
    tail: &'r [u8],
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value<'r> {
    /// An integer, to be interpreted by its [`Shape`].
    Integer(u64),
    /// A string, bytes, or the bytes of a list.
    Bytes(&'r [u8]),
    /// The beginning of a string, bytes or a list that is longer than what was read.
    Truncated(&'r [u8]),
    /// The pointer to a string, bytes or a list is null.
    Null,
    /// A stack, innermost frame first.
    Stack(Addresses<'r>),
    /// The value could not be read: the address is invalid, or the page is not resident. For a
    /// [counter](crate::TracerBuilder::counter), the count is not known.
    Fault,
}

/// The addresses of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<'r>(&'r [[u8; 8]]);

impl<'r> Addresses<'r> {
    /// `bytes` are words of 8 bytes in native byte order. The stack ends at a return address of 0: no call returns there,
    /// and the kernel has followed frame pointers beyond the outermost frame.
    pub fn new(bytes: &'r [u8]) -> Self {
        let (words, _) = bytes.as_chunks();
        let is_no_return = |(n, word): (usize, &[u8; 8])| n > 0 && *word == [0; 8];
        let end = words.iter().enumerate().position(is_no_return);
        Self(&words[..end.unwrap_or(words.len())])
    }

    /// The addresses, innermost frame first. The first is the address of the hook, the others are return addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + use<'r> {
        self.0.iter().copied().map(u64::from_ne_bytes)
    }
}

impl<'r> TraceEvent<'r> {
    /// Decodes a record. `None` if its kind is not one of the tracer's, or it is too short for its kind.
    #[inline]
    pub fn decode(cpu: u32, record: RawRecord<'r>) -> Option<Self> {
        if record.kind != ProbeHit::KIND {
            return None;
        }
        let (hit, tail) = record.read::<ProbeHit>()?;
        let &ProbeHit { probe, faults, .. } = hit;
        Some(Self { time: record.time, cpu, task: &hit.task, probe, faults, tail })
    }

    /// Decodes the record of a hit of one of these probes. `None` if it is of another one, or no such record.
    pub(crate) fn of(probes: &[Probe], cpu: u32, record: RawRecord<'r>) -> Option<Self> {
        Self::decode(cpu, record).filter(|event| (event.probe as usize) < probes.len())
    }

    /// Describes a record that is not [of one of the probes](Self::of).
    pub(crate) fn undecodable(cpu: u32, record: RawRecord<'r>) -> Malformed {
        let RawRecord { kind, payload, .. } = record;
        let (len, needed) = (payload.len(), size_of::<ProbeHit>());
        let reason = match Self::decode(cpu, record) {
            Some(Self { probe: number, .. }) => MalformedReason::UnknownProbe { number },
            None => MalformedReason::Payload { kind, len, needed },
        };
        Malformed::new(cpu, record_span(len) as u64, reason)
    }

    /// The fields and their values. `probe` must be the probe that was hit.
    pub fn values<'e>(
        &'e self,
        probe: &'e Probe,
    ) -> impl ExactSizeIterator<Item = (&'e Field, Value<'r>)> + use<'e, 'r> {
        probe.slots().iter().map(|planned| (self.field(planned), self.value(planned)))
    }

    /// The field with the names that its values have in this event.
    fn field<'e>(&self, planned: &'e PlannedField) -> &'e Field {
        match &planned.otherwise {
            Some(otherwise) if self.word(otherwise.slot) != Some(0) => &otherwise.field,
            _ => &planned.field,
        }
    }

    /// A word of the event. `None` if it could not be read.
    fn word(&self, slot: u8) -> Option<u64> {
        if self.faults.checked_shr(slot.into()).is_none_or(|faults| faults & 1 != 0) {
            return None;
        }
        self.any_word(slot)
    }

    /// A word of the event, whether or not its field could be read.
    fn any_word(&self, slot: u8) -> Option<u64> {
        let word = self.tail.get(8 * usize::from(slot)..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*word))
    }

    fn value(&self, field: &PlannedField) -> Value<'r> {
        let is_in_memory = matches!(
            field.field.shape,
            Shape::Text | Shape::Bytes | Shape::Buffer | Shape::List { .. } | Shape::Bits
        );
        let Some(word) = self.word(field.slot) else {
            let is_null = is_in_memory && self.any_word(field.slot) == Some(NULL);
            return if is_null { Value::Null } else { Value::Fault };
        };
        let bytes = || {
            let (begin, len) = ((word & 0xffff_ffff) as usize, (word & !TRUNCATED) >> 32);
            self.tail.get(begin..).and_then(|rest| rest.get(..len as usize))
        };
        match field.field.shape {
            _ if is_in_memory => {
                let of = if word & TRUNCATED == 0 { Value::Bytes } else { Value::Truncated };
                bytes().map_or(Value::Fault, of)
            }
            Shape::KernelStack | Shape::UserStack => {
                // No program writes more, but a recording may have been changed.
                let most = |bytes: &'r [u8]| &bytes[..bytes.len().min(SHORT)];
                bytes().map_or(Value::Fault, |bytes| Value::Stack(Addresses::new(most(bytes))))
            }
            _ => Value::Integer(word),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::resolve::names::ValueNames;
    use crate::resolve::shape::Enumeration;
    use probe_tracer_common::trace::COMM_LEN;
    use std::sync::Arc;
    use zerocopy::{FromBytes, IntoBytes};

    /// The bytes of a record: integers and strings, field by field.
    pub(crate) struct Hit {
        bytes: Vec<u64>,
        len: usize,
        cpu: u32,
    }

    impl Hit {
        pub(crate) fn new(comm: &[u8], faults: u32, values: &[Value<'_>]) -> Self {
            let mut name = [0; COMM_LEN];
            name[..comm.len()].copy_from_slice(comm);
            let task = Task { pid: 100, tid: 101, comm: name };
            let hit = ProbeHit { task, probe: 0, faults };
            let (mut words, mut data) = (Vec::new(), Vec::new());
            for value in values {
                let begin = 8 * values.len() + data.len();
                let mut append = |bytes: &[u8]| {
                    data.extend_from_slice(bytes);
                    begin as u64 | (bytes.len() as u64) << 32
                };
                words.push(match value {
                    Value::Integer(integer) => *integer,
                    Value::Bytes(bytes) => append(bytes),
                    Value::Truncated(bytes) => append(bytes) | TRUNCATED,
                    Value::Stack(addresses) => append(addresses.0.as_flattened()),
                    Value::Null => NULL,
                    Value::Fault => 0,
                });
            }
            let bytes = [hit.as_bytes(), words.as_bytes(), &data].concat();
            let mut aligned = vec![0u64; bytes.len().div_ceil(8)];
            aligned.as_mut_bytes()[..bytes.len()].copy_from_slice(&bytes);
            Self { bytes: aligned, len: bytes.len(), cpu: 3 }
        }

        /// One of an idle CPU, or of a task outside of the PID namespace.
        pub(crate) fn without_id(mut self, cpu: u32) -> Self {
            let (hit, _) = ProbeHit::mut_from_prefix(self.bytes.as_mut_bytes()).unwrap();
            (hit.task.pid, hit.task.tid) = (0, 0);
            Self { cpu, ..self }
        }

        /// This process's own event.
        pub(crate) fn set_pid(&mut self, pid: u32) {
            let (hit, _) = ProbeHit::mut_from_prefix(self.bytes.as_mut_bytes()).unwrap();
            hit.task.pid = pid;
        }

        pub(crate) fn record(&self) -> RawRecord<'_> {
            let payload = &self.bytes.as_bytes()[..self.len];
            RawRecord { kind: ProbeHit::KIND, time: 12_000_000_345, payload }
        }

        pub(crate) fn event(&self) -> TraceEvent<'_> {
            TraceEvent::decode(self.cpu, self.record()).unwrap()
        }
    }

    #[test]
    fn what_is_wrong_with_a_record_is_said() {
        let hit = Hit::new(b"cat", 0, &[]);
        let reason = |record| TraceEvent::undecodable(0, record).reason.to_string();
        assert_eq!(reason(hit.record()), "a record is of probe number 0, which is unknown");
        let payload = &hit.record().payload[..8];
        let short = reason(RawRecord { payload, ..hit.record() });
        assert!(short.contains("has 8 bytes and needs "), "{short}");
    }

    #[test]
    fn a_field_has_names_where_a_word_says_so() {
        let names = ValueNames::of_enumeration(&Enumeration { is_signed: false, names: vec![] });
        let (name, names) = ("id".to_owned(), Some(Arc::new(names)));
        let planned = PlannedField::new(Field { name, shape: Shape::Unsigned, names }, 0);
        let probe = Probe::new("rt:x".parse().unwrap(), vec![planned.unless(Some(1))]);
        for (word, faults, is_named) in [(0, 0, true), (1, 0, false), (0, 0b10, false)] {
            let hit = Hit::new(b"a", faults, &[Value::Integer(7), Value::Integer(word)]);
            let event = hit.event();
            let (field, value) = event.values(&probe).next().unwrap();
            assert_eq!((field.names.is_some(), value), (is_named, Value::Integer(7)), "{word}");
        }
    }
}
