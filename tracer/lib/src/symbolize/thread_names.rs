//! The names of threads at any time.
//!
//! They come from records of several rings, which are read one after the other. So a change is often known only after samples
//! that were taken later.

use probe_perf::record::Thread;
use probe_tracer_common::trace::COMM_LEN;
use std::collections::{HashMap, VecDeque};
use std::fs;

/// A name, padded with zeros. The last byte is zero.
pub(super) type Comm = [u8; COMM_LEN];

/// The id of a thread that has exited but is still running in the kernel.
pub(super) const EXITED: u32 = u32::MAX;

/// The number of ended threads whose names are kept: a thread may still be sampled after its end was reported.
const ENDED: usize = 4096;

/// The number of threads whose names are known at a time. The ends of some may have been lost.
const THREADS: usize = 1 << 16;

/// How many names of a thread are remembered, the last ones.
const NAMES: usize = 16;

/// The names that threads have had.
#[derive(Debug)]
pub(super) struct ThreadNames {
    /// The names of each thread, by its id, and since when it has had each of them, in the order of these times.
    threads: HashMap<u32, Vec<(u64, Comm)>>,
    /// The last threads that have ended.
    ended: VecDeque<u32>,
    /// Threads with more names than are remembered.
    renamed: Vec<u32>,
    /// The names that threads had in the beginning. They may end, or be hidden from this process, before their names are read.
    first: HashMap<u32, Comm>,
    /// What tasks with the id 0 are called.
    idle: &'static str,
}

impl ThreadNames {
    /// `is_nested` says that tasks of other PID namespaces have the id 0, too. Call it before giving up privileges.
    pub(super) fn new(is_nested: bool) -> Self {
        let idle = if is_nested { "idle or outside" } else { "swapper" };
        let (threads, ended, renamed, first) =
            (HashMap::new(), VecDeque::new(), Vec::new(), all_now());
        Self { threads, ended, renamed, first, idle }
    }

    /// A thread has had a name since a time.
    pub(super) fn called(&mut self, tid: u32, since: u64, name: &[u8]) {
        self.keep(tid, since, padded(name));
    }

    /// A thread was created, and has the name that its parent had then.
    pub(super) fn forked(&mut self, tid: u32, parent: Thread, time: u64) {
        let name = self.at(parent, time);
        self.first.remove(&tid);
        self.keep(tid, time, name);
    }

    /// Forgets the names of a thread some time after its end. If its id has been used again, the name of the new thread is
    /// looked up with its next sample.
    pub(super) fn ended(&mut self, tid: u32) {
        self.first.remove(&tid);
        self.ended.push_back(tid);
        if self.ended.len() > ENDED
            && let Some(first) = self.ended.pop_front()
        {
            self.threads.remove(&first);
        }
    }

    /// The name of a thread at a time. A thread without a record has the name that it has now.
    pub(super) fn at(&mut self, thread: Thread, time: u64) -> Comm {
        match thread.tid {
            0 => return padded(self.idle.as_bytes()),
            EXITED => return padded(b"[exited]"),
            _ => {}
        }
        let names = self.threads.get(&thread.tid).map_or(&[][..], Vec::as_slice);
        let past = names.partition_point(|(since, _)| *since <= time);
        if let Some((_, name)) = names.get(past.saturating_sub(1)) {
            return *name;
        }
        let name = current(thread.pid, thread.tid)
            .or_else(|| self.first.get(&thread.tid).copied())
            .unwrap_or_else(|| padded(thread.tid.to_string().as_bytes()));
        self.keep(thread.tid, 0, name);
        name
    }

    fn keep(&mut self, tid: u32, since: u64, name: Comm) {
        // Tasks of other namespaces have no ids of their own.
        if tid == 0 {
            return;
        }
        if self.threads.len() >= THREADS && !self.threads.contains_key(&tid) {
            self.threads.clear();
        }
        let names = self.threads.entry(tid).or_default();
        let at = names.partition_point(|(earlier, _)| *earlier <= since);
        names.insert(at, (since, name));
        if names.len() == NAMES + 1 {
            self.renamed.push(tid);
        }
    }

    /// Forgets the earliest names of threads that were often renamed. Call it when no earlier sample is expected.
    pub(super) fn forget_old(&mut self) {
        for tid in self.renamed.drain(..) {
            if let Some(names) = self.threads.get_mut(&tid) {
                names.drain(..names.len().saturating_sub(NAMES));
            }
        }
    }
}

