//! Where the accounts of one consumer end and those of the next one begin.

use crate::ledger::accounts::Counted;
use probe_common::RecordKind;
use probe_common::tally::{KindTally, OutputTally};
use zerocopy::{FromBytes, IntoBytes};

/// What programs had counted on the CPUs that another consumer took over, when it did
/// ([`Summary::handed_over`](crate::Summary::handed_over)). That consumer begins its ledger there
/// ([`Meter::begin_after`](crate::ledger::Meter::begin_after)).
///
/// Both may be in different processes: pass the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    pub(crate) counted: Counted,
}

/// The bytes of a CPU and of a kind.
const WORD: usize = size_of::<u32>();

impl HandedOver {
    /// The CPUs, in ascending order.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.counted.outputs.keys().copied()
    }

    /// The counts as bytes, for a consumer of the same version of this crate.
    pub fn to_bytes(&self) -> Vec<u8> {
        let outputs = &self.counted.outputs;
        let mut bytes = (outputs.len() as u32).as_bytes().to_vec();
        for (cpu, tally) in outputs {
            bytes.extend([cpu.as_bytes(), tally.as_bytes()].concat());
        }
        for ((cpu, kind), tally) in &self.counted.records {
            bytes.extend([cpu.as_bytes(), kind.0.as_bytes(), tally.as_bytes()].concat());
        }
        bytes
    }

    /// Parses the bytes that [`to_bytes`](Self::to_bytes) returned. `None` if they are not valid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (outputs, mut rest) = u32::read_from_prefix(bytes).ok()?;
        let mut counted = Counted::default();
        for _ in 0..outputs {
            let (cpu, after) = u32::read_from_prefix(rest).ok()?;
            let (tally, after) = OutputTally::read_from_prefix(after).ok()?;
            counted.outputs.insert(cpu, tally);
            rest = after;
        }
        let records = rest.chunks_exact(2 * WORD + size_of::<KindTally>());
        if !records.remainder().is_empty() {
            return None;
        }
        for record in records {
            let (cpu, after) = u32::read_from_prefix(record).ok()?;
            let (kind, after) = u32::read_from_prefix(after).ok()?;
            let tally = KindTally::read_from_bytes(after).ok()?;
            counted.records.insert((cpu, RecordKind(kind)), tally);
        }
        Some(Self { counted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_same_after_a_way_through_bytes() {
        let outputs = OutputTally { lost_records: 3, ..OutputTally::default() };
        let records = KindTally { sent: 5, ..KindTally::default() };
        let counted = Counted {
            outputs: [(0, outputs), (2, OutputTally::default())].into(),
            records: [((0, RecordKind::user(0)), records)].into(),
        };
        let handed_over = HandedOver { counted };
        let bytes = handed_over.to_bytes();
        assert_eq!(HandedOver::from_bytes(&bytes), Some(handed_over));
        let empty = HandedOver::default();
        assert_eq!(HandedOver::from_bytes(&empty.to_bytes()), Some(empty));
        for len in 0..bytes.len() {
            let end = bytes.len() - 2 * WORD - size_of::<KindTally>();
            assert_eq!(HandedOver::from_bytes(&bytes[..len]).is_some(), len == end, "{len}");
        }
    }
}
