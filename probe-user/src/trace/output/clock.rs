//! The times of events, as they are shown.

use crate::sys::clock;
use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECOND: u64 = 1_000_000_000;

/// How the times of events are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Time {
    /// `CLOCK_MONOTONIC`, as the kernel took it.
    #[default]
    Mono,
    /// By the clock on the wall, where the process is (`TZ`, or else the system's zone). Taken from
    /// `CLOCK_MONOTONIC` by what the two clocks differed when the trace began.
    Local,
    /// Since the event that was written before.
    Delta,
}

/// What `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC`, in nanoseconds.
pub(in crate::trace) fn realtime_offset() -> i64 {
    // Of several tries, the one that was interrupted least.
    let tries = (0..5).map(|_| {
        let (before, real, after) = (clock::monotonic(), clock::realtime(), clock::monotonic());
        let between = after - before;
        (between, real as i64 - (before + between / 2) as i64)
    });
    tries.min().map_or(0, |(_, offset)| offset)
}

/// Shows times, one after another.
#[derive(Debug)]
pub(super) struct Times {
    time: Time,
    offset: i64,
    zone: TimeZone,
    local: Local,
    last: Option<u64>,
}

/// A second of the clock on the wall: it is written once for all that happens in it.
#[derive(Debug, Default)]
struct Local {
    second: Option<i64>,
    date_and_time: String,
    offset: String,
}

/// How the time of one event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp<'t> {
    /// As it is.
    Mono,
    /// On the wall.
    Local {
        /// Like `2026-11-22T13:05:59`.
        date_and_time: &'t str,
        nanoseconds: u32,
        /// What the zone is ahead of UTC, like `+01:00`.
        offset: &'t str,
    },
    /// Nanoseconds since the event before.
    Delta(i64),
}

impl Times {
    /// `offset`: what [`realtime_offset`] told.
    pub(super) fn new(time: Time, offset: i64) -> Self {
        let zone = if time == Time::Local { TimeZone::system() } else { TimeZone::UTC };
        Self { time, offset, zone, local: Local::default(), last: None }
    }

    /// How the time of the next event is shown.
    pub(super) fn stamp(&mut self, time: u64) -> Stamp<'_> {
        match self.time {
            Time::Mono => Stamp::Mono,
            Time::Delta => {
                let last = self.last.replace(time).unwrap_or(time);
                Stamp::Delta(time.wrapping_sub(last).cast_signed())
            }
            Time::Local => {
                let real = time.saturating_add_signed(self.offset);
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
        // No clock is that far off.
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
    fn the_clocks_differ_by_the_same_all_the_time() {
        let (one, other) = (realtime_offset(), realtime_offset());
        assert!((one - other).abs() < 5_000_000, "{one} {other}");
        let now = clock::monotonic() as i64 + one;
        assert!((now - clock::realtime() as i64).abs() < 1_000_000_000);
    }

    #[test]
    fn local_time_is_that_of_the_zone() {
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
    fn a_delta_is_since_the_event_before_and_may_go_back() {
        let mut times = Times::new(Time::Delta, 0);
        for (time, delta) in [(100, 0), (350, 250), (300, -50)] {
            assert_eq!(times.stamp(time), Stamp::Delta(delta));
        }
        assert_eq!(Times::new(Time::Mono, 0).stamp(5), Stamp::Mono);
    }
}
