//! The counters that calls are told with: open on every CPU, for programs to read.

use super::error::TraceError;
use super::object::Object;
use crate::hotplug::Prepare;
use crate::perf::{self, Event, PerfError};
use crate::sys::bpf;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Counters of the CPUs, in the maps of an object.
#[derive(Debug)]
pub(super) struct Counters {
    /// Each with its map.
    each: Vec<(Event, OwnedFd)>,
    generations: OwnedFd,
    /// That of the counters that came last, of whatever CPU.
    generation: u32,
}

impl Counters {
    /// Has every CPU count that is online. It counts for as long as there is the object.
    pub(super) fn open(events: &[Event], object: &Object) -> Result<Self, TraceError> {
        let owned = |map: BorrowedFd<'_>| map.try_clone_to_owned().map_err(TraceError::load);
        let maps = object.counters().map_err(TraceError::load)?;
        let mut each = Vec::new();
        for (event, map) in events.iter().zip(maps) {
            count(event, &perf::Scope::System, map).map_err(TraceError::Counter)?;
            each.push((event.clone(), owned(map)?));
        }
        let generations = owned(object.counter_generations().map_err(TraceError::load)?)?;
        Ok(Self { each, generations, generation: 0 })
    }

    /// Puts new counters of a CPU in the place of those that it has had. What has begun with the old ones is not
    /// taken for a part of what the new ones count.
    fn replace(&mut self, cpu: u32) -> io::Result<()> {
        let replacing = self.generation.wrapping_add(1);
        self.tell(cpu, replacing)?;
        for (event, map) in self.each.iter().filter(|(event, _)| event.is_observed_on(cpu)) {
            match count(event, &perf::Scope::Cpu(cpu), map.as_fd()) {
                Err(error) if !error.is_of_gone_cpu() => {
                    log::warn!("what calls cost on CPU {cpu} is not known: {error}");
                }
                _ => {}
            }
        }
        self.generation = replacing.wrapping_add(1);
        self.tell(cpu, self.generation)
    }

    /// Tells programs which generation the counters of a CPU are.
    fn tell(&self, cpu: u32, generation: u32) -> io::Result<()> {
        bpf::map_set_bytes(self.generations.as_fd(), cpu, &generation.to_ne_bytes())
    }
}

impl Prepare for Counters {
    fn prepare(&mut self, cpu: u32) {
        if let Err(error) = self.replace(cpu) {
            log::warn!("what calls cost on CPU {cpu} is not known: {error}");
        }
    }
}

/// Has CPUs count, for programs to read. What is open stays so for as long as it is in the map.
fn count(event: &Event, scope: &perf::Scope, map: BorrowedFd<'_>) -> Result<(), PerfError> {
    let counter = perf::Counter::open(event, scope)?;
    counter.enable()?;
    counter.put_into(map)
}
