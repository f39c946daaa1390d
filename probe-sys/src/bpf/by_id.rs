//! BPF objects by their ids. The kernel asks for `CAP_SYS_ADMIN`.

use super::load::BPF_PROG_TYPE_RAW_TRACEPOINT;
use super::{Attr, bpf_fd, bpf_mut, info_of_map, is_map, name_of, object_info};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use zerocopy::IntoBytes;

const BPF_PROG_GET_NEXT_ID: libc::c_int = 11;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_MAP_GET_FD_BY_ID: libc::c_int = 14;

/// The most maps of a program that are looked at.
const MAPS: usize = 256;

/// A map of this name that some loaded program uses together with `map`.
///
/// # Errors
///
/// If the kernel refuses to list programs or maps, usually without `CAP_SYS_ADMIN`.
pub fn map_beside(map: BorrowedFd<'_>, name: &str) -> io::Result<Option<OwnedFd>> {
    let id = info_of_map(map)?.id;
    let mut program = 0;
    while let Some(next) = next_program(program)? {
        program = next;
        // Its maps exist as long as it is open.
        let opened = match open(BPF_PROG_GET_FD_BY_ID, program) {
            Ok(opened) => opened,
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let maps = info_of_program(opened.as_fd())?.maps;
        if !maps.contains(&id) {
            continue;
        }
        for id in maps {
            let map = open(BPF_MAP_GET_FD_BY_ID, id)?;
            if info_of_map(map.as_fd())?.name == name {
                return Ok(Some(map));
            }
        }
    }
    Ok(None)
}

fn open(command: libc::c_int, id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    unsafe { bpf_fd(command, &Attr::default().u32_at(0, id), 12) }
}

/// The id of the first program after one.
fn next_program(after: u32) -> io::Result<Option<u32>> {
    let mut attr = Attr::default().u32_at(0, after);
    // SAFETY: no pointers.
    match unsafe { bpf_mut(BPF_PROG_GET_NEXT_ID, &mut attr, 12) } {
        Ok(()) => Ok(Some(attr.u32_from(4))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A program.
#[derive(Debug)]
pub struct Program {
    /// The first 15 bytes of its name.
    pub name: String,
    /// The ids of the maps that it uses.
    pub maps: Vec<u32>,
}

/// A program for raw tracepoints; `None` if the descriptor is of anything else.
pub fn raw_tracepoint(program: BorrowedFd<'_>) -> io::Result<Option<Program>> {
    if is_map(program)? {
        return Ok(None);
    }
    // The type and the id. A link begins with these, too, but its types are other numbers.
    let mut head = [0u32; 2];
    // SAFETY: any bytes are valid numbers, and none of them is a pointer.
    match unsafe { object_info(program, &mut head) } {
        Ok(_) if head[0] == BPF_PROG_TYPE_RAW_TRACEPOINT => info_of_program(program).map(Some),
        Ok(_) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

fn info_of_program(program: BorrowedFd<'_>) -> io::Result<Program> {
    let mut maps = vec![0u32; MAPS];
    // The head of `struct bpf_prog_info`: the number of maps, the pointer to their ids, and the name.
    let mut info = [0u64; 10];
    info[6] = (MAPS as u64) << 32;
    info[7] = maps.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: any bytes are valid numbers, and the only pointer leads to a buffer of the length that the kernel is given.
    unsafe { object_info(program, &mut info) }?;
    maps.truncate((info[6] >> 32) as usize);
    Ok(Program { name: name_of(info[8..].as_bytes()), maps })
}
