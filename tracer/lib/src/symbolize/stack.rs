//! Stacks of function names, and their counts.

use crate::resolve::event::Addresses;
use crate::symbolize::known::Retry;
use crate::symbolize::{Frame, PAUSE, Symbols};
use probe_sys::escape::Escaped;
use probe_tracer_common::trace::Task;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The stack of a hit: the event if there are several, and the task, followed by its functions down to the innermost one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack(pub(crate) Arc<[StackEntry]>);

/// An entry of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StackEntry {
    /// Its name, safe to print; the address if the name is unknown. Stacks of a table share their names.
    pub name: Arc<str>,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry of a stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// The event that was sampled, by its name, where there are several.
    Event,
    /// The task, by its name.
    Task,
    /// A function of a process.
    User,
    /// A function of the kernel.
    Kernel,
}

impl Stack {
    /// The event if there are several, and the task, followed by the functions, each called by the previous entry.
    pub fn entries(&self) -> &[StackEntry] {
        &self.0
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| &*entry.name)
    }
}

/// The task of a hit, and its stacks. A stack that is not known is empty.
#[derive(Clone, Copy)]
pub(crate) struct TaskStacks<'s> {
    pub(crate) task: &'s Task,
    /// The time of the hit.
    pub(crate) time: u64,
    /// The id of the event, if there may be several.
    pub(crate) event: u64,
    pub(crate) user: Addresses<'s>,
    pub(crate) kernel: Addresses<'s>,
}

/// A hit whose stacks are not known yet.
#[derive(Debug)]
struct Waiting {
    task: Task,
    time: u64,
    event: u64,
    user: Vec<u64>,
    kernel: Vec<u64>,
}

/// The number of addresses that wait for names. A reader that answers with long names can make a request take much memory.
const WAITING: usize = 512;

/// The number of innermost kernel functions to leave out.
type Others = fn(&[Arc<[Frame]>]) -> usize;

/// How many words of addresses are remembered, with their tasks: 16 MiB.
const KNOWN: usize = 2 << 20;

/// Roughly how many bytes the stacks and their names take.
const ROOM: usize = 64 << 20;

/// The only entry of stacks that there is no room for.
const OTHERS: &str = "[other stacks]";

/// A stack that was counted.
#[derive(Clone, Copy, Debug)]
struct KnownStack {
    number: usize,
    /// When an address had no name first, and when a hit needs another look-up.
    missing: u64,
    until: u64,
}

/// Counts hits by stack. Distinct stacks take 64 MiB of memory at most. Hits whose stacks come later are counted together, as
/// `[other stacks]`, and a warning is logged.
#[derive(Debug)]
pub struct StackTable {
    symbols: Symbols,
    others: Others,
    names: Names,
    /// The stacks that were counted, by their tasks and addresses.
    known: HashMap<Box<[u64]>, KnownStack>,
    /// The words of all keys of `known`.
    known_words: usize,
    by_name: HashMap<(u64, Stack), usize>,
    /// Hits whose names are not known yet. They are looked up together.
    waiting: Vec<Waiting>,
    /// The number of their addresses.
    waiting_addresses: usize,
    /// The event and the stack of hits, and their number.
    stacks: Vec<((u64, Stack), u64)>,
    /// The key of the current hit.
    key: Vec<u64>,
    /// How many bytes there is room for, and how many the stacks take without their names.
    room: usize,
    taken: usize,
}

impl StackTable {
    /// Counts hits; `symbols` resolves their addresses.
    pub fn new(symbols: Symbols) -> Self {
        Self::without(symbols, tracing)
    }

    /// Counts hits without some of their innermost kernel functions.
    pub(crate) fn without(symbols: Symbols, others: Others) -> Self {
        let (known, by_name) = (HashMap::new(), HashMap::new());
        Self {
            symbols,
            others,
            names: Names::default(),
            known,
            known_words: 0,
            by_name,
            waiting: Vec::new(),
            waiting_addresses: 0,
            stacks: Vec::new(),
            key: Vec::new(),
            room: ROOM,
            taken: 0,
        }
    }

    /// Whether a process reads symbols for this table.
    pub(super) fn are_symbols_read_by(&self, pid: u32) -> bool {
        self.symbols.are_read_by(pid)
    }

