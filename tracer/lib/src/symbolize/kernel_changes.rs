//! What the kernel added to its code and removed from it: eBPF programs, trampolines, pages of kprobes.

use super::Address;
use super::frame::Frame;
use std::ops::Range;
use std::sync::Arc;

/// How many changes are remembered: about 10 MiB.
const ROOM: usize = 1 << 16;

/// How many tables, and modules that were unloaded, are remembered.
const OLD: usize = 1024;

/// Symbols that the kernel added and removed, with the times.
///
/// Records come from several rings, so they may arrive out of order.
#[derive(Debug, Default)]
pub(super) struct KernelChanges {
    /// The changes, in the order of time.
    changes: Vec<Change>,
    /// All addresses of `changes` are in this range. Most functions of the kernel are not.
    around: Range<u64>,
    /// When the kernel's table got other symbols that are not in `changes`, in order.
    tables: Vec<u64>,
    /// When modules were noticed to be unloaded, in order, and where they were. Another one may have been loaded there since.
    unloaded: Vec<(u64, Range<u64>)>,
}

#[derive(Debug)]
pub(super) struct Change {
    time: u64,
    range: Range<u64>,
    name: Box<str>,
    is_removal: bool,
}

/// What is at an address of the kernel at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Code<'c> {
    /// What the kernel's table says.
    InTable,
    /// Nothing, or what is not known any more.
    Nothing,
    /// What this change added, or removed later.
    Of(&'c Change),
}

impl KernelChanges {
    /// Notes that a symbol was added or removed.
    pub(super) fn note(&mut self, time: u64, range: Range<u64>, name: &[u8], is_removal: bool) {
        if self.changes.len() >= ROOM {
            self.forget(self.changes.last().map_or(time, |last| last.time.max(time)));
        }
        self.around = match self.changes.is_empty() {
            true => range.clone(),
            false => self.around.start.min(range.start)..self.around.end.max(range.end),
        };
        let name = String::from_utf8_lossy(name).into();
        let at = self.changes.partition_point(|one| one.time <= time);
        self.changes.insert(at, Change { time, range, name, is_removal });
    }

    /// Forgets everything. Symbols may have changed unnoticed until this time.
    pub(super) fn forget(&mut self, until: u64) {
        self.changes.clear();
        self.renew_table(until);
    }

    /// Notes that other symbols may have changed until a time, like those of a module.
    pub(super) fn renew_table(&mut self, until: u64) {
        if until > self.table_since() {
            push(&mut self.tables, until);
        }
    }

    /// Notes that a module was unloaded before a time.
    pub(super) fn unload(&mut self, until: u64, range: Range<u64>) {
        push(&mut self.unloaded, (until, range));
    }

    /// The time after which the kernel's table must have been read.
    pub(super) fn table_since(&self) -> u64 {
        self.tables.last().copied().unwrap_or(0)
    }

    /// What is at an address at a time, and since when. Between two times with the same answer, nothing else was there.
    pub(super) fn at(&self, time: u64, address: Address) -> (u64, Code<'_>) {
        let instruction = address.instruction();
        if !self.around.contains(&instruction) {
            return (self.since(None, time), self.in_table(time, instruction));
        }
        let (before, after) = self.changes.split_at(self.until(time));
        let is_there = |change: &&Change| change.range.contains(&instruction);
        let last = before.iter().rev().find(is_there);
        let code = match (last, after.iter().find(is_there)) {
            (Some(last), _) if last.is_removal => Code::Nothing,
            (Some(last), _) => Code::Of(last),
            // It was there before the watch began.
            (None, Some(next)) if next.is_removal => Code::Of(next),
            (None, Some(_)) => Code::Nothing,
            (None, None) => self.in_table(time, instruction),
        };
        (self.since(last, time), code)
    }

