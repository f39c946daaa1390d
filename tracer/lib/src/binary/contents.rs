//! What a probe needs to know of a program or library. It is read in [another process](super::reader).

use super::code;
use super::debug::is_of_build;
use super::embedded::embedded;
use super::functions::Functions;
use super::parts::{Parts, parts};
use super::reader::Wants;
use object::elf::{ET_DYN, ET_EXEC, PF_X, PT_INTERP, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The ELF machine type of this architecture.
#[cfg(target_arch = "aarch64")]
pub(super) const MACHINE: u16 = object::elf::EM_AARCH64;
#[cfg(not(target_arch = "aarch64"))]
pub(super) const MACHINE: u16 = object::elf::EM_X86_64;

/// The longest code in which the beginning of an instruction is looked for, in bytes.
const LONGEST: u64 = 64 << 20;

/// An ELF file, of which only the parts are read that are needed.
pub(super) type Elf<'parts> = ElfFile64<'parts, Endianness, &'parts Parts<'parts>>;

/// What a probe needs to know of a file.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) layout: Layout,
    pub(super) functions: Functions,
}

/// What is known of a file besides its functions.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(super) code: Vec<Segment>,
    /// The address of the entry point.
    pub(super) entry: u64,
    /// Whether it can be executed. The entry point of other files means nothing.
    pub(super) is_program: bool,
    pub(super) is_go: bool,
    /// Whether only exported functions have names.
    pub(super) is_stripped: bool,
}

/// An executable segment of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// A name in a symbol table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Symbol {
    pub(super) name: String,
    /// `None` if another file defines it.
    pub(super) candidate: Option<Candidate>,
}

impl Symbol {
    /// An estimate of the memory that it takes among others ([`Functions`]), in bytes: an entry of a tree, whose nodes are about
    /// half full, and the name and the candidate, each allocated by itself.
    pub(super) fn size(&self) -> usize {
        /// The header of an allocation, and the rounding of its size.
        const ALLOCATION: usize = 24;
        let entry = size_of::<(String, Vec<Candidate>)>();
        2 * entry + ALLOCATION + self.name.len() + ALLOCATION + size_of::<Candidate>()
    }
}

/// A function that a name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Candidate {
    pub(super) function: Function,
    pub(super) binding: Binding,
    pub(super) is_indirect: bool,
}

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Function {
    pub(super) address: u64,
    /// In bytes; 0 if unknown.
    pub(super) size: u64,
}

/// How a name is bound to a function. The preferred binding comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Binding {
    /// The default version of the symbol, which other files link against.
    Default,
    /// An older version of the symbol.
    Old,
    /// A function local to one source file.
    Local,
}

impl Contents {
    /// Reads a file. `want` returns files that may have the symbols of a stripped one. The error says why it has no code that
    /// can be probed.
    pub(super) fn read(
        file: &File,
        want: &mut dyn FnMut(Wants) -> Vec<File>,
    ) -> Result<Self, String> {
        let read = parts(file);
        let elf =
            Elf::parse(&read).map_err(|error| format!("it is not a 64-bit ELF file: {error}"))?;
        let (header, endian) = (elf.elf_header(), elf.endian());
        if header.e_machine(endian) != MACHINE {
            return Err("it is for another machine".to_owned());
        }
        if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
            return Err("it is neither a program nor a shared library".to_owned());
        }
        let code = elf.elf_program_headers().iter().filter(|segment| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0
        });
        let code = code.map(|segment| Segment {
            address: segment.p_vaddr(endian),
            offset: segment.p_offset(endian),
            size: segment.p_filesz(endian),
        });
        let has = |kind| elf.elf_program_headers().iter().any(|one| one.p_type(endian) == kind);
        let mut functions =
            Functions::of(&elf).map_err(|error| format!("its symbols cannot be read: {error}"))?;
        if functions.is_stripped() {
            add_embedded(&elf, &mut functions);
        }
        if functions.is_stripped() {
            add_symbols(&elf, &mut functions, want);
        }
        let layout = Layout {
            code: code.collect(),
            entry: elf.entry(),
            is_program: header.e_type(endian) == ET_EXEC || has(PT_INTERP),
            is_go: elf.sections().any(|section| section.name().is_ok_and(is_of_go)),
            is_stripped: functions.is_stripped(),
        };
        Ok(Self { layout, functions })
    }
}

/// Adds the functions of the file that is embedded in a stripped one, if there is one.
fn add_embedded(elf: &Elf<'_>, functions: &mut Functions) {
    let Some(file) = embedded(elf) else { return };
    if let Ok(embedded) = ElfFile64::<Endianness>::parse(&*file) {
        // As in a file of its own, what precedes a malformed part is of use.
        let _ = functions.add_all(&embedded);
    }
}

/// Adds the functions of the file with the symbols of a stripped one, if it is installed: by the build ID, or by the
/// debug link.
fn add_symbols(elf: &Elf<'_>, functions: &mut Functions, want: &mut dyn FnMut(Wants) -> Vec<File>) {
    // One may be malformed.
    let (id, link) = (elf.build_id().ok().flatten(), elf.gnu_debuglink().ok().flatten());
    if id.is_none() && link.is_none() {
        return;
    }
    let wants = Wants {
        build_id: id.unwrap_or_default().to_vec(),
        link: link.map(|(name, _)| name.to_vec()),
        ..Wants::default()
    };
    for file in want(wants) {
        let read = parts(&file);
        let Ok(debug) = Elf::parse(&read) else { continue };
        let is_of_this_build = is_of_build(&debug, &file, id, link.map(|(_, sum)| sum));
        if is_of_this_build && functions.add_all(&debug).is_ok() {
            return;
        }
    }
}

/// Whether a section of this name is in Go programs only, even in stripped ones.
fn is_of_go(name: &str) -> bool {
    matches!(name, ".go.buildinfo" | ".note.go.buildid" | ".gopclntab" | ".data.rel.ro.gopclntab")
}

/// Whether an instruction ends `size` bytes after the beginning of a function, which is at the offset `start` in the file.
pub(super) fn is_boundary(file: &File, start: u64, size: u64) -> Result<bool, String> {
    if size > LONGEST {
        return Err(format!("the function has more than {} MiB before this offset", LONGEST >> 20));
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, start).map_err(|error| error.to_string())?;
    Ok(code::ends_with_instruction(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_testing::crafted::{elf, stripped, xz};
    use std::io::Write;

    #[test]
    fn a_stripped_file_has_the_functions_of_the_embedded_one() {
        let read = |program: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(program).unwrap();
            Contents::read(&file, &mut |_| Vec::new()).unwrap()
        };
        let embedded = stripped(&[(".gnu_debugdata", false, &xz(&elf(&[])))]);
        let Contents { layout, functions } = read(&embedded);
        assert_eq!((layout.is_stripped, functions.names().collect::<Vec<_>>()), (false, vec!["f"]));
        let Contents { layout, functions } = read(&stripped(&[]));
        assert_eq!((layout.is_stripped, functions.names().count()), (true, 0));
    }
}
