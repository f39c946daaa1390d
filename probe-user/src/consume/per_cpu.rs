//! A consumer on each CPU.

use crate::error::{OpenError, PollError, TallyError};
use crate::ledger::accounts::Accounts;
use crate::ledger::balance::Ledger;
use crate::ledger::meter::{self, Meter, Shared};
use crate::pipe::closing::Summary;
use crate::pipe::driving::Drive;
use crate::pipe::evpipe::EvPipe;
use crate::pipe::options::{Options, Wakeup};
use crate::pipe::parts::PipeParts;
use crate::pipe::stop::Stop;
use crate::queue::consumer::Consumer;
use crate::queue::counts::QueueCounts;
use crate::queue::notices::CpuChange;
use probe_sys::affinity;
use probe_sys::cpus;
use probe_sys::epoll::Epoll;
use probe_sys::eventfd::check_room;
use probe_sys::hotplug::{CpuWatch, Prepare};
use probe_sys::realtime;
use probe_sys::slice;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// How many descriptors the pipe of one CPU has at most.
const DESCRIPTORS_EACH: usize = 16;

/// A pipe whose records are consumed where they were emitted: each CPU has a queue, a consumer of its own, and a
/// thread on that CPU that passes the records to the consumer.
///
/// The data that a program has just written is in the cache of its CPU. Reading it there is cheaper than from another
/// CPU, for the reader and also for the programs, which write to the same memory again. Consumers also do not wait
/// for each other. However, a consumer that does much work per record takes that time from its CPU, even if other
/// CPUs are idle.
///
/// On a busy CPU, the thread has to run before the ring is full. It requests the shortest time slice
/// ([`request_short_slices`]), so it mostly runs as soon as it wakes. Occasionally, for example when a burst begins,
/// it waits until the next tick of the timer of the CPU. So give the rings room for some milliseconds, or give the
/// threads a real-time priority ([`Options::realtime`]), so that tasks that emit wait for them.
///
/// The records of each CPU are in order. To receive the records of all CPUs in one order, use an [`EvPipe`] and
/// [`ordered`](EvPipe::ordered).
///
/// ```no_run
/// # use probe_user::{EvHandlers, OpenError, Options, PerCpuPipe, PipeParts, Stop};
/// # use probe_user::common::{Record, RecordKind};
/// # use std::sync::atomic::{AtomicU64, Ordering};
/// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
/// # #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
/// # #[repr(C)]
/// # struct Forked {
/// #     parent: u32,
/// #     child: u32,
/// # }
/// # impl Record for Forked {
/// #     const KIND: RecordKind = RecordKind::user(0);
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let parts: PipeParts = todo!();
/// let forks = AtomicU64::new(0);
/// let mut pipe = PerCpuPipe::open(parts, &Options::new(), |_cpu| {
///     let mut handlers = EvHandlers::new();
///     handlers.on::<Forked, _>(|_| {
///         forks.fetch_add(1, Ordering::Relaxed);
///     });
///     handlers
/// })?;
/// pipe.run(&Stop::new()?)?;
/// println!("{}", pipe.close().ledger?);
/// # Ok(())
/// # }
/// ```
///
/// A CPU that goes online later gets its own thread and consumer, and one that comes back keeps what it had. If a new
/// CPU cannot get a queue, or the map has no entry for a CPU, the consumer of the lowest CPU is notified
/// ([`CpuChange::Uncovered`]).
pub struct PerCpuPipe<C, F> {
    parts: PipeParts,
    accounts: Option<Arc<Accounts>>,
    options: Options,
    make: F,
    /// In ascending order of CPU.
    shards: Vec<Shard<C>>,
    /// What the queues have received, for other threads.
    shared: Shared,
    watch: io::Result<CpuWatch>,
}

/// The pipe and the consumer of one CPU.
struct Shard<C> {
    cpu: u32,
    pipe: EvPipe,
    consumer: C,
    is_finished: bool,
}

