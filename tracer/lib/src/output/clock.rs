//! Event times, as printed.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use probe_sys::clock;
use serde::{Deserialize, Serialize};
use std::sync::mpsc::{Receiver, Sender, channel};

const SECOND: u64 = 1_000_000_000;

/// How event times are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Time {
    /// `CLOCK_MONOTONIC`, as the kernel took it.
    #[default]
    Mono,
    /// The wall clock, in the time zone of the process (`TZ`, or else the system's zone). Computed from
    /// `CLOCK_MONOTONIC` and the difference between the two clocks when the event is printed or recorded, because the wall
    /// clock may be set and the machine may be suspended.
    Local,
    /// The time since the previous event.
    Delta,
}

/// How far `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn realtime_offset() -> i64 {
    measured_offset().nanoseconds
}

/// A measured difference between two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Measured {
    /// How far it may be off, in nanoseconds.
    tolerance: u64,
    nanoseconds: i64,
}

fn measured_offset() -> Measured {
    // Of several tries, take the one with the shortest interruption.
    let tries = (0..5).map(|_| {
        let (before, real, after) = (clock::monotonic(), clock::realtime(), clock::monotonic());
        let tolerance = after - before;
        Measured { tolerance, nanoseconds: real as i64 - (before + tolerance / 2) as i64 }
    });
    tries.min().unwrap_or(Measured { tolerance: u64::MAX, nanoseconds: 0 })
}

/// How far `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC` while a trace runs.
#[derive(Debug)]
pub(crate) struct RunningOffset {
    nanoseconds: i64,
    /// When to measure it again, in nanoseconds of `CLOCK_MONOTONIC`.
    again: u64,
}

impl RunningOffset {
    /// How often it is measured, in nanoseconds.
    const INTERVAL: u64 = SECOND / 10;

    /// Smaller differences are not distinguished from errors of measurement, so that consecutive times do not jitter.
    const LEAST_CHANGE: u64 = SECOND / 1000;

    /// The offset of a trace that began with this one.
    pub(crate) fn new(nanoseconds: i64) -> Self {
        Self { nanoseconds, again: 0 }
    }

    /// The new offset, if it has changed.
    pub(crate) fn change(&mut self) -> Option<i64> {
        self.change_at(clock::monotonic(), measured_offset)
    }

    fn change_at(&mut self, now: u64, measure: impl FnOnce() -> Measured) -> Option<i64> {
        if now < self.again {
            return None;
        }
        self.again = now + Self::INTERVAL;
        let Measured { tolerance, nanoseconds } = measure();
        let change = nanoseconds.abs_diff(self.nanoseconds);
        if change <= tolerance.saturating_add(Self::LEAST_CHANGE) {
            return None;
        }
        self.nanoseconds = nanoseconds;
        Some(nanoseconds)
    }
}

/// A change of the offset during a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockChange {
    /// The time of the first event with the new offset, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) since: u64,
    pub(crate) realtime_offset: i64,
}

/// The changes of the wall clock during a recording, which become known while it is replayed.
#[derive(Debug)]
pub struct ClockChanges {
    pub(crate) received: Receiver<ClockChange>,
    known: Vec<ClockChange>,
}

impl ClockChanges {
    pub(crate) fn channel() -> (Sender<ClockChange>, Self) {
        let (sender, received) = channel();
        (sender, Self { received, known: Vec::new() })
    }

    /// The offset at a time, in nanoseconds, if it has changed by then.
    fn offset_at(&mut self, time: u64) -> Option<i64> {
        self.known.extend(self.received.try_iter());
        let latest = self.known.iter().rev().find(|change| change.since <= time);
        latest.map(|change| change.realtime_offset)
    }
}

/// How far `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC` at the time of an event.
#[derive(Debug)]
pub(super) enum Offset {
    /// Events of this process, which are printed soon.
    Running(RunningOffset),
    /// Events of a recording: the offset at its beginning, and its changes.
    Recorded(i64, Option<ClockChanges>),
}

impl Offset {
    fn at(&mut self, time: u64) -> i64 {
        match self {
            Self::Running(offset) => {
                offset.change();
                offset.nanoseconds
            }
            Self::Recorded(begun, changes) => {
                changes.as_mut().and_then(|changes| changes.offset_at(time)).unwrap_or(*begun)
            }
        }
    }
}

/// Formats the times of consecutive events.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) time: Time,
    offset: Offset,
    zone: TimeZone,
    local: Local,
    last: Option<u64>,
}

/// A second of the wall clock, formatted once for all events in it.
#[derive(Debug, Default)]
struct Local {
    second: Option<i64>,
    date_and_time: String,
    offset: String,
}

/// How to print the time of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp<'t> {
    /// Unchanged, from `CLOCK_MONOTONIC`.
    Mono,
    /// The wall clock.
    Local {
        /// Like `2026-11-22T13:05:59`.
        date_and_time: &'t str,
        nanoseconds: u32,
        /// The zone's offset from UTC, like `+01:00`.
        offset: &'t str,
    },
    /// Nanoseconds since the previous event.
    Delta(i64),
}

impl Times {
    pub(super) fn new(time: Time, offset: Offset) -> Self {
        let zone = if time == Time::Local { TimeZone::system() } else { TimeZone::UTC };
        Self { time, offset, zone, local: Local::default(), last: None }
    }

