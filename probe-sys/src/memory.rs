//! `mmap(2)`.

use crate::process::Process;
use crate::{attempt, call};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

pub use rustix::param::page_size;

/// A shared mapping of a file, or of a part of it. Forked children do not inherit it.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<u8>,
    len: usize,
    /// The process that has the mapping.
    process: Process,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd` for reading and writing.
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::part(fd, 0, len, true)
    }

    /// Maps `len` bytes from `offset` on for reading, and also for writing if `is_writable`.
    pub fn part(
        fd: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        is_writable: bool,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        let address = map(len, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)?;
        let mapping = Self { address, len, process: Process::this() };
        // A child that inherited a ring could move its tail.
        // SAFETY: the range is the mapping that was just made.
        call("madvise", || unsafe {
            libc::madvise(address.as_ptr().cast(), len, libc::MADV_DONTFORK)
        })?;
        Ok(mapping)
    }

    /// Whether this process has the mapping. Forked children do not.
    pub fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// The address of the first byte. The requested bytes are mapped for as long as `self` lives, in the process that
    /// has the mapping.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }
}

/// Private memory, followed by a guard page that nobody can access.
pub(crate) struct Guarded {
    address: NonNull<u8>,
    /// The bytes before the guard.
    len: usize,
}

impl Guarded {
    /// Maps at least `len` bytes. Memory that is not used costs nothing.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(page_size());
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let address = map(len + page_size(), protection, flags, -1, 0)?;
        let guarded = Self { address, len };
        let guard = address.as_ptr().wrapping_add(len).cast();
        // SAFETY: the guard is the last page of the mapping that was just made.
        call("mprotect", || unsafe { libc::mprotect(guard, page_size(), libc::PROT_NONE) })?;
        Ok(guarded)
    }

    /// The last `len` bytes before the guard. `None` if there are not as many.
    pub(crate) fn last(&self, len: usize) -> Option<NonNull<u8>> {
        // SAFETY: the address is inside the mapping.
        Some(unsafe { self.address.add(self.len.checked_sub(len)?) })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, unmapped whole and once, and nothing refers to it.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len + page_size()) };
    }
}

/// `mmap(2)` at an address that the kernel chooses.
pub(crate) fn map(
    len: usize,
    protection: libc::c_int,
    flags: libc::c_int,
    fd: libc::c_int,
    offset: libc::off_t,
) -> io::Result<NonNull<u8>> {
    let address = attempt("mmap", || {
        // SAFETY: no caller passes MAP_FIXED, so the kernel chooses the address, and nothing of ours is mapped over.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
    })?;
    NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_here() {
            // This process may have mapped something else there.
            return;
        }
        // SAFETY: the mapping is ours, unmapped whole and once, and its borrowers are gone. munmap() fails only for a
        // range that is not a mapping.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disturb::in_child;
    use std::os::fd::AsFd;

    #[test]
    fn a_forked_child_keeps_its_own_mapping_at_that_address() {
        let len = page_size();
        let file = tempfile::tempfile().unwrap();
        file.set_len(len as u64).unwrap();
        let mut mapping = Some(Mapping::new(file.as_fd(), len).unwrap());
        let child = in_child(|| {
            let address = mapping.as_ref().map(|mapping| mapping.address().as_ptr().cast());
            let address = address.unwrap_or(std::ptr::null_mut());
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: nothing is mapped over.
            let own = unsafe { libc::mmap(address, len, libc::PROT_READ, flags, -1, 0) };
            drop(mapping.take());
            // SAFETY: the range is that of the mapping, if it is still there.
            let is_kept = unsafe { libc::madvise(own, len, libc::MADV_NORMAL) } == 0;
            u8::from(own != address || !is_kept)
        });
        assert_eq!(child.unwrap(), 0);
        // SAFETY: as above.
        let own = unsafe {
            libc::madvise(mapping.unwrap().address().as_ptr().cast(), len, libc::MADV_NORMAL)
        };
        assert_eq!(own, 0, "the parent still has it");
    }
}
