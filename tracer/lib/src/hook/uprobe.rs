//! Functions of programs and libraries: a perf event for each, at an offset in a file, for every
//! process that runs it.

use super::attach::{Attacher, Link, Part};
use super::expand::{Choice, Expansion, LeftOut};
use super::info::FileOffset;
use super::{Caller, Fields, Hook, Host};
use crate::binary::{Binary, BinaryError, FileProblem, Matching};
use crate::error::{Result, TraceError};
use crate::kernel::features;
use crate::object::Side;
use crate::resolve::{BareFields, Moment, UntypedFields};
use crate::spec::{ProbeSpec, function_of_file};
use probe_perf::pattern::Glob;
use probe_sys::escape::Escaped;
use probe_sys::perf_event::PerfEvent;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The entry or the return of a function of a program or library.
pub(super) struct Uprobe {
    pub(super) returns: bool,
}

impl Hook for Uprobe {
    fn reads_registers(&self) -> bool {
        true
    }

    /// The kernel follows 64 nested calls of a thread (`MAX_URETPROBE_DEPTH` in `kernel/events/uprobes.c`), and counts no others.
    fn counts_missed(&self) -> bool {
        !self.returns
    }

    fn list(&self, spec: &ProbeSpec, host: &mut Host) -> Result<Vec<String>> {
        pmu(spec)?;
        let file = spec.module().unwrap_or_default();
        let binary = open(spec, host)?;
        let names = match spec.is_glob() {
            true => {
                let glob = Glob::new(spec.name())?;
                binary.matching(|name| glob.matches(name)).names
            }
            false => {
                let offset = offset(spec, binary)?;
                if self.returns {
                    check_return(spec, binary, offset, true)?;
                }
                vec![spec.name().to_owned()]
            }
        };
        let written = |name: &String| match spec.address() {
            Some(_) => format!("{file}:{name}"),
            None => function_of_file(file, name),
        };
        Ok(names.iter().map(written).collect())
    }

    fn expand(&self, pattern: &ProbeSpec, choice: &Choice, host: &mut Host) -> Result<Expansion> {
        pmu(pattern)?;
        let glob = Glob::new(pattern.name())?;
        let binary = open(pattern, host)?;
        let is_excluded = |name: &str| choice.exclude.iter().any(|glob| glob.matches(name));
        let Matching { names, ambiguous, indirect } =
            binary.matching(|name| glob.matches(name) && !is_excluded(name));
        if names.is_empty() {
            let problem = FileProblem::NoMatch { ambiguous, indirect };
            return Err(failed(pattern, binary.error(problem)));
        }
        let left_out = LeftOut { ambiguous, indirect, ..LeftOut::new(pattern) };
        Expansion::of_pattern(&names, left_out)
    }

    fn caller(&self, spec: &ProbeSpec, host: &mut Host) -> Caller {
        if self.returns {
            return Caller::InStack;
        }
        let entries = host.types.recognized_entries();
        match open(spec, host) {
            Ok(binary) if lacks_caller(spec, binary, entries) => Caller::AtEntry,
            _ => Caller::InStack,
        }
    }

    fn fields(&self, spec: &ProbeSpec, as_call: bool, host: &mut Host) -> Fields {
        if spec.offset() != 0 {
            return Ok(Box::new(BareFields::inside(spec.name())));
        }
        let mut name = spec.name().to_owned();
        if let Some(address) = spec.address() {
            let binary = open(spec, host)?;
            name = binary.containing(address).unwrap_or(name);
            if binary.check_entry(address).is_err() {
                return Ok(Box::new(BareFields::inside(&name)));
            }
        }
        // Functions in C and assembly have names without a package.
        if name.contains('.') && open(spec, host)?.is_go() {
            return Ok(Box::new(BareFields::of_go(&name)));
        }
        Ok(Box::new(UntypedFields::User(Moment::of(self.returns, as_call))))
    }

    fn file_offset(&self, spec: &ProbeSpec) -> Result<Option<FileOffset>> {
        let mut host = Host::default();
        let binary = open(spec, &mut host)?;
        let offset = offset(spec, binary)?;
        if self.returns {
            check_return(spec, binary, offset, true)?;
        }
        Ok(Some(FileOffset { file: binary.path().to_owned(), offset }))
    }

    fn attach(
        &self,
        attacher: &mut Attacher<'_>,
        spec: &ProbeSpec,
        part: Part,
        number: u32,
    ) -> Result<Link> {
        let unsafe_returns = attacher.unsafe_returns;
        let binary = open(spec, &mut attacher.host)?;
        if let Some(note) = binary.take_note() {
            log::warn!("{}: {note}", Escaped(binary.path().as_os_str().as_bytes()));
        }
        if let Some((address, name)) = binary.chosen(spec.name()) {
            let name = name.unwrap_or_else(|| format!("the function at {address:#x}"));
            log::warn!(
                "{spec}: probes {name}, which the library chooses on this machine (IFUNC); programs that are started with \
                 other GLIBC_TUNABLES may use another function"
            );
        }
        let offset = offset(spec, binary)?;
        let (_, returns) = part.of_function(self.returns);
        if returns {
            check_return(spec, binary, offset, unsafe_returns)?;
        }
        if returns && binary.take_throws() {
            log::warn!(
                "{}: an exception or a panic that leaves a function whose return is probed aborts the program: unwinders \
                 do not know the return address that the kernel puts there",
                Escaped(binary.path().as_os_str().as_bytes())
            );
        }
        let place = InFile::new(binary, offset);
        attacher.uprobe(spec, &place, (part, self.returns), number)
    }

