//! Symbolization: names of functions for addresses in the kernel and in processes.

mod files;
mod frame;
mod images;
mod kernel_changes;
mod kernel_names;
mod known;
mod mappings;
pub(crate) mod sampled;
mod service;
pub(crate) mod stack;
pub(crate) mod stacks;
mod thread_names;
mod watch;

pub use frame::Frame;

use crate::error::TraceError;
use crate::kernel::symbols;
use crate::object::namespaces::PidNamespace;
use crate::session::interrupt::Interrupt;
use crate::session::tracer::Tracer;
use images::MappedCode;
use kernel_changes::Code;
use known::{Known, Retry, Space};
use probe_perf::Target;
use probe_sys::clock::monotonic;
use probe_tracer_common::trace::{COMM_LEN, Task};
use serde::{Deserialize, Serialize};
use service::{Answer, Place, Service};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use watch::Watch;

/// The minimum time before an address of a process is looked up again after no functions were found for it, in
/// nanoseconds. Code may be generated before it is listed, and a file may be out of reach for a moment.
const PAUSE: u64 = 1_000_000_000;

/// Names for addresses, each looked up once.
///
/// A separate thread looks names up. Names of the kernel are from `/proc/kallsyms`. The files of processes, which any user may
/// have created, are read by another process, which has no privileges and can open nothing: see
/// [`allow_symbol_reader`](crate::allow_symbol_reader). With [`SymbolAccess::Processes`], the thread keeps those privileges of the calling thread that are needed to inspect other users' processes. Start
/// it before you [give up privileges](crate::session::privileges).
///
/// An address of a process has the name that it had at the time of the hit, or none: the kernel reports
/// what processes map, and a name that may be of something mapped later is dropped. A process that ended before any of
/// its addresses was looked up has names only from files that it mapped since the watch began.
#[derive(Debug, Default)]
pub struct Symbols {
    source: Source,
    known: Known,
    /// Symbols looked up since the last call of [`Symbols::learnt`], if they are kept.
    learnt: Option<Vec<Learnt>>,
    /// Whether to warn that the kernel hides its addresses, once a name is missing.
    warns: bool,
}

/// Where names come from.
#[derive(Debug, Default)]
enum Source {
    #[default]
    Nowhere,
    Service(Service, Watched),
    /// Received from a recording. All of them are remembered. With the times since which they have been true.
    Channel(Receiver<Learnt>, BTreeSet<(Option<Owner>, u64)>),
}

/// What is watched, so that names are of the times of hits.
#[derive(Debug)]
enum Watched {
    /// Nothing: addresses of processes have no names.
    Nothing,
    /// The kernel alone: addresses of processes have no names.
    Kernel(Arc<Mutex<Watch>>),
    Processes(Arc<Mutex<Watch>>),
}

/// An address, and whether it is a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Address {
    at: u64,
    /// Whether a call returns there. The next instruction may be in another function than the call.
    is_return: bool,
}

/// A process that runs one program. After an exec it usually has another name and other mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    comm: [u8; COMM_LEN],
}

impl Owner {
    fn of(task: &Task) -> Self {
        Self { pid: task.pid, comm: task.comm }
    }
}

/// Names of addresses in the kernel or in a process, for storing them in a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Learnt {
    process: Option<Owner>,
    /// The time since which the addresses have had these names. Absent from recordings of earlier versions.
    #[serde(default)]
    since: u64,
    /// An address without known functions has no frames.
    names: Vec<(Address, Arc<[Frame]>)>,
}

impl Learnt {
    /// Keeps the functions of these addresses only. The others have none from now on, rather than those that were there before.
    pub(crate) fn keep(&mut self, mut are_kept: impl Iterator<Item = bool>) {
        for (_, frames) in &mut self.names {
            if !are_kept.next().unwrap_or_default() {
                *frames = Arc::default();
            }
        }
    }
}

