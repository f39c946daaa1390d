//! Watching what processes map, and what the kernel adds to its code.

use super::images::Images;
use super::kernel_changes::KernelChanges;
use super::mappings;
use super::thread_names::numbers;
use crate::kernel::capabilities::Capabilities;
use crate::object::namespaces::process_of;
use crate::session::privileges::{keep_for_samples, keep_only};
use probe_perf::record::{Body, Record};
use probe_perf::{Event, Flags, PerfError, Sampler, Software, Target};
use probe_sys::clock::monotonic;
use std::io;
use std::time::{Duration, Instant};

/// The size of each ring with records of processes, in bytes. A process that starts needs about 2 KiB.
const RING: usize = 256 << 10;

/// The size of each ring with the kernel's own changes, in bytes. An eBPF program that is loaded needs about 100 bytes.
const KERNEL_RING: usize = 64 << 10;

/// Fewer records than these never fill a ring: a record has a path of up to 4 KiB, or the name of a symbol.
const FEW: u64 = 50;

/// How long the mappings of processes are read before a trace begins, at most.
const AT_START: Duration = Duration::from_secs(1);

/// How long to wait after an attempt to watch a CPU that came online.
const RETRY: Duration = Duration::from_secs(1);

/// Follows what processes map as code, and what the kernel adds to its own, so that an address has the name that it had at the
/// time of a hit.
///
/// The kernel writes the record of a mapping before the process can execute it, and before its entry in `/proc` can be
/// read. Any user can map code until records are lost, so what the kernel does has rings of its own.
#[derive(Debug)]
pub(super) struct Watch {
    of_processes: Option<Feed>,
    of_kernel: Option<Feed>,
    images: Images,
    kernel: KernelChanges,
    /// Every record from before this time has been read.
    caught_up: u64,
    /// Whether it was reported that mappings were missed.
    has_warned: bool,
}

/// Records from the kernel, of one sampler.
#[derive(Debug)]
struct Feed {
    sampler: Sampler,
    flags: Flags,
    ring: usize,
    /// How many events the sampler has opened. It opens more on each CPU that comes online, where nothing is known of the time
    /// before.
    opened: usize,
    lost: u64,
    /// When the CPUs that could not be watched are tried again.
    next_try: Instant,
}

/// What a feed says about itself.
#[derive(Clone, Copy, Debug)]
struct Report {
    /// Whether no record was lost.
    is_complete: bool,
    /// Whether it had no CPU to add.
    is_same: bool,
    /// Whether it reads all CPUs.
    is_everywhere: bool,
}

impl Feed {
    fn open(flags: Flags, ring: usize, target: Target) -> Result<Self, PerfError> {
        let sampler = sampler(flags, ring, target)?;
        let (opened, next_try) = (sampler.ids().len(), Instant::now());
        Ok(Self { sampler, flags, ring, opened, lost: 0, next_try })
    }

    /// Reads all records so far. Later ones must wait, because any user can cause them without end.
    fn read(&mut self, mut note: impl FnMut(&Record<'_>)) -> Report {
        let (mut records, mut is_complete) = (0, true);
        self.sampler.for_each_so_far(|record| {
            records += 1;
            is_complete &= match &record {
                Ok(record) => !matches!(record.body, Body::Lost { .. }),
                Err(_) => false,
            };
            if let Ok(record) = record {
                note(&record);
            }
        });
        if records >= FEW || !is_complete {
            // The kernel writes the record of a loss only when there is room again.
            let lost = self.sampler.counts().map_or(u64::MAX, |counts| counts.lost);
            is_complete &= std::mem::replace(&mut self.lost, lost) == lost;
        }
        let opened = self.sampler.ids().len();
        let is_same = std::mem::replace(&mut self.opened, opened) == opened;
        Report { is_complete, is_same, is_everywhere: self.sampler.uncovered().next().is_none() }
    }

    /// Watches the CPUs that came online and are not watched, because the thread that noticed them lacks the privilege. Returns
    /// whether nothing is known of the time before.
    fn cover(&mut self) -> Result<bool, PerfError> {
        if self.sampler.uncovered().next().is_none() || Instant::now() < self.next_try {
            return Ok(false);
        }
        self.next_try = Instant::now() + RETRY;
        *self = Self::open(self.flags, self.ring, Target::System)?;
        Ok(true)
    }
}

impl Watch {
    /// Watches the kernel, and all processes or, without the privilege for that, only those of the target.
    pub(super) fn of_processes(target: &Target) -> Result<Self, PerfError> {
        let whole = match target.clone() {
            // Any thread may map something, and so may one that is created later.
            Target::Thread(id) | Target::Process(id) => Target::ProcessAndChildren(id),
            Target::Processes(ids) => Target::ProcessesAndChildren(ids),
            Target::ThisProcess => Target::ProcessAndChildren(std::process::id()),
            other => other,
        };
        let open = |target| Feed::open(OF_PROCESSES, RING, target);
        let of_processes = open(Target::System).or_else(|_| open(whole))?;
        let mut this = Self::with(Some(of_processes), Self::kernel_feed().ok());
        this.note_mapped(target);
        Ok(this)
    }

