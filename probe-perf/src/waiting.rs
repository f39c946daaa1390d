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
        let reported = fd.revents();
        **has_ended = reported.contains(PollFlags::HUP);
        // It would be reported for ever.
        if reported.contains(PollFlags::ERR) && !**has_ended {
            return Err(io::Error::other(STOPPED));
        }
    }
    Ok(ready > 0)
}

/// What an event reports with `POLLERR` (`perf_poll` in the kernel).
const STOPPED: &str =
    "an event does not count any more: its PMU is gone, or it is pinned and has lost its counter";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn an_event_that_has_stopped_is_an_error() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut has_ended = false;
        let mut wait = |fd: BorrowedFd<'_>| {
            let deadline = Instant::now().checked_add(Duration::from_millis(1));
            super::wait([(fd, &mut has_ended)].into_iter(), &[], deadline)
        };
        assert!(!wait(reader.as_fd()).unwrap());
        // The end of a pipe that nobody reads reports an error, and nothing else.
        drop(reader);
        assert_eq!(wait(writer.as_fd()).unwrap_err().to_string(), STOPPED);
        assert!(!has_ended);
    }
}
