//! Names of functions in the kernel and its modules.

use super::service::Found;
use super::watch::Watch;
use super::{Address, Frame, locked};
use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Kernel, Source};
use blazesym::symbolize::{Input, Sym, Symbolized, Symbolizer};
use probe_sys::clock::monotonic;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the list of modules is read, at least.
const LOOK: Duration = Duration::from_secs(1);

/// The kernel's table of symbols. It is read again when modules have been loaded or unloaded.
pub(super) struct KernelNames {
    symbolizer: Symbolizer,
    /// A time before the table was read.
    since: u64,
    table: PathBuf,
    /// Where `table` is, unless it is the kernel's own file.
    _copy: Option<File>,
    /// The kernel's own file, and its list of modules, if it can have any. They show what they would have shown when they were
    /// opened: addresses, which take privileges.
    files: io::Result<(File, Option<File>)>,
    /// The modules in the table.
    loaded: Vec<Module>,
    /// When the list of modules is read again.
    next_look: Instant,
}

impl KernelNames {
    /// Opens the kernel's files with the privileges of this thread.
    pub(super) fn open() -> Self {
        Self::of("/proc/kallsyms".into(), "/proc/modules".into())
    }

    fn of(table: PathBuf, modules: PathBuf) -> Self {
        let files = File::open(&table).map(|symbols| (symbols, File::open(modules).ok()));
        let (symbolizer, loaded, next_look) = (symbolizer(), Vec::new(), Instant::now() + LOOK);
        let since = monotonic();
        let mut this = Self { symbolizer, since, table, _copy: None, files, loaded, next_look };
        // A module that is loaded meanwhile is noticed later.
        this.loaded = this.modules().unwrap_or_default();
        // It reads the table on first use.
        this.look_up(&[Address { at: u64::MAX, is_return: false }], None);
        this
    }

    /// The modules that are loaded now.
    fn modules(&mut self) -> io::Result<Vec<Module>> {
        let Ok((_, Some(modules))) = &mut self.files else { return Ok(Vec::new()) };
        let mut text = String::new();
        modules.rewind()?;
        modules.read_to_string(&mut text)?;
        Ok(text.lines().filter_map(Module::of_line).collect())
    }

    /// Looks now and then whether modules were loaded or unloaded, so that no name outlives its module for long.
    pub(super) fn follow(&mut self, watch: &Mutex<Watch>) {
        if Instant::now() >= self.next_look {
            self.refresh(Some(watch));
        }
    }

    /// Reads the table again if it has changed.
    fn refresh(&mut self, watch: Option<&Mutex<Watch>>) {
        self.next_look = Instant::now() + LOOK;
        if let Err(error) = self.try_refresh(watch) {
            log::debug!("functions of modules that were loaded later have no names: {error}");
        }
    }

    fn try_refresh(&mut self, watch: Option<&Mutex<Watch>>) -> io::Result<()> {
        let loaded = self.modules()?;
        let (now, is_other) = (monotonic(), loaded != self.loaded);
        let is_old = watch.is_some_and(|watch| {
            let mut watch = locked(watch);
            let kernel = watch.kernel();
            if is_other {
                kernel.renew_table(now);
            }
            kernel.table_since() > self.since
        });
        if !is_other && !is_old {
            return Ok(());
        }
        if let Ok((symbols, _)) = &mut self.files {
            symbols.rewind()?;
            let mut copy = File::from(memfd_create("kallsyms", MemfdFlags::CLOEXEC)?);
            io::copy(symbols, &mut copy)?;
            self.table = format!("/proc/self/fd/{}", copy.as_raw_fd()).into();
            (self.symbolizer, self._copy) = (symbolizer(), Some(copy));
        }
        if let Some(watch) = watch {
            let mut watch = locked(watch);
            let gone = self.loaded.iter().filter(|one| !loaded.iter().any(|now| now.is(one)));
            gone.for_each(|module| watch.kernel().unload(now, module.range(&loaded)));
        }
        (self.loaded, self.since) = (loaded, now);
        Ok(())
    }

