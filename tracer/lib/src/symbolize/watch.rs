//! Watching what processes map, and what the kernel adds to its code.

use super::images::Images;
use super::kernel_changes::KernelChanges;
use crate::kernel::capabilities::Capabilities;
use crate::session::privileges::keep_for_samples;
use probe_perf::record::{Body, Record};
use probe_perf::{Event, Flags, PerfError, Sampler, Software, Target};
use probe_sys::clock::monotonic;
use std::io;
use std::time::{Duration, Instant};

/// The size of each ring, in bytes. A process that starts needs about 2 KiB.
const RING: usize = 256 << 10;

/// Fewer records than these never fill a ring: a record has a path of up to 4 KiB.
const FEW: u64 = 50;

/// How long to wait after an attempt to watch a CPU that came online.
const RETRY: Duration = Duration::from_secs(1);

/// Follows what processes map as code, and what the kernel adds to its own, so that an address has the name that it had at the
/// time of a hit.
///
/// The kernel writes the record of a mapping before the process can execute it, and before its entry in `/proc` can be
/// read.
#[derive(Debug)]
pub(super) struct Watch {
    sampler: Sampler,
    flags: Flags,
    /// How many events the sampler has opened. It opens more on each CPU that comes online, where nothing is known of the time
    /// before.
    opened: usize,
    /// When the CPUs that could not be watched are tried again.
    next_try: Instant,
    images: Images,
    kernel: KernelChanges,
    /// Every record from before this time has been read.
    caught_up: u64,
    lost: u64,
    /// Whether it was reported that mappings were missed.
    has_warned: bool,
}

impl Watch {
    /// Watches all processes or, without the privilege for that, only those of the target.
    pub(super) fn of_processes(target: &Target) -> Result<Self, PerfError> {
        let whole = match target.clone() {
            // Any thread may map something, and so may one that is created later.
            Target::Thread(id) | Target::Process(id) => Target::ProcessAndChildren(id),
            Target::Processes(ids) => Target::ProcessesAndChildren(ids),
            Target::ThisProcess => Target::ProcessAndChildren(std::process::id()),
            other => other,
        };
        let flags = OF_PROCESSES | Flags::KSYMBOL;
        let sampler = sampler(flags, Target::System).or_else(|_| sampler(flags, whole))?;
        Ok(Self::with(sampler, flags))
    }

    /// Watches the kernel only.
    pub(super) fn of_kernel() -> Result<Self, PerfError> {
        Ok(Self::with(sampler(Flags::KSYMBOL, Target::System)?, Flags::KSYMBOL))
    }

    fn with(sampler: Sampler, flags: Flags) -> Self {
        let mut images = Images::default();
        images.forget(monotonic());
        Self {
            opened: sampler.ids().len(),
            sampler,
            flags,
            next_try: Instant::now(),
            images,
            kernel: KernelChanges::default(),
            caught_up: 0,
            lost: 0,
            has_warned: false,
        }
    }

    /// Gives up the capabilities of the calling thread except `also`, and those that [`cover`](Self::cover) needs.
    pub(super) fn keep_to_cover(&self, also: Capabilities) -> io::Result<Capabilities> {
        keep_for_samples(&self.sampler, also)
    }

    /// Watches the CPUs that came online and are not watched, because the thread that noticed them lacks the privilege.
    pub(super) fn cover(&mut self) {
        if self.sampler.uncovered().next().is_none() || Instant::now() < self.next_try {
            return;
        }
        match sampler(self.flags, Target::System) {
            Ok(sampler) => {
                (self.opened, self.sampler, self.lost) = (sampler.ids().len(), sampler, 0);
                self.images.forget(monotonic());
                self.kernel.forget(monotonic());
            }
            Err(error) => {
                self.next_try = Instant::now() + RETRY;
                self.warn(&format!("a CPU that came online cannot be watched: {error}"));
            }
        }
    }

    /// What processes had mapped at a time, which must have passed.
    pub(super) fn images_at(&mut self, time: u64) -> &Images {
        self.catch_up_to(time);
        &self.images
    }

