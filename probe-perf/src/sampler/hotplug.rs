//! CPUs that go online and offline while a sampler runs.

use crate::error::PerfError;
use crate::event::Event;
use crate::target::{Site, Target};
use probe_sys::hotplug::CpuWatch;
use std::collections::BTreeMap;
use std::io;

/// Watches the CPUs of a target go online and offline.
#[derive(Debug)]
pub(super) struct Hotplug {
    target: Target,
    pub(super) watch: io::Result<CpuWatch>,
    /// CPUs that went online, but on which events could not be opened.
    pub(super) uncovered: BTreeMap<u32, PerfError>,
}

impl Hotplug {
    /// Starts watching, if the target is CPUs. Call this before reading the list of online CPUs.
    pub(super) fn of(target: &Target) -> Option<Self> {
        target.is_of_cpus().then(|| Self {
            target: target.clone(),
            watch: CpuWatch::new(),
            uncovered: BTreeMap::new(),
        })
    }

    /// The events to observe on a CPU that went online, by number, and their sites.
    pub(super) fn events_on(&self, cpu: u32, events: &[Event]) -> Vec<(Site, usize)> {
        let numbered = events.iter().enumerate();
        let own = numbered.filter(|(_, event)| self.target.includes(cpu, event));
        own.map(|(number, _)| (Site::on_cpu(cpu), number)).collect()
    }

    /// Records the result of opening events on a CPU that went online.
    pub(super) fn opened(&mut self, cpu: u32, opened: Result<(), PerfError>) {
        match opened {
            Ok(()) => drop(self.uncovered.remove(&cpu)),
            // The CPU is offline again, and another notice says so.
            Err(error) if error.is_cpu_offline() => {}
            Err(error) => drop(self.uncovered.insert(cpu, error)),
        }
    }
}