    /// The function at each address.
    pub(super) fn look_up(&mut self, addresses: &[Address], watch: Option<&Mutex<Watch>>) -> Found {
        self.refresh(watch);
        let kallsyms = MaybeDefault::Some(self.table.clone());
        let kernel = Kernel { kallsyms, vmlinux: MaybeDefault::None, ..Kernel::default() };
        let calls: Vec<u64> = addresses.iter().map(|address| address.instruction()).collect();
        let found = match self.symbolizer.symbolize(&Source::Kernel(kernel), Input::AbsAddr(&calls))
        {
            Ok(found) => found,
            Err(error) => {
                log::debug!("cannot look up addresses: {error}");
                return vec![Arc::default(); addresses.len()];
            }
        };
        let frames = |(address, one): (&Address, &Symbolized<'_>)| match one {
            Symbolized::Sym(symbol) if is_certain(address, symbol) => {
                Frame::of_kernel(&symbol.name, symbol.offset as u64 + address.back())
            }
            _ => Arc::default(),
        };
        addresses.iter().zip(&found).map(frames).collect()
    }
}

/// A module of the kernel.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    name: String,
    /// Of all its parts, which are not all at the address. It is smaller once the module is initialised.
    size: u64,
    begin: u64,
}

impl Module {
    /// Reads "name size uses users state address". Uses change often.
    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (name, size) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let begin = u64::from_str_radix(words.nth(3)?.strip_prefix("0x")?, 16).ok()?;
        Some(Self { name, size, begin })
    }

    fn is(&self, other: &Self) -> bool {
        (&self.name, self.begin) == (&other.name, other.begin)
    }

    /// Where it was, at most: up to the next of the modules that are loaded.
    fn range(&self, loaded: &[Self]) -> Range<u64> {
        let next = loaded.iter().map(|one| one.begin).filter(|begin| *begin > self.begin).min();
        let end = self.begin.saturating_add(self.size);
        self.begin..next.map_or(end, |next| next.min(end))
    }
}

/// Names are demangled here: functions in C may have names like `f`, which is a type in C++.
fn symbolizer() -> Symbolizer {
    Symbolizer::builder().enable_demangling(false).build()
}

/// How far behind the beginning of a symbol of the kernel an address may be, in bytes. The kernel's table has no sizes, so the
/// last symbol before a gap seems to go on to the next one.
const FAR: usize = 1 << 16;

