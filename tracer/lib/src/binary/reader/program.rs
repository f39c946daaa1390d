//! The functions of a program or library.

use super::debug_info::DebugInfo;
use super::message::{FUNCTIONS, Function, Wants, shortened};
use super::texts::{Text, Texts};
use crate::binary::debug::is_of_build;
use crate::binary::embedded::embedded;
use crate::binary::{FileVersion, Parts, parts};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadRef, SectionKind, SegmentFlags,
    SymbolKind,
};
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The number of symbols that are kept. No real program has more.
const SYMBOLS: usize = 1 << 22;

/// The number of symbols before an address that are tried: functions rarely contain others.
const AROUND: usize = 32;

/// An ELF file, of which only the parts are read that are needed.
pub(super) type ElfFile<'c> = object::File<'c, &'c Parts<'c>>;

/// What is needed of a program to name its functions.
#[derive(Default)]
pub(crate) struct Program {
    segments: Vec<Segment>,
    /// The addresses of sections with code.
    sections: Vec<Range<u64>>,
    /// The symbols, by address.
    symbols: Vec<Symbol>,
    names: Texts,
    debug_info: Option<DebugInfo>,
    /// An estimate of the memory that it takes, in bytes.
    pub(super) size: usize,
}

/// A part of a file that is loaded.
#[derive(Debug)]
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
    is_code: bool,
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    /// In bytes; 0 if unknown.
    size: u64,
    is_global: bool,
    name: Text,
}

/// Where a program's debug information may be.
pub(crate) struct Files {
    /// Files that may have it.
    pub(super) candidates: Vec<File>,
    pub(super) package: Option<File>,
}

impl Files {
    /// The versions of all of them.
    pub(super) fn versions(&self) -> Vec<FileVersion> {
        let all = self.candidates.iter().chain(&self.package);
        all.filter_map(|file| FileVersion::of(file).ok()).collect()
    }
}

impl From<(Vec<File>, Option<File>)> for Files {
    fn from((candidates, package): (Vec<File>, Option<File>)) -> Self {
        Self { candidates, package }
    }
}

impl Program {
    /// Reads a file. `want` returns the files with the debug information.
    pub(super) fn read(
        file: &File,
        want: &mut dyn FnMut(Wants) -> Files,
    ) -> object::read::Result<Self> {
        let read = parts(file);
        let elf = ElfFile::parse(&read)?;
        let has_code = |section: &object::Section<'_, '_, _>| section.kind() == SectionKind::Text;
        let addresses = |section: object::Section<'_, '_, _>| {
            section.address()..section.address().saturating_add(section.size())
        };
        let mut this = Self {
            segments: elf.segments().map(Segment::of).collect(),
            sections: elf.sections().filter(has_code).map(addresses).collect(),
            ..Self::default()
        };
        this.add_symbols(&elf);
        if let Some(file) = embedded(&elf)
            && let Ok(embedded) = object::File::parse(&*file)
        {
            this.add_symbols(&embedded);
        }
        // The symbols are of use even if a note or the link is malformed.
        let id = elf.build_id().ok().flatten().unwrap_or_default().to_vec();
        let link = elf.gnu_debuglink().ok().flatten();
        let has_own = DebugInfo::is_in(&elf);
        let wants = Wants {
            build_id: if has_own { Vec::new() } else { id.clone() },
            link: link.filter(|_| !has_own).map(|(name, _)| name.to_vec()),
            package: has_own,
            ..Wants::default()
        };
        let is_wanted = has_own || !wants.build_id.is_empty() || wants.link.is_some();
        let Files { candidates, package } = match is_wanted {
            true => want(wants),
            false => (Vec::new(), None).into(),
        };
        if has_own {
            this.debug_info = DebugInfo::read(&elf, file, package.as_ref(), want);
        }
        for candidate in &candidates {
            let read = parts(candidate);
            let Ok(debug) = ElfFile::parse(&read) else { continue };
            let known_id = Some(&*id).filter(|id| !id.is_empty());
            if is_of_build(&debug, candidate, known_id, link.map(|(_, sum)| sum)) {
                this.add_symbols(&debug);
                this.debug_info = DebugInfo::read(&debug, candidate, None, want);
                break;
            }
        }
        // The dynamic symbols are usually among all symbols, too.
        let numbers = |one: &Symbol| (one.address, one.size, one.is_global);
        let name = |one: &Symbol| this.names.get(one.name);
        let order =
            |a: &Symbol, b: &Symbol| numbers(a).cmp(&numbers(b)).then_with(|| name(a).cmp(name(b)));
        this.symbols.sort_unstable_by(order);
        this.symbols.dedup_by(|a, b| order(a, b).is_eq());
        this.symbols.shrink_to_fit();
        this.names.shrink();
        this.size = this.names.size()
            + this.symbols.len() * size_of::<Symbol>()
            + this.debug_info.as_ref().map_or(0, |info| info.size);
        Ok(this)
    }

    fn add_symbols<'d, R: ReadRef<'d>>(&mut self, elf: &object::File<'d, R>) {
        for symbol in elf.symbols().chain(elf.dynamic_symbols()).take(SYMBOLS) {
            if symbol.kind() != SymbolKind::Text || symbol.is_undefined() {
                continue;
            }
            let Ok(name) = symbol.name_bytes() else { continue };
            // The version of a symbol is no part of its name.
            let name = name.split(|&byte| byte == b'@').next().unwrap_or_default();
            if name.is_empty() {
                continue;
            }
            let Some(name) = self.names.add(name) else { return };
            let (address, size, is_global) = (symbol.address(), symbol.size(), symbol.is_global());
            self.symbols.push(Symbol { address, size, is_global, name });
        }
    }