    /// Prints times in another way.
    pub(super) fn with(self, time: Time) -> Self {
        Self::new(time, self.offset)
    }

    /// Follows the changes of the clock of a recording.
    pub(super) fn following(self, changes: ClockChanges) -> Self {
        let offset = match self.offset {
            Offset::Recorded(begun, _) => Offset::Recorded(begun, Some(changes)),
            running => running,
        };
        Self { offset, ..self }
    }

    /// How to print the time of the next event.
    pub(super) fn stamp(&mut self, time: u64) -> Stamp<'_> {
        match self.time {
            Time::Mono => Stamp::Mono,
            Time::Delta => {
                let last = self.last.replace(time).unwrap_or(time);
                Stamp::Delta(time.wrapping_sub(last).cast_signed())
            }
            Time::Local => {
                let real = time.saturating_add_signed(self.offset.at(time));
                let second = (real / SECOND) as i64;
                if self.local.second != Some(second) {
                    self.local = Local::of(second, &self.zone);
                }
                let Local { date_and_time, offset, .. } = &self.local;
                Stamp::Local { date_and_time, nanoseconds: (real % SECOND) as u32, offset }
            }
        }
    }
}

impl Local {
    fn of(second: i64, zone: &TimeZone) -> Self {
        // No real clock is that far off.
        let timestamp = Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH);
        let zoned = timestamp.to_zoned(zone.clone());
        Self {
            second: Some(second),
            date_and_time: zoned.strftime("%Y-%m-%dT%H:%M:%S").to_string(),
            offset: zoned.strftime("%:z").to_string(),
        }
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
    fn local_time_follows_the_time_zone() {
        let offset = 1_795_312_000 * SECOND as i64;
        for (zone, date, ahead) in [
            ("UTC0", "2026-11-22T01:46:40", "+00:00"),
            ("XXX-5:30", "2026-11-22T07:16:40", "+05:30"),
            ("XXX8", "2026-11-21T17:46:40", "-08:00"),
        ] {
            let mut times = Times::new(Time::Local, Offset::Recorded(offset, None));
            times.zone = TimeZone::posix(zone).unwrap();
            for nanoseconds in [0, 7, 999_999_999] {
                let stamp = times.stamp(nanoseconds.into());
                let expected = Stamp::Local { date_and_time: date, nanoseconds, offset: ahead };
                assert_eq!(stamp, expected);
            }
            let Stamp::Local { date_and_time, nanoseconds: 1, .. } = times.stamp(SECOND + 1) else {
                panic!("it is no local time");
            };
            assert!(date_and_time.ends_with(":41"), "{date_and_time}");
        }
    }

    #[test]
    fn the_wall_clock_may_be_set_while_events_are_printed() {
        let hour = 3600 * SECOND as i64;
        let measured = |nanoseconds, tolerance| move || Measured { tolerance, nanoseconds };
        let mut offset = RunningOffset::new(hour);
        // What may be an error of measurement is no change, and what happens within the interval is not noticed.
        assert_eq!(offset.change_at(5, measured(hour + 500, 0)), None);
        assert_eq!(offset.change_at(6, || panic!("it is too early")), None);
        let later = |n: u64| n * RunningOffset::INTERVAL + 5;
        assert_eq!(offset.change_at(later(1), measured(2 * hour, u64::MAX)), None);
        assert_eq!(offset.change_at(later(2), measured(2 * hour, 70)), Some(2 * hour));
        assert_eq!(offset.change_at(later(3), measured(2 * hour + 70, 70)), None);
        assert_eq!(offset.change_at(later(4), measured(-hour, 70)), Some(-hour));
    }

    #[test]
    fn recorded_changes_apply_from_their_time_on() {
        let (sender, changes) = ClockChanges::channel();
        let mut offset =
            Times::new(Time::Local, Offset::Recorded(7, None)).following(changes).offset;
        assert_eq!(offset.at(100), 7);
        sender.send(ClockChange { since: 50, realtime_offset: 8 }).unwrap();
        sender.send(ClockChange { since: 90, realtime_offset: -9 }).unwrap();
        assert_eq!([49, 50, 89, 90, 100].map(|time| offset.at(time)), [7, 8, 8, -9, -9]);
    }

    #[test]
    fn events_of_a_running_trace_have_the_time_of_the_wall_clock_now() {
        // As if the clock had been set forward since the trace began.
        let began = realtime_offset() - 86_400 * SECOND as i64;
        let mut times = Times::new(Time::Local, Offset::Running(RunningOffset::new(began)));
        times.zone = TimeZone::UTC;
        let Stamp::Local { date_and_time, .. } = times.stamp(clock::monotonic()) else {
            panic!("it is no local time");
        };
        let shown: jiff::civil::DateTime = date_and_time.parse().unwrap();
        let shown = shown.to_zoned(TimeZone::UTC).unwrap().timestamp().as_second();
        assert!((shown - (clock::realtime() / SECOND) as i64).abs() < 3600, "{shown}");
    }

    #[test]
    fn a_delta_is_the_time_since_the_previous_event() {
        let mut times = Times::new(Time::Delta, Offset::Recorded(0, None));
        for (time, delta) in [(100, 0), (350, 250), (300, -50)] {
            assert_eq!(times.stamp(time), Stamp::Delta(delta));
        }
        assert_eq!(Times::new(Time::Mono, Offset::Recorded(0, None)).stamp(5), Stamp::Mono);
    }
}
