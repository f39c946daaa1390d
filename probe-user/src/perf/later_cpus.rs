//! CPUs that come and go while events are open on them.

use super::error::PerfError;
use super::event::Event;
use super::scope::Scope;
use crate::hotplug::{Changes, CpuWatch};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Hears of the CPUs that a scope has, when they come and go.
#[derive(Debug)]
pub(super) struct LaterCpus {
    scope: Scope,
    watch: io::Result<CpuWatch>,
    /// CPUs that have come, and on which events could not be opened.
    uncovered: BTreeMap<u32, PerfError>,
}

impl LaterCpus {
    /// Begins to hear of them, if the scope is one of CPUs: before anybody reads which there are.
    pub(super) fn of(scope: &Scope) -> Option<Self> {
        scope.is_of_cpus().then(|| Self {
            scope: scope.clone(),
            watch: CpuWatch::new(),
            uncovered: BTreeMap::new(),
        })
    }

    /// What has changed next, where `known` are the CPUs that have events.
    pub(super) fn next(&self, known: impl Iterator<Item = u32>) -> Option<Changes> {
        Some(self.watch.as_ref().ok()?.next()?.changes(known))
    }

    /// Which of these events are observed on a CPU, by their numbers.
    pub(super) fn numbers_on(&self, cpu: u32, events: &[Event]) -> impl Iterator<Item = usize> {
        let numbered = events.iter().enumerate();
        numbered.filter(move |(_, event)| self.scope.takes_in(cpu, event)).map(|(number, _)| number)
    }

    /// Tells what became of opening events on a CPU that has come.
    pub(super) fn opened(&mut self, cpu: u32, opened: Result<(), PerfError>) {
        match opened {
            Ok(()) => drop(self.uncovered.remove(&cpu)),
            // It is gone again, which is told, too.
            Err(error) if error.is_of_gone_cpu() => {}
            Err(error) => drop(self.uncovered.insert(cpu, error)),
        }
    }

    pub(super) fn uncovered(&self) -> &BTreeMap<u32, PerfError> {
        &self.uncovered
    }

    /// Why it does not hear of them, if it does not.
    pub(super) fn error(&self) -> Option<&io::Error> {
        self.watch.as_ref().err()
    }

    /// Readable when there is something to hear.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().ok().map(CpuWatch::as_fd)
    }
}
