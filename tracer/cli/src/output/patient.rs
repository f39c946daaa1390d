//! Output that waits for its reader.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// A writer that waits until its descriptor is ready, even if the descriptor is non-blocking: another process that shares the
/// terminal or the pipe may have set `O_NONBLOCK`.
#[derive(Debug)]
pub(crate) struct Patient<W>(pub(crate) W);

/// Standard output.
pub(crate) fn stdout() -> Patient<io::Stdout> {
    Patient(io::stdout())
}

impl<W: AsFd> Patient<W> {
    /// Retries a call that would block, once the descriptor is ready.
    fn patiently<T>(&mut self, mut act: impl FnMut(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match act(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut output = [PollFd::new(&self.0, PollFlags::OUT)];
                    match poll(&mut output, None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                result => return result,
            }
        }
    }
}

impl<W: Write + AsFd> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.patiently(|output| output.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.patiently(W::flush)
    }
}