    /// What is at an address without changes. The table says it, unless a module was there.
    fn in_table(&self, time: u64, instruction: u64) -> Code<'_> {
        let mut later = self.unloaded.iter().rev().take_while(|(until, _)| *until > time);
        match later.any(|(_, range)| range.contains(&instruction)) {
            true => Code::Nothing,
            false => Code::InTable,
        }
    }

    /// The time of the last change up to a time, whatever its address.
    pub(super) fn all_since(&self, time: u64) -> u64 {
        self.since(self.changes[..self.until(time)].last(), time)
    }

    /// The number of changes up to a time.
    fn until(&self, time: u64) -> usize {
        self.changes.partition_point(|one| one.time <= time)
    }

    fn since(&self, last: Option<&Change>, time: u64) -> u64 {
        let tables = &self.tables[..self.tables.partition_point(|&table| table <= time)];
        last.map_or(0, |last| last.time).max(tables.last().copied().unwrap_or(0))
    }
}

/// Adds a new one, and forgets the oldest if there are many.
fn push<T>(all: &mut Vec<T>, new: T) {
    if all.len() >= OLD {
        all.remove(0);
    }
    all.push(new);
}

impl Code<'_> {
    /// The functions at this address of the code; `None` if the kernel's table has them.
    pub(super) fn frames(self, address: Address) -> Option<Arc<[Frame]>> {
        match self {
            Self::InTable => None,
            Self::Nothing => Some(Arc::default()),
            Self::Of(change) => {
                Some(Frame::of_kernel(&change.name, address.at - change.range.start))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(changes: &KernelChanges, time: u64, at: u64) -> (u64, String) {
        let address = Address { at, is_return: false };
        let (since, code) = changes.at(time, address);
        let shown = match code.frames(address) {
            None => "table".to_owned(),
            Some(frames) => frames.iter().map(Frame::to_string).collect(),
        };
        (since, shown)
    }

    #[test]
    fn an_address_has_the_name_of_its_time() {
        let mut changes = KernelChanges::default();
        // Out of order on purpose.
        changes.note(40, 100..200, b"second", false);
        changes.note(20, 100..150, b"first", true);
        let shown = |time, address| at(&changes, time, address);
        assert_eq!(shown(10, 102), (0, "first+0x2".to_owned()));
        assert_eq!(shown(20, 102), (20, String::new()));
        assert_eq!(shown(40, 102), (40, "second+0x2".to_owned()));
        assert_eq!(shown(10, 160), (0, String::new()), "nothing was there before");
        assert_eq!(shown(40, 200), (0, "table".to_owned()));
        assert_eq!([10, 20, 39, 40].map(|time| changes.all_since(time)), [0, 20, 20, 40]);
        // The call is the last instruction of the program.
        let address = Address { at: 200, is_return: true };
        let frames = changes.at(50, address).1.frames(address);
        assert!(frames.is_some_and(|frames| frames[0].to_string() == "second+0x64"));
    }

    #[test]
    fn changes_are_not_kept_without_limit() {
        let mut changes = KernelChanges::default();
        let last = ROOM as u64;
        for time in 0..=last {
            changes.note(time, 100..200, b"program", false);
        }
        assert_eq!(changes.changes.len(), 1);
        assert_eq!(at(&changes, last, 100), (last, "program+0x0".to_owned()));
        assert_eq!([0, last].map(|time| at(&changes, time, 200).0), [0, last]);
        assert_eq!(changes.table_since(), last);
    }

    #[test]
    fn what_is_forgotten_is_not_known_for_later_times_of_other_rings() {
        let mut changes = KernelChanges::default();
        for time in 1..=ROOM as u64 {
            changes.note(time, 100..200, b"program", false);
        }
        changes.note(5, 100..200, b"first", false);
        assert_eq!(changes.changes.len(), 1);
        assert_eq!(changes.table_since(), ROOM as u64);
    }

    #[test]
    fn what_was_in_a_module_is_not_looked_up_after_it_was_unloaded() {
        let mut changes = KernelChanges::default();
        for (time, module) in [(20, 100..200), (40, 300..400)] {
            changes.renew_table(time);
            changes.unload(time, module);
        }
        let shown = |time| [100, 300, 500].map(|address| at(&changes, time, address));
        let expected = |since, each: [&str; 3]| each.map(|shown| (since, shown.to_owned()));
        assert_eq!(shown(19), expected(0, ["", "", "table"]));
        assert_eq!(shown(39), expected(20, ["table", "", "table"]));
        assert_eq!(shown(40), expected(40, ["table"; 3]));
    }
}
