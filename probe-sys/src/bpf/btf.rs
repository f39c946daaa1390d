//! BTF objects of the kernel, by their ids.

use super::{Attr, bpf_fd, bpf_mut, object_info};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const BPF_BTF_GET_FD_BY_ID: libc::c_int = 19;
const BPF_BTF_GET_NEXT_ID: libc::c_int = 23;

/// Opens the BTF of a module (5.11+). `None` if there is none of this name. Requires `CAP_SYS_ADMIN`.
pub fn of_module(name: &str) -> io::Result<Option<OwnedFd>> {
    let mut id = 0;
    while let Some(next) = none_if_not_found(next_id(id))? {
        id = next;
        // Programs have BTF, too, which may disappear at any time.
        let Some(types) = none_if_not_found(open(id))? else { continue };
        if is_of_kernel(types.as_fd(), name)? {
            return Ok(Some(types));
        }
    }
    Ok(None)
}

fn none_if_not_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// `BPF_BTF_GET_NEXT_ID`.
fn next_id(id: u32) -> io::Result<u32> {
    let mut attr = Attr::default().u32_at(0, id);
    // SAFETY: no pointers.
    unsafe { bpf_mut(BPF_BTF_GET_NEXT_ID, &mut attr, 12) }?;
    Ok(attr.u32_from(4))
}

/// `BPF_BTF_GET_FD_BY_ID`.
fn open(id: u32) -> io::Result<OwnedFd> {
    let attr = Attr::default().u32_at(0, id);
    // SAFETY: no pointers.
    unsafe { bpf_fd(BPF_BTF_GET_FD_BY_ID, &attr, 4) }
}

/// Whether a BTF belongs to the kernel or one of its modules, and has this name: `struct bpf_btf_info`.
fn is_of_kernel(types: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        types: u64,
        size: u32,
        id: u32,
        name: u64,
        name_len: u32,
        is_of_kernel: u32,
    }
    // The name of a module has at most 56 bytes, the last of which is zero.
    let mut found = [0u8; 64];
    let mut info = Info {
        name: found.as_mut_ptr().expose_provenance() as u64,
        name_len: found.len() as u32,
        ..Info::default()
    };
    // SAFETY: the fields are numbers; the name's address is writable for the length given.
    unsafe { object_info(types, &mut info) }?;
    let found = found.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(info.is_of_kernel != 0 && found == name.as_bytes())
}
