//! Where an event is opened.

use super::error::PerfError;
use crate::sys::perf_event::{Attr, Flags};
use std::fmt;
use std::io;

/// What `perf_event_open(2)` takes besides the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// A thread; `None`: all of them.
    pub(crate) thread: Option<u32>,
    /// A CPU; `None`: all of them.
    pub(crate) cpu: Option<u32>,
    /// Whether it is that of the threads and processes that the thread makes, too.
    pub(crate) inherits: bool,
    /// Whether the CPU is offline now, and nobody misses the event if it cannot be opened there.
    pub(crate) is_offline: bool,
}

impl Place {
    /// That of a thread, wherever it runs.
    pub(crate) fn of_thread(thread: u32) -> Self {
        Self { thread: Some(thread), cpu: None, inherits: false, is_offline: false }
    }

    /// That of whatever a CPU runs.
    pub(crate) fn on_cpu(cpu: u32) -> Self {
        Self { thread: None, cpu: Some(cpu), inherits: false, is_offline: false }
    }

    /// As the kernel takes it.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.thread.map_or(-1, |thread| thread.cast_signed())
    }

    /// As the kernel takes it.
    pub(crate) fn cpu(&self) -> libc::c_int {
        self.cpu.map_or(-1, u32::cast_signed)
    }

    /// Where the ring is that it writes to: that of its CPU, or of its thread.
    pub(super) fn of_ring(&self) -> Self {
        let thread = if self.cpu.is_some() { None } else { self.thread };
        Self { thread, cpu: self.cpu, inherits: false, is_offline: false }
    }

    /// The attribute of an event there.
    pub(super) fn attr(&self, attr: &Attr) -> Attr {
        let inherit = if self.inherits { Flags::INHERIT } else { Flags::empty() };
        Attr { flags: attr.flags | inherit.bits(), ..attr.clone() }
    }

    /// The event of this name cannot be opened there.
    pub(super) fn refused(&self, event: &str, source: io::Error) -> PerfError {
        PerfError::Open { event: event.to_owned(), place: self.to_string(), source }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.thread, self.cpu) {
            (Some(thread), Some(cpu)) => write!(f, "of thread {thread} on CPU {cpu}"),
            (Some(thread), None) => write!(f, "of thread {thread}"),
            (None, Some(cpu)) => write!(f, "on CPU {cpu}"),
            (None, None) => f.write_str("of everybody"),
        }
    }
}