    /// The number of hits counted.
    pub fn hits(&self) -> u64 {
        let waiting = self.waiting.len() as u64;
        self.stacks.iter().map(|(_, hits)| hits).sum::<u64>() + waiting
    }

    /// Every stack with its number of hits, the most frequent first.
    pub fn stacks(&mut self) -> Vec<(Stack, u64)> {
        self.stacks_by(|_| None)
    }

    /// Like [`stacks`](Self::stacks), with the stacks of each event apart from those of events of another name.
    pub(crate) fn stacks_by<'n>(
        &mut self,
        event: impl Fn(u64) -> Option<&'n str>,
    ) -> Vec<(Stack, u64)> {
        self.caught_up();
        let mut sums = HashMap::<Stack, u64>::new();
        for ((id, stack), hits) in &self.stacks {
            let event = event(*id).map(|name| entry(name.as_bytes(), EntryKind::Event));
            let entries = event.into_iter().chain(stack.entries().iter().cloned());
            *sums.entry(Stack(entries.collect())).or_default() += hits;
        }
        let mut stacks: Vec<_> = sums.into_iter().collect();
        stacks.sort_by(|(a, a_hits), (b, b_hits)| {
            b_hits.cmp(a_hits).then_with(|| a.names().cmp(b.names()))
        });
        stacks
    }

    /// Counts a hit of a task at a time (`CLOCK_MONOTONIC`, in nanoseconds), with its user and kernel stacks.
    pub fn count(
        &mut self,
        task: &Task,
        time: u64,
        user: Option<Addresses<'_>>,
        kernel: Option<Addresses<'_>>,
    ) {
        let [user, kernel] = [user, kernel].map(|stack| stack.unwrap_or(Addresses::new(&[])));
        self.count_in(TaskStacks { task, time, event: 0, user, kernel });
    }

    /// Looks up the names of the hits that were counted since the last call. Call it when there are no more hits for now:
    /// the names of a process may be unknown once it has ended. The table also does it whenever 512 addresses wait.
    pub fn caught_up(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        self.waiting_addresses = 0;
        self.symbols.expect_in_kernel(waiting.iter().map(|hit| (hit.time, &*hit.kernel)));
        waiting.sort_by_key(|hit| identity(&hit.task));
        for hits in waiting.chunk_by(|a, b| identity(&a.task) == identity(&b.task)) {
            let stacks = hits.iter().map(|hit| (hit.time, &*hit.user));
            self.symbols.expect_in_process(&hits[0].task, stacks);
            hits.iter().for_each(|hit| self.count_named(hit));
        }
        waiting.clear();
        self.waiting = waiting;
    }

    /// Counts a hit, once its names are known.
    pub(crate) fn count_in(&mut self, hit: TaskStacks<'_>) {
        if self.count_known(hit.task, hit.time, hit.event, hit.user.iter(), hit.kernel.iter()) {
            return;
        }
        let TaskStacks { task, time, event, user, kernel } = hit;
        let (user, kernel): (Vec<_>, Vec<_>) = (user.iter().collect(), kernel.iter().collect());
        // A hit counts, too: it may have no addresses.
        self.waiting_addresses += 1 + user.len() + kernel.len();
        self.waiting.push(Waiting { task: *task, time, event, user, kernel });
        if self.waiting_addresses >= WAITING {
            self.caught_up();
        }
    }

    /// Counts a hit whose task and addresses were counted before, while the process had the same mapped and the kernel the same
    /// code. Returns `false` otherwise.
    fn count_known(
        &mut self,
        task: &Task,
        time: u64,
        event: u64,
        user: impl ExactSizeIterator<Item = u64>,
        kernel: impl ExactSizeIterator<Item = u64>,
    ) -> bool {
        self.key.clear();
        let since = match user.len() {
            0 => Some(0),
            _ => self.symbols.mapped_since(task, time),
        };
        let Some(since) = since else { return false };
        let kernel_since = if kernel.len() == 0 { 0 } else { self.symbols.kernel_since(time) };
        self.key.extend([since, kernel_since, event]);
        self.key.extend(identity(task));
        self.key.push(user.len() as u64);
        self.key.extend(user);
        self.key.push(kernel.len() as u64);
        self.key.extend(kernel);
        let known = self.known.get(self.key.as_slice()).filter(|stack| time < stack.until);
        if let Some(stack) = known {
            self.stacks[stack.number].1 += 1;
        }
        known.is_some()
    }

    fn count_named(&mut self, hit: &Waiting) {
        let Waiting { task, time, event, user, kernel } = hit;
        if self.count_known(task, *time, *event, user.iter().copied(), kernel.iter().copied()) {
            return;
        }
        let names = self.symbols.of_process_stack(task, *time, user);
        let kernel_names = self.symbols.of_kernel_stack(*time, kernel);
        let mut entries = vec![self.names.entry(task.comm(), EntryKind::Task)];
        entries.extend(self.names.outermost_first(EntryKind::User, user, &names, 0));
        let (kind, left_out) = (EntryKind::Kernel, (self.others)(&kernel_names));
        entries.extend(self.names.outermost_first(kind, kernel, &kernel_names, left_out));
        let number = self.number(*event, Stack(entries.into()));
        if !self.key.is_empty() {
            let is_final =
                !self.symbols.may_learn() || names.iter().all(|frames| !frames.is_empty());
            let known = self.known.get(self.key.as_slice());
            let missing = known.map_or(*time, |known| known.missing);
            let retry = Retry { now: *time, pause: PAUSE };
            let until = if is_final { u64::MAX } else { retry.until(missing) };
            // What is forgotten is looked up again.
            if self.known_words + self.key.len() > KNOWN {
                self.known.clear();
                self.known_words = 0;
            }
            let known = KnownStack { number, missing, until };
            if self.known.insert(self.key.as_slice().into(), known).is_none() {
                self.known_words += self.key.len();
            }
        }
        self.stacks[number].1 += 1;
    }

    /// The index of a stack, or of the stack that stands for others if it is new and there is no room.
    fn number(&mut self, event: u64, stack: Stack) -> usize {
        let mut key = (event, stack);
        if let Some(&number) = self.by_name.get(&key) {
            return number;
        }
        if self.names.are_all {
            let others = StackEntry { name: OTHERS.into(), kind: EntryKind::Task };
            key.1 = Stack([others].into());
            if let Some(&number) = self.by_name.get(&key) {
                return number;
            }
        }
        self.taken += size_of_val(key.1.entries()) + OF_STACK;
        if !self.names.are_all && self.taken + self.names.taken > self.room {
            self.names.are_all = true;
            log::warn!(
                "there are more than {} distinct stacks: further ones are counted as {OTHERS}",
                self.stacks.len()
            );
        }
        self.stacks.push((key.clone(), 0));
        self.by_name.insert(key, self.stacks.len() - 1);
        self.stacks.len() - 1
    }
}

