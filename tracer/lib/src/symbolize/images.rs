//! What processes have mapped, collected from kernel records.

use super::mappings;
use probe_perf::record::{MappedFile, Mapping};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of ended processes that are remembered.
const ENDED: usize = 1024;

/// Roughly how many bytes the remembered mappings of all processes may take. Users choose the lengths of their paths.
const ROOM: usize = 16 << 20;

/// How many mappings of a process are remembered. All of them are looked at for each address of a stack, and programs that protect
/// their generated code again and again have many.
const OF_PROCESS: usize = 4096;

/// Roughly what a process takes for each of its programs.
const OF_BEGIN: usize = 128;

/// Roughly what the file of a mapping takes beside its path.
const OF_FILE: usize = 96;

/// A file whose code was mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ElfFile {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
}

/// What processes mapped as code, with the addresses and times.
///
/// Records come from several rings, so they may arrive out of order.
#[derive(Debug, Default)]
pub(crate) struct Images {
    processes: HashMap<u32, Process>,
    /// Processes that have ended, and when.
    ended: VecDeque<(u32, u64)>,
    /// How many bytes all of them take.
    taken: usize,
    /// The latest time that was noted.
    latest: u64,
    /// Before this time, mappings may have changed unnoticed.
    complete_since: u64,
}

#[derive(Debug, Default)]
struct Process {
    /// The times at which the process got a new address space, in order.
    begins: Vec<(u64, Begin)>,
    /// The mappings, in the order of time.
    mapped: Vec<Mapped>,
    /// What it had mapped up to this time is forgotten; 0 if nothing is.
    forgotten_until: u64,
}

/// How an address space begins.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// It is a copy of the parent's.
    Fork(u32),
    /// It is empty, for a new program.
    Exec,
}

/// Where code is.
#[derive(Debug)]
pub(crate) enum MappedCode<'i> {
    /// At an offset in a file, in bytes.
    InFile(&'i Arc<ElfFile>, u64),
    InMemory,
}

#[derive(Debug)]
struct Mapped {
    since: u64,
    begin: u64,
    end: u64,
    /// The file, and the offset of the mapping in it, in bytes. Other code is in memory only.
    file: Option<(Arc<ElfFile>, u64)>,
}

impl Images {
    /// Notes that a process was forked.
    pub(crate) fn fork(&mut self, pid: u32, parent: u32, time: u64) {
        self.begin(pid, time, Begin::Fork(parent));
    }

    /// Notes that a process executed a program.
    pub(crate) fn exec(&mut self, pid: u32, time: u64) {
        self.begin(pid, time, Begin::Exec);
    }

    fn begin(&mut self, pid: u32, time: u64, how: Begin) {
        self.make_room(time);
        let begins = &mut self.processes.entry(pid).or_default().begins;
        self.taken += OF_BEGIN;
        begins.insert(begins.partition_point(|&(at, _)| at <= time), (time, how));
    }

    /// Notes a mapping, which may be of something other than a file.
    pub(crate) fn map(&mut self, mapping: &Mapping<'_>, file: &MappedFile<'_>, time: u64) {
        self.make_room(time);
        let &Mapping { thread, addr: begin, len, pgoff: offset, filename: path, .. } = mapping;
        let file = match *file {
            MappedFile::Inode { inode, .. }
                if path.starts_with(b"/") && !path.starts_with(b"//") =>
            {
                let path = OsStr::from_bytes(path).into();
                Some((Arc::new(ElfFile { path, inode }), offset))
            }
            _ => None,
        };
        if let Some(process) = self.processes.get(&thread.pid)
            && process.mapped.len() >= OF_PROCESS
            && let Some(last) = process.mapped.last()
        {
            self.forget_of(thread.pid, last.since);
        }
        let end = begin.saturating_add(len);
        self.add(thread.pid, Mapped { since: time, begin, end, file });
    }

    /// Notes what a process had mapped when everything since then began to be noted. Returns whether there is room for more
    /// processes.
    pub(crate) fn map_first(&mut self, pid: u32, mappings: Vec<mappings::Mapping>) -> bool {
        for mappings::Mapping { range, of } in mappings.into_iter().take(OF_PROCESS) {
            let file = match of {
                mappings::Mapped::File { path, inode, offset } => {
                    Some((Arc::new(ElfFile { path, inode }), offset))
                }
                mappings::Mapped::Vdso | mappings::Mapped::Memory => None,
            };
            let (since, begin, end) = (self.complete_since, range.start, range.end);
            self.add(pid, Mapped { since, begin, end, file });
        }
        self.taken < ROOM / 2
    }

