//! Programs and libraries: finding a file by name, and functions in it.

pub(crate) mod beside;
mod code;
mod contents;
mod debug;
mod demangle;
mod embedded;
mod error;
mod functions;
mod parts;
mod path;
mod process;
pub(crate) mod reader;
pub(crate) mod root;
mod version;

pub use error::{BinaryError, FileProblem};
pub(crate) use parts::{Parts, parts};
pub(crate) use path::{is_program, program};
pub(crate) use process::{
    Process, address_range, id_with_memory, map_file, of_descriptor, open_regular, regular,
};
pub(crate) use version::FileVersion;

use crate::kernel::symbols;
use contents::{Contents, Function, Layout, MACHINE, Segment};
use functions::Functions;
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::FileHeader;
use probe_sys::process::linked_function;
use process::Found;
use reader::SharedReader;
use root::Root;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An ELF program or shared library.
#[derive(Debug)]
pub(crate) struct Binary {
    path: PathBuf,
    /// Kept open, so that it can be probed even if its path leads to another file.
    file: File,
    note: Option<String>,
    reader: SharedReader,
    code: Vec<Segment>,
    functions: Functions,
    entry: u64,
    /// The addresses of code that is not called, once a return is to be probed.
    jumped_to: OnceCell<BTreeSet<u64>>,
    /// The addresses of functions that misbehave with another return address, as above.
    sensitive: OnceCell<BTreeMap<u64, Sensitive>>,
    is_program: bool,
    is_go: bool,
    throws: bool,
}

/// Why a function misbehaves if the kernel puts another return address in place of its own.
#[derive(Clone, Copy, Debug)]
enum Sensitive {
    ReturnsAgain,
    LooksForCaller,
}

impl Binary {
    /// Opens a file by its path, or by the name of a library or program: the file that these processes run or have in their
    /// root directories, if any are given.
    pub(crate) fn open(name: &str, processes: &[Process]) -> Result<Self, BinaryError> {
        let found = match processes {
            [] => own(path::find(name)?)?,
            [first, others @ ..] => {
                let found = first.find(name)?;
                others.iter().try_for_each(|other| found.check_same(name, first, other))?;
                found
            }
        };
        let path = found.path.clone();
        Self::read(found).map_err(|problem| BinaryError::InFile { path, problem })
    }

