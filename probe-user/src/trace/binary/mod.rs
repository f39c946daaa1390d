//! Programs and libraries: which file a name means, and where in it its functions are.

mod code;
mod error;
mod functions;
mod path;

pub use error::BinaryError;

use functions::{Functions, NotFound};
use object::elf::{ET_DYN, ET_EXEC, FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The machine whose code this one runs.
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = object::elf::EM_AARCH64;
#[cfg(not(target_arch = "aarch64"))]
const MACHINE: u16 = object::elf::EM_X86_64;

/// An ELF file that processes run code of.
#[derive(Debug)]
pub(super) struct Binary {
    path: PathBuf,
    data: Vec<u8>,
    code: Vec<Segment>,
    functions: Functions,
    entry: u64,
}

/// A part of a file that is mapped to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
}

impl Segment {
    fn offset_of(&self, address: u64) -> Option<u64> {
        let behind = address.checked_sub(self.address).filter(|&behind| behind < self.size)?;
        self.offset.checked_add(behind)
    }
}

impl Binary {
    /// Opens the file that is meant by a path, or by the name of a library or a program.
    pub(super) fn open(name: &str) -> Result<Self, BinaryError> {
        let path = path::find(name)?;
        let unreadable = |source| BinaryError::Unreadable { path: path.clone(), source };
        if !fs::metadata(&path).map_err(unreadable)?.is_file() {
            return Err(BinaryError::NoFile { name: name.to_owned(), looked: "is no file".into() });
        }
        let data = fs::read(&path).map_err(unreadable)?;
        Self::parse(path, data)
    }

    fn parse(path: PathBuf, data: Vec<u8>) -> Result<Self, BinaryError> {
        let not_elf = |what: String| BinaryError::NotElf { path: path.clone(), what };
        if !data.starts_with(&object::elf::ELFMAG) {
            return Err(not_elf("it is no ELF file".into()));
        }
        let elf = ElfFile64::<Endianness>::parse(&*data);
        let elf = elf.map_err(|error| not_elf(format!("it is no 64-bit ELF file: {error}")))?;
        let (header, endian) = (elf.elf_header(), elf.endian());
        if header.e_machine(endian) != MACHINE {
            return Err(not_elf("it is for another machine than this one".into()));
        }
        if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
            return Err(not_elf("it is no program, and no shared library".into()));
        }
        let code = elf.elf_program_headers().iter().filter(|segment| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0
        });
        let code = code.map(|segment| Segment {
            address: segment.p_vaddr(endian),
            offset: segment.p_offset(endian),
            size: segment.p_filesz(endian),
        });
        let code = code.collect();
        let functions = Functions::of(&elf)
            .map_err(|error| not_elf(format!("its symbols cannot be read: {error}")))?;
        let entry = elf.entry();
        Ok(Self { path, data, code, functions, entry })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a place of a function is, in bytes from the beginning of the file.
    pub(super) fn place(&self, name: &str, offset: u64) -> Result<u64, BinaryError> {
        let path = || self.path.clone();
        let function = self.functions.find(name).map_err(|why| match why {
            NotFound::Unknown { near } => BinaryError::UnknownFunction {
                path: path(),
                near,
                is_stripped: self.functions.is_stripped,
            },
            NotFound::Imported => BinaryError::Imported { path: path() },
            NotFound::Indirect => BinaryError::Indirect { path: path() },
            NotFound::Ambiguous(count) => BinaryError::Ambiguous { path: path(), count },
        })?;
        if function.size > 0 && offset >= function.size {
            return Err(BinaryError::OutOfFunction { path: path(), size: function.size });
        }
        let no_code = || BinaryError::NoCode { path: path() };
        let start = self.file_offset(function.address).ok_or_else(no_code)?;
        let place = function.address.checked_add(offset).and_then(|there| self.file_offset(there));
        let place = place.ok_or_else(no_code)?;
        let before = usize::try_from(start).ok().zip(usize::try_from(place).ok());
        let before = before.and_then(|(start, place)| self.data.get(start..place));
        match before {
            Some(before) if code::ends_with_instruction(before) => Ok(place),
            Some(_) => Err(BinaryError::NoInstruction { path: path() }),
            None => Err(no_code()),
        }
    }

    /// Where the first instruction of a program is, in bytes from the beginning of the file.
    pub(super) fn entry(&self) -> Result<u64, BinaryError> {
        let no_code = || BinaryError::NoCode { path: self.path.clone() };
        self.file_offset(self.entry).ok_or_else(no_code)
    }

    /// The functions whose names are meant.
    pub(super) fn matching(&self, is_meant: impl Fn(&str) -> bool) -> Matching {
        let mut found = Matching::default();
        let mut places = BTreeMap::<u64, &str>::new();
        for name in self.functions.names().filter(|name| is_meant(name)) {
            match self.place(name, 0) {
                Ok(place) => {
                    let known = places.entry(place).or_insert(name);
                    *known = plainer(known, name);
                }
                Err(BinaryError::Indirect { .. }) => found.indirect += 1,
                Err(BinaryError::Ambiguous { .. }) => found.ambiguous += 1,
                Err(_) => {}
            }
        }
        found.names = places.into_values().map(str::to_owned).collect();
        found.names.sort_unstable();
        found
    }

    fn file_offset(&self, address: u64) -> Option<u64> {
        self.code.iter().find_map(|segment| segment.offset_of(address))
    }
}

/// What a pattern stands for, of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Matching {
    /// One name for each function, in order: it may have others.
    pub(super) names: Vec<String>,
    /// How many names several functions have.
    pub(super) ambiguous: usize,
    /// How many functions are chosen when a program starts.
    pub(super) indirect: usize,
}

/// Which of a function's names one would rather call it by: `write`, not `__write`.
fn plainer<'n>(one: &'n str, other: &'n str) -> &'n str {
    let order = |name: &'n str| (name.len() - name.trim_start_matches('_').len(), name.len(), name);
    if order(other) < order(one) { other } else { one }
}

/// Whether a file is ELF, and of this machine.
fn is_of_this_machine(path: &Path) -> bool {
    let is_file = || Ok::<_, io::Error>(fs::metadata(path)?.is_file());
    if !is_file().unwrap_or(false) {
        return false;
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| {
        file.take(size_of::<FileHeader64<Endianness>>() as u64).read_to_end(&mut head)
    });
    let machine = || {
        let header = FileHeader64::<Endianness>::parse(&*head).ok()?;
        Some(header.e_machine(header.endian().ok()?))
    };
    read.is_ok() && machine() == Some(MACHINE)
}

#[cfg(test)]
mod tests;