/// The name of a thread now; `None` if it has ended, or cannot be seen.
fn current(pid: u32, tid: u32) -> Option<Comm> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(padded(name.trim_ascii_end()))
}

/// The names of all threads now, as far as they can be seen.
fn all_now() -> HashMap<u32, Comm> {
    let threads = |pid| numbers(&format!("/proc/{pid}/task")).map(move |tid| (pid, tid));
    let name = |(pid, tid)| Some((tid, current(pid, tid)?));
    numbers("/proc").flat_map(threads).take(THREADS).filter_map(name).collect()
}

/// The entries of a directory that are called by numbers.
pub(super) fn numbers(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn padded(name: &[u8]) -> Comm {
    let mut comm = [0; COMM_LEN];
    let len = name.len().min(COMM_LEN - 1);
    comm[..len].copy_from_slice(&name[..len]);
    comm
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has this id.
    const PARENT: Thread = Thread { pid: u32::MAX - 1, tid: u32::MAX - 1 };

    fn at(names: &mut ThreadNames, tid: u32, time: u64) -> String {
        let name = names.at(Thread { pid: tid, tid }, time);
        String::from_utf8(name.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn names_are_those_of_the_time_whatever_the_order_of_records() {
        let mut names = ThreadNames::new(false);
        names.called(PARENT.tid, 1, b"bash");
        // From another ring than the fork, and read first.
        names.called(7, 30, b"gcc");
        names.called(7, 20, b"sh");
        names.forked(7, PARENT, 10);
        names.called(PARENT.tid, 15, b"make");
        let shown = [10, 19, 20, 29, 30, 99].map(|time| at(&mut names, 7, time));
        assert_eq!(shown, ["bash", "bash", "sh", "sh", "gcc", "gcc"]);
        // The earliest name that is known.
        assert_eq!(at(&mut names, 7, 0), "bash");
        // The id is used again.
        names.forked(7, PARENT, 40);
        assert_eq!(at(&mut names, 7, 50), "make");
    }

    #[test]
    fn a_thread_without_records_has_its_current_name() {
        let mut names = ThreadNames::new(false);
        let ended = PARENT.tid;
        assert_eq!(at(&mut names, ended, 5), ended.to_string());
        // It is called so until a record says otherwise.
        names.called(ended, 8, b"new");
        assert_eq!([7, 8].map(|time| at(&mut names, ended, time)), [&ended.to_string(), "new"]);
        let own = std::process::id();
        let comm = std::fs::read_to_string(format!("/proc/{own}/comm")).unwrap();
        assert_eq!(at(&mut names, own, 5), comm.trim_end());
    }

    #[test]
    fn a_thread_that_cannot_be_seen_has_the_name_that_it_had_first() {
        let mut names = ThreadNames::new(false);
        names.first.insert(PARENT.tid, padded(b"hidden"));
        assert_eq!(at(&mut names, PARENT.tid, 5), "hidden");
        let own = std::process::id();
        assert_eq!(all_now().get(&own), current(own, own).as_ref());
    }

    #[test]
    fn tasks_of_other_namespaces_are_not_called_swapper() {
        for (is_nested, idle) in [(false, "swapper"), (true, "idle or outside")] {
            let mut names = ThreadNames::new(is_nested);
            names.called(0, 1, b"nginx");
            names.forked(0, PARENT, 2);
            assert_eq!(at(&mut names, 0, 3), idle);
        }
        assert_eq!(at(&mut ThreadNames::new(true), EXITED, 3), "[exited]");
    }

    #[test]
    fn names_are_forgotten_some_time_after_the_end() {
        let mut names = ThreadNames::new(false);
        for tid in 1..=100_000 {
            names.called(tid, 1, b"churn");
            names.ended(tid);
            // The last one is remembered.
            assert!(names.threads.contains_key(&tid));
        }
        assert_eq!((names.threads.len(), names.ended.len()), (ENDED, ENDED));
    }

    #[test]
    fn names_do_not_grow_without_bounds() {
        let mut names = ThreadNames::new(false);
        for tid in 1..=2 * THREADS as u32 {
            names.called(tid, 1, b"lost");
            assert!(names.threads.len() <= THREADS && names.threads.contains_key(&tid));
        }
        (0..1000).for_each(|time| names.called(7, time, time.to_string().as_bytes()));
        assert_eq!(at(&mut names, 7, 500), "500");
        names.forget_old();
        assert_eq!((names.threads[&7].len(), at(&mut names, 7, 999).as_str()), (NAMES, "999"));
    }
}
