//! A consumer on each CPU.

use crate::consumer::{Consumer, CpuChange};
use crate::counts::QueueCounts;
use crate::cpus;
use crate::error::{OpenError, PollError, TallyError};
use crate::evpipe::{EvPipe, Summary};
use crate::hotplug::CpuWatch;
use crate::ledger::{Books, Ledger};
use crate::options::{Options, Wakeup};
use crate::parts::PipeParts;
use crate::stop::Stop;
use crate::sys::affinity;
use crate::sys::epoll::Epoll;
use crate::sys::realtime;
use crate::turns::ask_for_short_turns;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// A pipe whose records are consumed where they were emitted: each CPU has a queue, a consumer of its own,
/// and a thread on that CPU which gives it what is there.
///
/// What a program has just written is in its CPU's cache. To read it there is cheaper than from another CPU, for
/// the reader, and for the programs as well, which write to the same memory again; and consumers do not wait for
/// each other. But a consumer that does much with a record takes that time from its CPU, though others may be idle.
///
/// On a CPU that is busy, it has to be given its turn before the ring is full. Its thread asks for the shortest that there
/// are ([`ask_for_short_turns`]), with which it mostly runs as soon as it wakes; but now and then, as
/// when a burst begins, it waits until the next tick of the CPU's timer. So let the rings have room for some milliseconds,
/// or let it have a priority ([`Options::realtime`]), for which those that emit wait.
///
/// Each CPU's records are in order; to have those of all CPUs in one, use an [`EvPipe`] and
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
/// println!("{}", pipe.close().pipe.ledger?);
/// # Ok(())
/// # }
/// ```
///
/// A CPU that comes later gets its own, and one that comes back has what it had. If one that comes cannot get any,
/// the consumer of the lowest CPU is told so ([`CpuChange::Uncovered`]).
pub struct PerCpuPipe<C, F> {
    parts: PipeParts,
    books: Option<Arc<Books>>,
    options: Options,
    make: F,
    /// Ascending by CPU.
    shards: Vec<Shard<C>>,
    watch: io::Result<CpuWatch>,
}

/// What one CPU has.
struct Shard<C> {
    cpu: u32,
    pipe: EvPipe,
    consumer: C,
}

/// What a closed [`PerCpuPipe`] has seen.
#[derive(Debug)]
#[non_exhaustive]
pub struct PerCpuSummary<C> {
    /// What its queues have seen.
    pub pipe: Summary,
    /// The consumers, ascending by CPU.
    pub consumers: Vec<(u32, C)>,
}

