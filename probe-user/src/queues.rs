//! The queues of a pipe, and the maps that their events are in.

use crate::adaptive::Adaptive;
use crate::cpus;
use crate::error::{OpenError, PauseError, descriptor_hint, event_hint, map_type_name};
use crate::evqueue::{EvQueue, EventRing, Writing};
use crate::hotplug::Prepare;
use crate::options::Options;
use crate::parts::AdaptiveParts;
use crate::pausing::Pausing;
use crate::sys::bpf::{self, MapInfo};
use crate::sys::epoll::Epoll;
use crate::sys::fork::Process;
use crate::sys::membarrier;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The queues, sparse and ascending by CPU, and the map that their events are in.
///
/// A map slot lives as long as the map file that set it, so this file is held for as long.
#[derive(Debug)]
pub(crate) struct Queues {
    map: Arc<OwnedFd>,
    info: MapInfo,
    /// Who has the rings.
    process: Process,
    /// The map of the events that wake with every record.
    eager: Option<Arc<OwnedFd>>,
    queues: Vec<EvQueue>,
    bytes: usize,
    writing: Writing,
    /// The CPUs that are to have queues, if not all are.
    wanted: Option<Vec<u32>>,
    paused: Option<Pausing>,
    beside: Option<Box<dyn Prepare>>,
}

impl Queues {
    pub(crate) fn open(
        map: Arc<OwnedFd>,
        options: &Options,
        epoll: &Epoll,
    ) -> Result<Self, OpenError> {
        let info = bpf::map_info(map.as_fd()).map_err(|source| OpenError::MapInfo { source })?;
        if info.map_type != bpf::MAP_TYPE_PERF_EVENT_ARRAY {
            let found = map_type_name(info.map_type);
            return Err(OpenError::NotAPerfEventArray { name: info.name, found });
        }
        let online = cpus::online().map_err(|source| OpenError::Cpus { source })?;
        let mut this = Self {
            map,
            info,
            process: Process::this(),
            eager: None,
            queues: Vec::new(),
            bytes: options.bytes(),
            writing: options.writing(),
            wanted: options.wanted_cpus().map(<[u32]>::to_vec),
            paused: None,
            beside: None,
        };
        for &cpu in options.wanted_cpus().unwrap_or(&online) {
            // One that went offline since the list was read is not missed.
            if !this.cover(cpu, epoll)? && this.wanted.is_some() {
                return Err(OpenError::CpuOffline { cpu, online });
            }
        }
        if this.queues.is_empty() {
            return Err(OpenError::NoCpu { online });
        }
        Ok(this)
    }

    /// Has something ready for each CPU that comes from now on, before programs find its event.
    #[cfg(feature = "trace")]
    pub(crate) fn prepare_beside(&mut self, beside: Box<dyn Prepare>) {
        self.beside = Some(beside);
    }

    /// Whether somebody waits for what comes into the rings: not where they are overwritten.
    fn is_waited_for(&self) -> bool {
        matches!(self.writing, Writing::Forward(_))
    }

    /// Gives a CPU that is online, perhaps again, an event that is in the maps and is waited for.
    /// `false` if it is not wanted, or offline.
    pub(crate) fn cover(&mut self, cpu: u32, epoll: &Epoll) -> Result<bool, OpenError> {
        if self.wanted.as_ref().is_some_and(|wanted| !wanted.contains(&cpu)) {
            return Ok(false);
        }
        if cpu >= self.info.max_entries {
            let (name, entries) = (self.info.name.clone(), self.info.max_entries);
            return Err(OpenError::CpuPastEnd { cpu, name, entries });
        }
        let Some(mut ring) = EventRing::open(cpu, self.bytes, self.writing)? else {
            return Ok(false);
        };
        if let Some(beside) = &mut self.beside {
            beside.prepare(cpu);
        }
        if let Err(error) = self.enter(cpu, &mut ring, epoll) {
            // The slots would keep the events, which have no ring then.
            self.leave(cpu);
            return Err(error);
        }
        match self.position(cpu) {
            Ok(at) => {
                self.forget(at, epoll);
                // A program that has found the old event may yet write to its ring, if it lives: the
                // CPU came while the pipe was opened, or has come back twice. Where the kernel cannot
                // wait, that is left to luck.
                let _ = membarrier::wait_for_programs();
                self.queues[at].go_online(ring);
            }
            Err(at) => self.queues.insert(at, EvQueue::new(cpu, ring)),
        }
        Ok(true)
    }

    fn enter(&self, cpu: u32, ring: &mut EventRing, epoll: &Epoll) -> Result<(), OpenError> {
        if self.is_waited_for() {
            epoll.add(ring.as_fd()).map_err(|source| OpenError::Poll { source })?;
        }
        if self.eager.is_some() {
            ring.open_eager(cpu).map_err(|source| OpenError::Event { cpu, source })?;
        }
        match self.paused {
            Some(Pausing::Slots) => return Ok(()),
            Some(Pausing::Output) => {
                ring.pause(true).map_err(|source| OpenError::Enable { cpu, source })?;
            }
            None => {}
        }
        self.put(cpu, ring).map_err(|source| OpenError::Slot { cpu, source })
    }