/// Roughly what the places of a stack in the maps take beside its entries.
const OF_STACK: usize = 128;

/// Roughly what the place of a name takes beside its text.
const OF_NAME: usize = 64;

/// The names of a table, each once: many stacks contain the same functions.
#[derive(Debug, Default)]
struct Names {
    names: HashSet<Arc<str>>,
    /// How many bytes they take.
    taken: usize,
    /// Whether no further ones are kept.
    are_all: bool,
}

impl Names {
    /// An entry whose name is safe to print.
    fn entry(&mut self, name: &[u8], kind: EntryKind) -> StackEntry {
        let new = entry(name, kind);
        match self.names.get(&new.name) {
            Some(name) => StackEntry { name: Arc::clone(name), kind },
            None => {
                if !self.are_all {
                    self.taken += new.name.len() + OF_NAME;
                    self.names.insert(Arc::clone(&new.name));
                }
                new
            }
        }
    }

    /// The entries of a stack, without this many of its innermost addresses.
    fn outermost_first(
        &mut self,
        kind: EntryKind,
        addresses: &[u64],
        names: &[Arc<[Frame]>],
        left_out: usize,
    ) -> Vec<StackEntry> {
        let mut entries = Vec::new();
        for (address, frames) in addresses.iter().zip(names).skip(left_out) {
            if frames.is_empty() {
                entries.push(self.entry(format!("{address:#x}").as_bytes(), kind));
            }
            entries.extend(frames.iter().map(|frame| self.entry(frame.name.as_bytes(), kind)));
        }
        entries.reverse();
        entries
    }
}

