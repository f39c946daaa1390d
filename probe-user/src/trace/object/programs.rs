//! The object's programs: each is linked when it is asked for, and loaded for what it is to be attached to.
//!
//! aya parses and links objects, by `aya-obj`. Its own loader does so with all programs of an object at once,
//! and reads all types of the kernel first: a trace needs few of the programs. One that is for a single probe
//! is linked once, and loaded for each: all that is different is which map holds the probe's number.

use super::maps::{Maps, fd_of};
use super::memlock;
use super::{Side, Variant};
use crate::sys::bpf::load::{Code, Functions, Purpose, load, load_btf};
use aya_obj::generated::{BPF_PSEUDO_MAP_VALUE, bpf_insn};
use aya_obj::{Object, ProgramSection};
use probe_common::call::{CALLS, USER_CALLS};
use std::collections::HashSet;
use std::error::Error;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Longest log of the verifier that is asked for, in bytes.
const LONGEST_LOG: usize = 16 << 20;

/// The verifier, or the kernel before it, refused a program.
#[derive(Debug, thiserror::Error)]
#[error("program {program}: {log}")]
pub(in crate::trace) struct Refused {
    program: String,
    pub(in crate::trace) source: io::Error,
    /// What the verifier says.
    pub(in crate::trace) log: String,
}

/// The types of an object's functions, loaded as far as the kernel understands them.
pub(super) fn load_types(
    object: &mut Object,
) -> Result<Option<OwnedFd>, Box<dyn Error + Send + Sync>> {
    let Some(features) = aya::features().btf() else { return Ok(None) };
    let types = object.fixup_and_sanitize_btf(features)?;
    Ok(types.map(|types| load_btf(&types.to_bytes())).transpose()?)
}

/// What a program of the object is for, by the section that it is in.
pub(super) fn purpose(
    object: &Object,
    program: &str,
) -> Result<Purpose<'static>, Box<dyn Error + Send + Sync>> {
    match object.programs.get(program).map(|program| &program.section) {
        Some(ProgramSection::KProbe | ProgramSection::KRetProbe) => Ok(Purpose::Function),
        Some(ProgramSection::TracePoint) => Ok(Purpose::Tracepoint),
        Some(ProgramSection::RawTracePoint) => Ok(Purpose::RawTracepoint),
        Some(_) => Err(format!("program {program} is of no known type").into()),
        None => Err(no_program(program)),
    }
}

/// A program, linked against the object's maps.
#[derive(Debug)]
pub(super) struct Linked {
    name: String,
    instructions: Vec<u64>,
    license: CString,
    /// `struct bpf_func_info`s, and how many bytes each has.
    infos: (Vec<u8>, usize),
}

impl Linked {
    pub(super) fn new(
        object: &Object,
        maps: &Maps,
        (name, side): &Variant,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
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
        // What is not there is not linked, which takes longer than all the rest.
        linked.programs.retain(|program, _| program == name);
        linked.relocate_maps(created.into_iter(), &sections)?;
        linked.relocate_calls(&sections)?;
        linked.sanitize_functions(aya::features());
        let key = program.function_key();
        let function = linked.functions.get(&key).ok_or_else(|| no_program(name))?;
        Ok(Self {
            name: name.to_owned(),
            instructions: function.instructions.iter().map(word).collect(),
            license: program.license.clone(),
            infos: (function.func_info.func_info_bytes(), function.func_info_rec_size),
        })
    }

    /// Loads it for what it is to be attached to.
    pub(super) fn load(
        &self,
        types: Option<BorrowedFd<'_>>,
        purpose: Purpose<'_>,
    ) -> Result<OwnedFd, Refused> {
        self.load_as(&self.instructions, types, purpose)
    }

    /// The same for the probe of a number. The inner error, if the kernel does not take it.
    pub(super) fn load_numbered(
        &self,
        number: &Number<'_>,
        types: Option<BorrowedFd<'_>>,
        purpose: Purpose<'_>,
    ) -> Result<Result<OwnedFd, Refused>, Box<dyn Error + Send + Sync>> {
        let mut instructions = self.instructions.clone();
        let mut count = 0;
        for instruction in &mut instructions {
            if let Some(numbered) = number.told_by(*instruction) {
                *instruction = numbered;
                count += 1;
            }
        }
        if count == 0 {
            return Err(format!("program {} does not ask for its number", self.name).into());
        }
        Ok(self.load_as(&instructions, types, purpose))
    }

    fn load_as(
        &self,
        instructions: &[u64],
        types: Option<BorrowedFd<'_>>,
        purpose: Purpose<'_>,
    ) -> Result<OwnedFd, Refused> {
        let (infos, info_len) = (&*self.infos.0, self.infos.1);
        let functions = types.map(|types| Functions { types, infos, info_len });
        let code = Code { name: &self.name, instructions, license: &self.license, functions };
        memlock::lifted_if_refused(|| load(&code, purpose, &mut []))
            .map_err(|source| refused(&code, purpose, source))
    }
}

/// A probe's number: the map that holds it, and the one that programs are linked against.
#[derive(Debug)]
pub(super) struct Number<'m> {
    pub(super) linked: BorrowedFd<'m>,
    pub(super) own: BorrowedFd<'m>,
}

impl Number<'_> {
    /// An instruction that loads the address of the map's value (`BPF_LD | BPF_IMM | BPF_DW`, with
    /// `BPF_PSEUDO_MAP_VALUE`), as it has to be for this number. `None` if it is another instruction.
    fn told_by(&self, instruction: u64) -> Option<u64> {
        const LOAD: u64 = 0x18;
        const WITHOUT_MAP: u64 = 0xffff_ffff;
        let (code, source, map) = (instruction & 0xff, instruction >> 12 & 0xf, instruction >> 32);
        // An open descriptor is not negative.
        let (linked, own) = (self.linked.as_raw_fd() as u64, self.own.as_raw_fd() as u64);
        let is_it = code == LOAD && source == u64::from(BPF_PSEUDO_MAP_VALUE) && map == linked;
        is_it.then_some(own << 32 | instruction & WITHOUT_MAP)
    }
}

fn no_program(name: &str) -> Box<dyn Error + Send + Sync> {
    format!("it has no program {name}").into()
}

/// Asks the verifier why.
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

/// An instruction, as the kernel has it.
fn word(instruction: &bpf_insn) -> u64 {
    let registers = instruction.dst_reg() | instruction.src_reg() << 4;
    let [low, high] = instruction.off.to_le_bytes();
    let [a, b, c, d] = instruction.imm.to_le_bytes();
    u64::from_le_bytes([instruction.code, registers, low, high, a, b, c, d])
}
