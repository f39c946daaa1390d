//! Which of a probe's hits are told, where not all are.

use super::aggregate::array;
use super::error::TraceError;
use super::object::Object;
use probe_common::sampling::{SAMPLED, Sampled};
use std::num::NonZeroU32;
use zerocopy::{FromBytes, IntoBytes};

/// How many hits of each probe are told, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sampling {
    /// One in so many, on each CPU.
    pub(super) one_in: Option<NonZeroU32>,
    /// So many in a second.
    pub(super) per_second: Option<NonZeroU32>,
}

impl Sampling {
    /// Whether all are told.
    pub(super) fn is_all(self) -> bool {
        self == Self::default()
    }
}

/// How many hits of each of `probes` probes were not told.
pub(super) fn withheld(object: &Object, probes: usize) -> Result<Vec<u64>, TraceError> {
    let array = array::<Sampled>(object, SAMPLED)?;
    let mut withheld = vec![0; probes];
    for (number, withheld) in (0..).zip(&mut withheld) {
        let add = |_, words: &[u64]| {
            // It fails for another size, which array() refuses.
            if let Ok(sampled) = Sampled::read_from_bytes(words.as_bytes()) {
                *withheld += sampled.withheld;
            }
        };
        array.read(number..number + 1, add).map_err(|source| TraceError::Counts { source })?;
    }
    Ok(withheld)
}
