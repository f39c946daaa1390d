//! Names of the kernel's functions, for those that were misspelt.

pub(super) use crate::nearest::nearest;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;

/// What stands for no module, where one is named.
pub(super) const NO_MODULE: &str = "vmlinux";

/// What the kernel knows of a function's name.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// How many functions have it.
    pub(super) count: usize,
    /// Names that are like it, the nearest first.
    pub(super) near: Vec<String>,
}

/// Looks a function up in `/proc/kallsyms`.
pub(super) fn look_up(name: &str) -> Lookup {
    let Ok(symbols) = fs::read_to_string("/proc/kallsyms") else { return Lookup::default() };
    let (own, others): (Vec<_>, Vec<_>) =
        functions(&symbols).map(|(symbol, _)| symbol).partition(|symbol| *symbol == name);
    let others = others.into_iter().filter(|other| !is_hidden(other));
    Lookup { count: own.len(), near: nearest(name, others.map(str::to_owned)) }
}

/// Where the functions of a module begin ([`NO_MODULE`]: of none), by their names. 0, where the kernel
/// does not let this process know; several, if there are several of a name.
pub(super) fn addresses(module: &str) -> io::Result<HashMap<String, Vec<u64>>> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let mut addresses = HashMap::<_, Vec<_>>::new();
    for symbol in all(&symbols).filter(|symbol| symbol.module.unwrap_or(NO_MODULE) == module) {
        addresses.entry(symbol.name.to_owned()).or_default().push(symbol.address);
    }
    Ok(addresses)
}

/// A function of a symbol table.
struct Symbol<'t> {
    address: u64,
    name: &'t str,
    module: Option<&'t str>,
}

fn all(symbols: &str) -> impl Iterator<Item = Symbol<'_>> {
    symbols.lines().filter_map(|line| {
        // "ffffffff81000000 T name\t[module]"
        let mut words = line.split_ascii_whitespace();
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        let address = u64::from_str_radix(address, 16).ok()?;
        let module = words.next().map(unbracketed);
        matches!(kind, "t" | "T" | "w" | "W").then_some(Symbol { address, name, module })
    })
}

/// The functions of a symbol table, and which modules they are in.
pub(super) fn functions(symbols: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    all(symbols).map(|symbol| (symbol.name, symbol.module))
}

/// The name of a module, as it stands behind its functions: `[name]`.
pub(super) fn unbracketed(module: &str) -> &str {
    module.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a module of this name is loaded. One that is built in is none.
pub(super) fn is_loaded(module: &str) -> bool {
    fs::exists(format!("/sys/module/{module}/initstate")).unwrap_or(false)
}

/// Whether it is no function that anybody calls, but what the compiler puts before one.
pub(super) fn is_hidden(name: &str) -> bool {
    ["__pfx_", "__cfi_", "__ftrace_invalid_address__"].iter().any(|one| name.starts_with(one))
}

/// Whether the function is on the kprobe blacklist, as far as debugfs lets us see it.
pub(super) fn is_blacklisted(name: &str) -> bool {
    blacklist().contains(name)
}

/// The functions on the kprobe blacklist, as far as debugfs lets us see it.
pub(super) fn blacklist() -> BTreeSet<String> {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/blacklist").unwrap_or_default();
    blacklisted(&list).map(str::to_owned).collect()
}

/// Reads "0xffffffff81000000-0xffffffff81000010\tname".
fn blacklisted(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| line.split_ascii_whitespace().nth(1))
}

#[cfg(test)]
mod tests {
    use super::{blacklisted, functions};

    #[test]
    fn lists_of_the_kernel_are_read() {
        let symbols = "ffffffff81000000 T a\nffffffff81000010 t b.isra.0\nffffffff81000020 d data\n\
            0000000000000000 W c\t[fuse]\n\nffffffff81000030 t\n";
        let expected = [("a", None), ("b.isra.0", None), ("c", Some("fuse"))];
        assert_eq!(functions(symbols).collect::<Vec<_>>(), expected);
        let list = "0xffffffff81000000-0xffffffff81000010\ta\n\n0x1-0x2\tb\n";
        assert_eq!(blacklisted(list).collect::<Vec<_>>(), ["a", "b"]);
    }
}