/// Whether an address in the kernel belongs to the symbol that was found for it. The symbols of variables of each CPU are
/// offsets, which are addresses of processes.
fn is_certain(address: &Address, symbol: &Sym<'_>) -> bool {
    let is_in_kernel = address.at.cast_signed() < 0;
    is_in_kernel && symbol.offset < FAR
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::symbols;
    use probe_perf::Target;
    use std::fs;

    fn name(names: &mut KernelNames, at: u64) -> Option<String> {
        let found = names.look_up(&[Address { at, is_return: false }], None).remove(0);
        found.first().map(|frame| frame.name.clone())
    }

    #[test]
    fn addresses_far_from_every_symbol_have_no_names() {
        let mut names = KernelNames::open();
        // Pages of processes, the gap in front of the kernel's code, and what is behind its last symbol.
        for at in [0x1000, 0x5581_2345_6000, (1 << 47) - 1, 1 << 63, u64::MAX - 0xfff, u64::MAX] {
            assert_eq!(name(&mut names, at), None, "{at:#x}");
        }
        let known = symbols::extents("schedule", None).unwrap();
        if let Some(schedule) = known.first().filter(|known| known.begin != 0) {
            assert_eq!(name(&mut names, schedule.begin + 1).as_deref(), Some("schedule"));
        }
    }

    #[test]
    fn modules_that_are_loaded_later_have_names() {
        let dir = tempfile::tempdir().unwrap();
        let [table, modules] = ["kallsyms", "modules"].map(|name| dir.path().join(name));
        // The name is a type in C++.
        let old = "ffffffff81000000 T start\nffffffffc0001000 t f\t[old]\n";
        let live = |uses| format!("old 4096 {uses} - Live 0xffffffffc0001000\n");
        fs::write(&table, old).unwrap();
        fs::write(&modules, live(0)).unwrap();
        let mut names = KernelNames::of(table.clone(), modules.clone());
        let at = 0xffff_ffff_c000_2004;
        assert_eq!(name(&mut names, at).as_deref(), Some("f"));
        fs::write(&table, format!("{old}ffffffffc0002000 t second\t[new]\n")).unwrap();
        fs::write(&modules, live(1) + "new 4096 0 - Loading 0xffffffffc0002000 (OE+)\n").unwrap();
        assert_eq!(name(&mut names, at).as_deref(), Some("second"));
        let copy = names.table.clone();
        fs::write(&modules, live(2) + "new 4096 7 - Live 0xffffffffc0002000 (OE)\n").unwrap();
        assert_eq!(name(&mut names, at + 1).as_deref(), Some("second"));
        assert_eq!(names.table, copy, "its uses do not change the table");
    }

    /// eBPF programs and what is made for them come and go there, too.
    #[test]
    fn the_table_of_a_kernel_without_modules_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let [table, modules] = ["kallsyms", "modules"].map(|name| dir.path().join(name));
        fs::write(&table, "ffffffff81000000 T start\nffffffffc0001000 t first\t[bpf]\n").unwrap();
        let mut names = KernelNames::of(table.clone(), modules);
        assert_eq!(names.table, table);
        let at = Address { at: 0xffff_ffff_c000_1004, is_return: false };
        assert_eq!(names.look_up(&[at], None)[0][0].name, "first");
        fs::write(&table, "ffffffff81000000 T start\nffffffffc0001000 t second\t[bpf]\n").unwrap();
        let watch = Mutex::new(Watch::of_processes(&Target::ThisProcess).unwrap());
        locked(&watch).kernel().renew_table(monotonic());
        assert_eq!(names.look_up(&[at], Some(&watch))[0][0].name, "second");
        // The kernel's own file does not show that it has changed, so that it would not be read again.
        assert_ne!(names.table, table);
    }

    #[test]
    fn what_was_in_a_module_has_no_names_of_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let [table, modules] = ["kallsyms", "modules"].map(|name| dir.path().join(name));
        fs::write(&table, "ffffffff81000000 T start\nffffffffc0001000 t first\t[old]\n").unwrap();
        fs::write(&modules, "old 8192 0 - Loading 0xffffffffc0001000\n").unwrap();
        let mut names = KernelNames::of(table.clone(), modules.clone());
        let watch = Mutex::new(Watch::of_processes(&Target::ThisProcess).unwrap());
        // It is the same one, without the part that was needed to load it.
        let loading = monotonic();
        fs::write(&modules, "old 4096 0 - Live 0xffffffffc0001000\n").unwrap();
        let at = Address { at: 0xffff_ffff_c000_1004, is_return: false };
        assert_eq!(names.look_up(&[at], Some(&watch))[0][0].name, "first");
        assert!(locked(&watch).kernel().at(loading, at).1.frames(at).is_none());
        let (address, before) =
            (Address { at: 0xffff_ffff_c000_1004, is_return: false }, monotonic());
        fs::write(&table, "ffffffff81000000 T start\nffffffffc0001000 t second\t[new]\n").unwrap();
        fs::write(&modules, "new 4096 0 - Live 0xffffffffc0001000\n").unwrap();
        assert_eq!(names.look_up(&[address], Some(&watch))[0][0].name, "second");
        let is_in_table =
            |time, address| locked(&watch).kernel().at(time, address).1.frames(address).is_none();
        assert_eq!([before, monotonic()].map(|time| is_in_table(time, address)), [false, true]);
        assert!(is_in_table(before, Address { at: 0xffff_ffff_c000_2000, ..address }));
    }
}