/// Which addresses can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SymbolAccess {
    /// Symbols of the kernel, and of processes that can be inspected without privileges.
    Kernel,
    /// Also symbols of all other processes, with `CAP_SYS_PTRACE`, `CAP_DAC_READ_SEARCH` and
    /// `CAP_CHECKPOINT_RESTORE` as far as they are available. What processes map is also watched on CPUs that come online
    /// later, with the capabilities of [`keep_for_samples`](crate::privileges::keep_for_samples).
    Processes,
}

impl Symbols {
    /// No names: every address remains a number.
    pub fn none() -> Self {
        Self::default()
    }

    /// Starts the thread and reads the kernel's symbol table (`/proc/kallsyms`). Addresses of processes have no names. With
    /// `CAP_PERFMON`, the thread also watches which eBPF programs the kernel adds and removes.
    ///
    /// # Errors
    ///
    /// If the thread cannot be created.
    pub fn start() -> io::Result<Self> {
        let watched = Watch::of_kernel().map_or(Watched::Nothing, Watched::kernel);
        Self::serve(SymbolAccess::Kernel, watched)
    }

    /// Starts the thread, which also watches what processes map: all of them or, without the privilege for that
    /// (`CAP_PERFMON`), those of the target. Hits from before this call have no names of processes. A warning is logged
    /// if processes cannot be watched; then no address of a process has a name.
    ///
    /// # Errors
    ///
    /// If the thread cannot be created, or if `/proc` shows the processes of another PID namespace.
    pub fn start_for(access: SymbolAccess, target: &Target) -> io::Result<Self> {
        if access == SymbolAccess::Processes {
            PidNamespace::own().map_err(io::Error::other)?;
        }
        let watch = Watch::of_processes(target).inspect_err(|error| {
            log::warn!("user addresses have no names, because what processes map cannot be watched: {error}");
        });
        Self::serve(access, watch.map_or(Watched::Nothing, Watched::processes))
    }

    fn serve(access: SymbolAccess, watched: Watched) -> io::Result<Self> {
        let warns = symbols::are_hidden();
        let service = Service::start(access, &watched)?;
        Ok(Self { source: Source::Service(service, watched), warns, ..Self::default() })
    }

    /// Lets a signal end a look-up that has taken more than a second; from then on, further names are unknown. `signal` holds
    /// the signal's number, and 0 until one arrives.
    #[must_use]
    pub fn interrupted_by(mut self, signal: Arc<AtomicUsize>) -> Self {
        if let Source::Service(service, _) = &mut self.source {
            service.interrupted_by(Interrupt(Some(signal)));
        }
        self
    }

    /// The functions at a kernel address at the time of a hit (`CLOCK_MONOTONIC`, in nanoseconds); empty if they are unknown.
    pub fn of_kernel(&mut self, time: u64, address: u64) -> Arc<[Frame]> {
        self.of_kernel_stack(time, &[address]).pop().unwrap_or_default()
    }

    /// The functions at each address of a kernel stack, the innermost first, at the time of a hit; empty for an address without
    /// known functions.
    pub fn of_kernel_stack(&mut self, time: u64, addresses: &[u64]) -> Vec<Arc<[Frame]>> {
        self.receive();
        let hits: Vec<_> = stack(addresses).map(|address| (time, address)).collect();
        let since = self.look_up_in_kernel(&hits);
        let names = self.known.of(&Space::Kernel);
        let name = |(&(time, address), since): (&(u64, Address), Option<u64>)| match since {
            Some(since) => names.since(address, since),
            None => names.at(address, time).map(|(_, frames)| frames),
        };
        hits.iter().zip(since).map(|one| name(one).cloned().unwrap_or_default()).collect()
    }

