//! The queues of a pipe, and the maps that their events are in.

use crate::adaptive::Adaptive;
use crate::cpus;
use crate::error::{OpenError, descriptor_hint, event_hint, map_type_name};
use crate::evqueue::{EvQueue, EventRing};
use crate::options::Options;
use crate::parts::AdaptiveParts;
use crate::sys::bpf::{self, MapInfo};
use crate::sys::epoll::Epoll;
use crate::sys::membarrier;
use crate::sys::perf_event::WakeAt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The queues, sparse and ascending by CPU, and the map that their events are in.
///
/// A map slot lives as long as the map file that set it, so this file is held for as long.
#[derive(Debug)]
pub(crate) struct Queues {
    map: OwnedFd,
    info: MapInfo,
    /// The map of the events that wake with every record.
    eager: Option<OwnedFd>,
    queues: Vec<EvQueue>,
    bytes: usize,
    wake_at: WakeAt,
    /// The CPUs that are to have queues, if not all are.
    wanted: Option<Vec<u32>>,
}

impl Queues {
    pub(crate) fn open(map: OwnedFd, options: &Options, epoll: &Epoll) -> Result<Self, OpenError> {
        let info = bpf::map_info(map.as_fd()).map_err(|source| OpenError::MapInfo { source })?;
        if info.map_type != bpf::MAP_TYPE_PERF_EVENT_ARRAY {
            let found = map_type_name(info.map_type);
            return Err(OpenError::NotAPerfEventArray { name: info.name, found });
        }
        let online = cpus::online().map_err(|source| OpenError::Cpus { source })?;
        let mut this = Self {
            map,
            info,
            eager: None,
            queues: Vec::new(),
            bytes: options.bytes(),
            wake_at: options.wake_at(),
            wanted: options.wanted_cpus().map(<[u32]>::to_vec),
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
        let Some(mut ring) = EventRing::open(cpu, self.bytes, self.wake_at)? else {
            return Ok(false);
        };
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
        epoll.add(ring.as_fd()).map_err(|source| OpenError::Poll { source })?;
        if let Some(eager) = &self.eager {
            let event = ring.open_eager(cpu).map_err(|source| OpenError::Event { cpu, source })?;
            bpf::map_set_fd(eager.as_fd(), cpu, event)
                .map_err(|source| OpenError::Slot { cpu, source })?;
        }
        bpf::map_set_fd(self.map.as_fd(), cpu, ring.as_fd())
            .map_err(|source| OpenError::Slot { cpu, source })
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
        if self.queues[at].is_online() {
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

    /// Where the queue of a CPU is, or would have to be.
    pub(crate) fn position(&self, cpu: u32) -> Result<usize, usize> {
        self.queues.binary_search_by_key(&cpu, EvQueue::cpu)
    }

    pub(crate) fn have_records(&self) -> bool {
        self.queues.iter().any(EvQueue::has_records)
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
        self.leave_map();
    }
}
