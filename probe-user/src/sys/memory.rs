//! `mmap(2)` and its kin.

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

/// A shared mapping of a whole file, which a forked child does not get.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, to be read and written.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::with(fd, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps the first `len` bytes of `fd`, to be read alone.
    pub(crate) fn read_only(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::with(fd, len, libc::PROT_READ)
    }

    fn with(fd: BorrowedFd<'_>, len: usize, protection: libc::c_int) -> io::Result<Self> {
        let address = attempt("mmap", || {
            // SAFETY: the kernel chooses the address, so nothing of ours is mapped over.
            let address = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len,
                    protection,
                    libc::MAP_SHARED,
                    fd.as_raw_fd(),
                    0,
                )
            };
            if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
        })?;
        let address = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let mapping = Self { address, len };
        // A child that inherited the ring could move its tail.
        // SAFETY: the range is the mapping that was just made.
        call("madvise", || unsafe {
            libc::madvise(address.as_ptr().cast(), len, libc::MADV_DONTFORK)
        })?;
        Ok(mapping)
    }

    /// The first byte; as many as were asked for are mapped for as long as `self` lives.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, unmapped whole and once, and its borrowers are gone. It can
        // only fail for a range that is not a mapping.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}