    fn calls(&self, _spec: &ProbeSpec) -> Option<Side> {
        (!self.returns).then_some(Side::Process)
    }
}

/// Whether the kernel reads stacks without the caller where a spec's instruction is hit: at the entry of a function, unless it
/// is one of the `recognized` instructions.
fn lacks_caller(spec: &ProbeSpec, binary: &Binary, recognized: &[&[u8]]) -> bool {
    let Ok(offset) = offset(spec, binary) else { return false };
    let is_entry = match spec.address() {
        Some(address) => binary.check_entry(address.saturating_add(spec.offset())).is_ok(),
        None => spec.offset() == 0,
    };
    is_entry && binary.check_called(offset).is_ok() && !binary.has_one_at(offset, recognized)
}

/// Checks that returns of the function at this file offset can be probed. `is_unsafe` permits probes that may crash the program.
fn check_return(spec: &ProbeSpec, binary: &Binary, offset: u64, is_unsafe: bool) -> Result<()> {
    let failed = |source| failed(spec, source);
    if !is_unsafe {
        if binary.is_go() {
            return Err(failed(binary.error(FileProblem::GoReturns)));
        }
        binary.check_return(offset).map_err(failed)?;
    }
    if let Some(address) = spec.address() {
        // The kernel takes the return address from the top of the stack, which is there at the entry only.
        binary.check_entry(address).map_err(failed)?;
    }
    binary.check_called(offset).map_err(failed)
}

/// An instruction in a file.
struct InFile {
    /// The file's path in messages.
    name: PathBuf,
    /// A path that leads the kernel to it while it is open.
    path: PathBuf,
    /// Where the instruction is in it, in bytes.
    offset: u64,
}

impl InFile {
    fn new(binary: &Binary, offset: u64) -> Self {
        Self { name: binary.path().to_owned(), path: binary.path_for_kernel(), offset }
    }
}

/// The type of perf events of uprobes.
fn pmu(spec: &ProbeSpec) -> Result<u32> {
    features::uprobe_pmu().ok_or_else(|| TraceError::NoUprobes { spec: spec.clone() })
}

/// The file that a spec names.
fn open<'h>(spec: &ProbeSpec, host: &'h mut Host) -> Result<&'h mut Binary> {
    let name = spec.module().unwrap_or_default();
    if !host.binaries.contains_key(name) {
        let binary = Binary::open(name, host.processes()).map_err(|source| failed(spec, source))?;
        host.binaries.insert(name.to_owned(), binary);
    }
    Ok(host.binaries.get_mut(name).expect("it was just added"))
}

/// The offset of the spec's instruction in its file, in bytes from the file's beginning.
fn offset(spec: &ProbeSpec, binary: &Binary) -> Result<u64> {
    let found = match spec.address() {
        Some(address) => binary.offset_of_address(address.saturating_add(spec.offset())),
        None => binary.offset_of(spec.name(), spec.offset()),
    };
    found.map_err(|source| failed(spec, source))
}

fn failed(spec: &ProbeSpec, source: BinaryError) -> TraceError {
    TraceError::Binary { spec: spec.clone(), source }
}

impl Attacher<'_> {
    /// Attaches the probe of this number to the entry of a function at this offset in a file.
    pub(crate) fn uprobe_at(
        &mut self,
        spec: &ProbeSpec,
        binary: &Binary,
        offset: u64,
        number: u32,
    ) -> Result<Link> {
        self.uprobe(spec, &InFile::new(binary, offset), (Part::Whole, false), number)
    }

    /// Attaches a part of a probe. `returns` says where a whole probe is.
    fn uprobe(
        &mut self,
        spec: &ProbeSpec,
        place: &InFile,
        (part, returns): (Part, bool),
        number: u32,
    ) -> Result<Link> {
        let (programs, returns) = part.of_function(returns);
        let path = CString::new(place.path.as_os_str().as_bytes())
            .map_err(|error| TraceError::Attach { spec: spec.clone(), source: error.into() })?;
        let event = PerfEvent::uprobe(pmu(spec)?, &path, place.offset, returns)
            .map_err(|error| why(spec, &place.name, error))?;
        self.perf_event(spec, event, Side::Process, (part, programs), number)
    }
}

/// Explains the kernel's errno (see `uprobe_register` and its callees).
fn why(spec: &ProbeSpec, path: &Path, source: io::Error) -> TraceError {
    /// `ENOTSUPP`, which is not meant to reach user space.
    const NOT_SUPPORTED: i32 = 524;
    let problem = match source.raw_os_error() {
        Some(libc::EIO) => FileProblem::FileSystemRefused(source),
        Some(libc::EINVAL | libc::ENOEXEC | libc::EILSEQ | libc::EOPNOTSUPP | NOT_SUPPORTED) => {
            FileProblem::InstructionRefused(source)
        }
        _ => return TraceError::Attach { spec: spec.clone(), source },
    };
    failed(spec, BinaryError::InFile { path: path.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_are_explained() {
        let spec: ProbeSpec = "u:a:f".parse().unwrap();
        let message =
            |errno| why(&spec, Path::new("/a"), io::Error::from_raw_os_error(errno)).to_string();
        for errno in [libc::EINVAL, 524] {
            let start = "cannot probe uprobe:a:f: /a has an instruction here that the kernel refuses to probe (";
            assert!(message(errno).starts_with(start), "{}", message(errno));
        }
        let refused = "/a is on a file system where the kernel allows no probes (";
        assert!(message(libc::EIO).contains(refused));
        assert!(message(libc::EACCES).starts_with("cannot attach uprobe:a:f: Permission denied"));
    }
}
