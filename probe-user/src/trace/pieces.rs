//! Bytes that are passed on many at a time, and the events in them, up to a limit.

use std::io::{self, Write};
use std::ops::ControlFlow;

/// What is written is passed on in pieces of so many bytes, or when somebody asks for it.
pub(super) const PIECE: usize = 64 << 10;

/// What is written for events, on its way to a writer that may fail.
#[derive(Debug)]
pub(super) struct Pieces<W> {
    pub(super) writer: W,
    /// What was not passed on yet, and how many events are in there.
    pub(super) out: Vec<u8>,
    pending: u64,
    left: Option<u64>,
    events: u64,
    failed: Option<io::Error>,
}

impl<W: Write> Pieces<W> {
    pub(super) fn new(writer: W) -> Self {
        let out = Vec::with_capacity(PIECE + (PIECE >> 3));
        Self { writer, out, pending: 0, left: None, events: 0, failed: None }
    }

    /// Ends after so many events.
    pub(super) fn limit(&mut self, events: Option<u64>) {
        self.left = events;
    }

    /// How many events were written.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Whether nothing more is wanted, or can be written.
    pub(super) fn is_done(&self) -> bool {
        self.left == Some(0) || self.has_failed()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// An event was written. Breaks if it was the last one that is wanted.
    pub(super) fn count(&mut self) -> ControlFlow<()> {
        self.events += 1;
        self.pending += 1;
        match &mut self.left {
            Some(left) => {
                *left -= 1;
                if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            None => ControlFlow::Continue(()),
        }
    }

    /// Passes on what was written. Keeps the error for [`finish`](Self::finish).
    pub(super) fn flush(&mut self) -> ControlFlow<()> {
        if self.has_failed() {
            return ControlFlow::Break(());
        }
        let written = self.writer.write_all(&self.out).and_then(|()| self.writer.flush());
        self.out.clear();
        let pending = std::mem::take(&mut self.pending);
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.events -= pending;
                self.fail(error)
            }
        }
    }

    /// Nothing more can be written.
    pub(super) fn fail(&mut self, error: io::Error) -> ControlFlow<()> {
        self.failed = Some(error);
        ControlFlow::Break(())
    }

    /// The same, if there is enough of it.
    pub(super) fn flush_piece(&mut self) -> ControlFlow<()> {
        if self.out.len() < PIECE { ControlFlow::Continue(()) } else { self.flush() }
    }

    /// Passes on what precedes the events. After an error, no event is wanted.
    pub(super) fn start(&mut self) -> io::Result<()> {
        if self.flush().is_break() {
            self.left = Some(0);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Passes on what is left, or tells what went wrong earlier.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let _ = self.flush();
        self.failed.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{self, Write};

    /// Takes so many bytes.
    pub(crate) struct Full(pub(crate) usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
