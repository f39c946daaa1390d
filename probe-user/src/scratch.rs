//! The eBPF side's scratch memory, read: for what a CPU that went offline has left in there.

use crate::cpus;
use crate::error::OpenError;
use crate::sys::bpf::{self, MapFd};
use probe_common::control::SCRATCH_MAP;
use probe_common::limits::DEPTH;
use std::io;
use std::os::fd::AsFd;
use zerocopy::IntoBytes;

/// The map of scratch slots.
#[derive(Debug)]
pub(crate) struct ScratchSlots {
    map: MapFd,
    possible: Vec<u32>,
    /// Bytes of a slot.
    len: usize,
}

impl ScratchSlots {
    pub(crate) fn from_map(map: impl AsFd) -> Result<Self, OpenError> {
        let failed = |source| OpenError::MapInfo { source };
        let info = bpf::map_info(map.as_fd()).map_err(failed)?;
        let possible = cpus::possible().map_err(|source| OpenError::Cpus { source })?;
        let fd = map.as_fd().try_clone_to_owned().map_err(failed)?;
        let map = MapFd::per_cpu_array(fd, possible.len()).map_err(failed)?;
        match map {
            Some(map) if info.max_entries == DEPTH => {
                Ok(Self { map, possible, len: (info.value_size as usize).next_multiple_of(8) })
            }
            _ => Err(OpenError::NoMap { name: SCRATCH_MAP }),
        }
    }

    /// The first slot of a CPU that does not write there: it is offline, or emits no more.
    pub(crate) fn first_of(&self, cpu: u32) -> io::Result<Vec<u64>> {
        let mut slots = vec![0u64; self.len / 8 * self.possible.len()];
        bpf::map_lookup(&self.map, 0, &mut slots)?;
        let at = self.possible.iter().position(|&possible| possible == cpu);
        let slot = at.and_then(|at| slots.chunks_exact(self.len / 8).nth(at));
        Ok(slot.map(<[u64]>::to_vec).unwrap_or_default())
    }
}

/// A slot's bytes.
pub(crate) fn bytes(slot: &mut [u64]) -> &mut [u8] {
    slot.as_mut_bytes()
}
