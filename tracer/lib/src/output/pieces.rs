//! Buffered output with a limit on the number of events.

use std::io::{self, Write};
use std::ops::ControlFlow;

/// Buffered output is passed on in pieces of at least this many bytes, or on request.
pub(crate) const PIECE: usize = 64 << 10;

/// Buffers events for a writer that may fail.
#[derive(Debug)]
pub(crate) struct Pieces<W> {
    pub(crate) writer: W,
    /// Bytes that were not yet passed on. The next field counts the events in them.
    pub(crate) out: Vec<u8>,
    pending: u64,
    /// The number of events after which it ends, if there is a limit.
    pub(crate) left: Option<u64>,
    /// The number of events written.
    pub(crate) events: u64,
    failed: Option<io::Error>,
}

impl<W: Write> Pieces<W> {
    pub(crate) fn new(writer: W) -> Self {
        let out = Vec::with_capacity(PIECE + (PIECE >> 3));
        Self { writer, out, pending: 0, left: None, events: 0, failed: None }
    }

    /// Breaks if the limit is reached or the writer has failed.
    pub(crate) fn accepts(&self) -> ControlFlow<()> {
        if self.left == Some(0) || self.has_failed() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Counts a written event. Breaks if it reached the limit.
    pub(crate) fn count(&mut self) -> ControlFlow<()> {
        self.events += 1;
        self.pending += 1;
        self.left = self.left.map(|left| left - 1);
        self.accepts()
    }

    /// Passes on the buffered bytes. [`finish`](Self::finish) returns the error, if any.
    pub(crate) fn flush(&mut self) -> ControlFlow<()> {
        if self.has_failed() {
            return ControlFlow::Break(());
        }
        let written = self.writer.write_all(&self.out).and_then(|()| self.writer.flush());
        self.out.clear();
        let pending = std::mem::take(&mut self.pending);
        let Err(error) = written else { return ControlFlow::Continue(()) };
        self.events -= pending;
        self.fail(error)
    }

    /// Records that the writer has failed.
    pub(crate) fn fail(&mut self, error: io::Error) -> ControlFlow<()> {
        self.failed = Some(error);
        ControlFlow::Break(())
    }

    /// Passes on the buffered bytes if they make up a piece.
    pub(crate) fn flush_piece(&mut self) -> ControlFlow<()> {
        if self.out.len() < PIECE { ControlFlow::Continue(()) } else { self.flush() }
    }

    /// Passes on what precedes the events. After an error, no event is accepted.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        if self.flush().is_break() {
            self.left = Some(0);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Passes on the remaining bytes, or returns an earlier error.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let _ = self.flush();
        self.failed.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{self, Write};

    /// A writer with room for this many bytes.
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
