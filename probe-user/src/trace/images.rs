//! What processes have mapped, as records of the kernel tell it.

use super::symbolize::ElfFile;
use crate::perf::record::{MappedFile, Mapping};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// So many processes are remembered that have ended.
const ENDED: usize = 4096;

/// The files whose code processes have mapped, and where they had it at a time.
///
/// Records come of several rings, so they need not come in the order of their times.
#[derive(Debug, Default)]
pub(super) struct Images {
    processes: HashMap<u32, Process>,
    /// Processes that have ended, and when.
    ended: VecDeque<(u32, u64)>,
}

#[derive(Debug, Default)]
struct Process {
    /// When it got another address space, in any order.
    begins: Vec<(u64, Begin)>,
    mapped: Vec<Mapped>,
}

/// How an address space begins.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// As that of the process that made it.
    Fork(u32),
    /// Empty, for a program.
    Exec,
}

#[derive(Debug)]
struct Mapped {
    since: u64,
    begin: u64,
    end: u64,
    /// Where in the file it begins.
    offset: u64,
    file: Arc<ElfFile>,
}

impl Images {
    /// A process was made by another one.
    pub(super) fn fork(&mut self, pid: u32, parent: u32, time: u64) {
        self.process(pid).begins.push((time, Begin::Fork(parent)));
    }

    /// A process executes a program.
    pub(super) fn exec(&mut self, pid: u32, time: u64) {
        self.process(pid).begins.push((time, Begin::Exec));
    }

    /// A process has mapped something, which need not be a file.
    pub(super) fn map(&mut self, mapping: &Mapping<'_>, file: &MappedFile<'_>, time: u64) {
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

    /// A process has ended. It is remembered for a while.
    pub(super) fn end(&mut self, pid: u32, time: u64) {
        self.ended.push_back((pid, time));
        if self.ended.len() > ENDED
            && let Some((pid, end)) = self.ended.pop_front()
            && let Some(process) = self.processes.get_mut(&pid)
        {
            // Another one may have its number since.
            process.begins.retain(|&(since, _)| since > end);
            process.mapped.retain(|mapped| mapped.since > end);
            if process.begins.is_empty() && process.mapped.is_empty() {
                self.processes.remove(&pid);
            }
        }
    }

    /// Which file, and where in it, an address of a process was at a time.
    pub(super) fn find(&self, pid: u32, time: u64, address: u64) -> Option<(&Arc<ElfFile>, u64)> {
        let (mut pid, mut time) = (pid, time);
        // Each turn goes to an earlier time.
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
    use crate::perf::record::Thread;

    fn map(images: &mut Images, pid: u32, addr: u64, filename: &[u8], time: u64) {
        let thread = Thread { pid, tid: pid };
        let mapping = Mapping { thread, addr, len: 100, pgoff: 7, filename, is_data: false };
        let file = MappedFile::Inode { major: 0, minor: 0, inode: 9, generation: 0 };
        images.map(&mapping, &file, time);
    }

    fn find(images: &Images, pid: u32, time: u64, address: u64) -> Option<(&str, u64)> {
        let (file, offset) = images.find(pid, time, address)?;
        assert_eq!(file.inode, 9);
        Some((file.path.to_str().unwrap(), offset))
    }

    #[test]
    fn an_address_is_in_what_was_mapped_then() {
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
    fn a_fork_has_what_its_parent_had_until_it_executes() {
        let mut images = Images::default();
        // In no order of time.
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
        // One that was made by itself is not looked for for ever.
        images.fork(3, 3, 50);
        assert_eq!(find(&images, 3, 60, 1000), None);
    }

    #[test]
    fn those_that_have_ended_are_forgotten_in_time() {
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
