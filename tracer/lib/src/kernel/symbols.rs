//! The kernel's symbol table and kprobe blacklist.

use probe_perf::nearest::nearest;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};

/// The module name that selects functions outside modules.
pub(crate) const NO_MODULE: &str = "vmlinux";

/// The result of looking up a function's name.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    /// The number of functions of this name.
    pub(crate) count: usize,
    /// The address of the first of them; 0 if it is not known.
    pub(crate) first: u64,
    /// If there is none, similar names, the nearest first.
    pub(crate) near: Vec<String>,
}

/// Looks a function up in `/proc/kallsyms`, in `module` only if it is given.
pub(crate) fn look_up(name: &str, module: Option<&str>) -> Lookup {
    let Ok(symbols) = fs::read_to_string("/proc/kallsyms") else { return Lookup::default() };
    look_up_in(&symbols, name, module)
}

fn look_up_in(symbols: &str, name: &str, module: Option<&str>) -> Lookup {
    let there = all(symbols).filter(|symbol| symbol.is_in(module));
    let (own, others): (Vec<_>, Vec<_>) = there.partition(|symbol| symbol.name == name);
    let others = others.into_iter().map(|other| other.name).filter(|other| !is_hidden(other));
    // To compare names takes longer than to find one.
    let near = match own.is_empty() {
        true => nearest(name, others.map(str::to_owned)),
        false => Vec::new(),
    };
    Lookup { count: own.len(), first: own.first().map_or(0, |one| one.address), near }
}

/// The addresses of functions, by name, in `module` only if it is given; [`NO_MODULE`] selects functions outside modules. An
/// address is 0 if the kernel hides it from this process. A name that several functions share has several addresses.
pub(crate) fn addresses(module: Option<&str>) -> io::Result<HashMap<String, Vec<u64>>> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let mut addresses = HashMap::<_, Vec<_>>::new();
    for symbol in all(&symbols).filter(|symbol| symbol.is_in(module)) {
        addresses.entry(symbol.name.to_owned()).or_default().push(symbol.address);
    }
    Ok(addresses)
}

/// Where the functions of a name are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// All outside modules.
    Kernel,
    /// At this address, in a module; there is only one of the name.
    Module(u64),
    /// Nowhere, in several modules, both in a module and outside, or at an address that the kernel hides.
    Unclear,
}

/// Looks up where the functions of these names are. None is known if the symbol table cannot be read.
pub(crate) fn homes<'n>(names: impl Iterator<Item = &'n str>) -> HashMap<&'n str, Home> {
    homes_in(&fs::read_to_string("/proc/kallsyms").unwrap_or_default(), names)
}

fn homes_in<'n>(symbols: &str, names: impl Iterator<Item = &'n str>) -> HashMap<&'n str, Home> {
    let mut homes: HashMap<_, _> = names.map(|name| (name, None)).collect();
    for Symbol { address, name, module, .. } in all(symbols) {
        if let Some(home) = homes.get_mut(name) {
            *home = Some(match (module, *home) {
                (None, None | Some(Home::Kernel)) => Home::Kernel,
                (Some(_), None) if address != 0 => Home::Module(address),
                _ => Home::Unclear,
            });
        }
    }
    homes.into_iter().map(|(name, home)| (name, home.unwrap_or(Home::Unclear))).collect()
}

/// Where a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Its address; 0 if the kernel hides it from this process.
    pub(crate) begin: u64,
    /// The distance to what follows it, in bytes.
    pub(crate) size: u64,
}

/// The functions of a name, in `module` only if it is given.
pub(crate) fn extents(name: &str, module: Option<&str>) -> io::Result<Vec<Extent>> {
    Ok(extents_in(&fs::read_to_string("/proc/kallsyms")?, name, module))
}

fn extents_in(symbols: &str, name: &str, module: Option<&str>) -> Vec<Extent> {
    let is_it = |symbol: &Symbol<'_>| symbol.name == name && symbol.is_in(module);
    let extent = |begin: u64| {
        let later = all(symbols).filter_map(|other| other.address.checked_sub(begin));
        Extent { begin, size: later.filter(|&size| size > 0).min().unwrap_or(u64::MAX) }
    };
    all(symbols).filter(is_it).map(|symbol| extent(symbol.address)).collect()
}