    fn add(&mut self, pid: u32, new: Mapped) {
        let mapped = &mut self.processes.entry(pid).or_default().mapped;
        self.taken += new.size();
        mapped.insert(mapped.partition_point(|one| one.since <= new.since), new);
    }

    /// Notes that a process ended. It is remembered for a while.
    pub(crate) fn end(&mut self, pid: u32, time: u64) {
        self.ended.push_back((pid, time));
        if self.ended.len() > ENDED
            && let Some((pid, end)) = self.ended.pop_front()
        {
            // The number may belong to another process by now.
            self.forget_of(pid, end);
        }
    }

    /// Forgets what a process had mapped up to this time.
    fn forget_of(&mut self, pid: u32, until: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let before = process.size();
        process.begins.retain(|&(since, _)| since > until);
        process.mapped.retain(|mapped| mapped.since > until);
        process.forgotten_until = process.forgotten_until.max(until);
        self.taken = self.taken + process.size() - before;
    }

    /// Forgets everything if it takes too much memory, including what is later than this time.
    fn make_room(&mut self, time: u64) {
        self.latest = self.latest.max(time);
        if self.taken > ROOM {
            self.forget(self.latest);
        }
    }

    /// Forgets everything. Mappings may have changed unnoticed until this time.
    pub(crate) fn forget(&mut self, until: u64) {
        *self = Self { complete_since: self.complete_since.max(until), ..Self::default() };
    }

    /// Since when an address of a process has belonged to what it belonged to at a time. Between two times with the same
    /// answer, nothing else was mapped there. `None` if that is not known.
    pub(crate) fn since(&self, pid: u32, time: u64, address: u64) -> Option<u64> {
        self.since_as(pid, time, |process, range| process.mapped_at(range, address))
    }

    /// Since when all addresses of a process have belonged to what they belonged to at a time.
    pub(crate) fn all_since(&self, pid: u32, time: u64) -> Option<u64> {
        self.since_as(pid, time, |process, range| process.mapped(range).last())
    }

    fn since_as<'s>(
        &'s self,
        pid: u32,
        time: u64,
        last: impl FnOnce(&'s Process, RangeInclusive<u64>) -> Option<&'s Mapped>,
    ) -> Option<u64> {
        if time < self.complete_since {
            return None;
        }
        let since = match self.processes.get(&pid) {
            None => 0,
            Some(process) if process.is_forgotten(time) => return None,
            Some(process) => {
                let begin = process.begin(time).map_or(0, |(at, _)| at);
                last(process, begin..=time).map_or(begin, |mapped| mapped.since)
            }
        };
        let forgotten = self.processes.get(&pid).map_or(0, |process| process.forgotten_until);
        Some(since.max(forgotten).max(self.complete_since))
    }

    /// Since when a process has run the program that it ran at a time, as far as that is known.
    pub(crate) fn program_since(&self, pid: u32, time: u64) -> Option<u64> {
        let process = self.processes.get(&pid)?;
        process.begin(time).map(|(at, _)| at)
    }

    /// What an address of a process belonged to at a time.
    pub(crate) fn find(&self, pid: u32, time: u64, address: u64) -> Option<MappedCode<'_>> {
        let (mut pid, mut time) = (pid, time);
        // Every iteration goes back in time, so the loop ends.
        while self.since(pid, time, address).is_some() {
            let process = self.processes.get(&pid)?;
            let begin = process.begin(time);
            let since = begin.map_or(0, |(at, _)| at);
            if let Some(found) = process.mapped_at(since..=time, address) {
                return Some(match &found.file {
                    Some((file, offset)) => {
                        MappedCode::InFile(file, address - found.begin + offset)
                    }
                    None => MappedCode::InMemory,
                });
            }
            match begin {
                Some((at, Begin::Fork(parent))) => (pid, time) = (parent, at.checked_sub(1)?),
                _ => break,
            }
        }
        None
    }
}

impl Process {
    /// How the address space of a time began, and when.
    fn begin(&self, time: u64) -> Option<(u64, Begin)> {
        let before = self.begins.partition_point(|&(at, _)| at <= time);
        self.begins[..before].last().copied()
    }

    /// Whether what it had mapped at a time is forgotten.
    fn is_forgotten(&self, time: u64) -> bool {
        self.forgotten_until != 0 && time <= self.forgotten_until
    }

    /// What was mapped between two times, by time.
    fn mapped(&self, between: RangeInclusive<u64>) -> &[Mapped] {
        let until = self.mapped.partition_point(|one| one.since <= *between.end());
        let from = self.mapped[..until].partition_point(|one| one.since < *between.start());
        &self.mapped[from..until]
    }

