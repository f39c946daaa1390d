//! The eBPF side's own count of what it emitted, read.

use crate::cpus;
use crate::error::TallyError;
use crate::sys::bpf::PerCpuArray;
use probe_common::RecordKind;
use probe_common::limits::{KINDS, TALLY_BANKS};
use probe_common::tally::{KindTally, OutputTally, TallyBank};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The maps in which `probe_ebpf::pipe` counts: per CPU and kind, what was sent and what failed, by
/// reason; and per CPU, the outputs that failed.
#[derive(Debug)]
pub struct Tally {
    kinds: PerCpuArray,
    outputs: PerCpuArray,
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

impl Tally {
    /// Opens the maps named [`TALLY_MAP`](probe_common::control::TALLY_MAP) and
    /// [`OUTPUTS_MAP`](probe_common::control::OUTPUTS_MAP) of an object, whoever loaded it.
    ///
    /// # Errors
    ///
    /// If they are not such maps.
    pub fn from_maps(tally: impl AsFd, outputs: impl AsFd) -> Result<Self, TallyError> {
        let possible = cpus::possible()?;
        let kinds = open::<TallyBank>(tally.as_fd(), TALLY_BANKS, possible.len())?;
        let outputs = open::<OutputTally>(outputs.as_fd(), TALLY_BANKS, possible.len())?;
        Ok(Self { kinds, outputs, possible })
    }

    /// What each possible CPU has counted for a kind so far.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn of(&self, kind: RecordKind) -> Result<Vec<CpuTally>, TallyError> {
        let nothing = KindTally::default();
        let mut cpus: Vec<_> =
            self.possible.iter().map(|&cpu| CpuTally { cpu, tally: nothing }).collect();
        let Some(index) = kind.index() else { return Ok(cpus) };
        self.read(|at, bank| cpus[at].tally += bank[index as usize])?;
        Ok(cpus)
    }

    /// What each possible CPU has counted for each kind of which it has counted any.
    pub(crate) fn by_kind(&self) -> Result<BTreeMap<(u32, RecordKind), KindTally>, TallyError> {
        let mut counted: BTreeMap<_, KindTally> = BTreeMap::new();
        self.read(|at, bank| {
            let kinds = (0..KINDS).filter_map(RecordKind::at).zip(bank);
            for (kind, &tally) in kinds.filter(|(_, tally)| **tally != KindTally::default()) {
                *counted.entry((self.possible[at], kind)).or_default() += tally;
            }
        })?;
        Ok(counted)
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
        let add = |at: usize, tally: &OutputTally| cpus[at].tally += *tally;
        read(&self.outputs, TALLY_BANKS, add)?;
        Ok(cpus)
    }

    /// The sum over all CPUs and kinds.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn total(&self) -> Result<KindTally, TallyError> {
        let mut total = KindTally::default();
        self.read(|_, bank| bank.iter().for_each(|&tally| total += tally))?;
        Ok(total)
    }

    fn read(&self, add: impl FnMut(usize, &TallyBank)) -> Result<(), TallyError> {
        read(&self.kinds, TALLY_BANKS, add)
    }
}

/// Opens a per-CPU array of so many `T`s.
fn open<T>(map: BorrowedFd<'_>, entries: u32, possible: usize) -> Result<PerCpuArray, TallyError> {
    let value_size = size_of::<T>();
    PerCpuArray::open(map, possible, |info| {
        info.max_entries == entries && info.value_size as usize == value_size
    })?
    .map_err(|info| TallyError::NotATally { name: info.name, entries, value_size })
}

/// Gives each entry, of each CPU, to `add`, which is told which possible CPU it is.
fn read<T: FromBytes + Immutable + KnownLayout>(
    map: &PerCpuArray,
    entries: u32,
    mut add: impl FnMut(usize, &T),
) -> Result<(), TallyError> {
    map.read(0..entries, |at, value| {
        if let Ok(value) = T::ref_from_bytes(value.as_bytes()) {
            add(at, value);
        }
    })?;
    Ok(())
}