    /// The functions at each address of a process's stack, like [`of_kernel_stack`](Self::of_kernel_stack), at the time of a
    /// hit (`CLOCK_MONOTONIC`, in nanoseconds).
    pub fn of_process_stack(
        &mut self,
        task: &Task,
        time: u64,
        addresses: &[u64],
    ) -> Vec<Arc<[Frame]>> {
        self.receive();
        let (owner, addresses): (_, Vec<_>) = (Owner::of(task), stack(addresses).collect());
        match &self.source {
            Source::Service(_, Watched::Processes(watch)) => {
                let watch = Arc::clone(watch);
                self.of_watched(&watch, owner, time, &addresses)
            }
            _ => {
                let names = self.known.of(&Space::Process(owner));
                let of = |one| names.at(one, time).map(|(_, frames)| frames.clone());
                addresses.into_iter().map(|one| of(one).unwrap_or_default()).collect()
            }
        }
    }

    /// A number that differs between two times only if the process may have mapped something else meanwhile. `None` if that
    /// is not known.
    pub(crate) fn mapped_since(&mut self, task: &Task, time: u64) -> Option<u64> {
        self.receive();
        match &self.source {
            Source::Service(_, Watched::Processes(watch)) => {
                locked(watch).images_at(time).all_since(task.pid, time)
            }
            Source::Nowhere | Source::Service(..) => Some(0),
            Source::Channel(_, changes) => last(changes, Some(Owner::of(task)), time),
        }
    }

    /// A number that differs between two times only if the kernel's code may have changed meanwhile.
    pub(crate) fn kernel_since(&mut self, time: u64) -> u64 {
        self.receive();
        match &self.source {
            Source::Nowhere => 0,
            Source::Service(_, watched) => {
                watched.watch().map_or(0, |watch| locked(watch).kernel_at(time).all_since(time))
            }
            Source::Channel(_, changes) => last(changes, None, time).unwrap_or(0),
        }
    }

    /// Whether a process reads files for these symbols.
    pub(crate) fn are_read_by(&self, pid: u32) -> bool {
        matches!(&self.source, Source::Service(service, _) if service.readers().contains(&pid))
    }

    /// Leaves out of a trace the processes that read files for these symbols, as the process that traces is, unless they are the
    /// target. Call it before the trace, which was [held](crate::TracerBuilder::held), [begins](Tracer::begin). It takes effect
    /// if the events have user stacks. A process that replaces one that failed is traced until the programs know it.
    ///
    /// # Errors
    ///
    /// If the kernel does not let this process write the map that the programs read.
    pub fn leave_out_readers(&self, tracer: &Tracer) -> Result<(), TraceError> {
        match &self.source {
            Source::Service(service, _) => {
                service.leave_out_readers(tracer.readers()?).map_err(TraceError::load)
            }
            _ => Ok(()),
        }
    }

    /// Keeps all symbols looked up from now on for [`learnt`](Self::learnt).
    pub(crate) fn noting(mut self) -> Self {
        self.learnt = Some(Vec::new());
        self
    }

