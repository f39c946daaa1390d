//! The object's programs: linked on first use, and loaded for the hook that each is attached to.
//!
//! aya parses and links objects with `aya-obj`. Its own loader links all programs of an object at
//! once, and reads all kernel types first, while a trace needs few of the programs. A program for a
//! single probe is linked once and loaded for each probe: only the map that holds the probe's
//! number differs.

use super::maps::{Maps, fd_of};
use super::specialized::{Context, Site};
use super::{AnyError, Side, Variant};
use aya_obj::generated::{BPF_PSEUDO_MAP_VALUE, bpf_insn};
use aya_obj::{Object, ProgramSection};
use probe_sys::bpf::load::{Code, Functions, Purpose, load, load_btf};
use probe_tracer_common::call::{CALLS, USER_CALLS};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The size limit for the verifier's log, in bytes.
const LONGEST_LOG: usize = 16 << 20;

/// The kernel or its verifier refused a program.
#[derive(Debug, thiserror::Error)]
#[error("program {program}: {log}")]
pub(crate) struct Refused {
    program: String,
    pub(crate) source: io::Error,
    /// The verifier's log.
    pub(crate) log: String,
}

/// Loads the types of the object's functions, as far as the kernel understands them.
pub(super) fn load_types(object: &mut Object) -> Result<Option<OwnedFd>, AnyError> {
    let Some(features) = aya::features().btf() else { return Ok(None) };
    let types = object.fixup_and_sanitize_btf(features)?;
    Ok(types.map(|types| load_btf(&types.to_bytes())).transpose()?)
}

/// The purpose of a program of the object, by its section.
pub(super) fn purpose(object: &Object, program: &str) -> Result<Purpose<'static>, AnyError> {
    match object.programs.get(program).map(|program| &program.section) {
        Some(ProgramSection::KProbe | ProgramSection::KRetProbe) => Ok(Purpose::Function),
        Some(ProgramSection::TracePoint) => Ok(Purpose::Tracepoint),
        Some(ProgramSection::PerfEvent) => Ok(Purpose::PerfEvent),
        Some(ProgramSection::RawTracePoint) => Ok(Purpose::RawTracepoint),
        Some(_) => Err(format!("program {program} is of no known type").into()),
        None => Err(no_program(program)),
    }
}

/// What a program of a section finds when its hook is hit.
fn context(section: &ProgramSection) -> Option<Context> {
    Some(match section {
        ProgramSection::KProbe | ProgramSection::KRetProbe => Context::Registers,
        ProgramSection::TracePoint => Context::Tracepoint,
        ProgramSection::RawTracePoint => Context::RawTracepoint,
        ProgramSection::FEntry { .. } | ProgramSection::FExit { .. } => Context::Trampoline,
        _ => return None,
    })
}

/// A program, linked against the object's maps.
#[derive(Debug)]
pub(super) struct Linked {
    name: String,
    image: Image,
    license: CString,
    /// The size of a `struct bpf_func_info` in bytes.
    info_len: usize,
    /// The names of the functions, by type id.
    functions: HashMap<u32, String>,
    /// What the program finds when its hook is hit, if it has one.
    context: Option<Context>,
}

/// What is loaded of a program.
#[derive(Clone, Debug)]
pub(super) struct Image {
    instructions: Vec<u64>,
    /// The `struct bpf_func_info`s.
    infos: Vec<u8>,
}

impl Linked {
    pub(super) fn new(
        object: &Object,
        maps: &Maps,
        (name, side): &Variant,
    ) -> Result<Self, AnyError> {
        let program = object.programs.get(name).ok_or_else(|| no_program(name))?;
        let sections = object.functions.keys().map(|(section, _)| *section).collect::<HashSet<_>>();
        let mut created = Vec::new();
        for (name, map) in &object.maps {
            let taken = match (side, name.as_str()) {
                (Side::Process, CALLS) => USER_CALLS,
                (_, name) => name,
            };
            let fd = maps.get(taken).and_then(fd_of).ok_or_else(|| format!("no map {taken}"))?;
            created.push((name.as_str(), fd.as_raw_fd(), map));
        }
        let mut linked = object.clone();
        // Linking dominates the cost, so leave out the other programs.
        linked.programs.retain(|program, _| program == name);
        linked.relocate_maps(created.into_iter(), &sections)?;
        linked.relocate_calls(&sections)?;
        linked.sanitize_functions(aya::features());
        let names = object.functions.values().filter_map(|function| {
            let info = function.func_info.func_info.first()?;
            Some((info.type_id, function.name.clone()))
        });
        let functions = names.collect();
        let key = program.function_key();
        let function = linked.functions.get(&key).ok_or_else(|| no_program(name))?;
        Ok(Self {
            name: name.to_owned(),
            image: Image {
                instructions: function.instructions.iter().map(word).collect(),
                infos: function.func_info.func_info_bytes(),
            },
            license: program.license.clone(),
            info_len: function.func_info_rec_size,
            functions,
            context: context(&program.section),
        })
    }