/// A place in a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// The function's name.
    pub(crate) function: String,
    /// The distance from its beginning, in bytes.
    pub(crate) offset: u64,
    /// Whether no other function has its name.
    pub(crate) is_unique: bool,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => f.write_str(&self.function),
            offset => write!(f, "{}+{offset:#x}", self.function),
        }
    }
}

/// The function that an address is in. `None` if there is none, or the kernel hides addresses.
pub(crate) fn containing(address: u64) -> Option<Site> {
    containing_in(&fs::read_to_string("/proc/kallsyms").ok()?, address)
}

fn containing_in(symbols: &str, address: u64) -> Option<Site> {
    let before = all(symbols).filter(|symbol| (1..=address).contains(&symbol.address));
    // Of several names, that of the function, not that of padding.
    let nearest = before.max_by_key(|symbol| (symbol.address, !is_hidden(symbol.name)))?;
    let namesakes = all(symbols).filter(|symbol| symbol.name == nearest.name);
    Some(Site {
        function: nearest.name.to_owned(),
        offset: address - nearest.address,
        is_unique: namesakes.count() == 1,
    })
}

/// Whether the kernel hides the addresses of its functions from this process, so that addresses have no names.
pub(crate) fn are_hidden() -> bool {
    let Ok(symbols) = File::open("/proc/kallsyms") else { return true };
    // The first line that shows an address decides.
    let shows = |line: io::Result<String>| {
        line.is_ok_and(|line| {
            line.bytes().take_while(|byte| *byte != b' ').any(|byte| byte != b'0')
        })
    };
    !BufReader::new(symbols).lines().any(shows)
}

/// What to change if they are hidden.
pub(crate) const TO_SEE: &str = "sysctl kernel.kptr_restrict=1, and CAP_SYSLOG";

/// A function in a symbol table.
struct Symbol<'t> {
    address: u64,
    name: &'t str,
    module: Option<&'t str>,
    is_weak: bool,
}

impl Symbol<'_> {
    /// Whether it is in this module, if one is given; [`NO_MODULE`] is the rest of the kernel.
    fn is_in(&self, module: Option<&str>) -> bool {
        module.is_none_or(|module| self.module.unwrap_or(NO_MODULE) == module)
    }
}

fn all(symbols: &str) -> impl Iterator<Item = Symbol<'_>> {
    symbols.lines().filter_map(|line| {
        // "ffffffff81000000 T name\t[module]"
        let mut words = line.split_ascii_whitespace();
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        let address = u64::from_str_radix(address, 16).ok()?;
        let module = words.next().map(unbracketed);
        let is_weak = matches!(kind, "w" | "W");
        (is_weak || matches!(kind, "t" | "T")).then_some(Symbol { address, name, module, is_weak })
    })
}

/// The functions in a symbol table, with their modules.
pub(crate) fn functions(symbols: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    all(symbols).map(|symbol| (symbol.name, symbol.module))
}

/// The functions whose names begin with a prefix, except those in the place of functions that this kernel lacks, and parts of
/// functions: the rest of the name, and the address, which is 0 if the kernel hides it.
pub(crate) fn named<'t>(symbols: &'t str, prefix: &'t str) -> impl Iterator<Item = (&'t str, u64)> {
    let own = all(symbols).filter(|symbol| !symbol.is_weak && !is_hidden(symbol.name));
    own.filter_map(move |symbol| Some((symbol.name.strip_prefix(prefix)?, symbol.address)))
}