    /// Takes the symbols looked up since the last call.
    pub(crate) fn learnt(&mut self) -> Vec<Learnt> {
        self.learnt.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Symbols that are sent by the caller, and the sender. Nothing is looked up.
    pub(crate) fn channel() -> (Sender<Learnt>, Self) {
        let (sender, receiver) = mpsc::channel();
        (sender, Self { source: Source::Channel(receiver, BTreeSet::new()), ..Self::default() })
    }

    /// Looks up the unknown addresses of these stacks, which have the times of their hits, in one request. That is much faster
    /// than one request for each stack.
    pub(crate) fn expect_in_kernel<'s>(&mut self, stacks: impl Iterator<Item = (u64, &'s [u64])>) {
        self.look_up_in_kernel(&hits(stacks));
    }

    /// Like [`expect_in_kernel`](Self::expect_in_kernel), for stacks of a process.
    pub(crate) fn expect_in_process<'s>(
        &mut self,
        task: &Task,
        stacks: impl Iterator<Item = (u64, &'s [u64])>,
    ) {
        let Source::Service(_, Watched::Processes(watch)) = &self.source else { return };
        let watch = Arc::clone(watch);
        self.look_up_in_process(&watch, Owner::of(task), &hits(stacks));
    }

    /// Looks up unknown names. Returns for each hit the time since which its address has had the same name; `None` if nothing
    /// is looked up.
    fn look_up_in_kernel(&mut self, hits: &[(u64, Address)]) -> Vec<Option<u64>> {
        // What a recording contains is sent once, and remembered.
        let Source::Service(_, watched) = &self.source else { return vec![None; hits.len()] };
        self.known.shrink();
        let names = self.known.of(&Space::Kernel);
        let mut learnt = BTreeMap::<u64, Vec<_>>::new();
        let mut unknown = Vec::new();
        let mut seen = HashSet::new();
        let watch = watched.watch().cloned();
        let mut watching = watch.as_deref().map(locked);
        let mut look_up = |&(time, address): &(u64, Address)| {
            let (since, code) = match &mut watching {
                Some(watch) => watch.kernel_at(time).at(time, address),
                None => (0, Code::InTable),
            };
            if names.since(address, since).is_none() && seen.insert((since, address)) {
                match code.frames(address) {
                    Some(frames) => learnt.entry(since).or_default().push((address, frames)),
                    None => unknown.push((since, time, address)),
                }
            }
            Some(since)
        };
        let since = hits.iter().map(&mut look_up).collect();
        drop(watching);
        let addresses: Vec<_> = unknown.iter().map(|&(_, _, address)| address).collect();
        let found = self.find_in_kernel(&addresses);
        for ((since, time, address), frames) in unknown.into_iter().zip(found) {
            // The table may have been read again.
            let changed = watch.as_deref().and_then(|watch| {
                locked(watch).kernel_at(time).at(time, address).1.frames(address)
            });
            learnt.entry(since).or_default().push((address, changed.unwrap_or(frames)));
        }
        learnt.into_iter().for_each(|(since, names)| self.learn(None, since, names, Retry::NEVER));
        since
    }

    /// Looks up addresses in the kernel's table.
    fn find_in_kernel(&mut self, addresses: &[Address]) -> Vec<Arc<[Frame]>> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let found =
            self.ask(Place::Kernel, addresses).map(|answer| answer.found).unwrap_or_default();
        if self.warns && found.iter().any(|one| one.is_empty()) {
            self.warns = false;
            log::warn!(
                "addresses in the kernel have no names, because kernel.kptr_restrict hides them: {}",
                symbols::TO_SEE
            );
        }
        found
    }

    /// The functions at addresses of a process at a time.
    fn of_watched(
        &mut self,
        watch: &Mutex<Watch>,
        owner: Owner,
        time: u64,
        addresses: &[Address],
    ) -> Vec<Arc<[Frame]>> {
        let hits: Vec<_> = addresses.iter().map(|&address| (time, address)).collect();
        let since = self.look_up_in_process(watch, owner, &hits);
        if let Source::Service(service, _) = &mut self.source {
            service.add_unknown(since.iter().filter(|one| one.is_none()).count());
        }
        let names = self.known.of(&Space::Process(owner));
        let name = |(&address, since): (&Address, Option<u64>)| {
            since.and_then(|since| names.since(address, since).cloned())
        };
        addresses.iter().zip(since).map(|one| name(one).unwrap_or_default()).collect()
    }

    /// Looks up unknown names. Returns for each hit the time since which its address has had the same mapping, if that is
    /// known.
    fn look_up_in_process(
        &mut self,
        watch: &Mutex<Watch>,
        owner: Owner,
        hits: &[(u64, Address)],
    ) -> Vec<Option<u64>> {
        self.known.shrink();
        let begun = monotonic();
        let since: Vec<_> = {
            let mut watch = locked(watch);
            let since = |&(time, address): &(u64, Address)| {
                watch.images_at(time).since(owner.pid, time, address.instruction())
            };
            hits.iter().map(since).collect()
        };
        let names = self.known.of(&Space::Process(owner));
        let mut learnt = BTreeMap::<u64, Vec<_>>::new();
        let mut unknown = Vec::new();
        let mut seen = HashSet::new();
        for (&(time, address), &since) in hits.iter().zip(&since) {
            match since {
                Some(since) => {
                    let is_known = names.is_known(address, since, begun);
                    if !is_known && seen.insert((since, address)) {
                        unknown.push((since, time, address));
                    }
                }
                // A replay must not take an earlier name for one that is not known.
                None => learnt.entry(time).or_default().push((address, Arc::default())),
            }
        }
        let mut found = self.find(watch, owner, &unknown).into_iter();
        for (since, _, address) in unknown {
            learnt.entry(since).or_default().push((address, found.next().unwrap_or_default()));
        }
        let retry = retry(begun);
        learnt.into_iter().for_each(|(since, names)| self.learn(Some(owner), since, names, retry));
        if self.learnt.is_some() {
            self.learn_again(owner, hits, &since);
        }
        since
    }

    /// Learns the names of these hits once more, as of their times, where the address had no name at a time in between. A replay
    /// takes the last name up to the time of a hit.
    fn learn_again(&mut self, owner: Owner, hits: &[(u64, Address)], since: &[Option<u64>]) {
        let names = self.known.of(&Space::Process(owner));
        let mut again = BTreeMap::<u64, Vec<_>>::new();
        for (&(time, address), &since) in hits.iter().zip(since) {
            if let Some(since) = since
                && let Some(frames) = names.since(address, since)
                && names.at(address, time).is_some_and(|(_, last)| last != frames)
            {
                again.entry(time).or_default().push((address, Arc::clone(frames)));
            }
        }
        again
            .into_iter()
            .for_each(|(time, names)| self.learn(Some(owner), time, names, Retry::NEVER));
    }

    /// Looks up addresses of a process in what it has mapped now, or else in the files that it had mapped at the times of the
    /// hits. Each hit has the time since which its address has had the same mapping, its own time, and the address.
    fn find(
        &mut self,
        watch: &Mutex<Watch>,
        owner: Owner,
        hits: &[(u64, u64, Address)],
    ) -> Vec<Arc<[Frame]>> {
        if hits.is_empty() {
            return Vec::new();
        }
        let addresses: Vec<_> = hits.iter().map(|&(_, _, address)| address).collect();
        let Some(Answer { mut found, between }) = self.ask(Place::Process(owner), &addresses)
        else {
            return Vec::new();
        };
        let (mut in_files, mut changed) = (Vec::new(), 0);
        {
            let mut watch = locked(watch);
            watch.catch_up();
            let images = watch.images_at(between[1]);
            for (n, (&(since, time, address), frames)) in hits.iter().zip(&mut found).enumerate() {
                let at = address.instruction();
                let is_same = |&time| images.since(owner.pid, time, at) == Some(since);
                let is_same = [time, between[0], between[1]].iter().all(is_same);
                if !is_same {
                    *frames = Arc::default();
                }
                if frames.is_empty() {
                    match images.find(owner.pid, time, at) {
                        Some(MappedCode::InFile(file, offset)) => {
                            in_files.push((n, Arc::clone(file), address.in_file(offset)));
                        }
                        // Other code may have been generated there since.
                        Some(MappedCode::InMemory) if !is_same => changed += 1,
                        // What was mapped at the time was forgotten meanwhile.
                        None if images.since(owner.pid, time, at).is_none() => changed += 1,
                        _ => {}
                    }
                }
            }
        }
        if let Source::Service(service, _) = &mut self.source {
            service.add_unknown(changed);
        }
        if !in_files.is_empty() {
            // Another version of a file may be there each time.
            let files = in_files.iter().map(|(_, file, _)| Arc::clone(file)).collect();
            let offsets: Vec<_> = in_files.iter().map(|&(.., offset)| offset).collect();
            let names = self.ask(Place::Files(files), &offsets).unwrap_or_default().found;
            in_files.iter().zip(names).for_each(|(&(n, ..), frames)| found[n] = frames);
        }
        found
    }

    /// Asks the thread, if there is one.
    fn ask(&mut self, place: Place, addresses: &[Address]) -> Option<Answer> {
        match &mut self.source {
            Source::Service(service, _) => service.look_up(place, addresses),
            _ => None,
        }
    }

    /// Whether an address of a process that has no name now may have one later.
    fn may_learn(&self) -> bool {
        matches!(self.source, Source::Service(_, Watched::Processes(_)) | Source::Channel(..))
    }

    /// Remembers names that were looked up. Addresses without functions are looked up again after a time.
    fn learn(
        &mut self,
        process: Option<Owner>,
        since: u64,
        mut names: Vec<(Address, Arc<[Frame]>)>,
        retry: Retry,
    ) {
        let space = process.map_or(Space::Kernel, Space::Process);
        names.retain(|(address, frames)| {
            self.known.insert_until(&space, *address, since, Arc::clone(frames), retry)
        });
        if let Some(learnt) = &mut self.learnt
            && !names.is_empty()
        {
            learnt.push(Learnt { process, since, names });
        }
    }

    /// Remembers names from a recording.
    fn receive(&mut self) {
        let Source::Channel(receiver, changes) = &mut self.source else { return };
        for Learnt { process, since, names } in receiver.try_iter() {
            changes.insert((process, since));
            let space = process.map_or(Space::Kernel, Space::Process);
            for (address, frames) in names {
                self.known.insert(&space, address, since, frames);
            }
        }
    }
}

