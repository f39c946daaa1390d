//! A perf event that programs write to, and its ring.

use crate::error::OpenError;
use crate::queue::backward::Backward;
use crate::queue::consumer::Consumer;
use crate::queue::contents::Contents;
use crate::queue::cursor::Seen;
use crate::queue::drain::{Drain, Drained};
use probe_sys::perf_event::{PerfEvent, WakeAt};
use probe_sys::ring::page::RingPages;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

/// A perf event that programs write to, and the ring behind it.
#[derive(Debug)]
pub(crate) struct EventRing {
    event: PerfEvent,
    /// A second event that shares the ring and wakes the reader on every record.
    eager: Option<PerfEvent>,
    direction: Direction,
}

/// How programs write to the rings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writing {
    /// After the existing records, as long as there is room.
    Forward(WakeAt, Contents),
    /// Before the existing records, overwriting the oldest ones.
    Backward,
}

/// A ring by the direction in which it is written, and how far it has been read.
#[derive(Debug)]
enum Direction {
    Forward(Drain<RingPages>),
    Backward(Backward<RingPages>),
}

impl EventRing {
    /// Opens the event of a CPU, maps its ring, then enables the event. The order matters: an event in a map
    /// slot must have room to write to. Returns `None` if the CPU is offline.
    pub(crate) fn open(
        cpu: u32,
        bytes: usize,
        writing: Writing,
    ) -> Result<Option<Self>, OpenError> {
        let opened = match writing {
            Writing::Forward(wake_at, _) => PerfEvent::bpf_output(cpu, wake_at),
            Writing::Backward => PerfEvent::backward_output(cpu),
        };
        let event = match opened {
            Ok(event) => event,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            Err(cause) => return Err(OpenError::Event { cpu, cause }),
        };
        let map = |cause| OpenError::Mmap { cpu, bytes, cause };
        let direction = match writing {
            Writing::Forward(_, contents) => {
                let pages = RingPages::map(event.as_fd(), bytes).map_err(map)?;
                let tail = pages.tail();
                Direction::Forward(Drain::new(cpu, pages, tail).of(contents))
            }
            Writing::Backward => {
                let pages = RingPages::map_overwritten(event.as_fd(), bytes).map_err(map)?;
                Direction::Backward(Backward::new(pages))
            }
        };
        event.enable().map_err(|cause| OpenError::Enable { cpu, cause })?;
        Ok(Some(Self { event, eager: None, direction }))
    }

    /// Opens a second event that writes to the same ring and wakes the reader on every record. Returns a
    /// borrow of it.
    pub(crate) fn open_eager(&mut self, cpu: u32) -> io::Result<BorrowedFd<'_>> {
        let eager = PerfEvent::bpf_output(cpu, WakeAt::Events(1))?;
        eager.set_output(self.event.as_fd())?;
        eager.enable()?;
        let eager: &PerfEvent = self.eager.insert(eager);
        Ok(eager.as_fd())
    }

    /// Pauses the output to the ring, or resumes it.
    pub(crate) fn pause(&self, paused: bool) -> io::Result<()> {
        self.event.pause_output(paused)
    }

    /// The second event, if there is one.
    pub(crate) fn eager(&self) -> Option<BorrowedFd<'_>> {
        self.eager.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn has_records(&self) -> bool {
        match &self.direction {
            Direction::Forward(drain) => drain.has_records(),
            Direction::Backward(backward) => backward.has_more(),
        }
    }

    /// The number of outputs that the ring reported as lost.
    pub(crate) fn reported_lost(&self) -> u64 {
        match &self.direction {
            Direction::Forward(drain) => drain.lost(),
            Direction::Backward(_) => 0,
        }
    }

    /// The ring, if newer records overwrite older ones.
    pub(crate) fn backward_mut(&mut self) -> Option<&mut Backward<RingPages>> {
        match &mut self.direction {
            Direction::Forward(_) => None,
            Direction::Backward(backward) => Some(backward),
        }
    }

    /// Drains the ring. An overwritten ring is left to dumps.
    pub(crate) fn run<C: Consumer>(
        &mut self,
        seen: &mut Seen,
        consumer: &mut C,
        budget: usize,
    ) -> Drained {
        match &mut self.direction {
            Direction::Forward(drain) => drain.run(seen, consumer, budget),
            Direction::Backward(_) => Drained { flow: ControlFlow::Continue(()), more: false },
        }
    }

    /// The number of outputs that the kernel had no room for, whether or not the ring has reported them yet.
    pub(crate) fn kernel_lost(&self) -> Option<u64> {
        let eager = match &self.eager {
            Some(eager) => eager.lost().ok().flatten()?,
            None => 0,
        };
        Some(self.event.lost().ok().flatten()? + eager)
    }

    /// The number of lost outputs that the ring has not reported.
    pub(crate) fn unreported_lost(&self) -> u64 {
        self.kernel_lost().map_or(0, |lost| lost.saturating_sub(self.reported_lost()))
    }

    pub(crate) fn disable(&self) {
        for event in self.eager.iter().chain([&self.event]) {
            // This fails only if the event no longer exists, which has the same effect.
            let _ = event.disable();
        }
    }
}

impl AsFd for EventRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