/// The module's name, out of the `[name]` that follows its functions.
pub(crate) fn unbracketed(module: &str) -> &str {
    module.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a module of this name is loaded. Built-in modules do not count.
pub(crate) fn is_loaded(module: &str) -> bool {
    fs::exists(format!("/sys/module/{module}/initstate")).unwrap_or(false)
}

/// Whether the name is not that of a function that is called, but marks padding before one, or a part of one.
pub(crate) fn is_hidden(name: &str) -> bool {
    ["__pfx_", "__cfi_", "__ftrace_invalid_address__"].iter().any(|one| name.starts_with(one))
        || is_cold(name)
}

/// Whether the name is that of code which is seldom executed, split off from a function: `f.cold`, `f.cold.1`. It is usually
/// jumped to, not called.
pub(crate) fn is_cold(name: &str) -> bool {
    let Some((function, number)) = name.rsplit_once(".cold") else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    !function.is_empty() && (number.is_empty() || number.strip_prefix('.').is_some_and(is_number))
}

/// Whether the function is on the kprobe blacklist. `false` if debugfs is not readable.
pub(crate) fn is_blacklisted(name: &str) -> bool {
    blacklist().contains(name)
}

/// The functions on the kprobe blacklist. Empty if debugfs is not readable.
pub(crate) fn blacklist() -> BTreeSet<String> {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/blacklist").unwrap_or_default();
    blacklisted(&list).map(str::to_owned).collect()
}

/// Parses lines like "0xffffffff81000000-0xffffffff81000010\tname".
fn blacklisted(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| line.split_ascii_whitespace().nth(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_functions_have_their_suffix() {
        for name in ["f.cold", "f.cold.1", "f.part.0.cold", "f.isra.0.cold.12"] {
            assert!(is_cold(name), "{name}");
        }
        for name in ["f", "cold", ".cold", "main.coldStart", "f.cold.x", "f.cold.", "f.coldness"] {
            assert!(!is_cold(name), "{name}");
        }
    }

    #[test]
    fn a_function_is_looked_up_in_its_module() {
        let symbols = "ffff1000 T same\nffff2000 t same\t[m]\nffff2010 t other\t[m]\n";
        let found = |name, module| {
            let Lookup { count, first, .. } = look_up_in(symbols, name, module);
            (count, first)
        };
        assert_eq!(found("same", None), (2, 0xffff_1000));
        assert_eq!(found("same", Some("m")), (1, 0xffff_2000));
        assert_eq!(found("same", Some("vmlinux")), (1, 0xffff_1000));
        assert_eq!(found("other", Some("vmlinux")), (0, 0));
        assert_eq!(look_up_in(symbols, "othr", Some("m")).near, ["other"]);
        assert!(look_up_in(symbols, "othr", Some("vmlinux")).near.is_empty());
    }

    #[test]
    fn functions_are_in_modules_or_outside() {
        let symbols = "ffff1000 T twice\nffff1010 t twice\nffff1020 t both\nffff2000 t both\t[m]\nffff2010 t own\t[m]\n\
            ffff2020 t shared\t[m]\nffff3000 t shared\t[n]\n0 t hidden\t[m]\n";
        let names = ["twice", "both", "own", "shared", "hidden", "none"];
        let homes = homes_in(symbols, names.into_iter());
        let expected = [
            Home::Kernel,
            Home::Unclear,
            Home::Module(0xffff_2010),
            Home::Unclear,
            Home::Unclear,
            Home::Unclear,
        ];
        assert_eq!(names.map(|name| homes[name]), expected);
    }

    #[test]
    fn an_offset_is_in_a_function_or_in_another_one() {
        let symbols = "ffff1000 T a\nffff1040 t __pfx_b\nffff1050 T b\nffff1050 t __pfx_b2\nffff2000 t a\t[m]\n\
            ffff1020 d data\nffff3000 t end\t[m]\n";
        let size =
            |module| extents_in(symbols, "a", module).iter().map(|it| it.size).collect::<Vec<_>>();
        assert_eq!(
            [None, Some("vmlinux"), Some("m")].map(size),
            [vec![0x40, 0x1000], vec![0x40], vec![0x1000]]
        );
        assert_eq!(extents_in(symbols, "c", None), []);
        let containing = |address| {
            containing_in(symbols, address).map_or_else(String::new, |site| site.to_string())
        };
        let found = [0xffff_1050, 0xffff_1041, 0xffff_1060, 0xffff_0000].map(containing);
        assert_eq!(found, ["b", "__pfx_b+0x1", "b+0x10", ""]);
        let hidden = "0 T a\n0 T b\n";
        assert_eq!(extents_in(hidden, "a", None)[0].begin, 0);
        assert_eq!(containing_in(hidden, 0x10), None);
    }

    #[test]
    fn the_kernels_lists_are_parsed() {
        let symbols = "ffffffff81000000 T a\nffffffff81000010 t b.isra.0\nffffffff81000020 d data\n\
            0000000000000000 W c\t[fuse]\n\nffffffff81000030 t\n";
        let expected = [("a", None), ("b.isra.0", None), ("c", Some("fuse"))];
        assert_eq!(functions(symbols).collect::<Vec<_>>(), expected);
        let list = "0xffffffff81000000-0xffffffff81000010\ta\n\n0x1-0x2\tb\n";
        assert_eq!(blacklisted(list).collect::<Vec<_>>(), ["a", "b"]);
    }
}
