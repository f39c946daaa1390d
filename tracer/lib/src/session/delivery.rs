//! The order in which a trace delivers events: as each CPU emitted them, or by time.

use crate::error::TraceError;
use crate::session::waits::{self, Waiting};
use probe_user::ledger::Ledger;
use probe_user::{Consumer, EvPipe, OrderedPipe, PollError, Progress, Stop, TallyError};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The order of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// The order in which each CPU emitted them.
    #[default]
    AsEmitted,
    /// The order of time, across CPUs. `None` selects the window with which no event should be
    /// late.
    ByTime { window: Option<Duration> },
}

/// The pipe of a trace.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a trace has one, and it does not move")]
pub(crate) enum Delivery {
    AsEmitted(EvPipe),
    ByTime(OrderedPipe),
}

impl Delivery {
    /// `waiting`: hits that wait for memory are emitted later than others of the same time.
    pub(crate) fn new(
        pipe: EvPipe,
        order: Order,
        waiting: Option<&Waiting>,
    ) -> Result<Self, TraceError> {
        match order {
            Order::AsEmitted => Ok(Self::AsEmitted(pipe)),
            Order::ByTime { window } => {
                let window = window.unwrap_or_else(|| pipe.good_window());
                let mut pipe = pipe.ordered(window)?;
                if let Some(waiting) = waiting {
                    let longest = waits::LONGEST_IN_ALL.saturating_add(window);
                    pipe = pipe.widen_while(longest, waiting.watch(window));
                }
                Ok(Self::ByTime(pipe))
            }
        }
    }

    pub(crate) fn pipe(&self) -> &EvPipe {
        match self {
            Self::AsEmitted(pipe) => pipe,
            Self::ByTime(pipe) => pipe.get_ref(),
        }
    }

    pub(crate) fn run<C: Consumer>(&mut self, stop: &Stop, to: &mut C) -> Result<(), PollError> {
        match self {
            Self::AsEmitted(pipe) => pipe.run(stop, to),
            Self::ByTime(pipe) => pipe.run(stop, to),
        }
    }

    pub(crate) fn poll<C: Consumer>(
        &mut self,
        timeout: Option<Duration>,
        to: &mut C,
    ) -> Result<Progress, PollError> {
        match self {
            Self::AsEmitted(pipe) => pipe.poll(timeout, to),
            Self::ByTime(pipe) => pipe.poll(timeout, to),
        }
    }

    pub(crate) fn drain<C: Consumer>(&mut self, to: &mut C) -> Progress {
        match self {
            Self::AsEmitted(pipe) => pipe.drain(to),
            Self::ByTime(pipe) => pipe.drain(to),
        }
    }

    pub(crate) fn drain_all<C: Consumer>(&mut self, to: &mut C) -> ControlFlow<()> {
        match self {
            Self::AsEmitted(pipe) => pipe.drain_all(to),
            Self::ByTime(pipe) => pipe.drain_all(to),
        }
    }

    /// Closes the pipe. Returns its ledger, and the number of late events, which were delivered out of order.
    pub(crate) fn close<C: Consumer>(self, to: &mut C) -> Result<(Ledger, u64), TallyError> {
        match self {
            Self::AsEmitted(pipe) => Ok((pipe.close(to).ledger?, 0)),
            Self::ByTime(pipe) => {
                let summary = pipe.close(to);
                Ok((summary.ledger?, summary.late))
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
