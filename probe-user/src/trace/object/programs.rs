//! The object's programs: each is linked when it is asked for, and loaded for what it is to be attached to.
//!
//! aya parses and links objects, by `aya-obj`. Its own loader does so with all programs of an object at once,
//! and reads all types of the kernel first: the tracer has some 200 programs, of which a trace needs a few.

use super::maps::{Maps, fd_of};
use super::memlock;
use crate::sys::bpf::load::{Code, Functions, Purpose, load, load_btf};
use aya_obj::generated::bpf_insn;
use aya_obj::{Object, ProgramSection};
use probe_common::call::{CALLS, USER_CALLS};
use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Longest log of the verifier that is asked for, in bytes.
const LONGEST_LOG: usize = 16 << 20;

/// The verifier, or the kernel before it, refused a program.
#[derive(Debug, thiserror::Error)]
#[error("program {program}: {log}")]
struct Refused {
    program: String,
    source: io::Error,
    /// What the verifier says.
    log: String,
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
) -> Result<Purpose, Box<dyn Error + Send + Sync>> {
    match object.programs.get(program).map(|program| &program.section) {
        Some(ProgramSection::KProbe | ProgramSection::KRetProbe) => Ok(Purpose::Function),
        Some(ProgramSection::TracePoint) => Ok(Purpose::Tracepoint),
        Some(ProgramSection::RawTracePoint) => Ok(Purpose::RawTracepoint),
        Some(_) => Err(format!("program {program} is of no known type").into()),
        None => Err(no_program(program)),
    }
}

/// Links a program against the maps, and loads it.
pub(super) fn link_and_load(
    object: &Object,
    maps: &Maps,
    types: Option<BorrowedFd<'_>>,
    name: &str,
    purpose: Purpose,
) -> Result<OwnedFd, Box<dyn Error + Send + Sync>> {
    let program = object.programs.get(name).ok_or_else(|| no_program(name))?;
    let sections = object.functions.keys().map(|(section, _)| *section).collect::<HashSet<_>>();
    let mut created = Vec::new();
    for (name, map) in &object.maps {
        let taken = match (purpose, name.as_str()) {
            (Purpose::UserFunction, CALLS) => USER_CALLS,
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
    let instructions: Vec<u64> = function.instructions.iter().map(word).collect();
    let infos = function.func_info.func_info_bytes();
    let functions = types.map(|types| Functions {
        types,
        infos: &infos,
        info_len: function.func_info_rec_size,
    });
    let (instructions, license) = (&*instructions, &*program.license);
    let code = Code { name, instructions, license, functions };
    memlock::lifted_if_refused(|| load(&code, purpose, &mut []))
        .map_err(|source| refused(&code, purpose, source).into())
}

fn no_program(name: &str) -> Box<dyn Error + Send + Sync> {
    format!("it has no program {name}").into()
}

/// Asks the verifier why.
fn refused(code: &Code<'_>, purpose: Purpose, source: io::Error) -> Refused {
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
