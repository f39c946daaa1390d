//! Reads the eBPF side's own count of what it emitted.

use crate::error::TallyError;
use probe_common::RecordKind;
use probe_common::limits::{KINDS, TALLY_BANKS};
use probe_common::tally::{Bank, FailureClass, KindTally, OutputTally, TallyBank};
use probe_sys::bpf::PerCpuArray;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The maps in which `probe_ebpf::pipe` counts: what was sent and what failed and why, per CPU and kind, and
/// the outputs that failed, per CPU.
#[derive(Debug)]
pub struct Tally {
    kinds: PerCpuArray,
    outputs: PerCpuArray,
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

/// What one CPU counted about failed outputs.
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
    /// [`OUTPUTS_MAP`](probe_common::control::OUTPUTS_MAP) of an object. It does not matter who loaded the
    /// object.
    ///
    /// # Errors
    ///
    /// If the maps are not of this form.
    pub fn from_maps(tally: impl AsFd, outputs: impl AsFd) -> Result<Self, TallyError> {
        let kinds = open::<TallyBank>(tally.as_fd(), TALLY_BANKS)?;
        let outputs = open::<OutputTally>(outputs.as_fd(), 1)?;
        Ok(Self { kinds, outputs })
    }

    /// The maps.
    pub(crate) fn maps(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.kinds.as_fd(), self.outputs.as_fd())
    }

    /// The possible CPUs.
    pub(crate) fn cpus(&self) -> &[u32] {
        self.outputs.cpus()
    }

    /// What each possible CPU has counted for a kind so far.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn of(&self, kind: RecordKind) -> Result<Vec<CpuTally>, TallyError> {
        let counted = self.by_kind(&self.outputs()?)?;
        let of_cpu = |&cpu: &u32| {
            let tally = counted.get(&(cpu, kind)).copied().unwrap_or_default();
            CpuTally { cpu, tally }
        };
        Ok(self.kinds.cpus().iter().map(of_cpu).collect())
    }

    /// What each possible CPU has counted for each kind, without the kinds that it has not counted. `outputs` is what they
    /// have counted about failed outputs.
    pub(crate) fn by_kind(
        &self,
        outputs: &[CpuOutputs],
    ) -> Result<BTreeMap<(u32, RecordKind), KindTally>, TallyError> {
        let mut counted: BTreeMap<_, KindTally> = BTreeMap::new();
        let failed = failed_classes(outputs);
        for bank in Bank::all()
            .filter(|bank| !matches!(bank, Bank::Failed(class) if !failed[*class as usize]))
        {
            read(&self.kinds, bank.index(), |cpu, counts: &TallyBank| {
                let kinds = (0..KINDS).filter_map(RecordKind::at).zip(counts);
                for (kind, &records) in kinds.filter(|(_, records)| **records != 0) {
                    counted.entry((cpu, kind)).or_default().add(bank, records);
                }
            })?;
        }
        Ok(counted)
    }

    /// What each possible CPU has counted about failed outputs so far.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn outputs(&self) -> Result<Vec<CpuOutputs>, TallyError> {
        let mut counted = Vec::new();
        read(&self.outputs, 0, |cpu, &tally| counted.push(CpuOutputs { cpu, tally }))?;
        Ok(counted)
    }

    /// The sum over all CPUs and kinds.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn total(&self) -> Result<KindTally, TallyError> {
        let mut total = KindTally::default();
        self.by_kind(&self.outputs()?)?.into_values().for_each(|tally| total += tally);
        Ok(total)
    }
}

/// Which classes of failures may have counts. Most have none, and each takes a bank of every possible CPU to read.
fn failed_classes(outputs: &[CpuOutputs]) -> [bool; FailureClass::COUNT] {
    let mut failed = [false; FailureClass::COUNT];
    for counted in outputs {
        for (failed, outputs) in failed.iter_mut().zip(counted.tally.failed) {
            *failed |= outputs != 0;
        }
    }
    // What the pipe itself refuses is no output.
    for refused in [FailureClass::Nested, FailureClass::TooBig] {
        failed[refused as usize] = true;
    }
    failed
}

/// Opens a per-CPU array of `entries` values of type `T`.
fn open<T>(map: BorrowedFd<'_>, entries: u32) -> Result<PerCpuArray, TallyError> {
    let value_size = size_of::<T>();
    PerCpuArray::open(map, |info| {
        info.max_entries == entries && info.value_size as usize == value_size
    })?
    .map_err(|info| TallyError::NotATally { name: info.name, entries, value_size })
}

/// Passes each CPU's value of an entry to `each`.
fn read<T: FromBytes + Immutable + KnownLayout>(
    map: &PerCpuArray,
    entry: u32,
    mut each: impl FnMut(u32, &T),
) -> Result<(), TallyError> {
    map.read(entry, |cpu, value| {
        if let Ok(value) = T::ref_from_bytes(value.as_bytes()) {
            each(cpu, value);
        }
    })?;
    Ok(())
}