    /// What was mapped last at an address between two times.
    fn mapped_at(&self, between: RangeInclusive<u64>, address: u64) -> Option<&Mapped> {
        let is_there = |one: &&Mapped| (one.begin..one.end).contains(&address);
        self.mapped(between).iter().rev().find(is_there)
    }

    /// Roughly how many bytes it takes.
    fn size(&self) -> usize {
        let of_itself = if self.forgotten_until == 0 { 0 } else { OF_BEGIN };
        of_itself
            + OF_BEGIN * self.begins.len()
            + self.mapped.iter().map(Mapped::size).sum::<usize>()
    }
}

impl Mapped {
    /// Roughly how many bytes it takes.
    fn size(&self) -> usize {
        let path = self.file.as_ref().map(|(file, _)| file.path.as_os_str().len());
        size_of::<Self>() + path.map_or(0, |len| OF_FILE + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_perf::record::Thread;

    fn map(images: &mut Images, pid: u32, addr: u64, filename: &[u8], time: u64) {
        let thread = Thread { pid, tid: pid };
        let mapping = Mapping::new(thread, addr..addr + 100, 7, filename);
        let file = MappedFile::Inode { major: 0, minor: 0, inode: 9, generation: 0 };
        images.map(&mapping, &file, time);
    }

    fn find(images: &Images, pid: u32, time: u64, address: u64) -> Option<(&str, u64)> {
        match images.find(pid, time, address)? {
            MappedCode::InFile(file, offset) => {
                assert_eq!(file.inode, 9);
                Some((file.path.to_str().unwrap(), offset))
            }
            MappedCode::InMemory => Some(("", 0)),
        }
    }

    #[test]
    fn addresses_belong_to_the_files_mapped_at_the_time() {
        let mut images = Images::default();
        map(&mut images, 1, 1000, b"/new", 20);
        map(&mut images, 1, 1000, b"/old", 10);
        map(&mut images, 1, 2000, b"[vdso]", 10);
        map(&mut images, 1, 3000, b"//anon", 10);
        assert_eq!(find(&images, 1, 9, 1000), None);
        assert_eq!(find(&images, 1, 10, 1000), Some(("/old", 7)));
        assert_eq!(find(&images, 1, 19, 1099), Some(("/old", 106)));
        assert_eq!(find(&images, 1, 20, 1001), Some(("/new", 8)));
        let in_memory = Some(("", 0));
        let found = [999, 1100, 2000, 3000].map(|address| find(&images, 1, 30, address));
        assert_eq!(found, [None, None, in_memory, in_memory]);
        assert_eq!(find(&images, 2, 30, 1000), None);
    }

    #[test]
    fn forks_have_the_mappings_of_their_parents_until_an_exec() {
        let mut images = Images::default();
        // Out of order on purpose.
        images.exec(2, 40);
        map(&mut images, 2, 1000, b"/program", 41);
        images.fork(2, 1, 20);
        map(&mut images, 1, 1000, b"/shell", 10);
        map(&mut images, 1, 3000, b"/later", 25);
        map(&mut images, 2, 2000, b"/library", 30);
        assert_eq!(find(&images, 2, 20, 1000), Some(("/shell", 7)));
        assert_eq!(find(&images, 2, 35, 2000), Some(("/library", 7)));
        assert_eq!(find(&images, 2, 35, 3000), None);
        assert_eq!(find(&images, 2, 40, 1000), None);
        assert_eq!(find(&images, 2, 41, 1000), Some(("/program", 7)));
        assert_eq!(find(&images, 2, 41, 2000), None);
        // A process that is its own parent does not cause an endless loop.
        images.fork(3, 3, 50);
        assert_eq!(find(&images, 3, 60, 1000), None);
    }

    #[test]
    fn an_address_belongs_to_something_else_once_anything_is_mapped_there() {
        let mut images = Images::default();
        images.forget(5);
        map(&mut images, 1, 1000, b"//anon", 20);
        map(&mut images, 1, 1000, b"/library", 10);
        map(&mut images, 1, 2000, b"/other", 15);
        let since = [4, 5, 10, 19, 20].map(|time| images.since(1, time, 1099));
        assert_eq!(since, [None, Some(5), Some(10), Some(10), Some(20)]);
        assert_eq!(images.all_since(1, 19), Some(15));
        assert_eq!(find(&images, 1, 20, 1000), Some(("", 0)));
        images.exec(1, 30);
        assert_eq!(images.since(1, 30, 1000), Some(30));
        assert_eq!(images.all_since(1, 30), Some(30));
        images.forget(40);
        assert_eq!([39, 40].map(|time| images.since(1, time, 1000)), [None, Some(40)]);
    }

    #[test]
    fn mappings_are_not_kept_without_limit() {
        let path = [b"/".as_slice(), &[b'x'; 4000]].concat();
        // By one process, and by many.
        for (path, processes, kept) in [
            (&*path, 100, 2000..5000),
            (b"//anon", 1, OF_PROCESS..OF_PROCESS + 1),
            (b"//anon", 200, 100_000..500_000),
        ] {
            let mut images = Images::default();
            let number = |images: &Images| {
                images.processes.values().map(|process| process.mapped.len()).sum::<usize>()
            };
            let mut time = 0;
            let pid = loop {
                let before = number(&images);
                time += 1;
                assert!(time < 1_000_000, "nothing is forgotten");
                let pid = (time % processes) as u32;
                map(&mut images, pid, 1000, path, time);
                if number(&images) <= before {
                    assert!(kept.contains(&before), "{before}");
                    break pid;
                }
            };
            assert_eq!(number(&images), 1);
            assert_eq!(images.since(pid, time - 1, 1000), None);
            assert_eq!(images.since(pid, time, 1000), Some(time));
            assert_eq!(images.taken, images.processes.values().map(Process::size).sum::<usize>());
        }
    }

    #[test]
    fn a_program_that_was_executed_since_is_not_forgotten() {
        let mut images = Images::default();
        map(&mut images, 1, 1000, b"/old", 5);
        images.exec(1, 7);
        images.forget_of(1, 5);
        assert_eq!([5, 6, 7].map(|time| images.since(1, time, 1000)), [None, Some(5), Some(7)]);
    }

    #[test]
    fn a_process_that_maps_without_end_has_only_its_own_forgotten() {
        let mut images = Images::default();
        map(&mut images, 2, 1000, b"/other", 1);
        let last = 10 * OF_PROCESS as u64;
        (2..=last).for_each(|time| map(&mut images, 1, 1000, b"/own", time));
        assert_eq!(find(&images, 2, last, 1000), Some(("/other", 7)));
        assert_eq!(images.since(1, 3, 1000), None);
        assert_eq!(images.since(1, last, 1000), Some(last));
        // What was mapped elsewhere is not known, but whether it is the same as before is.
        let since = images.since(1, last, 5000);
        assert!(since.is_some_and(|since| since > last - OF_PROCESS as u64), "{since:?}");
        assert_eq!(since, images.since(1, last - 1, 5000));
    }

    #[test]
    fn what_is_forgotten_is_not_known_for_later_times_of_other_rings() {
        let mut images = Images::default();
        map(&mut images, 1, 1000, b"/old", 10);
        images.exec(1, 500);
        images.taken = ROOM + 1;
        map(&mut images, 2, 1000, b"/x", 100);
        assert_eq!([100, 499].map(|time| images.since(1, time, 1000)), [None; 2]);
        assert_eq!([500, 501].map(|time| images.since(1, time, 1000)), [Some(500); 2]);
        assert_eq!(find(&images, 2, 500, 1000), Some(("/x", 7)));
    }

    #[test]
    fn programs_are_not_kept_without_limit() {
        let mut images = Images::default();
        for time in 0..1_000_000 {
            images.exec(1, time);
        }
        assert!(images.processes[&1].begins.len() < 200_000);
    }

    #[test]
    fn ended_processes_are_forgotten_after_a_while() {
        let mut images = Images::default();
        map(&mut images, 1, 1000, b"/first", 1);
        images.end(1, 2);
        images.fork(1, 7, 3);
        map(&mut images, 1, 1000, b"/second", 4);
        for pid in 10..10 + ENDED as u32 {
            assert_eq!(find(&images, 1, 2, 1000), Some(("/first", 7)));
            map(&mut images, pid, 1000, b"/x", 5);
            images.end(pid, 6);
        }
        assert_eq!(images.since(1, 2, 1000), None);
        assert_eq!(find(&images, 1, 2, 1000), None);
        assert_eq!(find(&images, 1, 4, 1000), Some(("/second", 7)));
        images.end(10_000, 7);
        assert_eq!([6, 7].map(|time| images.since(10, time, 1000)), [None, Some(6)]);
        // Those of others are not.
        assert_eq!(images.since(10_001, 1, 1000), Some(0));
        assert_eq!(find(&images, 11, 5, 1000), Some(("/x", 7)));
        assert_eq!(images.taken, images.processes.values().map(Process::size).sum::<usize>());
    }
}
