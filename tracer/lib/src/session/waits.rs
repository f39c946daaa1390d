//! Hits that wait for a page of the process's memory: the events that let programs read it again, and the end of waits that
//! nothing else ends.

use crate::error::TraceError;
use crate::kernel::capabilities::{Capabilities, keep_least};
use crate::kernel::features::is_refusal;
use crate::kernel::identity::{instead_of_root, leave_root, start_without_files};
use crate::object::Object;
use probe_common::RecordHeader;
use probe_sys::bpf;
use probe_sys::clock;
use probe_sys::cpus;
use probe_sys::hotplug::Prepare;
use probe_sys::perf_event::PerfEvent;
use probe_tracer_common::call::PART;
use probe_tracer_common::wait::{END_WAIT_PROGRAM, PAGE_FAULT_PROGRAM, PLACES, Waits, of_key};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// How often hits are looked for that have waited long enough.
const SWEEP: Duration = Duration::from_millis(200);

/// How long a hit waits at least before a sweep ends its wait.
const LONGEST: Duration = Duration::from_millis(500);

/// How long a hit waits at most, unless the sweeper is delayed.
pub(crate) const LONGEST_IN_ALL: Duration = LONGEST.saturating_add(SWEEP.saturating_mul(2));

/// The events of page faults on all CPUs, and the sweeper. Dropping it leaves hits that still wait where they are.
#[derive(Debug)]
pub(crate) struct Waiting {
    faults: PageFaults,
    sweep: Arc<Sweep>,
    sweeper: Option<Sweeper>,
}

impl Waiting {
    /// Loads the programs if any hit may wait.
    pub(crate) fn load(object: &mut Object) -> Result<Option<Self>, TraceError> {
        if !object.hits_wait() {
            return Ok(None);
        }
        let owned = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(TraceError::load);
        let program = Arc::new(owned(object.program(PAGE_FAULT_PROGRAM)?)?);
        let end = owned(object.program(END_WAIT_PROGRAM)?)?;
        let [parts, counts] = object.waiting().map_err(TraceError::load)?;
        let (parts, counts) = (owned(parts)?, owned(counts)?);
        let sweep = Arc::new(Sweep { end, parts, counts, cpus: Mutex::default() });
        let faults = PageFaults { program, events: Arc::default() };
        Ok(Some(Self { faults, sweep, sweeper: None }))
    }

    /// What opens the events of CPUs that come online later.
    pub(crate) fn for_new_cpus(&self) -> Box<dyn Prepare> {
        Box::new(self.faults.clone())
    }

