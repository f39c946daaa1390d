//! Event times, as printed.

use super::wall_clock::ClockChanges;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::sync::LazyLock;

const SECOND: u64 = 1_000_000_000;

/// How event times are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Time {
    /// `CLOCK_MONOTONIC`, as the kernel took it.
    #[default]
    Mono,
    /// The wall clock, in the time zone of the process (`TZ`, or else the system's zone). Computed from
    /// `CLOCK_MONOTONIC` and the difference between the two clocks at the time of the event: the wall clock may be set, and
    /// the machine may be suspended.
    Local,
    /// The time since the previous event.
    Delta,
}

/// Reads the time zone of the process, which is read once. Call this before you give up the right to read its file, if
/// [`Time::Local`] is used later.
pub fn load_time_zone() {
    time_zone();
}

fn time_zone() -> TimeZone {
    static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);
    ZONE.clone()
}

/// Formats the times of consecutive events.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) time: Time,
    /// How far `CLOCK_REALTIME` was ahead of `CLOCK_MONOTONIC` at the beginning, in nanoseconds.
    pub(super) begun: i64,
    /// How that has changed since.
    changes: Option<ClockChanges>,
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
    pub(super) fn new(time: Time, begun: i64) -> Self {
        let zone = if time == Time::Local { time_zone() } else { TimeZone::UTC };
        Self { time, begun, changes: None, zone, local: Local::default(), last: None }
    }

    /// Prints times in another way.
    pub(super) fn with(self, time: Time) -> Self {
        Self { changes: self.changes, ..Self::new(time, self.begun) }
    }

    /// Follows changes of the wall clock.
    pub(super) fn follow(&mut self, changes: ClockChanges) {
        self.changes = Some(changes);
    }

    /// How far the wall clock is ahead at a time, in nanoseconds.
    fn offset_at(&mut self, time: u64) -> i64 {
        self.changes.as_mut().and_then(|changes| changes.offset_at(time)).unwrap_or(self.begun)
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
                let real = time.saturating_add_signed(self.offset_at(time));
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
    use crate::output::wall_clock::ClockChange;

    #[test]
    fn local_time_follows_the_time_zone() {
        let offset = 1_795_312_000 * SECOND as i64;
        for (zone, date, ahead) in [
            ("UTC0", "2026-11-22T01:46:40", "+00:00"),
            ("XXX-5:30", "2026-11-22T07:16:40", "+05:30"),
            ("XXX8", "2026-11-21T17:46:40", "-08:00"),
        ] {
            let mut times = Times::new(Time::Local, offset);
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
    fn changes_of_the_clock_apply_from_their_time_on() {
        let (notes, changes) = ClockChanges::channel();
        let mut times = Times::new(Time::Local, 7);
        times.follow(changes);
        assert_eq!(times.offset_at(100), 7);
        notes.note(ClockChange { since: 50, realtime_offset: 8 });
        notes.note(ClockChange { since: 90, realtime_offset: -9 });
        assert_eq!([49, 50, 89, 90, 100].map(|time| times.offset_at(time)), [7, 8, 8, -9, -9]);
    }

    #[test]
    fn a_delta_is_the_time_since_the_previous_event() {
        let mut times = Times::new(Time::Delta, 0);
        for (time, delta) in [(100, 0), (350, 250), (300, -50)] {
            assert_eq!(times.stamp(time), Stamp::Delta(delta));
        }
        assert_eq!(Times::new(Time::Mono, 0).stamp(5), Stamp::Mono);
    }
}