    fn read(found: Found) -> Result<Self, FileProblem> {
        let mut magic = [0; 4];
        match found.file.read_exact_at(&mut magic, 0) {
            Ok(()) if magic == object::elf::ELFMAG => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(FileProblem::Unreadable(error));
            }
            _ => return Err(FileProblem::NotElf("it is not an ELF file".to_owned())),
        }
        let Found { path, file, note, root } = found;
        let reader = SharedReader::new();
        let Contents { layout, functions } = reader.contents(&path, &file, &root)?;
        let throws = functions.has_any(&["__cxa_throw", "__cxa_rethrow", "_Unwind_RaiseException"]);
        let Layout { code, entry, is_program, is_go, .. } = layout;
        let (jumped_to, sensitive) = (OnceCell::new(), OnceCell::new());
        Ok(Self {
            path,
            file,
            note,
            reader,
            code,
            functions,
            entry,
            jumped_to,
            sensitive,
            is_program,
            is_go,
            throws,
        })
    }

    /// Whether it is a Go program.
    pub(crate) fn is_go(&self) -> bool {
        self.is_go
    }

    /// Whether its code throws exceptions, as in C++, or as panics of Rust are. True once.
    pub(crate) fn take_throws(&mut self) -> bool {
        std::mem::take(&mut self.throws)
    }

    /// What is to be said about the file if it is probed. Returned once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// A path that leads the kernel to this very file while it is open, and not to another one that has taken its place.
    pub(crate) fn path_for_kernel(&self) -> PathBuf {
        process::of_descriptor(&self.file)
    }

    /// Whether a path leads to this file.
    fn is_at(&self, path: &Path) -> bool {
        let id = |file: io::Result<fs::Metadata>| file.map(|file| process::id(&file)).ok();
        id(self.file.metadata()).is_some_and(|own| id(fs::metadata(path)) == Some(own))
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file offset of a location in a function, in bytes.
    pub(crate) fn offset_of(&self, name: &str, offset: u64) -> Result<u64, BinaryError> {
        let found = match self.chosen(name) {
            Some((address, _)) => {
                let function = self.functions.at(address);
                self.offset_in(function.unwrap_or(Function { address, size: 0 }), offset)
            }
            None => self.find(name, offset),
        };
        found.map_err(|problem| self.error(problem))
    }

    /// The implementation that an IFUNC stands for on this machine, with its name if it has one. This is known only for
    /// libraries that this process is linked with.
    pub(crate) fn chosen(&self, name: &str) -> Option<(u64, Option<String>)> {
        if !self.functions.is_indirect(name) {
            return None;
        }
        let (path, offset) = linked_function(&CString::new(name).ok()?)?;
        let offset = self.is_at(&path).then_some(offset)?;
        let address = self.address_of(offset)?;
        Some((address, self.functions.containing(address)))
    }

    fn find(&self, name: &str, offset: u64) -> Result<u64, FileProblem> {
        self.offset_in(self.function(name)?, offset)
    }

    /// The function that a name stands for: that of a symbol, or one in the source.
    fn function(&self, name: &str) -> Result<Function, FileProblem> {
        if !self.functions.has(name) {
            let mangled: Vec<_> =
                self.functions.names().filter(|one| demangle::is_mangled(one)).collect();
            let found = self.reader.symbols_of(name, &mangled, &self.file)?;
            if let [first, others @ ..] = found.as_slice() {
                return self.functions.find_all(first, others);
            }
        }
        self.functions.find(name)
    }

    /// The file offset of a location in a function, in bytes.
    fn offset_in(&self, function: Function, offset: u64) -> Result<u64, FileProblem> {
        let start = self.file_offset(function.address)?;
        let address = function.address.checked_add(offset).ok_or(FileProblem::NoCode)?;
        if offset > 0
            && let Some(size) = self.functions.size_of(function).filter(|&size| offset >= size)
        {
            let hit = self.functions.containing(address);
            return Err(FileProblem::OutOfFunction { size, hit });
        }
        self.instruction(start, self.file_offset(address)?)
    }

    /// Checks that an instruction of a function begins at a file offset, which is returned.
    fn instruction(&self, function: u64, offset: u64) -> Result<u64, FileProblem> {
        let size = offset.checked_sub(function).ok_or(FileProblem::NoCode)?;
        // A function begins with an instruction.
        let is_boundary = size == 0 || self.reader.is_boundary(&self.file, function, size)?;
        is_boundary.then_some(offset).ok_or(FileProblem::NoInstruction)
    }

    /// The file offset of the instruction at an address, in bytes.
    pub(crate) fn offset_of_address(&self, address: u64) -> Result<u64, BinaryError> {
        let find = || {
            let found = self.file_offset(address)?;
            let function = self.functions.at(address).ok_or(FileProblem::NoFunctionAt)?;
            self.instruction(self.file_offset(function.address)?, found)
        };
        find().map_err(|problem| self.error(problem))
    }

    /// The function that contains an address.
    pub(crate) fn containing(&self, address: u64) -> Option<String> {
        self.functions.containing(address)
    }

    /// Checks that a function begins at an address.
    pub(crate) fn check_entry(&self, address: u64) -> Result<(), BinaryError> {
        match self.functions.at(address) {
            Some(function) if function.address == address => Ok(()),
            _ => Err(self.error(FileProblem::NotAnEntry)),
        }
    }

    /// Whether one of these instructions, of up to 4 bytes, is at an offset in the file.
    pub(crate) fn has_one_at(&self, offset: u64, instructions: &[&[u8]]) -> bool {
        let mut code = [0; 4];
        self.file.read_exact_at(&mut code, offset).is_ok()
            && instructions.iter().any(|instruction| code.starts_with(instruction))
    }

    /// Checks that the function at an offset in the file is called, so that there is a return address at its entry.
    pub(crate) fn check_called(&self, offset: u64) -> Result<(), BinaryError> {
        let jumped_to = self.jumped_to.get_or_init(|| {
            let named = self.functions.addresses(|name| is_jumped_to(name, self.is_go));
            named.chain(self.is_program.then_some(self.entry)).collect()
        });
        match self.address_of(offset) {
            Some(address) if jumped_to.contains(&address) => {
                Err(self.error(FileProblem::NotCalled))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the function at an offset in the file does not misbehave with another return address.
    pub(crate) fn check_return(&self, offset: u64) -> Result<(), BinaryError> {
        let sensitive = self.sensitive.get_or_init(|| {
            let of = |is_one: fn(&str) -> bool, why| {
                self.functions.addresses(is_one).map(move |address| (address, why))
            };
            let seeking = of(looks_for_its_caller, Sensitive::LooksForCaller);
            seeking.chain(of(returns_again, Sensitive::ReturnsAgain)).collect()
        });
        match self.address_of(offset).and_then(|address| sensitive.get(&address)) {
            Some(Sensitive::ReturnsAgain) => Err(self.error(FileProblem::ReturnsAgain)),
            Some(Sensitive::LooksForCaller) => Err(self.error(FileProblem::LooksForCaller)),
            None => Ok(()),
        }
    }

    /// The file offset of a program's entry point, in bytes.
    pub(crate) fn entry(&self) -> Result<u64, BinaryError> {
        self.file_offset(self.entry).map_err(|problem| self.error(problem))
    }

    /// An error about this file.
    pub(crate) fn error(&self, problem: FileProblem) -> BinaryError {
        BinaryError::InFile { path: self.path.clone(), problem }
    }

    /// The functions whose names match.
    pub(crate) fn matching(&self, is_meant: impl Fn(&str) -> bool) -> Matching {
        let mut found = Matching::default();
        let mut by_offset = BTreeMap::<u64, &str>::new();
        // What is seldom executed belongs to the function that it was split off from.
        let is_cold = |name: &str| !self.is_go && symbols::is_cold(name);
        let names = self.functions.names().filter(|name| !is_cold(name));
        for name in names.filter(|name| is_meant(name)) {
            match self.find(name, 0) {
                Ok(offset) => {
                    let known = by_offset.entry(offset).or_insert(name);
                    *known = plainer(known, name);
                }
                Err(FileProblem::Indirect) => found.indirect += 1,
                Err(FileProblem::Ambiguous(_)) => found.ambiguous += 1,
                Err(_) => {}
            }
        }
        found.names = by_offset.into_values().map(str::to_owned).collect();
        found.names.sort_unstable();
        found
    }

    /// The address of the code at a file offset.
    fn address_of(&self, offset: u64) -> Option<u64> {
        self.code.iter().find_map(|segment| {
            let behind = offset.checked_sub(segment.offset).filter(|&it| it < segment.size)?;
            segment.address.checked_add(behind)
        })
    }

    fn file_offset(&self, address: u64) -> Result<u64, FileProblem> {
        let in_segment = |segment: &Segment| {
            let behind = address.checked_sub(segment.address).filter(|&it| it < segment.size)?;
            segment.offset.checked_add(behind)
        };
        self.code.iter().find_map(in_segment).ok_or(FileProblem::NoCode)
    }
}

/// The functions of a file that match a pattern.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Matching {
    /// One name for each function, sorted. Its aliases are left out.
    pub(crate) names: Vec<String>,
    /// The number of names that belong to several functions.
    pub(crate) ambiguous: usize,
    /// The number of IFUNCs, which are resolved when a program starts.
    pub(crate) indirect: usize,
}

/// The plainer of two names of one function: `write` rather than `__write`.
fn plainer<'n>(one: &'n str, other: &'n str) -> &'n str {
    let order = |name: &'n str| (name.len() - name.trim_start_matches('_').len(), name.len(), name);
    if order(other) < order(one) { other } else { one }
}

/// Reads a program, and looks for all of its functions. `beside` may have the symbols that were stripped from it.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_for_probes(file: &File, beside: &File) {
    let Ok(beside) = beside.try_clone() else { return };
    let mut beside = Some(beside);
    let Ok(contents) = Contents::read(file, &mut |_| beside.take().into_iter().collect()) else {
        return;
    };
    demangle::symbols_of("f", contents.functions.names());
    for name in contents.functions.names() {
        if let Ok(function) = contents.functions.find(name) {
            contents.functions.containing(function.address);
            contents.functions.size_of(function);
            let _ = contents::is_boundary(file, function.address, function.size.min(1 << 16));
        }
    }
}

/// The file at a path, as this process sees it.
fn own(path: PathBuf) -> Result<Found, BinaryError> {
    let root = Root::own().map_err(FileProblem::Unreadable);
    match root.and_then(|root| Ok((root, open_regular(&path)?))) {
        Ok((root, file)) => Ok(Found { path, file, note: None, root }),
        Err(problem) => Err(BinaryError::InFile { path, problem }),
    }
}

/// Whether a function of this name returns again when a context that it saved is restored: `setjmp(3)`, `getcontext(3)`.
fn returns_again(name: &str) -> bool {
    let plain = name.trim_start_matches('_');
    matches!(plain, "setjmp" | "sigsetjmp" | "getcontext" | "swapcontext")
}

/// Whether a function of this name looks for its caller by the return address.
fn looks_for_its_caller(name: &str) -> bool {
    const OF_PROFILERS: [&str; 3] = ["mcount", "_mcount", "__fentry__"];
    let plain = name.trim_start_matches('_');
    matches!(plain, "dlsym" | "dlvsym" | "dlopen" | "dlmopen") || OF_PROFILERS.contains(&name)
}

/// Whether code of this name is reached by a jump, or by the return from a signal handler or to a new context. At its
/// beginning, what is on top of the stack is something else than a return address.
fn is_jumped_to(name: &str, is_go: bool) -> bool {
    const NAMES: [&str; 6] =
        ["_start", "_dlstart", "_dl_start_user", "__restore", "__restore_rt", "__start_context"];
    const OF_GO: [&str; 5] = [
        "runtime.rt0_go",
        "runtime.goexit",
        "runtime.mstart",
        "runtime.sigreturn",
        "runtime.sigreturn__sigaction",
    ];
    let prefixes: &[&str] = match is_go {
        true => &["_rt0_"],
        false => &["_dl_runtime_resolve", "_dl_runtime_profile"],
    };
    let known: &[&str] = if is_go { &OF_GO } else { &NAMES };
    known.contains(&name)
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
        || !is_go && symbols::is_cold(name)
}

/// Whether a file is an ELF file for this machine.
fn is_of_this_machine(path: &Path) -> bool {
    let machine = || {
        // Opening a FIFO would block.
        fs::metadata(path).ok().filter(|found| found.is_file())?;
        let mut head = Vec::new();
        let file = File::open(path).ok()?;
        file.take(size_of::<FileHeader64<Endianness>>() as u64).read_to_end(&mut head).ok()?;
        let header = FileHeader64::<Endianness>::parse(&*head).ok()?;
        Some(header.e_machine(header.endian().ok()?))
    };
    machine() == Some(MACHINE)
}

#[cfg(test)]
mod tests;
