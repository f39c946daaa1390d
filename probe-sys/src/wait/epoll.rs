//! `epoll(7)`.

use crate::attempt;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// An epoll instance. It reports that a descriptor is readable, and of the tagged ones also which.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// Creates an instance without descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = attempt("epoll_create1", || epoll::create(epoll::CreateFlags::CLOEXEC))?;
        Ok(Self { fd })
    }

    /// Adds a descriptor to those that [`wait`](Self::wait) waits for.
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.add_with(fd, NO_TAG)
    }

    /// Adds a descriptor that [`wait_for`](Self::wait_for) reports by a tag.
    pub fn add_tagged(&self, fd: BorrowedFd<'_>, tag: u32) -> io::Result<()> {
        self.add_with(fd, tag.into())
    }

    fn add_with(&self, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(data);
        attempt("epoll_ctl", || epoll::add(&self.fd, fd, data, epoll::EventFlags::IN))
    }

    /// Removes a descriptor.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        attempt("epoll_ctl", || epoll::delete(&self.fd, fd))
    }

    /// Waits until a descriptor is readable; without a timeout, for ever. Returns whether one was.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.wait_for(timeout, |_| {})
    }

    /// As [`wait`](Self::wait), and passes the tags of readable descriptors to `ready`.
    pub fn wait_for(
        &self,
        timeout: Option<Duration>,
        mut ready: impl FnMut(u32),
    ) -> io::Result<bool> {
        // The next call returns the descriptors that there is no room for.
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 64];
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        attempt("epoll_wait", || {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.map(whole_milliseconds);
            let (found, _) = epoll::wait(&self.fd, &mut events, left.as_ref())?;
            found
                .iter()
                .filter_map(|event| u32::try_from(event.data.u64()).ok())
                .for_each(&mut ready);
            Ok::<_, rustix::io::Errno>(!found.is_empty())
        })
    }
}

/// What descriptors without a tag have in its place.
const NO_TAG: u64 = u64::MAX;

/// The unit of `epoll_wait(2)`, rounded up: a wait that ended early would be repeated in a busy loop.
fn whole_milliseconds(time: Duration) -> Timespec {
    let milliseconds = time.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
    Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