impl Watched {
    fn kernel(watch: Watch) -> Self {
        Self::Kernel(Arc::new(Mutex::new(watch)))
    }

    fn processes(watch: Watch) -> Self {
        Self::Processes(Arc::new(Mutex::new(watch)))
    }

    fn watch(&self) -> Option<&Arc<Mutex<Watch>>> {
        match self {
            Self::Nothing => None,
            Self::Kernel(watch) | Self::Processes(watch) => Some(watch),
        }
    }
}

impl Address {
    /// An address of the instruction that runs: a return address lies behind its call.
    fn instruction(self) -> u64 {
        self.at.saturating_sub(self.is_return.into())
    }

    /// The address at which the instruction is at this offset in a file.
    fn in_file(self, offset: u64) -> Self {
        Self { at: offset.saturating_add(self.is_return.into()), ..self }
    }

    /// How far the instruction is before the address, in bytes.
    fn back(self) -> u64 {
        self.at - self.instruction()
    }
}

/// A panic of another thread leaves the watch usable.
fn locked(watch: &Mutex<Watch>) -> MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When addresses without functions are looked up again, after a look-up that began at a time and may have taken long.
fn retry(begun: u64) -> Retry {
    let now = monotonic();
    Retry { now, pause: PAUSE.max(10 * (now - begun)) }
}

