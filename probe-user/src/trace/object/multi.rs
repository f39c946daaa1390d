//! The object's programs, loaded for many functions at once.
//!
//! Such a program has to say so when it is loaded, and aya's way to load one cannot. So the object is
//! read and linked once more, by the same code and against the maps that aya has created, and its
//! programs are loaded here.

use super::OBJECT;
use crate::sys::bpf::multi::{Code, Functions, load_btf, load_kprobe_multi};
use aya::Ebpf;
use aya::maps::Map;
use aya_obj::generated::bpf_insn;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Longest log of the verifier that is asked for, in bytes.
const LONGEST_LOG: usize = 16 << 20;

/// Programs for many functions, each loaded at most once.
#[derive(Debug)]
pub(super) struct MultiPrograms {
    object: aya_obj::Object,
    types: Option<OwnedFd>,
    loaded: HashMap<String, OwnedFd>,
}

/// The verifier, or the kernel before it, refused a program.
#[derive(Debug, thiserror::Error)]
#[error("program {program}: {log}")]
struct Refused {
    program: String,
    source: io::Error,
    /// What the verifier says.
    log: String,
}

impl MultiPrograms {
    /// Links the programs against the maps of the object that aya has loaded.
    pub(super) fn link(ebpf: &Ebpf) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut object = aya_obj::Object::parse(OBJECT)?;
        let types = match aya::features().btf() {
            Some(features) => {
                let types = object.fixup_and_sanitize_btf(features)?;
                types.map(|types| load_btf(&types.to_bytes())).transpose()?
            }
            None => None,
        };
        let sections = object.functions.keys().map(|(section, _)| *section).collect::<HashSet<_>>();
        let maps = std::mem::take(&mut object.maps);
        let mut created = Vec::new();
        for (name, map) in &maps {
            let fd = ebpf.map(name).and_then(fd_of).ok_or_else(|| format!("no map {name}"))?;
            created.push((name.as_str(), fd.as_raw_fd(), map));
        }
        object.relocate_maps(created.into_iter(), &sections)?;
        object.relocate_calls(&sections)?;
        object.sanitize_functions(aya::features());
        Ok(Self { object, types, loaded: HashMap::new() })
    }

    /// Loads a program, and lends it.
    pub(super) fn program(&mut self, name: &str) -> Result<&OwnedFd, Box<dyn Error + Send + Sync>> {
        if !self.loaded.contains_key(name) {
            let program = self.load(name)?;
            self.loaded.insert(name.to_owned(), program);
        }
        self.loaded.get(name).ok_or_else(|| "it was not loaded".into())
    }

    fn load(&self, name: &str) -> Result<OwnedFd, Box<dyn Error + Send + Sync>> {
        let program = self.object.programs.get(name);
        let program = program.ok_or_else(|| format!("it has no program {name}"))?;
        let function = &self.object.functions[&program.function_key()];
        let instructions: Vec<u64> = function.instructions.iter().map(word).collect();
        let infos = function.func_info.func_info_bytes();
        let functions = self.types.as_ref().map(|types| Functions {
            types: types.as_fd(),
            infos: &infos,
            info_len: function.func_info_rec_size,
        });
        let (instructions, license) = (&*instructions, &*program.license);
        let code = Code { name, instructions, license, functions };
        load_kprobe_multi(&code, &mut []).map_err(|source| refused(&code, source).into())
    }
}

/// Asks the verifier why.
fn refused(code: &Code<'_>, source: io::Error) -> Refused {
    let mut log = vec![0; 1 << 16];
    while let Err(error) = load_kprobe_multi(code, &mut log)
        && error.raw_os_error() == Some(libc::ENOSPC)
        && log.len() < LONGEST_LOG
    {
        log = vec![0; 4 * log.len()];
    }
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    Refused {
        program: code.name.to_owned(),
        source,
        log: String::from_utf8_lossy(text).into_owned(),
    }
}

/// An instruction, as the kernel has it.
fn word(instruction: &bpf_insn) -> u64 {
    let registers = instruction.dst_reg() | instruction.src_reg() << 4;
    let [low, high] = instruction.off.to_le_bytes();
    let [a, b, c, d] = instruction.imm.to_le_bytes();
    u64::from_le_bytes([instruction.code, registers, low, high, a, b, c, d])
}

/// The descriptor of a map, of whatever type.
fn fd_of(map: &Map) -> Option<BorrowedFd<'_>> {
    match map {
        Map::Array(map)
        | Map::CgroupArray(map)
        | Map::HashMap(map)
        | Map::LruHashMap(map)
        | Map::PerCpuArray(map)
        | Map::PerCpuHashMap(map)
        | Map::PerCpuLruHashMap(map)
        | Map::PerfEventArray(map)
        | Map::RingBuf(map)
        | Map::StackTraceMap(map) => Some(map.fd().as_fd()),
        _ => None,
    }
}