/// An entry whose name is safe to print, and its own.
pub(crate) fn entry(name: &[u8], kind: EntryKind) -> StackEntry {
    StackEntry { name: Escaped(name).to_string().into(), kind }
}

/// The number of innermost functions in a kernel stack that are the tracer's own program, and what the kernel called to
/// run it. A program on a raw tracepoint or a trampoline sees itself in the stack.
pub(crate) fn tracing(names: &[Arc<[Frame]>]) -> usize {
    const PREFIXES: [&str; 6] = [
        "bpf_prog_",
        "bpf_trace_run",
        "bpf_trampoline_",
        "__bpf_trace_",
        "__traceiter_",
        "bpf_get_stack",
    ];
    let is_tracing = |frames: &Arc<[Frame]>| {
        let outer = frames.last();
        outer.is_some_and(|frame| PREFIXES.iter().any(|one| frame.name.starts_with(one)))
    };
    names.iter().take_while(|frames| is_tracing(frames)).count()
}

/// The process, and the task's name.
fn identity(task: &Task) -> [u64; 3] {
    let (words, _) = task.comm.as_chunks();
    let [first, second] = [words[0], words[1]].map(u64::from_ne_bytes);
    [task.pid.into(), first, second]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::symbolize::{Address, Learnt, Owner};
    use probe_tracer_common::trace::COMM_LEN;

    #[test]
    fn what_there_is_no_room_for_is_counted_together() {
        let mut table = StackTable::new(Symbols::none());
        table.room = 10_000;
        let mut comm = [0; COMM_LEN];
        for number in (1000..2000).chain(1000..2000) {
            comm[..4].copy_from_slice(number.to_string().as_bytes());
            let task = Task { pid: number, tid: number, comm };
            table.count(&task, 0, None, Some(Addresses::new(&u64::from(number).to_ne_bytes())));
        }
        assert_eq!(table.hits(), 2000);
        let stacks = table.stacks();
        let (others, of_others) = &stacks[0];
        assert_eq!(others.names().collect::<Vec<_>>(), [OTHERS]);
        assert!((20..100).contains(&stacks.len()), "{}", stacks.len());
        // The stacks from before are still counted.
        let rest = &stacks[1..];
        assert!(rest.iter().all(|(_, hits)| *hits == 2));
        assert_eq!(of_others + 2 * rest.len() as u64, 2000);
    }

    #[test]
    fn a_stack_without_names_has_them_once_they_are_known() {
        let (sender, symbols) = Symbols::channel();
        let mut table = StackTable::new(symbols);
        let task = Task { pid: 1, tid: 1, comm: [0; COMM_LEN] };
        let send = |frames: Arc<[Frame]>| {
            let names = vec![(Address { at: 7, is_return: false }, frames)];
            sender.send(Learnt { process: Some(Owner::of(&task)), since: 0, names }).unwrap();
        };
        let mut hit = |time| {
            table.count(&task, time, Some(Addresses::new(&7u64.to_ne_bytes())), None);
            table.caught_up();
        };
        send(Arc::default());
        hit(0);
        let frame = Frame { name: "f".into(), offset: Some(0), module: None, source: None };
        send([frame].into());
        [PAUSE - 1, PAUSE, PAUSE + 1].into_iter().for_each(&mut hit);
        hit(u64::MAX - 1);
        let stacks = table.stacks();
        let named = |(stack, hits): &(Stack, u64)| (stack.entries()[1].name.to_string(), *hits);
        let expected = [("f", 3), ("0x7", 2)].map(|(name, hits)| (name.to_owned(), hits));
        assert_eq!(stacks.iter().map(named).collect::<Vec<_>>(), expected);
        assert_eq!((table.known.len(), table.known_words), (1, 9));
    }

    /// A stack of kernel functions, and its hits.
    pub(crate) fn example(task: &str, functions: &[&str], hits: u64) -> (Stack, u64) {
        let entry = |name: &str, kind| StackEntry { name: name.into(), kind };
        let functions = functions.iter().map(|name| entry(name, EntryKind::Kernel));
        (Stack([entry(task, EntryKind::Task)].into_iter().chain(functions).collect()), hits)
    }
}
