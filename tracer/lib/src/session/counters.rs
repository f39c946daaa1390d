//! The performance counters that calls are measured with: open on every CPU, for programs to read.

use crate::error::TraceError;
use crate::object::Object;
use probe_perf::{self, Event, PerfError};
use probe_sys::bpf;
use probe_sys::hotplug::Prepare;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Counters on all CPUs, in the maps of an object.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Each counter's event, and its map.
    each: Vec<(Event, OwnedFd)>,
    generations: OwnedFd,
    /// The newest generation, on any CPU.
    generation: u32,
}

impl Counters {
    /// Starts the counters on every online CPU. They count as long as the object exists.
    pub(crate) fn open(events: &[Event], object: &Object) -> Result<Self, TraceError> {
        let owned = |map: BorrowedFd<'_>| map.try_clone_to_owned().map_err(TraceError::load);
        let maps = object.counters().map_err(TraceError::load)?;
        let mut each = Vec::new();
        for (event, map) in events.iter().zip(maps) {
            count(event, &probe_perf::Target::System, map).map_err(TraceError::Counter)?;
            each.push((event.clone(), owned(map)?));
        }
        let generations = owned(object.counter_generations().map_err(TraceError::load)?)?;
        Ok(Self { each, generations, generation: 0 })
    }

    /// Replaces the counters of a CPU with new ones. The generation keeps programs from subtracting
    /// a value of the old counters from one of the new.
    fn replace(&mut self, cpu: u32) -> io::Result<()> {
        let replacing = self.generation.wrapping_add(1);
        self.set_generation(cpu, replacing)?;
        for (event, map) in self.each.iter().filter(|(event, _)| event.is_observed_on(cpu)) {
            match count(event, &probe_perf::Target::Cpu(cpu), map.as_fd()) {
                Err(error) if !error.is_cpu_offline() => {
                    log::warn!("cannot count calls on CPU {cpu}: {error}");
                }
                _ => {}
            }
        }
        self.generation = replacing.wrapping_add(1);
        self.set_generation(cpu, self.generation)
    }

    /// Sets the generation of a CPU's counters, for programs to read.
    fn set_generation(&self, cpu: u32, generation: u32) -> io::Result<()> {
        bpf::map_set_bytes(self.generations.as_fd(), cpu, &generation.to_ne_bytes())
    }
}

impl Prepare for Counters {
    fn prepare(&mut self, cpu: u32) {
        if let Err(error) = self.replace(cpu) {
            log::warn!("cannot count calls on CPU {cpu}: {error}");
        }
    }
}

/// Starts counters for programs to read. They stay open as long as they are in the map.
fn count(event: &Event, target: &probe_perf::Target, map: BorrowedFd<'_>) -> Result<(), PerfError> {
    let counter = probe_perf::Counter::open(event, target)?;
    counter.enable()?;
    counter.put_into(map)
}
