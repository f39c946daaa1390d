//! The queues of a pipe, and the maps that contain their events.

use crate::error::{OpenError, PauseError, PauseStep, event_hint};
use crate::ledger::meter::{self, Shared};
use crate::pipe::adaptive::{Adaptive, Looks};
use crate::pipe::claims::Claims;
use crate::pipe::options::Options;
use crate::pipe::parts::{AdaptiveParts, PipeParts};
use crate::queue::event_ring::{EventRing, Writing};
use crate::queue::evqueue::EvQueue;
use probe_sys::bpf::{self, MapInfo};
use probe_sys::control_page::ControlPage;
use probe_sys::cpus;
use probe_sys::epoll::Epoll;
use probe_sys::eventfd::check_room;
use probe_sys::hint::descriptor_hint;
use probe_sys::hotplug::Prepare;
use probe_sys::membarrier;
use probe_sys::process::Process;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How many descriptors a pipe opens after its events: timers, a trigger, and what it reads meanwhile.
const OTHER_DESCRIPTORS: usize = 8;

/// The queues, sparse and in ascending order of CPU, and the map that contains their events.
///
/// A map slot lives only as long as the file of the map that set it, so this keeps the file open.
#[derive(Debug)]
pub(crate) struct Queues {
    map: Arc<OwnedFd>,
    info: MapInfo,
    /// The process that has mapped the rings.
    process: Process,
    /// Which CPUs belong to this pipe.
    claims: Arc<Claims>,
    /// The map of the events that wake with every record.
    eager: Option<Arc<OwnedFd>>,
    queues: Vec<EvQueue>,
    /// What they have received, for other threads.
    shared: Shared,
    /// The CPUs that got no queue when the pipe was opened, and why. No consumer knows of them yet.
    pub(crate) uncovered: Vec<(u32, OpenError)>,
    bytes: usize,
    writing: Writing,
    /// The requested CPUs; `None` for all.
    wanted: Option<Vec<u32>>,
    is_paused: bool,
    beside: Option<Box<dyn Prepare>>,
}

impl Queues {
    pub(crate) fn open(
        parts: &PipeParts,
        info: MapInfo,
        options: &Options,
        epoll: &Epoll,
    ) -> Result<Self, OpenError> {
        let online = cpus::online().map_err(|cause| OpenError::Cpus { cause })?;
        let control = parts.adaptive.as_ref().map(|parts| parts.control.as_fd());
        let claims = Claims::new(parts.events.as_fd(), control);
        let mut this = Self {
            map: Arc::clone(&parts.events),
            info,
            claims: Arc::new(claims),
            process: Process::this(),
            eager: None,
            queues: Vec::new(),
            shared: Shared::default(),
            uncovered: Vec::new(),
            bytes: options.bytes(),
            writing: options.writing(),
            wanted: options.wanted_cpus().map(<[u32]>::to_vec),
            is_paused: false,
            beside: None,
        };
        let cpus = options.wanted_cpus().unwrap_or(&online);
        let in_use: Vec<u32> =
            cpus.iter().copied().filter(|&cpu| this.claims.has_event(cpu)).collect();
        if !in_use.is_empty() && !options.takes_over() {
            return Err(OpenError::InUse { cpus: in_use });
        }
        // Nothing is taken from another consumer before all rings exist.
        let mut rings = Vec::new();
        for &cpu in cpus {
            match this.open_ring(cpu) {
                Ok(Some(ring)) => rings.push((cpu, ring)),
                // A CPU that went offline after the list was read is not an error.
                Ok(None) if this.wanted.is_none() => {}
                Ok(None) => return Err(OpenError::CpuOffline { cpu, online }),
                // The map of somebody else may have room for a few CPUs only.
                Err(error) if error.is_of_map() && this.wanted.is_none() && !rings.is_empty() => {
                    this.uncovered.push((cpu, error));
                }
                Err(error) => return Err(error),
            }
        }
        if rings.is_empty() {
            return Err(OpenError::NoCpu { online });
        }
        if !in_use.is_empty() {
            // A second event for each CPU, and a few more. It must not fail once it has taken a CPU from its consumer.
            let needed = rings.len() + OTHER_DESCRIPTORS;
            check_room(needed).map_err(|cause| OpenError::Poll { cause })?;
        }
        let eager = if in_use.is_empty() { None } else { parts.eager_map() };
        for (cpu, ring) in rings {
            this.install(cpu, ring, epoll)?;
            if let (true, Some(eager)) = (in_use.contains(&cpu), &eager) {
                // Programs that do not know of the change yet would go on to write to this event. Before, it wakes the
                // earlier consumer, which may sleep otherwise.
                let is_lost = bpf::write_zeros(eager.as_fd(), cpu).unwrap_or(false);
                if let (true, Some(entry)) = (is_lost, this.claims.entry(cpu)) {
                    entry.set_uncounted(1);
                }
                let _ = bpf::map_delete(eager.as_fd(), cpu);
            }
        }
        Ok(this)
    }

