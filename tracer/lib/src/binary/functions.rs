//! The functions of an ELF file, from its symbol tables.

use super::FileProblem;
use super::contents::{Binding, Candidate, Elf, Function, Symbol};
use object::elf::{FileHeader64, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{ElfFile64, Sym, SymbolTable};
use object::{Endianness, Object, ObjectSection, ReadRef, StringTable, SymbolIndex};
use probe_perf::nearest::nearest;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Functions by name.
#[derive(Debug, Default)]
pub(super) struct Functions {
    named: BTreeMap<String, Vec<Candidate>>,
    /// Names of functions that other files define.
    imported: BTreeSet<String>,
    /// Whether only exported functions have names.
    is_stripped: bool,
}

impl Functions {
    pub(super) fn of(elf: &Elf<'_>) -> object::read::Result<Self> {
        let (endian, data) = (elf.endian(), elf.data());
        let mut this = Self::default();
        let versions = elf.elf_section_table().versions(endian, data)?;
        let dynamic = elf.elf_dynamic_symbol_table();
        let names = names(elf, dynamic)?;
        for (index, symbol) in dynamic.enumerate() {
            let name = String::from_utf8_lossy(symbol.name(endian, names)?);
            let is_hidden = |index: SymbolIndex| {
                versions.as_ref().is_some_and(|all| all.version_index(endian, index).is_hidden())
            };
            this.add(endian, symbol, name, is_hidden(index));
        }
        this.is_stripped = true;
        this.add_all(elf)?;
        Ok(this)
    }

    /// Adds the functions of a file's full symbol table, if it has one: of this file, or of a file with the symbols that
    /// were stripped from this one.
    pub(super) fn add_all<'d, R: ReadRef<'d>>(
        &mut self,
        elf: &ElfFile64<'d, Endianness, R>,
    ) -> object::read::Result<()> {
        let (endian, all) = (elf.endian(), elf.elf_symbol_table());
        let names = names(elf, all)?;
        for symbol in all.iter() {
            let name = String::from_utf8_lossy(symbol.name(endian, names)?);
            let (name, is_old) = unversioned(name);
            self.add(endian, symbol, name, is_old);
        }
        self.is_stripped &= all.is_empty();
        Ok(())
    }

    fn add(
        &mut self,
        endian: Endianness,
        symbol: &impl Sym<Endian = Endianness>,
        name: Cow<'_, str>,
        is_old: bool,
    ) {
        let is_indirect = symbol.st_type() == STT_GNU_IFUNC;
        if name.is_empty() || !(is_indirect || symbol.st_type() == STT_FUNC) {
            return;
        }
        if symbol.is_undefined(endian) {
            self.insert(Symbol { name: name.into_owned(), candidate: None });
            return;
        }
        let binding = match (symbol.st_bind() == STB_LOCAL, is_old) {
            (true, _) => Binding::Local,
            (_, true) => Binding::Old,
            _ => Binding::Default,
        };
        let (address, size) = (symbol.st_value(endian).into(), symbol.st_size(endian).into());
        let candidate = Candidate { function: Function { address, size }, binding, is_indirect };
        self.insert(Symbol { name: name.into_owned(), candidate: Some(candidate) });
    }

    pub(super) fn insert(&mut self, Symbol { name, candidate }: Symbol) {
        match candidate {
            // Most names stand for one function: `push` would allocate room for four.
            Some(candidate) => {
                let new = || Vec::with_capacity(1);
                self.named.entry(name).or_insert_with(new).push(candidate);
            }
            None => drop(self.imported.insert(name)),
        }
    }

    /// All names, to be inserted elsewhere.
    pub(super) fn into_symbols(self) -> impl Iterator<Item = Symbol> {
        let named = self.named.into_iter().flat_map(|(name, candidates)| {
            let of_name = move |one| Symbol { name: name.clone(), candidate: Some(one) };
            candidates.into_iter().map(of_name)
        });
        named.chain(self.imported.into_iter().map(|name| Symbol { name, candidate: None }))
    }

    /// Notes whether only exported functions have names.
    pub(super) fn set_stripped(&mut self, is_stripped: bool) {
        self.is_stripped = is_stripped;
    }

    /// The names of all functions.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    fn all(&self) -> impl Iterator<Item = (&str, Function)> {
        let all = self.named.iter();
        all.flat_map(|(name, candidates)| candidates.iter().map(|one| (&**name, one.function)))
    }

    /// The size of a function in bytes. Where the file does not record it, the next function ends it.
    pub(super) fn size_of(&self, function: Function) -> Option<u64> {
        let later = |(_, other): (&str, Function)| other.address.checked_sub(function.address);
        match function.size {
            0 => self.all().filter_map(later).filter(|&distance| distance > 0).min(),
            size => Some(size),
        }
    }

    /// The functions whose code is at an address.
    fn around(&self, address: u64) -> impl Iterator<Item = (&str, Function)> {
        self.all().filter(move |(_, function)| {
            let offset = address.checked_sub(function.address);
            offset.is_some_and(|offset| offset < function.size.max(1))
        })
    }

    /// The function that an address is in, with the offset in it: `name+0x10`.
    pub(super) fn containing(&self, address: u64) -> Option<String> {
        let (name, function) = self.around(address).next()?;
        Some(match address - function.address {
            0 => name.to_owned(),
            offset => format!("{name}+{offset:#x}"),
        })
    }

    /// Whether a symbol has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.imported.contains(name) || self.named.contains_key(name)
    }

    /// The function that all of these symbols stand for.
    pub(super) fn find_all(&self, first: &str, others: &[&str]) -> Result<Function, FileProblem> {
        let found = self.find(first)?;
        let mut addresses = vec![found.address];
        for other in others {
            addresses.push(self.find(other)?.address);
        }
        addresses.sort_unstable();
        addresses.dedup();
        match addresses.len() {
            1 => Ok(found),
            _ => Err(FileProblem::Ambiguous(addresses)),
        }
    }

    /// The function that a symbol's name stands for.
    pub(super) fn find(&self, name: &str) -> Result<Function, FileProblem> {
        let Some(candidates) = self.named.get(name) else {
            if self.imported.contains(name) {
                return Err(FileProblem::Imported);
            }
            let near = nearest(name, self.named.keys().cloned());
            return Err(FileProblem::UnknownFunction { near, is_stripped: self.is_stripped });
        };
        let preferred = candidates.iter().map(|one| one.binding).min();
        let mut found = BTreeMap::<u64, Candidate>::new();
        for one in candidates.iter().filter(|one| Some(one.binding) == preferred) {
            let known = found.entry(one.function.address).or_insert(*one);
            known.function.size = known.function.size.max(one.function.size);
        }
        let addresses = found.keys().copied().collect();
        match found.into_values().collect::<Vec<_>>().as_slice() {
            [one] if one.is_indirect => Err(FileProblem::Indirect),
            [one] => Ok(one.function),
            _ => Err(FileProblem::Ambiguous(addresses)),
        }
    }

    /// Whether a symbol's name stands for an IFUNC. Nothing is looked for if no symbol has the name.
    pub(super) fn is_indirect(&self, name: &str) -> bool {
        self.named.contains_key(name) && matches!(self.find(name), Err(FileProblem::Indirect))
    }

    /// The addresses of the functions whose names are meant.
    pub(super) fn addresses(&self, is_meant: impl Fn(&str) -> bool) -> impl Iterator<Item = u64> {
        let all = self.all().filter(move |(name, _)| is_meant(name));
        all.map(|(_, function)| function.address)
    }

    /// The innermost function whose code is at an address.
    pub(super) fn at(&self, address: u64) -> Option<Function> {
        self.around(address).map(|(_, function)| function).max_by_key(|one| one.address)
    }

    /// Whether the file calls or defines one of these functions.
    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.has(name))
    }

    /// Whether only exported functions have names.
    pub(super) fn is_stripped(&self) -> bool {
        self.is_stripped
    }
}

