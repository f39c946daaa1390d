//! The eBPF side's scratch memory, read: for what a CPU that went offline has left in there.

use crate::cpus;
use crate::error::OpenError;
use crate::sys::bpf::PerCpuArray;
use probe_common::control::SCRATCH_MAP;
use probe_common::limits::DEPTH;
use std::io;
use std::os::fd::AsFd;
use zerocopy::IntoBytes;

/// The map of scratch slots.
#[derive(Debug)]
pub(crate) struct ScratchSlots {
    map: PerCpuArray,
    possible: Vec<u32>,
}

impl ScratchSlots {
    pub(crate) fn from_map(map: impl AsFd) -> Result<Self, OpenError> {
        let possible = cpus::possible().map_err(|source| OpenError::Cpus { source })?;
        let map = PerCpuArray::open(map.as_fd(), possible.len(), |info| info.max_entries == DEPTH)
            .map_err(|source| OpenError::MapInfo { source })?
            .map_err(|_| OpenError::NoMap { name: SCRATCH_MAP })?;
        Ok(Self { map, possible })
    }

    /// The first slot of a CPU that does not write there: it is offline, or emits no more.
    pub(crate) fn first_of(&self, cpu: u32) -> io::Result<Vec<u64>> {
        let mut slot = Vec::new();
        self.map.read(0..1, |at, value| {
            if self.possible[at] == cpu {
                slot = value.to_vec();
            }
        })?;
        Ok(slot)
    }
}

/// A slot's bytes.
pub(crate) fn bytes(slot: &mut [u64]) -> &mut [u8] {
    slot.as_mut_bytes()
}
