//! Per-CPU arrays of the programs, by the number of the probe: what each CPU has counted, added up.

use super::error::TraceError;
use super::object::Object;
use crate::cpus;
use crate::sys::bpf::PerCpuArray;
use aya::maps::Map;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use zerocopy::{FromBytes, IntoBytes};

/// A `T` for each probe on each CPU.
#[derive(Debug)]
pub(super) struct PerCpu<T> {
    array: PerCpuArray,
    of: PhantomData<T>,
}

impl<T: Default + FromBytes> PerCpu<T> {
    pub(super) fn open(object: &Object, name: &str) -> Result<Self, TraceError> {
        let Ok(Map::PerCpuArray(map)) = object.map(name) else {
            return Err(TraceError::load(format!("it has no map {name}")));
        };
        let cpus = cpus::possible().map_err(TraceError::load)?.len();
        let size = size_of::<T>() as u32;
        let array = PerCpuArray::open(map.fd().as_fd(), cpus, |info| info.value_size == size)
            .map_err(TraceError::load)?
            .map_err(|_| TraceError::load(format!("its map {name} is of another type")))?;
        Ok(Self { array, of: PhantomData })
    }

    /// What each of `probes` probes has, in the order of their numbers: `add` adds a CPU's.
    pub(super) fn sum(
        &self,
        probes: usize,
        add: impl Fn(&mut T, &T),
    ) -> Result<Vec<T>, TraceError> {
        let sum = |number| {
            let mut sum = T::default();
            let add_one = |_, words: &[u64]| {
                // It fails for another size, which open() refuses.
                if let Ok(one) = T::read_from_bytes(words.as_bytes()) {
                    add(&mut sum, &one);
                }
            };
            self.array
                .read(number..number + 1, add_one)
                .map_err(|source| TraceError::Counts { source })?;
            Ok(sum)
        };
        (0..probes as u32).map(sum).collect()
    }
}
