//! How events come out of a trace: as each CPU emitted them, or by time.

use crate::consumer::Consumer;
use crate::error::{OpenError, PollError, TallyError};
use crate::evpipe::{EvPipe, Progress};
use crate::ledger::Ledger;
use crate::ordered::OrderedPipe;
use crate::stop::Stop;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The order of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// That in which each CPU emitted them.
    #[default]
    AsEmitted,
    /// That of time, across CPUs. `None` is the window with which no event should be late.
    ByTime { window: Option<Duration> },
}

/// The pipe of a trace.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a trace has one, and it does not move")]
pub(super) enum Delivery {
    AsEmitted(EvPipe),
    ByTime(OrderedPipe),
}

impl Delivery {
    pub(super) fn new(pipe: EvPipe, order: Order) -> Result<Self, OpenError> {
        match order {
            Order::AsEmitted => Ok(Self::AsEmitted(pipe)),
            Order::ByTime { window } => {
                let window = window.unwrap_or_else(|| pipe.good_window());
                pipe.ordered(window).map(Self::ByTime)
            }
        }
    }

    pub(super) fn pipe(&self) -> &EvPipe {
        match self {
            Self::AsEmitted(pipe) => pipe,
            Self::ByTime(pipe) => pipe.get_ref(),
        }
    }

    pub(super) fn run<C: Consumer>(&mut self, stop: &Stop, to: &mut C) -> Result<(), PollError> {
        match self {
            Self::AsEmitted(pipe) => pipe.run(stop, to),
            Self::ByTime(pipe) => pipe.run(stop, to),
        }
    }

    pub(super) fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        to: &mut C,
    ) -> Result<Progress, PollError> {
        match self {
            Self::AsEmitted(pipe) => pipe.poll(timeout, to),
            Self::ByTime(pipe) => pipe.poll(timeout, to),
        }
    }

    pub(super) fn drain<C: Consumer>(&mut self, to: &mut C) -> Progress {
        match self {
            Self::AsEmitted(pipe) => pipe.drain(to),
            Self::ByTime(pipe) => pipe.drain(to),
        }
    }

    pub(super) fn drain_all<C: Consumer>(&mut self, to: &mut C) -> ControlFlow<()> {
        match self {
            Self::AsEmitted(pipe) => pipe.drain_all(to),
            Self::ByTime(pipe) => pipe.drain_all(to),
        }
    }

    /// Closes the pipe. What became of every record, and how many of them came too late for their place.
    pub(super) fn close<C: Consumer>(self, to: &mut C) -> Result<(Ledger, u64), TallyError> {
        match self {
            Self::AsEmitted(pipe) => Ok((pipe.close(to).ledger?, 0)),
            Self::ByTime(pipe) => {
                let summary = pipe.close(to);
                Ok((summary.pipe.ledger?, summary.late))
            }
        }
    }
}

impl AsFd for Delivery {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::AsEmitted(pipe) => pipe.as_fd(),
            Self::ByTime(pipe) => pipe.as_fd(),
        }
    }
}