impl<C: Consumer + Send, F: FnMut(u32) -> C> PerCpuPipe<C, F> {
    /// Opens the pipe. `make` creates the consumer of each CPU, during this call or when the CPU goes online.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::open`]; if `options` request a flight recorder ([`Options::overwrite`]), which has no consumers;
    /// and if the kernel refuses the requested real-time priority ([`Options::realtime`]).
    pub fn open(parts: PipeParts, options: &Options, make: F) -> Result<Self, OpenError> {
        if options.overwrites() {
            let what = "a flight recorder has no consumers: open an EvPipe";
            return Err(OpenError::Wakeup { what });
        }
        let options = options.within_limit()?;
        options.check()?;
        if let Some(priority) = options.realtime_priority() {
            try_priority(priority).map_err(|cause| OpenError::realtime(&cause))?;
        }
        // This has to happen before the list of online CPUs is read.
        let watch = CpuWatch::new();
        let accounts = parts.open_accounts(options.wanted_cpus())?;
        let online = cpus::online().map_err(|cause| OpenError::Cpus { cause })?;
        let mut this = Self {
            parts,
            accounts,
            options,
            make,
            shards: Vec::new(),
            shared: Shared::default(),
            watch,
        };
        let wanted = this.options.wanted_cpus().map(<[u32]>::to_vec);
        let cpus = wanted.as_ref().unwrap_or(&online);
        if this.options.takes_over() {
            // It must not fail once it has taken a CPU from its consumer.
            let needed = cpus.len() * DESCRIPTORS_EACH;
            check_room(needed).map_err(|cause| OpenError::Poll { cause })?;
        }
        for &cpu in cpus {
            match this.open_on(cpu, &this.options) {
                Ok(pipe) => _ = this.add(cpu, pipe),
                // A CPU that went offline after the list was read is not an error.
                Err(OpenError::CpuOffline { .. }) if wanted.is_none() => {}
                Err(error) if error.is_of_map() && wanted.is_none() && !this.shards.is_empty() => {
                    this.report_uncovered(cpu, &error);
                }
                Err(error) => return Err(error),
            }
        }
        if this.shards.is_empty() {
            return Err(OpenError::NoCpu { online });
        }
        Ok(this)
    }