impl<C: Consumer + Send, F: FnMut(u32) -> C> PerCpuPipe<C, F> {
    /// Opens it. `make` gives each CPU its consumer, here or when it comes.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::open`]; if a flight recorder is asked for ([`Options::overwrite`]), which nobody consumes; and if
    /// the kernel refuses the priority that is ([`Options::realtime`]).
    pub fn open(parts: PipeParts, options: &Options, make: F) -> Result<Self, OpenError> {
        if options.overwrites() {
            let what = "a flight recorder has no consumers: open an EvPipe";
            return Err(OpenError::Wakeup { what });
        }
        options.check()?;
        if let Some(priority) = options.realtime_priority() {
            try_priority(priority).map_err(|source| OpenError::realtime(&source))?;
        }
        // Before anybody reads which CPUs there are.
        let watch = CpuWatch::new();
        let books = Books::of_parts(&parts)?;
        let online = cpus::online().map_err(|source| OpenError::Cpus { source })?;
        let options = options.clone();
        let mut this = Self { parts, books, options, make, shards: Vec::new(), watch };
        let wanted = this.options.wanted_cpus().map(<[u32]>::to_vec);
        for &cpu in wanted.as_ref().unwrap_or(&online) {
            match this.open_on(cpu) {
                Ok(pipe) => _ = this.add(cpu, pipe),
                // One that went offline since the list was read is not missed.
                Err(OpenError::CpuOffline { .. }) if wanted.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        if this.shards.is_empty() {
            return Err(OpenError::NoCpu { online });
        }
        Ok(this)
    }

    /// Opens it over an object that aya has loaded, as [`EvPipe::from_object`].
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

    fn open_on(&self, cpu: u32) -> Result<EvPipe, OpenError> {
        // There is no other CPU whose turn it could be.
        let options = self.options.clone().cpus([cpu]).budget(self.options.bytes());
        EvPipe::open_with(self.parts.clone(), self.books.clone(), &options)
    }

    /// Gives a CPU its consumer, which it returns.
    fn add(&mut self, cpu: u32, pipe: EvPipe) -> &mut C {
        let consumer = (self.make)(cpu);
        let at = self.shards.partition_point(|shard| shard.cpu < cpu);
        self.shards.insert(at, Shard { cpu, pipe, consumer });
        &mut self.shards[at].consumer
    }

    /// Gives consumers what is there until `stop` is stopped or one of them breaks, which stops the others, too. The
    /// thread that calls it waits meanwhile.
    ///
    /// Each thread stays on its CPU, if it may be there at all (`cpuset(7)`), and is called `evpipe/` and the CPU's
    /// number. They all drain what was emitted before the stop.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::run`]; and if threads cannot be had, or the kernel now refuses the priority that it had allowed them.
    ///
    /// # Panics
    ///
    /// If a consumer does, once the other threads have ended. Nothing is lost: to run it again, or to close it, goes on
    /// with the next record.
    pub fn run(&mut self, stop: &Stop) -> Result<(), PollError> {
        loop {
            let (come, is_over) = self.run_until_cpus_come(stop)?;
            come.into_iter().for_each(|cpu| self.cover(cpu));
            if is_over {
                return Ok(());
            }
        }
    }

    /// As [`run`](Self::run), but returns when CPUs have come, too. Which those are, and whether it is over.
    fn run_until_cpus_come(&mut self, stop: &Stop) -> Result<(Vec<u32>, bool), PollError> {
        let epoll = Epoll::new()?;
        epoll.add(stop.as_fd())?;
        // One that ends, ends them all.
        let end = Stop::new()?;
        epoll.add(end.as_fd())?;
        if let Ok(watch) = &self.watch {
            epoll.add(watch.as_fd())?;
        }
        let (watch, wanted) = (&self.watch, self.options.wanted_cpus());
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
                let come = watch.as_ref().map_or_else(|_| Vec::new(), |watch| come(watch, wanted));
                if !come.is_empty() {
                    break come;
                }
                epoll.wait(None)?;
            };
            let is_over = come.is_empty() || end.is_stopped();
            drop(end_all);
            for thread in threads {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            }
            Ok((come, is_over))
        })
    }

    /// A CPU is online, perhaps again: it has a consumer from now on.
    fn cover(&mut self, cpu: u32) {
        if self.shards.iter().any(|shard| shard.cpu == cpu) {
            return;
        }
        match self.open_on(cpu) {
            Ok(pipe) => self.add(cpu, pipe).cpu_changed(CpuChange::Covered { cpu }),
            // It has gone already.
            Err(OpenError::CpuOffline { .. }) => {}
            Err(error) => {
                let change = CpuChange::Uncovered { cpu, error: &error };
                if let Some(Shard { consumer, .. }) = self.shards.first_mut() {
                    consumer.cpu_changed(change);
                }
            }
        }
    }

    /// Closes it, as [`EvPipe::close`]: gives each consumer what is left of its CPU, on that CPU.
    ///
    /// # Panics
    ///
    /// If a consumer does.
    pub fn close(mut self) -> PerCpuSummary<C> {
        std::thread::scope(|scope| {
            let finish = |shard| scope.spawn(move || Shard::finish(shard));
            let threads: Vec<_> = self.shards.iter_mut().map(finish).collect();
            for thread in threads {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
        let pipe = EvPipe::summary_of(self.pipes());
        let consumers = self.shards.into_iter().map(|shard| (shard.cpu, shard.consumer));
        PerCpuSummary { pipe, consumers: consumers.collect() }
    }
}

impl<C, F> PerCpuPipe<C, F> {
    fn pipes(&self) -> impl Iterator<Item = &EvPipe> + Clone {
        self.shards.iter().map(|shard| &shard.pipe)
    }

    /// When the kernel wakes the consumers: as was asked for, or what some CPU's queue fell back to.
    pub fn wakeup(&self) -> Wakeup {
        let fallen = self.pipes().find(|pipe| pipe.fallback().is_some());
        fallen.or(self.pipes().next()).map_or(self.options.policy(), EvPipe::wakeup)
    }

    /// Why it fell back from [`Wakeup::Adaptive`], if it did.
    pub fn fallback(&self) -> Option<&str> {
        self.pipes().find_map(EvPipe::fallback)
    }

    /// Why it does not learn of CPUs that come and go, if it does not: as [`EvPipe::hotplug_error`].
    pub fn hotplug_error(&self) -> Option<&io::Error> {
        self.watch.as_ref().err().or_else(|| self.pipes().find_map(EvPipe::hotplug_error))
    }

    /// What the CPUs' queues have seen so far, ascending by CPU.
    pub fn counts(&self) -> impl Iterator<Item = (u32, QueueCounts)> {
        self.pipes().flat_map(EvPipe::queues).map(|queue| (queue.cpu(), queue.counts()))
    }

    /// What became of every record so far.
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
    /// Consumes, until `end` is stopped; which it is once this ends.
    fn start<'s>(
        &'s mut self,
        scope: &'s Scope<'s, '_>,
        end: &'s Stop,
        priority: Option<u32>,
    ) -> io::Result<ScopedJoinHandle<'s, Result<(), PollError>>> {
        Builder::new().name(format!("evpipe/{}", self.cpu)).spawn_scoped(scope, move || {
            let _end_all = EndOnDrop(end);
            self.go_to_its_cpu();
            match priority {
                Some(priority) => realtime::set(priority)
                    .map_err(|source| PollError::realtime(self.cpu, source))?,
                // Without, it only has its turn later.
                None => _ = ask_for_short_turns(),
            }
            self.pipe.run(end, &mut self.consumer)
        })
    }

    fn finish(&mut self) {
        self.go_to_its_cpu();
        self.pipe.finish(&mut self.consumer);
    }

    /// Where this thread may not be there, or the CPU is offline, any other does.
    fn go_to_its_cpu(&self) {
        let _ = affinity::stay_on(self.cpu);
    }
}

/// Whether a thread may have a priority, or why not.
fn try_priority(priority: u32) -> io::Result<()> {
    let attempt = Builder::new().name("evpipe".to_owned());
    let attempt = attempt.spawn(move || realtime::set(priority))?;
    attempt.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Stops whoever waits for it, even if a consumer panics.
struct EndOnDrop<'s>(&'s Stop);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The CPUs that have come since the last look, perhaps again, and are wanted.
fn come(watch: &CpuWatch, wanted: Option<&[u32]>) -> Vec<u32> {
    let notices = std::iter::from_fn(|| watch.next());
    let come = notices.flat_map(|notice| notice.changes(std::iter::empty()).come);
    come.filter(|cpu| wanted.is_none_or(|wanted| wanted.contains(cpu))).collect()
}