    /// Registers a hook that prepares each CPU that goes online from now on, before programs find its event.
    pub(crate) fn prepare_beside(&mut self, beside: Box<dyn Prepare>) {
        self.beside = Some(beside);
    }

    /// What the queues have received, for other threads.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether the consumer waits for the events of the rings: not where rings are overwritten.
    fn is_waited_for(&self) -> bool {
        matches!(self.writing, Writing::Forward(..))
    }

    /// Opens an event for an online CPU, puts it into the maps and waits for it. The CPU may have been online before.
    /// Returns `false` if the CPU is not requested, offline, or another consumer's.
    pub(crate) fn cover(&mut self, cpu: u32, epoll: &Epoll) -> Result<bool, OpenError> {
        if self.wanted.as_ref().is_some_and(|wanted| !wanted.contains(&cpu))
            || self.is_of_another(cpu)
        {
            return Ok(false);
        }
        match self.open_ring(cpu)? {
            Some(ring) => self.install(cpu, ring, epoll).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether a CPU that is online belongs to another consumer. If that one has taken over every CPU so far, new CPUs belong
    /// to it, too.
    fn is_of_another(&self, cpu: u32) -> bool {
        match self.position(cpu) {
            // A CPU that was given up is not taken back: its accounts have ended.
            Ok(at) => self.queues[at].is_taken_over() || self.claims.has_lost(cpu),
            Err(_) => self.are_lost() || self.claims.has_event(cpu),
        }
    }

    /// Whether another consumer has taken over every CPU so far.
    pub(crate) fn are_lost(&self) -> bool {
        let claims = &self.claims;
        self.queues.iter().all(|queue| queue.is_taken_over() || claims.has_lost(queue.cpu()))
    }

    /// Opens the ring of a CPU. `None` if the CPU is offline.
    fn open_ring(&self, cpu: u32) -> Result<Option<EventRing>, OpenError> {
        if cpu >= self.info.max_entries {
            let (name, entries) = (self.info.name.clone(), self.info.max_entries);
            return Err(OpenError::MapTooSmall { cpu, name, entries });
        }
        EventRing::open(cpu, self.bytes, self.writing)
    }

    /// Puts the event of a CPU into the maps, and waits for it.
    fn install(&mut self, cpu: u32, mut ring: EventRing, epoll: &Epoll) -> Result<(), OpenError> {
        if let Some(beside) = &mut self.beside {
            beside.prepare(cpu);
        }
        if let Err(error) = self.enter(cpu, &mut ring, epoll) {
            // The slots would keep the events alive, although they no longer have a ring.
            if self.claims.has(cpu) {
                self.clear_slots(cpu);
            }
            return Err(error);
        }
        // An earlier consumer that notices this finds that its ring receives nothing more.
        self.claims.take(cpu);
        match self.position(cpu) {
            Ok(at) => {
                self.forget(at, epoll);
                // A program that has found the old event may still write to its ring, if the event is still alive:
                // the CPU went online while the pipe was being opened, or has come back twice. Where the kernel
                // cannot wait for such programs, that is left to luck.
                let _ = membarrier::wait_for_programs();
                self.queues[at].go_online(ring);
            }
            Err(at) => {
                let queue = EvQueue::new(cpu, ring);
                meter::share(&self.shared, [&queue]);
                self.queues.insert(at, queue);
            }
        }
        Ok(())
    }

    fn enter(&self, cpu: u32, ring: &mut EventRing, epoll: &Epoll) -> Result<(), OpenError> {
        if self.is_waited_for() {
            epoll.add_tagged(ring.as_fd(), cpu).map_err(|cause| OpenError::Poll { cause })?;
        }
        if self.eager.is_some() {
            ring.open_eager(cpu).map_err(|cause| OpenError::Event { cpu, cause })?;
        }
        if self.is_paused {
            ring.pause(true).map_err(|cause| OpenError::Enable { cpu, cause })?;
        }
        self.put(cpu, ring).map_err(|cause| OpenError::MapEntry { cpu, cause })
    }

    /// Puts the events of a CPU into the maps.
    fn put(&self, cpu: u32, ring: &EventRing) -> io::Result<()> {
        if let (Some(eager), Some(event)) = (&self.eager, ring.eager()) {
            bpf::map_set_fd(eager.as_fd(), cpu, event)?;
        }
        bpf::map_set_fd(self.map.as_fd(), cpu, ring.as_fd()).inspect_err(|_| {
            if let Some(eager) = &self.eager {
                let _ = bpf::map_delete(eager.as_fd(), cpu);
            }
        })
    }

    /// Gives up the CPUs that another consumer has taken over since the last call, and returns them. Their rings are not
    /// written to any more.
    pub(crate) fn hand_over(&mut self) -> Vec<u32> {
        let claims = &self.claims;
        let taken = |queue: &&mut EvQueue| !queue.is_taken_over() && claims.has_lost(queue.cpu());
        let mut cpus = Vec::new();
        for queue in self.queues.iter_mut().filter(taken) {
            queue.hand_over(claims.page());
            cpus.push(queue.cpu());
        }
        if !cpus.is_empty() {
            // A program that has found the old event may still write to its ring. Where the kernel cannot wait for such
            // programs, that is left to luck.
            let _ = membarrier::wait_for_programs();
        }
        cpus
    }

    /// Whether output to the rings is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Pauses output to the rings. Programs that are already writing may still finish. If this fails for one ring,
    /// none is paused.
    pub(crate) fn pause(&mut self) -> Result<(), PauseError> {
        self.is_paused = true;
        for queue in self.queues.iter().filter(|queue| queue.is_online()) {
            let cpu = queue.cpu();
            if let Err(cause) = queue.ring().pause(true) {
                // Resume the rings that are already paused.
                let _ = self.resume();
                return Err(PauseError { step: PauseStep::Ring(cpu), cause });
            }
        }
        Ok(())
    }

    /// Resumes output to the rings. If this fails for one CPU, the others still resume.
    pub(crate) fn resume(&mut self) -> Result<(), PauseError> {
        if !std::mem::take(&mut self.is_paused) {
            return Ok(());
        }
        let mut result = Ok(());
        for queue in self.queues.iter().filter(|queue| queue.is_online()) {
            let cpu = queue.cpu();
            if let (Err(cause), Ok(())) = (queue.ring().pause(false), &result) {
                result = Err(PauseError { step: PauseStep::Ring(cpu), cause });
            }
        }
        self.is_paused = result.is_err();
        result
    }

    /// Notes that a CPU is offline, so its event will not become ready any more. Returns `false` if that is already
    /// known.
    pub(crate) fn uncover(&mut self, cpu: u32, epoll: &Epoll) -> bool {
        let Ok(at) = self.position(cpu) else { return false };
        let was_online = self.queues[at].is_online();
        self.forget(at, epoll);
        self.queues[at].go_offline();
        was_online
    }

    /// Stops waiting for the current event of a queue.
    fn forget(&self, at: usize, epoll: &Epoll) {
        if self.queues[at].is_online() && self.is_waited_for() {
            // This cannot fail: nothing else removes the event.
            let _ = epoll.remove(self.queues[at].as_fd());
        }
    }

    /// Opens the second event of each queue, and the consumer side of adaptive wakeups. On failure, returns the
    /// reason as a message.
    pub(crate) fn open_adaptive(
        &mut self,
        parts: Result<AdaptiveParts, &str>,
        max_latency: Duration,
    ) -> Result<Adaptive, String> {
        let AdaptiveParts { eager, flush, .. } = parts?;
        // Where the consumer does not wait for events, no CPU is eager, and no program looks for the second event.
        let looks = if self.is_waited_for() { Looks::WhenWoken } else { Looks::OnRequest };
        if looks == Looks::WhenWoken {
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
        let failed = |error: &io::Error| {
            format!("its consumer's half cannot be set up: {error}{}", descriptor_hint(error))
        };
        if let Some(error) = self.claims.error() {
            return Err(failed(error));
        }
        let cpus = self.queues.iter().map(EvQueue::cpu);
        Adaptive::new(Arc::clone(&self.claims), flush, cpus, looks, max_latency, self.bytes)
            .map_err(|error| failed(&error))
    }

    /// The page that the programs share with the pipe, if it can be used.
    pub(crate) fn control_page(&self) -> Option<Arc<ControlPage>> {
        self.claims.page()
    }

    pub(crate) fn as_slice(&self) -> &[EvQueue] {
        &self.queues
    }

    /// Calls `visit` for the queues of some CPUs, or of all without a list. Begins with the CPU `from` or the next higher
    /// one, and ends with those below it.
    pub(crate) fn visit(
        &mut self,
        cpus: Option<&[u32]>,
        from: u32,
        mut visit: impl FnMut(&mut EvQueue),
    ) {
        let Some(cpus) = cpus else {
            let first = self.position(from).unwrap_or_else(|at| at);
            let (below, above) = self.queues.split_at_mut(first);
            return above.iter_mut().chain(below).for_each(visit);
        };
        let (below, above) = cpus.split_at(cpus.partition_point(|&cpu| cpu < from));
        for &cpu in above.iter().chain(below) {
            if let Ok(at) = self.position(cpu) {
                visit(&mut self.queues[at]);
            }
        }
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, EvQueue> {
        self.queues.iter_mut()
    }

    /// The queue at an index.
    pub(crate) fn at(&mut self, index: usize) -> &mut EvQueue {
        &mut self.queues[index]
    }

    /// The index of the queue of a CPU, or where to insert it.
    pub(crate) fn position(&self, cpu: u32) -> Result<usize, usize> {
        self.queues.binary_search_by_key(&cpu, EvQueue::cpu)
    }

    /// Which CPUs belong to this pipe.
    pub(crate) fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// Whether a CPU has a queue, and no other pipe has taken it since.
    pub(crate) fn has(&self, cpu: u32) -> bool {
        self.position(cpu).is_ok() && !self.claims.has_lost(cpu)
    }

    /// Whether this process has the rings. A process forked from the one that opened them does not.
    pub(crate) fn are_here(&self) -> bool {
        self.process.is_this()
    }

    /// Takes the events out of the map.
    pub(crate) fn leave_map(&mut self) {
        self.claims.leave();
        for queue in &self.queues {
            self.leave(queue.cpu());
        }
    }

    fn leave(&self, cpu: u32) {
        if !self.claims.has(cpu) {
            return;
        }
        // If the kernel refuses, this is tried again when the pipe is dropped.
        if self.clear_slots(cpu) {
            self.claims.give_back(cpu);
        }
    }

    /// Takes the events of a CPU out of the maps. Returns whether they are not there any more.
    fn clear_slots(&self, cpu: u32) -> bool {
        let mut are_empty = true;
        for map in self.eager.iter().chain([&self.map]) {
            are_empty &= match bpf::map_delete(map.as_fd(), cpu) {
                Ok(()) => true,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
        }
        are_empty
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if self.are_here() {
            self.leave_map();
        }
    }
}

#[cfg(all(test, feature = "aya"))]
mod tests {
    use crate::pipe::evpipe::EvPipe;
    use crate::suite::{load, online};
    use crate::{EvHandlers, Options};

    /// As when a CPU comes back online, or its event has been deleted.
    #[test]
    #[ignore = "needs root and BPF: cargo xtask test"]
    fn a_cpu_that_was_taken_over_is_left_alone() {
        let mut object = load();
        let mut open = |options: Options| EvPipe::from_object(&mut object, &options).unwrap();
        let cover =
            |pipe: &mut EvPipe, cpu| pipe.coverage.queues.cover(cpu, &pipe.waiting.epoll).unwrap();
        let (here, there) = (online()[0], online()[1]);
        let mut first = open(Options::new());
        let mut second = open(Options::new().cpus([there]).take_over());
        assert!(!cover(&mut first, there) && cover(&mut first, here));
        assert!(!cover(&mut second, here) && cover(&mut second, there));
        let mut third = open(Options::new().take_over());
        for cpu in [here, there] {
            assert!(!cover(&mut first, cpu) && !cover(&mut second, cpu) && cover(&mut third, cpu));
        }
        let _ = first.drain(&mut EvHandlers::new());
        drop(second);
        assert!(online().into_iter().all(|cpu| third.coverage.queues.has(cpu)));
        assert!(third.ledger().is_ok());
        // Also when nobody has it any more.
        drop(third);
        assert!(!cover(&mut first, here) && !cover(&mut first, there));
    }
}
