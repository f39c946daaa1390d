//! The mappings of processes, collected from kernel records.

use probe_perf::record::{MappedFile, Mapping};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of ended processes that are remembered.
const ENDED: usize = 4096;

/// A file whose code was mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ElfFile {
    pub(super) path: PathBuf,
    inode: u64,
}

impl ElfFile {
    /// Whether its path now leads to another file, or does so in this process's view of the file system.
    pub(super) fn is_replaced(&self) -> io::Result<bool> {
        Ok(fs::metadata(&self.path)?.ino() != self.inode)
    }
}

/// The files whose code was mapped by processes, with the addresses and times.
///
/// Records come from several rings, so they may arrive out of order.
#[derive(Debug, Default)]
pub(crate) struct Images {
    processes: HashMap<u32, Process>,
    /// Processes that have ended, and when.
    ended: VecDeque<(u32, u64)>,
}

#[derive(Debug, Default)]
struct Process {
    /// The times at which the process got a new address space, in any order.
    begins: Vec<(u64, Begin)>,
    mapped: Vec<Mapped>,
}

/// How an address space begins.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// As a copy of the parent's.
    Fork(u32),
    /// Empty, for a new program.
    Exec,
}

#[derive(Debug)]
struct Mapped {
    since: u64,
    begin: u64,
    end: u64,
    /// The offset of the mapping in the file, in bytes.
    offset: u64,
    file: Arc<ElfFile>,
}

impl Images {
    /// Notes that a process was forked.
    pub(crate) fn fork(&mut self, pid: u32, parent: u32, time: u64) {
        self.process(pid).begins.push((time, Begin::Fork(parent)));
    }

    /// Notes that a process executed a program.
    pub(crate) fn exec(&mut self, pid: u32, time: u64) {
        self.process(pid).begins.push((time, Begin::Exec));
    }

    /// Notes a mapping, which may be of something other than a file.
    pub(crate) fn map(&mut self, mapping: &Mapping<'_>, file: &MappedFile<'_>, time: u64) {
        let &Mapping { thread, addr: begin, len, pgoff: offset, filename: path, .. } = mapping;
        let MappedFile::Inode { inode, .. } = *file else { return };
        if !path.starts_with(b"/") || path.starts_with(b"//") {
            return;
        }
        let file = ElfFile { path: OsStr::from_bytes(path).into(), inode };
        let mapped = &mut self.process(thread.pid).mapped;
        mapped.push(Mapped {
            since: time,
            begin,
            end: begin.saturating_add(len),
            offset,
            file: Arc::new(file),
        });
    }

    /// Notes that a process ended. It is remembered for a while.
    pub(crate) fn end(&mut self, pid: u32, time: u64) {
        self.ended.push_back((pid, time));
        if self.ended.len() > ENDED
            && let Some((pid, end)) = self.ended.pop_front()
            && let Some(process) = self.processes.get_mut(&pid)
        {
            // The number may belong to another process by now.
            process.begins.retain(|&(since, _)| since > end);
            process.mapped.retain(|mapped| mapped.since > end);
            if process.begins.is_empty() && process.mapped.is_empty() {
                self.processes.remove(&pid);
            }
        }
    }

    /// The file that an address of a process belonged to at a time, and the offset in it.
    pub(crate) fn find(&self, pid: u32, time: u64, address: u64) -> Option<(&Arc<ElfFile>, u64)> {
        let (mut pid, mut time) = (pid, time);
        // Every iteration goes back in time, so the loop ends.
        loop {
            let Process { begins, mapped } = self.processes.get(&pid)?;
            let begin = begins.iter().filter(|(at, _)| *at <= time).max_by_key(|(at, _)| *at);
            let since = begin.map_or(0, |(at, _)| *at);
            let is_there = |one: &&Mapped| {
                (since..=time).contains(&one.since) && (one.begin..one.end).contains(&address)
            };
            if let Some(found) = mapped.iter().filter(is_there).max_by_key(|one| one.since) {
                return Some((&found.file, address - found.begin + found.offset));
            }
            match begin {
                Some(&(at, Begin::Fork(parent))) => (pid, time) = (parent, at.checked_sub(1)?),
                _ => return None,
            }
        }
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.entry(pid).or_default()
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
        let (file, offset) = images.find(pid, time, address)?;
        assert_eq!(file.inode, 9);
        Some((file.path.to_str().unwrap(), offset))
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
        for address in [999, 1100, 2000, 3000] {
            assert_eq!(find(&images, 1, 30, address), None);
        }
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
        assert_eq!(find(&images, 1, 2, 1000), None);
        assert_eq!(find(&images, 1, 4, 1000), Some(("/second", 7)));
        images.end(10_000, 7);
        assert!(!images.processes.contains_key(&10));
    }
}