    /// Notes what the processes of the target have mapped already. They may have ended when an address of theirs is looked up.
    fn note_mapped(&mut self, target: &Target) {
        let until = Instant::now() + AT_START;
        let all: Vec<u32> = match target {
            Target::Process(pid) | Target::ProcessAndChildren(pid) => vec![*pid],
            Target::Processes(pids) | Target::ProcessesAndChildren(pids) => pids.clone(),
            Target::ThisProcess => vec![std::process::id()],
            Target::Thread(tid) => process_of(*tid).into_iter().collect(),
            _ => numbers("/proc").collect(),
        };
        for pid in all {
            // One that has ended or may not be inspected has none.
            let mapped = mappings::read(&pid.to_string()).unwrap_or_default();
            if !self.images.map_first(pid, mapped) || Instant::now() > until {
                break;
            }
        }
    }

    /// Watches the kernel only.
    pub(super) fn of_kernel() -> Result<Self, PerfError> {
        Ok(Self::with(None, Some(Self::kernel_feed()?)))
    }

    fn kernel_feed() -> Result<Feed, PerfError> {
        Feed::open(Flags::KSYMBOL, KERNEL_RING, Target::System).inspect_err(no_kernel)
    }

    fn with(of_processes: Option<Feed>, of_kernel: Option<Feed>) -> Self {
        let mut images = Images::default();
        images.forget(monotonic());
        let kernel = KernelChanges::default();
        Self { of_processes, of_kernel, images, kernel, caught_up: 0, has_warned: false }
    }

    /// Gives up the capabilities of the calling thread except `also`, and those that [`cover`](Self::cover) needs.
    pub(super) fn keep_to_cover(&self, also: Capabilities) -> io::Result<Capabilities> {
        match self.of_processes.as_ref().or(self.of_kernel.as_ref()) {
            Some(feed) => keep_for_samples(&feed.sampler, also),
            None => keep_only(also),
        }
    }

