//! Parsers of option values.

use probe_perf::pattern::Glob;
use probe_perf::{Event, EventError};
use probe_sys::cpus;
use probe_tracer::{ProbeSpec, User};
use probe_tracer_common::trace::COMM_LEN;
use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

/// Events, separated by commas.
#[derive(Clone, Debug)]
pub(super) struct EventList(Vec<Event>);

impl FromStr for EventList {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        Event::list(text).map(Self)
    }
}

/// All events of the lists.
pub(super) fn each_of(lists: &[EventList]) -> impl Iterator<Item = Event> {
    lists.iter().flat_map(|EventList(events)| events).cloned()
}

/// CPUs, by their ids.
#[derive(Clone, Debug)]
pub(crate) struct CpuList(pub(crate) Vec<u32>);

pub(super) fn cpu_list(text: &str) -> Result<CpuList, String> {
    match cpus::parse(text) {
        Ok(cpus) if cpus.is_empty() => Err("at least one CPU is required, like 0,2-3".into()),
        Ok(cpus) => Ok(CpuList(cpus)),
        Err(error) => Err(error.to_string()),
    }
}

/// Processes, by their ids.
#[derive(Clone, Debug)]
pub(crate) struct PidList(pub(crate) Vec<u32>);

/// As many as a trace can select.
pub(super) fn pids(text: &str) -> Result<PidList, String> {
    /// How many of a probe's 16 comparisons it takes.
    const MOST: usize = 8;
    let list = any_pids(text).map_err(|what| format!("{what}; -n NAME selects by name"))?;
    match list.0.len() > MOST {
        true => Err(format!("at most {MOST} processes can be listed; --cgroup selects more")),
        false => Ok(list),
    }
}

pub(super) fn any_pids(text: &str) -> Result<PidList, String> {
    let pids: Option<Vec<u32>> = text.split(',').map(above_0).collect();
    pids.map(PidList).ok_or_else(|| "expected process ids, like 17 or 17,18".to_owned())
}

fn above_0(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

/// Checks a pattern of names.
pub(super) fn glob(text: &str) -> Result<String, String> {
    Glob::new(text).map(|_| text.to_owned()).map_err(|error| error.what.to_owned())
}

/// Checks a name or a pattern of probes.
pub(super) fn names(text: &str) -> Result<String, String> {
    text.parse::<ProbeSpec>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Reads `1/100`.
pub(super) fn one_in(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").and_then(above_0);
    number.ok_or_else(|| "expected 1/N, like 1/100 for one in a hundred".to_owned())
}

/// Reads `100/s`, or `100`.
pub(super) fn per_second(text: &str) -> Result<u32, String> {
    let number = above_0(text.strip_suffix("/s").unwrap_or(text));
    number.ok_or_else(|| "expected N/s, like 100/s for a hundred a second".to_owned())
}

pub(super) fn comm(name: OsString) -> Result<OsString, String> {
    match name.len() {
        0 => Err("the name is empty".into()),
        len if len < COMM_LEN => Ok(name),
        len => Err(format!("{len} bytes is too long: names have at most {} bytes", COMM_LEN - 1)),
    }
}

/// Reads the number of a user, who need not exist, or the name of one who does.
pub(super) fn uid(text: &str) -> Result<u32, String> {
    text.parse().or_else(|_| looked_up(User::named(text)).map(|user| user.id))
}

/// Reads the number or the name of a user.
pub(super) fn user(text: &str) -> Result<User, String> {
    looked_up(text.parse().map_or_else(|_| User::named(text), User::numbered))
}

fn looked_up(found: io::Result<Option<User>>) -> Result<User, String> {
    match found {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err("no such user".into()),
        Err(error) => Err(format!("cannot look up users: {error}")),
    }
}

pub(super) fn thread(text: &str) -> Result<u32, String> {
    above_0(text).ok_or_else(|| match text.chars().all(|char| char == 't') {
        true => "expected a thread id, like 17; --time chooses the clock of events".to_owned(),
        false => "expected a thread id, like 17".to_owned(),
    })
}

pub(super) fn events_per_sample(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| "expected a number of events, from 1 on".to_owned())
}

pub(super) fn frequency(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| {
        match super::format::STACKS.iter().any(|(names, ..)| names.contains(&text)) {
            true => {
                format!("expected a number of samples per second, like 99; the format is -f {text}")
            }
            false => "expected a number of samples per second, like 99".to_owned(),
        }
    })
}

/// Reads a time with its unit, or in seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds.or_else(|| humantime::parse_duration(text).ok()) {
        Some(duration) if duration.is_zero() => Err("it must be longer than zero".into()),
        Some(duration) => Ok(duration),
        None => Err("expected a time like 10s or 500ms".into()),
    }
}

pub(super) fn bytes(text: &str) -> Result<usize, String> {
    // 64K is 65,536, as is usual for sizes of rings.
    let parsed = parse_size::Config::new().with_binary().parse_size(text);
    parsed
        .map_err(|error| format!("{error}; write it like 65536, 64K or 1M"))
        .and_then(|bytes| usize::try_from(bytes).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_unit_is_in_seconds() {
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("0.5"), duration("500ms"));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        for text in ["0", "-1", "inf", "NaN", "x", "10 parsecs"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn units_of_sizes_are_powers_of_two() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64K"), Ok(64 << 10));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        assert!(bytes("-1").is_err());
        assert!(bytes("x").is_err());
    }
}
