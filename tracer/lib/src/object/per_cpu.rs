//! Per-CPU arrays of the programs, indexed by the probe's number: what each CPU has counted, added
//! up.

use crate::error::{Result, TraceError};
use crate::object::Object;
use aya::maps::Map;
use probe_sys::bpf::PerCpuArray;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use zerocopy::{FromBytes, IntoBytes};

/// A `T` for each probe on each CPU.
#[derive(Debug)]
pub(crate) struct PerCpu<T> {
    array: PerCpuArray,
    of: PhantomData<T>,
}

impl<T: Default + FromBytes> PerCpu<T> {
    pub(crate) fn open(object: &Object, name: &str) -> Result<Self> {
        let Ok(Map::PerCpuArray(map)) = object.map(name) else {
            return Err(TraceError::load(format!("it has no map {name}")));
        };
        let size = size_of::<T>() as u32;
        let array = PerCpuArray::open(map.fd().as_fd(), |info| info.value_size == size)
            .map_err(TraceError::load)?
            .map_err(|_| TraceError::load(format!("its map {name} is of another type")))?;
        Ok(Self { array, of: PhantomData })
    }

    /// Sums the values of all CPUs for each of `probes` probes, in the order of their numbers;
    /// `add` adds one CPU's value.
    pub(crate) fn sum(&self, probes: usize, add: impl Fn(&mut T, &T)) -> Result<Vec<T>> {
        let sum = |number| {
            let mut sum = T::default();
            let add_one = |_, words: &[u64]| {
                // This fails only for a wrong size, which open() refuses.
                if let Ok(one) = T::read_from_bytes(words.as_bytes()) {
                    add(&mut sum, &one);
                }
            };
            self.array.read(number, add_one).map_err(TraceError::Counts)?;
            Ok(sum)
        };
        (0..probes as u32).map(sum).collect()
    }
}
