//! Which CPUs have queues, as CPUs go online and offline.

use crate::error::OpenError;
use crate::ledger::accounts::Accounts;
use crate::pipe::options::Options;
use crate::pipe::parts::PipeParts;
use crate::pipe::queues::Queues;
use crate::pipe::waiting::Waiting;
use crate::queue::consumer::Consumer;
use crate::queue::evqueue::EvQueue;
use crate::queue::notices::{CpuChange, Failure};
use probe_common::tally::FailureClass;
use probe_sys::bpf::MapInfo;
use probe_sys::epoll::Epoll;
use probe_sys::hotplug::{Changes, CpuWatch};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// The queues of a pipe, and the notices of CPUs by which it adds and retires them.
#[derive(Debug)]
pub(crate) struct Coverage {
    pub(crate) queues: Queues,
    watch: io::Result<CpuWatch>,
    accounts: Option<Arc<Accounts>>,
    /// Drains since the pipe last looked for notices.
    unwatched: u32,
    /// Whether the pipe has left the map, to which nothing may come back.
    pub(crate) is_closing: bool,
    /// The CPUs that were covered since the last look for failures. What failed there may have failed before that.
    pub(crate) fresh: BTreeSet<u32>,
}

/// The most drains that a new CPU waits for its queue while each drain finds records.
const WATCH_EVERY: u32 = 8;

impl Coverage {
    /// Opens a queue for each requested CPU, which `epoll` waits for.
    pub(crate) fn open(
        parts: &PipeParts,
        events: MapInfo,
        accounts: Option<Arc<Accounts>>,
        options: &Options,
        epoll: &Epoll,
    ) -> Result<Self, OpenError> {
        // This has to happen before the list of CPUs is read.
        let watch = CpuWatch::new();
        for descriptor in watch.iter().flat_map(CpuWatch::descriptors) {
            epoll.add(descriptor).map_err(|cause| OpenError::Poll { cause })?;
        }
        let queues = Queues::open(parts, events, options, epoll)?;
        let fresh = queues.as_slice().iter().map(EvQueue::cpu).collect();
        Ok(Self { queues, watch, accounts, unwatched: 0, is_closing: false, fresh })
    }

    /// Why there are no notices, if there are none.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        self.watch.as_ref().err()
    }

    /// Whether to look for notices after a drain that found `records` records. Looking takes a system call, and an
    /// unread notice keeps the descriptor readable. So a drain that finds records leaves this to one that finds none.
    pub(crate) fn is_time_to_watch(&mut self, records: u64) -> bool {
        self.unwatched += 1;
        let is_time = records == 0 || self.unwatched >= WATCH_EVERY;
        if is_time {
            self.unwatched = 0;
        }
        is_time
    }

    /// Whether a drain has left it to a later one to look for notices. If so, the caller looks now.
    pub(crate) fn is_watch_left(&mut self) -> bool {
        std::mem::take(&mut self.unwatched) > 0
    }

    /// Gives new CPUs a queue, stops waiting for those that are offline, and gives up those that another consumer has taken
    /// over. Returns whether any changed: a ring that is no longer waited for may hold records that arrived after the last
    /// drain.
    pub(crate) fn follow<C: Consumer>(&mut self, waiting: &mut Waiting, consumer: &mut C) -> bool {
        for (cpu, error) in std::mem::take(&mut self.queues.uncovered) {
            consumer.cpu_changed(CpuChange::Uncovered { cpu, error: &error });
        }
        let mut any = self.hand_over(waiting, consumer);
        while let Some(notice) = self.watch.as_mut().ok().and_then(CpuWatch::take) {
            any = true;
            let covered = self.queues.as_slice().iter().map(EvQueue::cpu);
            let Changes { gone, come } = notice.changes(covered);
            gone.into_iter().for_each(|cpu| self.uncover(cpu, waiting, consumer));
            if !self.is_closing {
                come.into_iter().for_each(|cpu| self.cover(cpu, waiting, consumer));
            }
        }
        any
    }

    /// Gives up the CPUs that another consumer has taken over since the last call. Returns whether there are any. What their
    /// rings hold now is all that they will ever hold.
    pub(crate) fn hand_over<C: Consumer>(
        &mut self,
        waiting: &mut Waiting,
        consumer: &mut C,
    ) -> bool {
        let cpus = self.queues.hand_over();
        if let (Some(accounts), false) = (&self.accounts, cpus.is_empty()) {
            // If this fails, what the other consumer loses is in these accounts, too.
            let _ = accounts.end(&cpus);
        }
        for &cpu in &cpus {
            if let Some(adaptive) = &mut waiting.adaptive {
                adaptive.remove(cpu);
            }
            consumer.cpu_changed(CpuChange::TakenOver { cpu });
        }
        !cpus.is_empty()
    }

    /// Covers a CPU again if its records fail because there is no event for it, or none that is active: somebody has
    /// deleted it, or the CPU was offline without notice, as while the machine was suspended. Returns whether it was covered.
    pub(crate) fn repair<C: Consumer>(
        &mut self,
        failure: Failure,
        waiting: &mut Waiting,
        consumer: &mut C,
    ) -> bool {
        let cpu = failure.cpu;
        let is_silent = match failure.class {
            FailureClass::NoEvent => true,
            FailureClass::NotActive => self.queues.has(cpu),
            _ => false,
        };
        let is_lost = is_silent && !self.is_closing;
        if is_lost {
            // The CPU may have a notice that was not read yet.
            self.follow(waiting, consumer);
            if !self.fresh.contains(&cpu) {
                self.cover(cpu, waiting, consumer);
            }
        }
        is_lost
    }

    fn cover<C: Consumer>(&mut self, cpu: u32, waiting: &mut Waiting, consumer: &mut C) {
        let covered = self.queues.cover(cpu, &waiting.epoll).and_then(|covered| {
            if covered && let Some(adaptive) = &mut waiting.adaptive {
                adaptive.add(cpu).map_err(|cause| OpenError::Event { cpu, cause })?;
            }
            Ok(covered)
        });
        match covered {
            Ok(true) => {
                self.fresh.insert(cpu);
                consumer.cpu_changed(CpuChange::Covered { cpu });
            }
            // Not requested, or offline again.
            Ok(false) => {}
            Err(error) => consumer.cpu_changed(CpuChange::Uncovered { cpu, error: &error }),
        }
    }

    fn uncover<C: Consumer>(&mut self, cpu: u32, waiting: &mut Waiting, consumer: &mut C) {
        if self.queues.uncover(cpu, &waiting.epoll) {
            consumer.cpu_changed(CpuChange::Offline { cpu });
        }
    }
}