    /// The program as it serves several probes.
    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    /// The program for the probe whose number the map `own` holds. `linked` is the map that the program is linked
    /// against.
    pub(super) fn numbered(
        &self,
        linked: BorrowedFd<'_>,
        own: BorrowedFd<'_>,
    ) -> Result<Image, AnyError> {
        let mut image = self.image.clone();
        let mut count = 0;
        for instruction in &mut image.instructions {
            if loads_value_of(linked, *instruction) {
                // Open descriptors are never negative.
                *instruction = (own.as_raw_fd() as u64) << 32 | *instruction & WITHOUT_MAP;
                count += 1;
            }
        }
        if count == 0 {
            return Err(format!("program {} does not ask for its number", self.name).into());
        }
        Ok(image)
    }

    /// What the program finds when its hook is hit, if it has one.
    pub(super) fn context(&self) -> Option<Context> {
        self.context
    }

    /// The program with the table of its probe compiled into it, if that is possible.
    pub(super) fn specialized(&self, own: &Image, site: &Site<'_>) -> Option<Image> {
        let name_of = |id: u32| self.functions.get(&id).map(String::as_str);
        let (instructions, infos) =
            site.specialize(&own.instructions, (&own.infos, self.info_len), name_of)?;
        Some(Image { instructions, infos })
    }

    /// Loads an image of the program for its purpose.
    pub(super) fn load(
        &self,
        Image { instructions, infos }: &Image,
        types: Option<BorrowedFd<'_>>,
        purpose: Purpose<'_>,
    ) -> Result<OwnedFd, Refused> {
        let info_len = self.info_len;
        let functions = types.map(|types| Functions { types, infos, info_len });
        let code = Code { name: &self.name, instructions, license: &self.license, functions };
        with_memlock_lifted(|| load(&code, purpose, &mut []))
            .map_err(|source| refused(&code, purpose, source))
    }
}

/// The part of an instruction beside its constant, which is the map's descriptor where it loads from
/// a map.
const WITHOUT_MAP: u64 = 0xffff_ffff;

/// Whether an instruction loads the address of this map's value (`BPF_LD | BPF_IMM | BPF_DW`, with
/// `BPF_PSEUDO_MAP_VALUE`).
fn loads_value_of(map: BorrowedFd<'_>, instruction: u64) -> bool {
    const LOAD: u64 = 0x18;
    let (code, source) = (instruction & 0xff, instruction >> 12 & 0xf);
    code == LOAD
        && source == u64::from(BPF_PSEUDO_MAP_VALUE)
        && instruction >> 32 == map.as_raw_fd() as u64
}

/// Makes a call and, if it fails with `EPERM`, repeats it without `RLIMIT_MEMLOCK`. Before 5.11,
/// this limits the memory of programs and maps, and the kernel reports nothing but `EPERM`.
fn with_memlock_lifted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match call() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && lift_memlock() => call(),
        result => result,
    }
}

/// Lifts `RLIMIT_MEMLOCK`. Returns false if there was none or it cannot be lifted.
fn lift_memlock() -> bool {
    getrlimit(Resource::Memlock).current.is_some()
        && setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_ok()
}

fn no_program(name: &str) -> AnyError {
    format!("it has no program {name}").into()
}

/// Loads the program again, with a log, to find out why the kernel refused it.
fn refused(code: &Code<'_>, purpose: Purpose<'_>, source: io::Error) -> Refused {
    let mut log = vec![0; 1 << 16];
    while let Err(error) = load(code, purpose, &mut log)
        && error.raw_os_error() == Some(libc::ENOSPC)
        && log.len() < LONGEST_LOG
    {
        log = vec![0; 4 * log.len()];
    }
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let log = match text {
        [] => source.to_string(),
        text => String::from_utf8_lossy(text).into_owned(),
    };
    Refused { program: code.name.to_owned(), source, log }
}

/// Encodes an instruction as the kernel reads it.
fn word(instruction: &bpf_insn) -> u64 {
    let registers = instruction.dst_reg() | instruction.src_reg() << 4;
    let [low, high] = instruction.off.to_le_bytes();
    let [a, b, c, d] = instruction.imm.to_le_bytes();
    u64::from_le_bytes([instruction.code, registers, low, high, a, b, c, d])
}