    /// Opens the pipe over an object that aya has loaded, as [`EvPipe::from_object`].
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open) and [`EvPipe::from_object`].
    #[cfg(feature = "aya")]
    pub fn from_object(
        object: &mut aya::Ebpf,
        options: &Options,
        make: F,
    ) -> Result<Self, OpenError> {
        Self::open(PipeParts::of_object(object)?, options, make)
    }

    fn open_on(&self, cpu: u32, options: &Options) -> Result<EvPipe, OpenError> {
        // The budget is the whole ring, as there is no other CPU to go on with.
        let options = options.clone().cpus([cpu]).budget(options.bytes());
        let mut pipe = EvPipe::open_with(self.parts.clone(), self.accounts.clone(), &options)?;
        pipe.prepare_beside(Box::new(Return));
        Ok(pipe)
    }

    /// Adds a CPU, and returns its new consumer.
    fn add(&mut self, cpu: u32, mut pipe: EvPipe) -> &mut C {
        let consumer = (self.make)(cpu);
        for shard in &mut self.shards {
            pipe.accounting.follow(cpu, &mut shard.pipe.accounting);
        }
        meter::share(&self.shared, pipe.queues());
        let at = self.shards.partition_point(|shard| shard.cpu < cpu);
        self.shards.insert(at, Shard { cpu, pipe, consumer, is_finished: false });
        &mut self.shards[at].consumer
    }

    /// Passes records to the consumers until `stop` is stopped or one of them breaks, which stops the others, too.
    /// The calling thread waits meanwhile.
    ///
    /// Each thread stays on its CPU, if it is allowed there (`cpuset(7)`), and its name is `evpipe/` and the number
    /// of the CPU. After a stop, all of them drain what was emitted before it.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::run`]; and if threads cannot be started, or the kernel now refuses the priority that it allowed
    /// before.
    ///
    /// # Panics
    ///
    /// If a consumer panics; the other threads end first. Nothing is lost: running the pipe again, or closing it,
    /// goes on with the next record.
    pub fn run(&mut self, stop: &Stop) -> Result<(), PollError> {
        loop {
            let (come, is_over) = self.run_until_new_cpus(stop)?;
            come.into_iter().for_each(|cpu| self.cover(cpu));
            if is_over {
                return Ok(());
            }
        }
    }

    /// As [`run`](Self::run), but also returns when CPUs have gone online. Returns these CPUs, and whether the run is
    /// over.
    fn run_until_new_cpus(&mut self, stop: &Stop) -> Result<(Vec<u32>, bool), PollError> {
        let epoll = Epoll::new()?;
        epoll.add(stop.as_fd())?;
        // A thread that ends makes all others end.
        let end = Stop::new()?;
        epoll.add(end.as_fd())?;
        for descriptor in self.watch.iter().flat_map(CpuWatch::descriptors) {
            epoll.add(descriptor)?;
        }
        let (watch, wanted) = (&mut self.watch, self.options.wanted_cpus());
        let priority = self.options.realtime_priority();
        std::thread::scope(|scope| {
            let started: io::Result<Vec<_>> =
                self.shards.iter_mut().map(|shard| shard.start(scope, &end, priority)).collect();
            let end_all = EndOnDrop(&end);
            let threads = started?;
            let come = loop {
                if stop.is_stopped() || end.is_stopped() {
                    break Vec::new();
                }
                let come = watch.as_mut().map_or_else(|_| Vec::new(), |watch| come(watch, wanted));
                if !come.is_empty() {
                    break come;
                }
                epoll.wait(None)?;
            };
            let mut is_over = come.is_empty();
            drop(end_all);
            for thread in threads {
                let flow = thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
                is_over |= flow.is_break();
            }
            Ok((come, is_over))
        })
    }

    /// Gives a CPU that is online, perhaps again, a consumer, unless it has one.
    fn cover(&mut self, cpu: u32) {
        // If another consumer has taken over every CPU so far, the new ones are its, too.
        let is_over = self.shards.iter().all(|shard| shard.pipe.coverage.queues.are_lost());
        if is_over || self.shards.iter().any(|shard| shard.cpu == cpu) {
            return;
        }
        // Another consumer may have opened a queue on this CPU in the meantime. That one stays.
        match self.open_on(cpu, &self.options.clone().take_nothing_over()) {
            Ok(pipe) => self.add(cpu, pipe).cpu_changed(CpuChange::Covered { cpu }),
            // The CPU is already offline again, or another consumer's.
            Err(OpenError::CpuOffline { .. } | OpenError::InUse { .. }) => {}
            Err(error) => self.report_uncovered(cpu, &error),
        }
    }

    /// Reports a CPU without a queue, and its failures from now on, to the consumer of the lowest CPU.
    fn report_uncovered(&mut self, cpu: u32, error: &OpenError) {
        if let Some(Shard { consumer, pipe, .. }) = self.shards.first_mut() {
            pipe.accounting.watch(cpu);
            consumer.cpu_changed(CpuChange::Uncovered { cpu, error });
        }
    }

    /// Closes the pipe, as [`EvPipe::close`]: passes what is left of each CPU to its consumer, on that CPU.
    ///
    /// # Panics
    ///
    /// If a consumer panics.
    pub fn close(mut self) -> Summary<C> {
        std::thread::scope(|scope| {
            let finish = |shard| Builder::new().spawn_scoped(scope, move || Shard::finish(shard));
            let threads: Vec<_> = self.shards.iter_mut().map(finish).collect();
            for thread in threads.into_iter().flatten() {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
        // Those for which no thread could be started.
        self.shards.iter_mut().filter(|shard| !shard.is_finished).for_each(Shard::finish);
        let summary = EvPipe::summary_of(self.pipes());
        let consumers = self.shards.into_iter().map(|shard| (shard.cpu, shard.consumer));
        summary.with_consumers(consumers.collect())
    }
}

impl<C, F> PerCpuPipe<C, F> {
    fn pipes(&self) -> impl Iterator<Item = &EvPipe> + Clone {
        self.shards.iter().map(|shard| &shard.pipe)
    }

    /// When the kernel wakes the consumers: the requested policy, or the one that the queue of some CPU fell back to.
    pub fn wakeup(&self) -> Wakeup {
        let fallen = self.pipes().find(|pipe| pipe.fallback().is_some());
        fallen.or(self.pipes().next()).map_or(self.options.policy(), EvPipe::wakeup)
    }

    /// Why the pipe fell back from [`Wakeup::Adaptive`], if it did.
    pub fn fallback(&self) -> Option<&str> {
        self.pipes().find_map(EvPipe::fallback)
    }

    /// Why the pipe is not notified when CPUs go online or offline, if it is not: as [`EvPipe::hotplug_error`].
    pub fn hotplug_error(&self) -> Option<&io::Error> {
        self.watch.as_ref().err().or_else(|| self.pipes().find_map(EvPipe::hotplug_error))
    }

    /// The counts of the queue of each CPU so far, in ascending order of CPU.
    pub fn counts(&self) -> impl Iterator<Item = (u32, QueueCounts)> {
        self.pipes().flat_map(EvPipe::queues).map(|queue| (queue.cpu(), queue.counts()))
    }

    /// A meter, with which any thread can read the counts while the pipe runs.
    pub fn meter(&self) -> Meter {
        Meter::new(self.accounts.clone(), Arc::clone(&self.shared))
    }

    /// Accounts for every record so far.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::ledger`].
    pub fn ledger(&self) -> Result<Ledger, TallyError> {
        EvPipe::ledger_of(self.pipes())
    }
}

impl<C: fmt::Debug, F> fmt::Debug for PerCpuPipe<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.shards.iter().map(|shard| (shard.cpu, (&shard.pipe, &shard.consumer)));
        f.debug_map().entries(shards).finish()
    }
}