    /// What the kernel had added and removed at a time, which must have passed.
    pub(super) fn kernel_at(&mut self, time: u64) -> &KernelChanges {
        self.catch_up_to(time);
        &self.kernel
    }

    /// What the kernel has added and removed, as far as it is known.
    pub(super) fn kernel(&mut self) -> &mut KernelChanges {
        &mut self.kernel
    }

    /// Whether a process has mapped nothing else since a time.
    pub(super) fn is_same_since(&mut self, pid: u32, time: u64) -> bool {
        let images = self.images_at(monotonic());
        let now = images.all_since(pid, monotonic());
        now.is_some() && now == images.all_since(pid, time)
    }

    /// Whether a process has run the same program since a time.
    pub(super) fn is_same_program_since(&mut self, pid: u32, time: u64) -> bool {
        let now = monotonic();
        let images = self.images_at(now);
        images.program_since(pid, now) == images.program_since(pid, time)
    }

    fn catch_up_to(&mut self, time: u64) {
        if time >= self.caught_up {
            self.catch_up();
        }
    }

    /// Reads all records so far. Later ones must wait, because any user can cause them without end.
    pub(super) fn catch_up(&mut self) {
        let now = monotonic();
        let (mut records, mut is_complete) = (0, true);
        let Self { sampler, images, kernel, .. } = self;
        sampler.for_each_so_far(|record| {
            records += 1;
            is_complete &= record.is_ok_and(|record| note(images, kernel, &record));
        });
        if records >= FEW || !is_complete {
            // The kernel writes the record of a loss only when there is room again.
            let lost = self.sampler.counts().map_or(u64::MAX, |counts| counts.lost);
            is_complete &= std::mem::replace(&mut self.lost, lost) == lost;
        }
        if !is_complete {
            self.warn("the kernel could not report what processes mapped");
        }
        let opened = self.sampler.ids().len();
        let is_same = std::mem::replace(&mut self.opened, opened) == opened;
        if !is_complete || !is_same {
            self.kernel.forget(monotonic());
        }
        if !is_complete || !is_same || self.sampler.uncovered().next().is_some() {
            self.images.forget(monotonic());
        }
        self.caught_up = now;
    }

    /// Warns, but only once, that addresses of processes lack names.
    fn warn(&mut self, why: &str) {
        if self.flags.contains(OF_PROCESSES) && !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("user addresses lack names, because {why}");
        }
    }
}

/// What a watch of processes records.
const OF_PROCESSES: Flags =
    Flags::MMAP.union(Flags::MMAP2).union(Flags::COMM).union(Flags::COMM_EXEC).union(Flags::TASK);

/// Takes from a record what it says about mappings and the kernel. Returns `false` if records were lost.
fn note(images: &mut Images, kernel: &mut KernelChanges, record: &Record<'_>) -> bool {
    let time = record.ids.time.unwrap_or(0);
    match &record.body {
        Body::Comm { thread, is_exec: true, .. } => images.exec(thread.pid, time),
        Body::Mmap2 { mapping, file, .. } => images.map(mapping, file, time),
        Body::Fork(task) if task.thread.pid != task.parent.pid => {
            images.fork(task.thread.pid, task.parent.pid, time);
        }
        Body::Exit(task) if task.thread.pid == task.thread.tid => images.end(task.thread.pid, time),
        &Body::Ksymbol { addr, len, is_removed, name, .. } => {
            kernel.note(time, addr..addr.saturating_add(len.into()), name, is_removed);
        }
        Body::Lost { .. } => return false,
        _ => {}
    }
    true
}

fn sampler(flags: Flags, target: Target) -> Result<Sampler, PerfError> {
    let event = Event::from(Software::Dummy).user_only();
    let builder = Sampler::builder().event(event).period(0).flags(flags).target(target);
    // Nobody waits for records.
    let mut sampler = builder.bytes_per_ring(RING).wake_after_bytes(RING as u32 / 2).open()?;
    sampler.enable()?;
    Ok(sampler)
}
