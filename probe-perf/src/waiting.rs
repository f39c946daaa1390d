//! Waiting for events that have data.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Waits until an event or one of the `besides` is readable, or until all threads of an event have ended, which the flag
/// beside the event records. Events whose flag is already set are skipped. Returns `false` on a timeout.
pub(super) fn wait<'e>(
    events: impl Iterator<Item = (BorrowedFd<'e>, &'e mut bool)>,
    besides: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
) -> io::Result<bool> {
    let (events, mut have_ended): (Vec<_>, Vec<_>) =
        events.filter(|(_, has_ended)| !**has_ended).unzip();
    let all = events.iter().chain(besides);
    let mut fds: Vec<_> = all.map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
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
    for (fd, has_ended) in fds.iter().zip(&mut have_ended) {
        **has_ended = fd.revents().contains(PollFlags::HUP);
    }
    Ok(ready > 0)
}