impl<C: Consumer + Send> Shard<C> {
    /// Consumes until `end` is stopped or the consumer breaks, and stops `end` when this thread ends.
    fn start<'s>(
        &'s mut self,
        scope: &'s Scope<'s, '_>,
        end: &'s Stop,
        priority: Option<u32>,
    ) -> io::Result<ScopedJoinHandle<'s, Result<ControlFlow<()>, PollError>>> {
        Builder::new().name(format!("evpipe/{}", self.cpu)).spawn_scoped(scope, move || {
            let _end_all = EndOnDrop(end);
            self.go_to_its_cpu();
            match priority {
                Some(priority) => {
                    realtime::set(priority).map_err(|cause| PollError::realtime(self.cpu, cause))?
                }
                // Without short time slices, the thread only runs later.
                None => _ = request_short_slices(),
            }
            Drive::run(&mut self.pipe, end, &mut self.consumer)
        })
    }

    fn finish(&mut self) {
        self.is_finished = true;
        self.go_to_its_cpu();
        self.pipe.finish(&mut self.consumer);
    }

    /// If this thread is not allowed on the CPU, or the CPU is offline, it runs on any other.
    fn go_to_its_cpu(&self) {
        let _ = affinity::stay_on(self.cpu);
    }
}

/// Brings the thread of a consumer back to its CPU. The kernel moves it when the CPU goes offline.
#[derive(Debug)]
struct Return;

impl Prepare for Return {
    fn prepare(&mut self, cpu: u32) {
        // As at first, it may not be allowed there.
        let _ = affinity::stay_on(cpu);
    }
}

/// Requests time slices of 100 µs for this thread, the shortest that the kernel offers. This needs no privileges.
///
/// From Linux 6.12 on, a thread that wakes mostly runs before one with longer time slices, as long as it has not used
/// more than its share of the CPU (`sched_setattr(2)`); earlier kernels ignore the request. So a consumer that
/// competes for its CPU loses fewer records. Call this before [`EvPipe::run`]. It lasts for the
/// lifetime of the thread, and is inherited by the threads and processes that it starts.
/// [`PerCpuPipe`] does this for its threads. A thread with another policy than `SCHED_OTHER` keeps
/// what it has.
///
/// # Errors
///
/// If the kernel does not allow this, as in a sandbox.
pub fn request_short_slices() -> io::Result<()> {
    slice::set(slice::SHORTEST)
}

/// Checks that a thread may have a priority, and returns the error if it may not.
fn try_priority(priority: u32) -> io::Result<()> {
    let attempt = Builder::new().name("evpipe".to_owned());
    let attempt = attempt.spawn(move || realtime::set(priority))?;
    attempt.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Stops all threads that wait for this stop, even if a consumer panics.
struct EndOnDrop<'s>(&'s Stop);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The requested CPUs that have gone online since the last call, perhaps again.
fn come(watch: &mut CpuWatch, wanted: Option<&[u32]>) -> Vec<u32> {
    let notices = std::iter::from_fn(|| watch.take());
    let come = notices.flat_map(|notice| notice.changes(std::iter::empty()).come);
    come.filter(|cpu| wanted.is_none_or(|wanted| wanted.contains(cpu))).collect()
}