    /// Returns a function that says whether any hit waits, or a wait has ended since `grace` before: its hit may still be
    /// on its way.
    pub(crate) fn watch(&self, grace: Duration) -> impl FnMut() -> bool + Send + Sync + 'static {
        let sweep = Arc::clone(&self.sweep);
        let (mut last, mut changed) = (Waits::default(), None::<Instant>);
        move || {
            let Ok(waits) = sweep.waits() else { return false };
            if waits != last {
                (last, changed) = (waits, Some(Instant::now()));
            }
            waits.begun != waits.ended || changed.is_some_and(|changed| changed.elapsed() <= grace)
        }
    }

    /// Opens the events of the CPUs that are online, and begins to end waits by running a program on one of `cpus`.
    pub(crate) fn begin(&mut self, cpus: Vec<u32>) -> Result<(), TraceError> {
        for cpu in cpus::online().map_err(TraceError::load)? {
            self.faults.open(cpu).map_err(TraceError::load)?;
        }
        *lock(&self.sweep.cpus) = cpus;
        self.sweeper = Some(Sweeper::start(Arc::clone(&self.sweep))?);
        Ok(())
    }

    /// Ends all waits, once no hit begins to wait any more.
    pub(crate) fn end(mut self) -> Result<(), TraceError> {
        self.sweeper = None;
        // When an event is closed, its program has ended.
        lock(&self.faults.events).clear();
        // The map may be iterated incompletely while hits are removed.
        for _ in 0..16 {
            if self.sweep.older_than(Duration::ZERO).map_err(TraceError::Counts)? {
                break;
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events of page faults, by CPU.
#[derive(Clone, Debug)]
struct PageFaults {
    program: Arc<OwnedFd>,
    events: Arc<Mutex<BTreeMap<u32, [PerfEvent; 2]>>>,
}

impl PageFaults {
    /// Opens the events of a CPU, in the place of those that it had before it was offline.
    fn open(&self, cpu: u32) -> io::Result<()> {
        let open = |is_major| {
            let event = PerfEvent::page_faults(cpu, is_major)?;
            event.set_bpf(self.program.as_fd())?;
            event.enable()?;
            io::Result::Ok(event)
        };
        match (open(false), open(true)) {
            (Ok(minor), Ok(major)) => {
                lock(&self.events).insert(cpu, [minor, major]);
                Ok(())
            }
            // The CPU has gone offline.
            (Err(error), _) | (_, Err(error)) if error.raw_os_error() == Some(libc::ENODEV) => {
                Ok(())
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }
}

impl Prepare for PageFaults {
    fn prepare(&mut self, cpu: u32) {
        if let Err(error) = self.open(cpu) {
            log::warn!("strings that are not in memory cannot be read on CPU {cpu}: {error}");
        }
    }
}

/// Ends waits.
#[derive(Debug)]
struct Sweep {
    /// The program that ends the wait of a hit.
    end: OwnedFd,
    parts: OwnedFd,
    counts: OwnedFd,
    /// The CPUs on which the program can send hits.
    cpus: Mutex<Vec<u32>>,
}

impl Sweep {
    /// Ends the waits of hits that are older than this. Returns whether none waits any more.
    fn older_than(&self, age: Duration) -> io::Result<bool> {
        if self.waiting()? == 0 {
            return Ok(true);
        }
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let until = clock::monotonic().saturating_sub(age);
        let mut hits = Vec::new();
        for key in self.keys()? {
            let (thread, place, part) = of_key(key);
            if part == 0
                && let Some(time) = self.time_of(key)?
                && time <= until
            {
                hits.push((time, thread, place));
            }
        }
        // By time, as far as possible.
        hits.sort_unstable();
        for (_, thread, place) in hits {
            self.end(thread, place)?;
        }
        Ok(self.waiting()? == 0)
    }

    /// Whether this thread may make the system calls of a sweep. Nobody is in the place whose wait this ends.
    fn is_allowed(&self) -> bool {
        let results = [self.waiting().map(drop), self.end(0, PLACES)];
        !results.iter().any(|result| matches!(result, Err(error) if is_refusal(error)))
    }

    /// The number of hits that wait.
    fn waiting(&self) -> io::Result<u64> {
        let waits = self.waits()?;
        Ok(waits.begun.wrapping_sub(waits.ended))
    }

    fn waits(&self) -> io::Result<Waits> {
        let mut waits = Waits::new_zeroed();
        bpf::map_read(self.counts.as_fd(), &0u32.to_ne_bytes(), waits.as_mut_bytes())?;
        Ok(waits)
    }

    fn keys(&self) -> io::Result<BTreeSet<u64>> {
        let (mut keys, mut key) = (BTreeSet::new(), [0; 8]);
        let mut is_first = true;
        // If the key is removed meanwhile, the kernel starts again with the first one.
        while bpf::map_next_key(self.parts.as_fd(), &mut key, is_first)?
            && keys.insert(u64::from_ne_bytes(key))
        {
            is_first = false;
        }
        Ok(keys)
    }

    /// The time of the hit whose first part has this key, if it still waits.
    fn time_of(&self, key: u64) -> io::Result<Option<u64>> {
        let mut part = [0; PART];
        let is_there = bpf::map_read(self.parts.as_fd(), &key.to_ne_bytes(), &mut part)?;
        let header = RecordHeader::read_from_prefix(&part);
        Ok(header.ok().filter(|_| is_there).map(|(header, _)| header.time))
    }

    /// Ends the wait of a hit, on any CPU that is online.
    fn end(&self, thread: u32, place: u32) -> io::Result<()> {
        let arguments = [thread.into(), place.into()];
        let mut result = Ok(());
        for &cpu in &*lock(&self.cpus) {
            match bpf::run_with(self.end.as_fd(), cpu, &arguments) {
                Ok(_) => return Ok(()),
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

/// Ends waits that take too long, in a thread of its own.
#[derive(Debug)]
struct Sweeper {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    fn start(sweep: Arc<Sweep>) -> Result<Self, TraceError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let swept = Arc::clone(&sweep);
        let give_up = move || {
            leave_root(&instead_of_root())?;
            // The kernel asks for a privilege before 5.19, with the sysctl kernel.unprivileged_bpf_disabled.
            let candidates = [Capabilities::NONE, Capabilities::BPF];
            keep_least(candidates, || swept.is_allowed()).map(drop)
        };
        let run = move || {
            let mut is_told = false;
            while stopped.recv_timeout(SWEEP) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = sweep.older_than(LONGEST)
                    && !std::mem::replace(&mut is_told, true)
                {
                    log::warn!("hits that wait for memory are reported only at the end: {error}");
                }
            }
        };
        let thread = start_without_files("waits", "the thread that ends waits", give_up, run);
        Ok(Self { stop: Some(stop), thread: Some(thread.map_err(TraceError::load)?) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic already.
            let _ = thread.join();
        }
    }
}
