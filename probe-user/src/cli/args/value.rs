//! What stands behind options.

use probe_user::common::trace::COMM_LEN;
use probe_user::cpus;
use probe_user::perf::{Event, EventError};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// Events, with commas between them.
#[derive(Clone, Debug)]
pub(super) struct EventList(Vec<Event>);

impl FromStr for EventList {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        Event::list(text).map(Self)
    }
}

/// All that are in the lists.
pub(super) fn each_of(lists: &[EventList]) -> impl Iterator<Item = Event> {
    lists.iter().flat_map(|EventList(events)| events).cloned()
}

/// CPUs, by their ids.
#[derive(Clone, Debug)]
pub(crate) struct CpuList(pub(crate) Vec<u32>);

pub(super) fn cpu_list(text: &str) -> Result<CpuList, String> {
    match cpus::parse(text) {
        Ok(cpus) if cpus.is_empty() => Err("no CPU is none: write them like 0,2-3".into()),
        Ok(cpus) => Ok(CpuList(cpus)),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads `1/100`.
pub(super) fn one_in(text: &str) -> Result<NonZeroU32, String> {
    let number = text.strip_prefix("1/").and_then(|number| number.parse().ok());
    number.ok_or_else(|| "one in how many? 1/100 is one in a hundred".to_owned())
}

/// Reads `100/s`, or `100`.
pub(super) fn per_second(text: &str) -> Result<NonZeroU32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse().ok();
    number.ok_or_else(|| "how many in a second? 100/s is a hundred".to_owned())
}

pub(super) fn comm(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("it has to have a byte at least".into()),
        len if len < COMM_LEN => Ok(text.to_owned()),
        len => Err(format!("it has {len} bytes, and the kernel keeps {} of a name", COMM_LEN - 1)),
    }
}

pub(super) fn user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err("there is no user of this name".into()),
        Err(errno) => Err(format!("cannot look up users: {}", errno.desc())),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err("it has to be more than nothing".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write it like 10s or 500ms")),
    }
}

pub(super) fn bytes(text: &str) -> Result<usize, String> {
    // 64K is 65,536, as everybody who sizes rings means it.
    let parsed = parse_size::Config::new().with_binary().parse_size(text);
    parsed
        .map_err(|error| format!("{error}; write it like 65536, 64K or 1M"))
        .and_then(|bytes| usize::try_from(bytes).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64K"), Ok(64 << 10));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        assert!(bytes("-1").is_err());
        assert!(bytes("x").is_err());
    }
}
