//! Waiting for events that have something to read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// Those of some events that are of somebody who exists, by their numbers.
#[derive(Debug)]
pub(super) struct Alive(Vec<usize>);

impl Alive {
    /// So many events, of none of which it is known that whom it is of has ended.
    pub(super) fn all(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// Whether there is nobody any more.
    pub(super) fn is_nobody(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for one of `events` to be readable, or to be of nobody any more, or for others that are waited for
    /// `besides`. `false` if there was nothing in time.
    pub(super) fn wait(
        &mut self,
        events: &[impl AsFd],
        besides: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> io::Result<bool> {
        let of_events = self.0.iter().map(|&n| events[n].as_fd());
        let all = of_events.chain(besides.iter().copied());
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let ready = loop {
            let left = deadline
                .map(|deadline| deadline.saturating_duration_since(Instant::now()))
                .map(|left| Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput))
                .transpose()?;
            match poll(&mut fds, left.as_ref()) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        };
        let mut has_ended = fds.iter().map(|fd| fd.revents().contains(PollFlags::HUP));
        self.0.retain(|_| !has_ended.next().unwrap_or(false));
        Ok(ready > 0)
    }
}