    /// The functions whose code is at an offset in the file, the innermost first.
    pub(super) fn functions(&self, offset: u64) -> Vec<Function> {
        let Some(address) = self.address_of(offset) else { return Vec::new() };
        let inlined = self.debug_info.as_ref().map(|info| info.functions(address));
        let mut functions = inlined.unwrap_or_default();
        functions.truncate(FUNCTIONS);
        let Some(symbol) = self.symbol_at(address) else { return Vec::new() };
        let name = shortened(demangled(self.names.get(symbol.name)));
        let offset = Some(address - symbol.address);
        match functions.last_mut() {
            // What is called here, and the offset in it, is what the symbol table says.
            Some(outer) => (outer.name, outer.offset) = (name, offset),
            None => functions.push(Function { name, offset, source: None }),
        }
        functions
    }

    fn address_of(&self, offset: u64) -> Option<u64> {
        let behind = |segment: &Segment| {
            let behind = offset.checked_sub(segment.offset).filter(|&it| it < segment.size)?;
            segment.address.checked_add(behind)
        };
        let of = |is_code: bool| {
            self.segments.iter().filter(move |one| one.is_code == is_code).find_map(behind)
        };
        of(true).or_else(|| of(false))
    }

    /// The section that an address is in. A file without a table of sections has none.
    fn section_of(&self, address: u64) -> Option<&Range<u64>> {
        self.sections.iter().find(|section| section.contains(&address))
    }

    /// The innermost function at an address. Of several names for it, that of a global one.
    fn symbol_at(&self, address: u64) -> Option<&Symbol> {
        let behind = self.symbols.partition_point(|symbol| symbol.address <= address);
        let before = &self.symbols[..behind];
        // A symbol without a size ends at the next one, or with its section.
        let contains = |symbol: &&Symbol| {
            let is_last = before.last().is_some_and(|last| last.address == symbol.address);
            match symbol.size {
                0 => is_last && self.section_of(symbol.address) == self.section_of(address),
                size => address - symbol.address < size,
            }
        };
        let found = before.iter().rev().take(AROUND).find(contains)?;
        let same = before.iter().rev().take(AROUND).filter(|one| one.address == found.address);
        // The plainest of the names, as for probes.
        let order = |one: &&Symbol| {
            let name = self.names.get(one.name);
            let underscores = name.len() - name.trim_start_matches('_').len();
            (one.size == 0, !one.is_global, underscores, name.len(), name)
        };
        same.filter(contains).min_by_key(order)
    }
}

impl Segment {
    fn of<'d>(segment: impl ObjectSegment<'d>) -> Self {
        let (offset, size) = segment.file_range();
        let is_code = matches!(
            segment.flags(),
            SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0
        );
        Self { address: segment.address(), offset, size, is_code }
    }
}

/// A name of C++ or Rust as it is written in the source.
pub(crate) fn demangled(name: &str) -> String {
    // Every name of C could be that of a type of C++: `f` is `float`.
    if !["_Z", "__Z", "_R"].iter().any(|prefix| name.starts_with(prefix)) {
        return name.to_owned();
    }
    addr2line::demangle_auto(name.into(), None).into_owned()
}

/// The files that come with an answer to [`Wants`]: the last one is the package, if there is one.
pub(super) fn files(mut files: Vec<OwnedFd>, has_package: bool) -> Files {
    let package = if has_package { files.pop().map(File::from) } else { None };
    (files.into_iter().map(File::from).collect(), package).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_testing::crafted::{elf, stripped, xz};
    use std::io::Write;

    #[test]
    fn a_stripped_file_has_the_functions_of_the_embedded_one() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&stripped(&[(".gnu_debugdata", false, &xz(&elf(&[])))])).unwrap();
        let program = Program::read(&file, &mut |_| (Vec::new(), None).into()).unwrap();
        let found = Function { name: "f".to_owned(), offset: Some(7), source: None };
        assert_eq!(program.functions(7), [found]);
    }

    #[test]
    fn a_shared_file_is_wanted_by_its_build_id_and_name() {
        let link = b"../../.dwz/shared.debug\0build id";
        let debug = [(".debug_info", false, &b""[..]), (".gnu_debugaltlink", false, link)];
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&elf(&debug)).unwrap();
        let mut wanted = Vec::new();
        let mut want = |wants| {
            wanted.push(wants);
            (Vec::new(), None).into()
        };
        Program::read(&file, &mut want).unwrap();
        let (build_id, name) = (b"build id".to_vec(), b"../../.dwz/shared.debug".to_vec());
        let shared = Wants { build_id, shared: Some(name), ..Wants::default() };
        assert_eq!(wanted, [Wants { package: true, ..Wants::default() }, shared]);
    }

    #[test]
    fn a_symbol_without_a_size_ends_with_its_section() {
        let mut program = Program::default();
        let name = program.names.add(b"_init").unwrap();
        program.symbols.push(Symbol { address: 0x10, size: 0, is_global: false, name });
        let is_named = |program: &Program, at: [u64; 4]| {
            at.map(|address| program.symbol_at(address).is_some())
        };
        // A file without sections.
        let addresses = [0xf, 0x10, 0x1f, 0x20];
        assert_eq!(is_named(&program, addresses), [false, true, true, true]);
        // The stubs of the PLT, which have no symbols, are often behind it.
        program.sections = vec![0x10..0x20, 0x20..0x40];
        assert_eq!(is_named(&program, addresses), [false, true, true, false]);
    }
}
