//! `mmap(2)` and its kin.

use super::fork::Process;
use super::{attempt, call};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Bytes in a page of this machine.
pub(crate) fn page_size() -> usize {
    // SAFETY: no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

const WRITABLE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A shared mapping of a file, or of a part of it, which a forked child does not get.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    len: usize,
    /// Who has it.
    process: Process,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, to be read and written.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::with(fd, 0, len, WRITABLE)
    }

    /// Maps the first `len` bytes of `fd`, to be read alone.
    pub(crate) fn read_only(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::with(fd, 0, len, libc::PROT_READ)
    }

    /// Maps `len` bytes from `offset` on, to be read, and to be written as well if that is said.
    #[cfg(feature = "perf")]
    pub(crate) fn part(
        fd: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        is_writable: bool,
    ) -> io::Result<Self> {
        Self::with(fd, offset, len, if is_writable { WRITABLE } else { libc::PROT_READ })
    }

    fn with(
        fd: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        protection: libc::c_int,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let address = attempt("mmap", || {
            // SAFETY: the kernel chooses the address, so nothing of ours is mapped over.
            let address = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len,
                    protection,
                    libc::MAP_SHARED,
                    fd.as_raw_fd(),
                    offset,
                )
            };
            if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
        })?;
        let address = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let mapping = Self { address, len, process: Process::this() };
        // A child that inherited the ring could move its tail.
        // SAFETY: the range is the mapping that was just made.
        call("madvise", || unsafe {
            libc::madvise(address.as_ptr().cast(), len, libc::MADV_DONTFORK)
        })?;
        Ok(mapping)
    }

    /// Whether this process has it: not one that was forked from the one that made it.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// The first byte; as many as were asked for are mapped for as long as `self` lives, in the
    /// process that has it.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_here() {
            // Something else may be there by now.
            return;
        }
        // SAFETY: the mapping is ours, unmapped whole and once, and its borrowers are gone. It can
        // only fail for a range that is not a mapping.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, feature = "aya"))]
mod tests {
    use super::*;
    use crate::sys::disturb::in_child;
    use std::os::fd::AsFd;

    #[test]
    fn a_forked_child_keeps_what_it_has_at_that_address() {
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