    /// Puts a CPU's events into the maps.
    fn put(&self, cpu: u32, ring: &EventRing) -> io::Result<()> {
        if let (Some(eager), Some(event)) = (&self.eager, ring.eager()) {
            bpf::map_set_fd(eager.as_fd(), cpu, event)?;
        }
        bpf::map_set_fd(self.map.as_fd(), cpu, ring.as_fd())
    }

    /// How programs are kept from writing, if they are.
    pub(crate) fn paused(&self) -> Option<Pausing> {
        self.paused
    }

    /// Keeps programs from writing. Those that had begun to may write yet. Where it fails, all goes on.
    pub(crate) fn pause(&mut self, how: Pausing) -> Result<(), PauseError> {
        self.paused = Some(how);
        if how == Pausing::Slots {
            self.leave_map();
            return Ok(());
        }
        for queue in self.queues.iter().filter(|queue| queue.is_online()) {
            let cpu = queue.cpu();
            if let Err(source) = queue.ring().pause(true) {
                // What is paused already can go on, as it would have.
                let _ = self.resume();
                return Err(PauseError { cpu, source });
            }
        }
        Ok(())
    }

    /// Lets programs write again. Where it fails for a CPU, the others go on.
    pub(crate) fn resume(&mut self) -> Result<(), PauseError> {
        let Some(how) = self.paused.take() else { return Ok(()) };
        let mut result = Ok(());
        for queue in self.queues.iter().filter(|queue| queue.is_online()) {
            let cpu = queue.cpu();
            let gone_on = match how {
                Pausing::Output => queue.ring().pause(false),
                Pausing::Slots => self.put(cpu, queue.ring()),
            };
            if let (Err(source), Ok(())) = (gone_on, &result) {
                result = Err(PauseError { cpu, source });
            }
        }
        if result.is_err() {
            self.paused = Some(how);
        }
        result
    }

    /// The CPU is offline: its event will not be ready any more. `false` if that is known already.
    pub(crate) fn uncover(&mut self, cpu: u32, epoll: &Epoll) -> bool {
        let Ok(at) = self.position(cpu) else { return false };
        let was_online = self.queues[at].is_online();
        self.forget(at, epoll);
        self.queues[at].go_offline();
        was_online
    }

    /// Waits no more for the event that a queue has now.
    fn forget(&self, at: usize, epoll: &Epoll) {
        if self.queues[at].is_online() && self.is_waited_for() {
            // Nobody else has removed it.
            let _ = epoll.remove(self.queues[at].as_fd());
        }
    }

    /// Opens the second event of each queue, and the consumer's half of adaptive wakeups; or tells
    /// why it cannot.
    pub(crate) fn open_adaptive(
        &mut self,
        parts: Option<AdaptiveParts>,
        max_latency: Duration,
    ) -> Result<Adaptive, String> {
        let AdaptiveParts { eager, control, flush } =
            parts.ok_or("only the map of events is known, not the rest of the object")?;
        // Where nobody waits, the consumer never sleeps, and no program looks for the second event.
        if self.is_waited_for() {
            let eager = self.eager.insert(eager);
            for queue in &mut self.queues {
                let cpu = queue.cpu();
                queue
                    .open_eager()
                    .and_then(|event| bpf::map_set_fd(eager.as_fd(), cpu, event))
                    .map_err(|error| {
                        format!("no second event on CPU {cpu}: {error}{}", event_hint(&error))
                    })?;
            }
        }
        let cpus = self.queues.iter().map(EvQueue::cpu);
        Adaptive::new(control.as_fd(), flush, cpus, max_latency, self.bytes).map_err(|error| {
            format!("its consumer's half cannot be set up: {error}{}", descriptor_hint(&error))
        })
    }

    pub(crate) fn as_slice(&self) -> &[EvQueue] {
        &self.queues
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, EvQueue> {
        self.queues.iter_mut()
    }

    /// The queue at a place among them.
    pub(crate) fn at(&mut self, place: u32) -> &mut EvQueue {
        &mut self.queues[place as usize]
    }

    /// Where the queue of a CPU is, or would have to be.
    pub(crate) fn position(&self, cpu: u32) -> Result<usize, usize> {
        self.queues.binary_search_by_key(&cpu, EvQueue::cpu)
    }

    pub(crate) fn have_records(&self) -> bool {
        self.queues.iter().any(EvQueue::has_records)
    }

    /// Whether this process has the rings: not one that was forked from the one that opened them.
    pub(crate) fn are_here(&self) -> bool {
        self.process.is_this()
    }

    /// Takes the events out of the map.
    pub(crate) fn leave_map(&mut self) {
        for queue in &self.queues {
            self.leave(queue.cpu());
        }
    }

    fn leave(&self, cpu: u32) {
        for map in self.eager.iter().chain([&self.map]) {
            // It fails only if the slot is empty already.
            let _ = bpf::map_delete(map.as_fd(), cpu);
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if self.are_here() {
            self.leave_map();
        }
    }
}