/// The names of a table's symbols, read as a whole: one by one, each would take two system calls.
fn names<'d, R: ReadRef<'d>>(
    elf: &ElfFile64<'d, Endianness, R>,
    table: &SymbolTable<'d, FileHeader64<Endianness>, R>,
) -> object::read::Result<StringTable<'d>> {
    if table.is_empty() {
        return Ok(StringTable::default());
    }
    let names = elf.section_by_index(table.string_section())?.data()?;
    Ok(StringTable::new(names, 0, names.len() as u64))
}

/// Splits the version off a name: `name@@DEFAULT`, `name@OLD`. Also returns whether it is an old version.
fn unversioned(name: Cow<'_, str>) -> (Cow<'_, str>, bool) {
    let Some((plain, version)) = name.split_once('@') else { return (name, false) };
    (plain.to_owned().into(), !version.starts_with('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sys::disturb::in_child;

    #[test]
    fn an_address_is_in_one_function() {
        let functions = functions(&[
            ("first", 0x10, Binding::Default, false),
            ("second", 0x14, Binding::Local, false),
            ("last", 0x20, Binding::Local, false),
        ]);
        let containing = |address| functions.containing(address).unwrap_or_default();
        let found = [0xf, 0x10, 0x13, 0x14, 0x18, 0x21, 0x24].map(containing);
        assert_eq!(found, ["", "first", "first+0x3", "second", "", "last+0x1", ""]);
        let sized = |size| functions.size_of(Function { address: 0x14, size });
        assert_eq!([4, 0].map(sized), [Some(4), Some(0xc)]);
        assert_eq!(functions.size_of(Function { address: 0x20, size: 0 }), None);
    }

    #[test]
    fn symbols_take_no_more_memory_than_estimated() {
        let resident = || -> Option<usize> {
            let status = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("Rss:"))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10)
        };
        let is_enough = || {
            let (mut functions, mut estimated, before) = (Functions::default(), 0, resident()?);
            // In the order in which a reader sends them.
            for number in 0..200_000 {
                let function = Function { address: number, size: 0 };
                let binding = Binding::Default;
                let candidate = Some(Candidate { function, binding, is_indirect: false });
                let symbol = Symbol { name: format!("{number:032}").as_str().into(), candidate };
                estimated += symbol.size();
                functions.insert(symbol);
            }
            let taken = resident()? - before;
            Some(taken < estimated && estimated < taken * 3 / 2)
        };
        assert_eq!(in_child(|| is_enough().is_some_and(|it| it).into()).unwrap(), 1);
    }

    fn functions(named: &[(&str, u64, Binding, bool)]) -> Functions {
        let mut this = Functions::default();
        for &(name, address, binding, is_indirect) in named {
            let function = Function { address, size: 4 };
            let candidate = Candidate { function, binding, is_indirect };
            this.named.entry(name.to_owned()).or_default().push(candidate);
        }
        this
    }

    #[test]
    fn the_preferred_binding_of_a_name_counts() {
        use Binding::{Default, Local, Old};
        let mut functions = functions(&[
            ("versioned", 2, Old, false),
            ("versioned", 1, Default, false),
            ("twice", 7, Default, false),
            ("twice", 7, Default, false),
            ("shadowed", 3, Local, false),
            ("shadowed", 4, Default, false),
            ("static", 5, Local, false),
            ("static", 6, Local, false),
            ("chosen", 8, Default, true),
            ("chosen", 9, Old, false),
            ("only_old", 10, Old, false),
        ]);
        functions.imported.insert("elsewhere".into());
        let find = |name| match functions.find(name) {
            Ok(found) => found.address.to_string(),
            Err(problem) => problem.to_string(),
        };
        for (name, found) in [
            ("versioned", "1"),
            ("twice", "7"),
            ("shadowed", "4"),
            ("only_old", "10"),
            (
                "static",
                "has 2 functions of this name, so it is ambiguous; name one by its address: 0x5, 0x6",
            ),
            ("sttic", "has no function of this name; did you mean `static`?"),
        ] {
            assert_eq!(find(name), found);
        }
        assert!(find("chosen").contains("(IFUNC)"));
        assert!(find("elsewhere").starts_with("calls this function but does not define it"));
    }

    #[test]
    fn versions_are_split_off_names() {
        for (written, name, is_old) in
            [("f", "f", false), ("f@@V_2", "f", false), ("f@V_1.0", "f", true)]
        {
            assert_eq!(unversioned(written.into()), (name.into(), is_old));
        }
    }
}