/// The addresses of a stack: the innermost one is in the running function, the others are return addresses.
fn stack(addresses: &[u64]) -> impl Iterator<Item = Address> {
    addresses.iter().enumerate().map(|(n, &at)| Address { at, is_return: n > 0 })
}

/// The addresses of stacks, with the times of their hits.
fn hits<'s>(stacks: impl Iterator<Item = (u64, &'s [u64])>) -> Vec<(u64, Address)> {
    stacks.flat_map(|(time, one)| stack(one).map(move |address| (time, address))).collect()
}

/// The last change of a process, or of the kernel, up to a time.
fn last(changes: &BTreeSet<(Option<Owner>, u64)>, of: Option<Owner>, time: u64) -> Option<u64> {
    changes.range((of, 0)..=(of, time)).next_back().map(|(_, since)| *since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    #[inline(never)]
    extern "C" fn here() -> u64 {
        std::hint::black_box(7)
    }

    fn this_process() -> Task {
        Task { pid: std::process::id(), tid: std::process::id(), comm: [0; COMM_LEN] }
    }

    #[test]
    fn a_function_of_this_process_has_its_name() {
        let mut symbols =
            Symbols::start_for(SymbolAccess::Processes, &Target::ThisProcess).unwrap();
        assert_eq!(here(), 7);
        let begin = here as extern "C" fn() -> u64 as usize as u64;
        let frames = symbols.of_process_stack(&this_process(), monotonic(), &[begin, begin + 3, 8]);
        let outer: Vec<_> = frames.iter().filter_map(|one| one.last()).collect();
        assert_eq!(outer.len(), 2, "{frames:?}");
        for (frame, offset) in outer.into_iter().zip([0, 3]) {
            assert!(frame.name.contains("here"), "{frame}");
            assert_eq!(frame.offset, Some(offset), "{frame}");
            let executable = std::env::current_exe().unwrap();
            assert!(frame.source.is_some() || frame.module.as_deref() == executable.to_str());
        }
    }

    #[test]
    fn what_a_recording_contains_is_remembered() {
        let (sender, mut symbols) = Symbols::channel();
        let name = "x".repeat(1 << 16);
        for at in 0..500 {
            let (name, module, source) = (name.clone(), None, None);
            let names = vec![(
                Address { at, is_return: false },
                [Frame { name, offset: Some(0), module, source }].into(),
            )];
            sender.send(Learnt { process: None, since: 0, names }).unwrap();
        }
        assert!((0..500).all(|at| symbols.of_kernel(0, at).len() == 1));
        assert!(symbols.of_kernel(0, 500).is_empty() && symbols.of_kernel(0, 0).len() == 1);
    }

    #[test]
    fn a_replay_has_the_names_that_are_known_again() {
        let mut symbols =
            Symbols::start_for(SymbolAccess::Processes, &Target::ThisProcess).unwrap();
        symbols = symbols.noting();
        let (task, begun) = (this_process(), monotonic());
        let address = here as extern "C" fn() -> u64 as usize as u64;
        let mut live = |time| !symbols.of_process_stack(&task, time, &[address])[0].is_empty();
        // Of the time before the watch, nothing is known.
        assert_eq!([begun, 1, begun + 1].map(&mut live), [true, false, true]);
        let owner = Owner::of(&task);
        let names = vec![(stack(&[address]).next().unwrap(), [].into())];
        symbols.learn(Some(owner), begun + 2, names, Retry::NEVER);
        let time = monotonic();
        assert!(!symbols.of_process_stack(&task, time, &[address])[0].is_empty());
        let (sender, mut replay) = Symbols::channel();
        symbols.learnt().into_iter().for_each(|learnt| sender.send(learnt).unwrap());
        let mut replayed = |time| !replay.of_process_stack(&task, time, &[address])[0].is_empty();
        assert_eq!([begun, begun + 2, time].map(&mut replayed), [true, false, true]);
    }

    #[test]
    fn a_signal_ends_the_waiting_for_a_process_that_hangs() {
        let signal = Arc::new(AtomicUsize::new(0));
        let symbols = Symbols::start_for(SymbolAccess::Processes, &Target::ThisProcess).unwrap();
        let mut symbols = symbols.interrupted_by(Arc::clone(&signal));
        let Source::Service(service, _) = &symbols.source else { panic!("no service") };
        let reader = Pid::from_raw(service.readers().last().unwrap().cast_signed()).unwrap();
        kill_process(reader, Signal::STOP).unwrap();
        signal.store(2, Ordering::Relaxed);
        let begun = Instant::now();
        let address = here as extern "C" fn() -> u64 as usize as u64;
        for _ in 0..10 {
            let frames = symbols.of_process_stack(&this_process(), monotonic(), &[address]);
            assert!(frames[0].is_empty(), "{frames:?}");
        }
        // Less than it waits without a signal.
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    }

    #[test]
    fn unknown_addresses_have_no_frames() {
        let mut symbols = Symbols::none();
        assert!(symbols.of_kernel(0, u64::MAX).is_empty());
        assert!(symbols.of_process_stack(&this_process(), 0, &[1])[0].is_empty());
        let ended = Task { pid: u32::MAX >> 1, ..this_process() };
        let mut symbols =
            Symbols::start_for(SymbolAccess::Processes, &Target::ThisProcess).unwrap();
        assert!(symbols.of_process_stack(&ended, monotonic(), &[1])[0].is_empty());
    }

    #[test]
    fn symbols_can_be_sent_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<Symbols>();
    }
}
