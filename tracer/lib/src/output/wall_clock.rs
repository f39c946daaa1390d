//! The wall clock, and its changes during a trace.

use probe_sys::clock;
use probe_sys::timer::Timer;
use probe_user::Stop;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// How far `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC`, in nanoseconds.
pub(super) fn realtime_offset() -> i64 {
    // Of several tries, take the one with the shortest interruption.
    let tries = (0..5).map(|_| {
        let (before, real, after) = (clock::monotonic(), clock::realtime(), clock::monotonic());
        let taken = after - before;
        (taken, real as i64 - (before + taken / 2) as i64)
    });
    tries.min().map_or(0, |(_, offset)| offset)
}

/// A change of the wall clock during a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockChange {
    /// The time from which on events have the new offset, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) since: u64,
    pub(crate) realtime_offset: i64,
}

/// The changes of the wall clock during a trace, which become known while its events are printed.
#[derive(Debug)]
pub struct ClockChanges {
    noted: Arc<Noted>,
    /// The changes that count, in the order of time.
    known: Vec<ClockChange>,
    /// What notes them, if they are those of this machine.
    _watch: Option<ClockWatch>,
}

/// Notes changes for [`ClockChanges`].
#[derive(Debug)]
pub(crate) struct ClockNotes(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The changes that were not taken yet.
    changes: Mutex<Vec<ClockChange>>,
    /// Their number, which is looked at for every event.
    count: AtomicUsize,
}

impl ClockNotes {
    pub(crate) fn note(&self, change: ClockChange) {
        let mut changes = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.push(change);
        // ORDERING: the lock passes the changes on; the count only says when to take it.
        self.0.count.store(changes.len(), Ordering::Relaxed);
    }
}

impl ClockChanges {
    pub(crate) fn channel() -> (ClockNotes, Self) {
        let noted = Arc::<Noted>::default();
        (ClockNotes(Arc::clone(&noted)), Self { noted, known: Vec::new(), _watch: None })
    }

    /// The changes on this machine, for a trace that began when the wall clock had this offset. `None` if nothing can follow them,
    /// which is logged.
    pub(crate) fn of_this_machine(begun: i64) -> Option<Self> {
        let (notes, changes) = Self::channel();
        match ClockWatch::start(notes, begun) {
            Ok(watch) => Some(Self { _watch: Some(watch), ..changes }),
            Err(error) => {
                log::warn!("changes of the wall clock are not noticed: {error}");
                None
            }
        }
    }

    /// The changes since the last call.
    pub(crate) fn news(&mut self) -> Vec<ClockChange> {
        // ORDERING: see `ClockNotes::note`.
        if self.noted.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut changes = self.noted.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.noted.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut *changes)
    }

    /// The offset at a time, in nanoseconds, if it has changed by then.
    pub(super) fn offset_at(&mut self, time: u64) -> Option<i64> {
        for change in self.news() {
            // A recording may have them in any order. What has been replaced is not found any more.
            while self.known.last().is_some_and(|last| last.since >= change.since) {
                self.known.pop();
            }
            self.known.push(change);
        }
        let later = self.known.partition_point(|change| change.since <= time);
        Some(self.known[..later].last()?.realtime_offset)
    }
}

/// A thread that notes the changes of this machine's wall clock when they happen: events may be printed or recorded much
/// later. It ends when this is dropped.
#[derive(Debug)]
struct ClockWatch {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl ClockWatch {
    fn start(notes: ClockNotes, begun: i64) -> io::Result<Self> {
        let (timer, stop) = (Timer::of_clock_changes()?, Stop::new()?);
        let stopped = stop.clone();
        let watch = move || {
            // It may have been set before the timer was there. A smaller difference may be an error of measurement.
            const LEAST: u64 = 1_000_000;
            let change = now();
            if change.realtime_offset.abs_diff(begun) > LEAST {
                notes.note(change);
            }
            let mut waiting =
                [PollFd::new(&timer, PollFlags::IN), PollFd::new(&stopped, PollFlags::IN)];
            while !stopped.is_stopped() {
                // It fails if a signal has interrupted it.
                if poll(&mut waiting, None).is_ok() && !waiting[0].revents().is_empty() {
                    timer.take();
                    notes.note(now());
                }
            }
        };
        let thread = thread::Builder::new().name("clock".into()).spawn(watch)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// The offset from now on.
fn now() -> ClockChange {
    ClockChange { since: clock::monotonic(), realtime_offset: realtime_offset() }
}

impl Drop for ClockWatch {
    fn drop(&mut self) {
        self.stop.stop();
        // A panic has already printed its message.
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_between_the_clocks_is_constant() {
        let (one, other) = (realtime_offset(), realtime_offset());
        assert!((one - other).abs() < 5_000_000, "{one} {other}");
        let now = clock::monotonic() as i64 + one;
        assert!((now - clock::realtime() as i64).abs() < 1_000_000_000);
    }

    #[test]
    fn the_last_change_that_was_noted_counts() {
        let (notes, mut changes) = ClockChanges::channel();
        for (since, realtime_offset) in [(10, 1), (20, 2), (30, 3), (20, 4)] {
            notes.note(ClockChange { since, realtime_offset });
        }
        let offsets = [9, 10, 19, 20, 99].map(|time| changes.offset_at(time));
        assert_eq!(offsets, [None, Some(1), Some(1), Some(4), Some(4)]);
        notes.note(ClockChange { since: 25, realtime_offset: 5 });
        assert_eq!([20, 25].map(|time| changes.offset_at(time)), [Some(4), Some(5)]);
    }

    #[test]
    fn a_clock_that_was_set_before_the_watch_has_a_change() {
        let hour = 3_600_000_000_000;
        for (begun, is_changed) in [(realtime_offset(), false), (realtime_offset() - hour, true)] {
            let mut changes = ClockChanges::of_this_machine(begun).unwrap();
            // It looks before it ends.
            drop(changes._watch.take());
            let offset = changes.offset_at(clock::monotonic());
            assert_eq!(offset.is_some(), is_changed, "{offset:?}");
            assert!(offset.is_none_or(|offset| offset.abs_diff(begun + hour) < 5_000_000));
        }
    }
}
