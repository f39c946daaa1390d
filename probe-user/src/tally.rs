//! The eBPF side's own count of what it emitted, read.

use crate::cpus;
use crate::error::TallyError;
use crate::sys::bpf::{self, MapFd};
use probe_common::RecordKind;
use probe_common::limits::{DEPTH, KINDS, TALLY_BANKS, TALLY_ROWS};
use probe_common::tally::{KindTally, OutputTally};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use zerocopy::FromBytes;

/// The map in which `probe_ebpf::pipe` counts: per CPU and kind, what was sent and what failed, by
/// reason.
#[derive(Debug)]
pub struct Tally {
    map: MapFd,
    possible: Vec<u32>,
}

/// What one CPU counted for one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuTally {
    /// The CPU.
    pub cpu: u32,
    /// What it counted.
    pub tally: KindTally,
}

/// What one CPU counted of outputs that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuOutputs {
    /// The CPU.
    pub cpu: u32,
    /// What it counted.
    pub tally: OutputTally,
}

const ENTRIES: u32 = TALLY_ROWS * TALLY_BANKS;
const WORDS: usize = size_of::<KindTally>() / size_of::<u64>();

impl Tally {
    /// Opens the map named [`TALLY_MAP`](probe_common::control::TALLY_MAP) of an object, whoever
    /// loaded it.
    ///
    /// # Errors
    ///
    /// If it is not such a map.
    pub fn from_map(map: impl AsFd) -> Result<Self, TallyError> {
        let info = bpf::map_info(map.as_fd())?;
        let not_a_tally = || TallyError::NotATally {
            name: info.name.clone(),
            entries: ENTRIES,
            value_size: size_of::<KindTally>(),
        };
        if info.max_entries != ENTRIES || info.value_size as usize != size_of::<KindTally>() {
            return Err(not_a_tally());
        }
        let possible = cpus::possible()?;
        let fd: OwnedFd = map.as_fd().try_clone_to_owned()?;
        let map = MapFd::per_cpu_array(fd, possible.len())?.ok_or_else(not_a_tally)?;
        Ok(Self { map, possible })
    }

    /// What each possible CPU has counted for a kind so far.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn of(&self, kind: RecordKind) -> Result<Vec<CpuTally>, TallyError> {
        let mut cpus: Vec<_> = self
            .possible
            .iter()
            .map(|&cpu| CpuTally { cpu, tally: KindTally::default() })
            .collect();
        let Some(index) = kind.index() else { return Ok(cpus) };
        self.read(0..TALLY_BANKS, index, |at, tally: KindTally| cpus[at].tally += tally)?;
        Ok(cpus)
    }

    /// What each possible CPU has counted of outputs that failed.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn outputs(&self) -> Result<Vec<CpuOutputs>, TallyError> {
        let nothing = OutputTally::default();
        let mut cpus: Vec<_> =
            self.possible.iter().map(|&cpu| CpuOutputs { cpu, tally: nothing }).collect();
        // Who found no slot had no output.
        self.read(0..DEPTH, KINDS, |at, tally: OutputTally| cpus[at].tally += tally)?;
        Ok(cpus)
    }

    /// Gives the entry at `row` of each bank, of each CPU, to `add`, which is told which possible CPU
    /// it is.
    fn read<T: FromBytes + Default>(
        &self,
        banks: Range<u32>,
        row: u32,
        mut add: impl FnMut(usize, T),
    ) -> Result<(), TallyError> {
        let mut words = vec![0u64; WORDS * self.possible.len()];
        for bank in banks {
            bpf::map_lookup(&self.map, bank * TALLY_ROWS + row, &mut words)?;
            for (at, words) in words.chunks_exact(WORDS).enumerate() {
                let bytes = zerocopy::IntoBytes::as_bytes(words);
                add(at, T::read_from_bytes(bytes).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// The sum over all CPUs and kinds.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn total(&self) -> Result<KindTally, TallyError> {
        let mut total = KindTally::default();
        for kind in (0..KINDS).filter_map(RecordKind::at) {
            for cpu in self.of(kind)? {
                total += cpu.tally;
            }
        }
        Ok(total)
    }
}
