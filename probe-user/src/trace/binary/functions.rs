//! The functions of an ELF file, out of its symbol tables.

use crate::trace::symbols::nearest;
use object::elf::{STB_LOCAL, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{ElfFile64, Sym};
use object::{Endianness, SymbolIndex};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Functions, by their names.
#[derive(Debug, Default)]
pub(super) struct Functions {
    named: BTreeMap<String, Vec<Candidate>>,
    /// Names of functions that are in other files.
    imported: BTreeSet<String>,
    /// Whether there are names of those alone that other files may call.
    pub(super) is_stripped: bool,
}

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) address: u64,
    /// In bytes; 0 if nobody says.
    pub(super) size: u64,
}

/// Why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotFound {
    Unknown { near: Vec<String> },
    Imported,
    Indirect,
    Ambiguous(usize),
}

/// What a name may mean.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    function: Function,
    meant: Meant,
    is_indirect: bool,
}

/// How likely it is what a name means; the likeliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meant {
    /// What others are linked against by this name.
    Default,
    /// What others were linked against, once: another version of the symbol.
    Old,
    /// What is known by this name in one source file.
    Local,
}

impl Functions {
    pub(super) fn of(elf: &ElfFile64<'_, Endianness>) -> object::read::Result<Self> {
        let (endian, data) = (elf.endian(), elf.data());
        let mut this = Self::default();
        let versions = elf.elf_section_table().versions(endian, data)?;
        let dynamic = elf.elf_dynamic_symbol_table();
        for (index, symbol) in dynamic.enumerate() {
            let name = String::from_utf8_lossy(dynamic.symbol_name(endian, symbol)?);
            let is_hidden = |index: SymbolIndex| {
                versions.as_ref().is_some_and(|all| all.version_index(endian, index).is_hidden())
            };
            this.add(endian, symbol, name, is_hidden(index));
        }
        let all = elf.elf_symbol_table();
        this.is_stripped = all.is_empty();
        for (_, symbol) in all.enumerate() {
            let name = String::from_utf8_lossy(all.symbol_name(endian, symbol)?);
            let (name, is_old) = unversioned(name);
            this.add(endian, symbol, name, is_old);
        }
        Ok(this)
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
            self.imported.insert(name.into_owned());
            return;
        }
        let meant = match (symbol.st_bind() == STB_LOCAL, is_old) {
            (true, _) => Meant::Local,
            (_, true) => Meant::Old,
            _ => Meant::Default,
        };
        let (address, size) = (symbol.st_value(endian).into(), symbol.st_size(endian).into());
        let candidate = Candidate { function: Function { address, size }, meant, is_indirect };
        self.named.entry(name.into_owned()).or_default().push(candidate);
    }

    /// The names that functions have.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// The function that a name means.
    pub(super) fn find(&self, name: &str) -> Result<Function, NotFound> {
        let Some(candidates) = self.named.get(name) else {
            return Err(match self.imported.contains(name) {
                true => NotFound::Imported,
                false => NotFound::Unknown { near: nearest(name, self.named.keys().cloned()) },
            });
        };
        let likeliest = candidates.iter().map(|one| one.meant).min();
        let mut meant = BTreeMap::<u64, Candidate>::new();
        for one in candidates.iter().filter(|one| Some(one.meant) == likeliest) {
            let known = meant.entry(one.function.address).or_insert(*one);
            known.function.size = known.function.size.max(one.function.size);
        }
        match meant.into_values().collect::<Vec<_>>().as_slice() {
            [one] if one.is_indirect => Err(NotFound::Indirect),
            [one] => Ok(one.function),
            several => Err(NotFound::Ambiguous(several.len())),
        }
    }
}

/// A name as it is called, of one that says its version: `name@@DEFAULT`, `name@OLD`. And whether that is an
/// old one.
fn unversioned(name: Cow<'_, str>) -> (Cow<'_, str>, bool) {
    let Some((plain, version)) = name.split_once('@') else { return (name, false) };
    (plain.to_owned().into(), !version.starts_with('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(named: &[(&str, u64, Meant, bool)]) -> Functions {
        let mut this = Functions::default();
        for &(name, address, meant, is_indirect) in named {
            let function = Function { address, size: 4 };
            let candidate = Candidate { function, meant, is_indirect };
            this.named.entry(name.to_owned()).or_default().push(candidate);
        }
        this
    }

    #[test]
    fn of_several_functions_of_a_name_the_likeliest_is_meant() {
        use Meant::{Default, Local, Old};
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
        let find = |name| functions.find(name).map(|found| found.address);
        assert_eq!(find("versioned"), Ok(1));
        assert_eq!(find("twice"), Ok(7));
        assert_eq!(find("shadowed"), Ok(4));
        assert_eq!(find("only_old"), Ok(10));
        assert_eq!(find("static"), Err(NotFound::Ambiguous(2)));
        assert_eq!(find("chosen"), Err(NotFound::Indirect));
        assert_eq!(find("elsewhere"), Err(NotFound::Imported));
        assert_eq!(find("sttic"), Err(NotFound::Unknown { near: vec!["static".into()] }));
    }

    #[test]
    fn a_version_is_no_part_of_a_name() {
        for (written, name, is_old) in
            [("f", "f", false), ("f@@V_2", "f", false), ("f@V_1.0", "f", true)]
        {
            assert_eq!(unversioned(written.into()), (name.into(), is_old));
        }
    }
}