    /// Watches the CPUs that came online and are not watched, because the thread that noticed them lacks the privilege.
    pub(super) fn cover(&mut self) {
        match self.of_kernel.as_mut().map_or(Ok(false), Feed::cover) {
            Ok(false) => {}
            Ok(true) => self.kernel.forget(monotonic()),
            Err(error) => no_kernel(&error),
        }
        match self.of_processes.as_mut().map_or(Ok(false), Feed::cover) {
            Ok(false) => {}
            Ok(true) => self.images.forget(monotonic()),
            Err(error) => {
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
        let now = monotonic();
        let images = self.images_at(now);
        let mapped = images.all_since(pid, now);
        mapped.is_some() && mapped == images.all_since(pid, time)
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

    /// Reads all records so far.
    pub(super) fn catch_up(&mut self) {
        let now = monotonic();
        let Self { of_processes, of_kernel, images, kernel, .. } = self;
        if let Some(feed) = of_kernel {
            let report = feed.read(|record| note_of_kernel(kernel, record));
            if !report.is_complete || !report.is_same {
                kernel.forget(monotonic());
            }
        }
        if let Some(feed) = of_processes {
            let report = feed.read(|record| note_of_processes(images, record));
            if !report.is_complete || !report.is_same || !report.is_everywhere {
                images.forget(monotonic());
            }
            if !report.is_complete {
                self.warn("the kernel could not report what processes mapped");
            }
        }
        self.caught_up = now;
    }

    /// Warns, but only once, that addresses of processes lack names.
    fn warn(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("user addresses lack names, because {why}");
        }
    }
}

fn no_kernel(error: &PerfError) {
    log::debug!("eBPF programs that are loaded later have no names: {error}");
}

/// What a watch of processes records.
const OF_PROCESSES: Flags =
    Flags::MMAP.union(Flags::MMAP2).union(Flags::COMM).union(Flags::COMM_EXEC).union(Flags::TASK);

/// Takes from a record what it says about mappings.
fn note_of_processes(images: &mut Images, record: &Record<'_>) {
    let time = record.ids.time.unwrap_or(0);
    match &record.body {
        Body::Comm { thread, is_exec: true, .. } => images.exec(thread.pid, time),
        Body::Mmap2 { mapping, file, .. } => images.map(mapping, file, time),
        Body::Fork(task) if task.thread.pid != task.parent.pid => {
            images.fork(task.thread.pid, task.parent.pid, time);
        }
        Body::Exit(task) if task.thread.pid == task.thread.tid => images.end(task.thread.pid, time),
        _ => {}
    }
}

/// Takes from a record what it says about the kernel.
fn note_of_kernel(kernel: &mut KernelChanges, record: &Record<'_>) {
    if let &Body::Ksymbol { addr, len, is_removed, name, .. } = &record.body {
        let time = record.ids.time.unwrap_or(0);
        kernel.note(time, addr..addr.saturating_add(len.into()), name, is_removed);
    }
}

fn sampler(flags: Flags, ring: usize, target: Target) -> Result<Sampler, PerfError> {
    let event = Event::from(Software::Dummy).user_only();
    let builder = Sampler::builder().event(event).period(0).flags(flags).target(target);
    // Nobody waits for records.
    let mut sampler = builder.bytes_per_ring(ring).wake_after_bytes(ring as u32 / 2).open()?;
    sampler.enable()?;
    Ok(sampler)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::images::MappedCode;
    use probe_testing::shell::Shell;
    use probe_testing::skip::skip;
    use std::process::Command;

    #[test]
    fn what_a_process_had_mapped_before_is_known_after_its_end() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        // The new program is mapped a moment after it has replaced the old one.
        let mapped = loop {
            let program = std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap();
            let is_of_program = |one: &mappings::Mapping| match &one.of {
                mappings::Mapped::File { path, .. } => *path == program,
                mappings::Mapped::Vdso | mappings::Mapped::Memory => false,
            };
            let mapped = mappings::read(&child.id().to_string()).unwrap_or_default();
            let found = mapped.into_iter().find(is_of_program);
            if let Some(found) = found.filter(|_| program != std::env::current_exe().unwrap()) {
                break found;
            }
        };
        let mut watch = Watch::of_processes(&Target::Process(child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let time = monotonic();
        let (begin, pid) = (mapped.range.start, child.id());
        let found = watch.images_at(time).find(pid, time, begin);
        let Some(MappedCode::InFile(file, offset)) = found else { panic!("{found:?}") };
        let of = mappings::Mapped::File { path: file.path.clone(), inode: file.inode, offset };
        assert_eq!(of, mapped.of);
    }

    /// Otherwise its names would be read again for each hit, while anybody maps code without pause.
    #[test]
    fn mappings_that_were_missed_say_nothing_of_the_kernel() {
        let Ok(of_kernel) = Watch::kernel_feed() else {
            return skip("this process may not watch the kernel");
        };
        // A process of its own, because children of other tests map code, too.
        let mut shell = Shell::start("while echo && read line; do env true || exit; done");
        let target = Target::ProcessAndChildren(shell.id());
        let of_processes = Feed::open(OF_PROCESSES, 4096, target).unwrap();
        let mut watch = Watch::with(Some(of_processes), Some(of_kernel));
        watch.catch_up();
        assert!(!watch.has_warned);
        let mut execute = || shell.lead(b"\n");
        let feed = watch.of_processes.as_ref().unwrap();
        for _ in 0..300 {
            execute();
            if feed.sampler.counts().unwrap().lost > 0 {
                break;
            }
        }
        watch.catch_up();
        // Old kernels report a loss with the next record.
        execute();
        watch.catch_up();
        assert!(watch.has_warned);
        assert_eq!(watch.kernel().table_since(), 0);
        shell.end();
    }
}
