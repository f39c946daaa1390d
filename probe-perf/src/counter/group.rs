//! Counting events together.

use super::scaled;
use crate::error::PerfError;
use crate::event::Event;
use crate::target::{OpenSites, Site, Target};
use probe_sys::perf_event::{Attr, Flags, PerfEvent, ReadFormat};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// A group of events. At any time, the kernel counts all of them or none, and all counts are read at one moment, so that
/// you can compare them.
///
/// Counts of software events may change during a read. They belong to one moment only if the observed thread itself reads
/// them, or while the group is disabled.
///
/// The methods fail if a call does: [`PerfError::Call`] names the call, the events, and the thread or CPU.
///
/// ```no_run
/// use probe_perf::{Group, Target};
///
/// let events = ["page-faults", "minor-faults"].map(|name| name.parse().expect("an event"));
/// let group = Group::open(&events, &Target::ThisProcess)?;
/// group.enable()?;
/// // ...
/// let [all, minor] = group.read()?.members[..] else { panic!("two of them") };
/// assert!(minor.value <= all.value);
/// # Ok::<(), probe_perf::PerfError>(())
/// ```
#[derive(Debug)]
pub struct Group {
    sites: OpenSites<Members>,
}

/// The open events of one site.
#[derive(Debug)]
struct Members {
    leader: PerfEvent,
    /// Held because an event lives as long as its descriptor.
    _others: Vec<PerfEvent>,
    /// The ids of all events, in order.
    ids: Vec<u64>,
}

/// The counts of a group at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReading {
    /// How long the group was enabled.
    pub enabled: Duration,
    /// How much of that time it counted.
    pub running: Duration,
    /// The members, in the order in which the events were passed.
    pub members: Vec<MemberReading>,
    /// The counts for the whole time, of each thread or CPU by itself.
    estimates: Option<Vec<u64>>,
}

/// Nothing was counted, in no time.
impl Default for GroupReading {
    fn default() -> Self {
        Self::new(Duration::ZERO, Duration::ZERO, Vec::new())
    }
}

/// The count of one member of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberReading {
    /// How often the event happened while the group counted.
    pub value: u64,
    /// How many of its records were lost. `None` if the kernel does not report it (before 6.0).
    pub lost: Option<u64>,
}

/// The fields of a reading, beside lost records.
const READ_FORMAT: ReadFormat = ReadFormat::GROUP
    .union(ReadFormat::ID)
    .union(ReadFormat::TOTAL_TIME_ENABLED)
    .union(ReadFormat::TOTAL_TIME_RUNNING);

impl Group {
    /// Opens a group, disabled. The first event leads: the others are counted when it is. Periods in the terms of the events
    /// have no effect.
    ///
    /// # Errors
    ///
    /// If there are no events, an event or the target does not exist, or you lack the privileges. Also EINVAL for events
    /// that the kernel does not put into one group, for example because the CPU has too few counters. Some PMUs do not
    /// report this: such a group is [never counted](GroupReading::scaled).
    pub fn open(events: &[Event], target: &Target) -> Result<Self, PerfError> {
        let names: Vec<_> = events.iter().map(Event::described).collect();
        let attrs = events.iter().map(attr).collect::<Result<Vec<_>, _>>()?;
        if attrs.is_empty() {
            return Err(PerfError::EmptyGroup);
        }
        let group = format!("the group of {}", names.join(", "));
        let open = |site: &Site| Members::open(&attrs, &names, &group, site);
        Ok(Self { sites: OpenSites::open(group.clone(), target, events, open)? })
    }

    /// Starts counting all events.
    pub fn enable(&self) -> Result<(), PerfError> {
        self.sites.call("enable", |_, members| members.leader.enable_group()).collect()
    }

    /// Stops counting: events that happen after this returns are not counted.
    pub fn disable(&self) -> Result<(), PerfError> {
        self.sites.call("disable", |_, members| members.leader.disable_group()).collect()
    }

    /// Resets all counts to 0, but not the times, nor the counts of ended processes that inherited the events.
    pub fn reset(&self) -> Result<(), PerfError> {
        self.sites.call("reset", |_, members| members.leader.reset_group()).collect()
    }

    /// The sums of the counts and the times of all threads or CPUs. The counts of each are from one moment.
    pub fn read(&self) -> Result<GroupReading, PerfError> {
        let readings = self.sites.call("read", |_, members| members.read());
        let readings = readings.collect::<Result<Vec<_>, _>>()?;
        Ok(readings.into_iter().reduce(GroupReading::plus).unwrap_or_default())
    }

    /// The kernel's ids of the events for each thread or CPU, in the order in which they were passed.
    pub fn ids(&self) -> impl Iterator<Item = &[u64]> {
        self.sites.each.iter().map(|(_, members)| &*members.ids)
    }
}

impl Members {
    fn open(attrs: &[Attr], names: &[String], group: &str, site: &Site) -> Result<Self, PerfError> {
        let mut events: Vec<PerfEvent> = Vec::with_capacity(attrs.len());
        for (attr, name) in attrs.iter().zip(names) {
            let mut attr = Attr { read_format: READ_FORMAT.bits(), ..site.attr(attr) };
            if events.is_empty() {
                attr.flags |= Flags::DISABLED.bits();
            }
            let leader = events.first().map(PerfEvent::as_fd);
            let opened = attr.open_telling_lost(site.pid(), site.cpu(), leader);
            let event = opened.map_err(|cause| match leader {
                None => site.cannot_open(name, cause),
                Some(_) => {
                    let others = names[..events.len()].join(", ");
                    PerfError::Member { event: format!("{name} {site}"), others, cause }
                }
            })?;
            events.push(event);
        }
        let ids = events.iter().map(PerfEvent::id).collect::<io::Result<_>>();
        let ids = ids.map_err(|cause| site.cannot("ask for the ids of", group, cause))?;
        let leader = events.remove(0);
        Ok(Self { leader, _others: events, ids })
    }

    fn read(&self) -> io::Result<GroupReading> {
        let mut words = vec![0; HEAD + self.ids.len() * self.words_each()];
        let read = self.leader.read_words(&mut words)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        parsed(&words[..read], &self.ids, self.words_each())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The words per event in a reading.
    fn words_each(&self) -> usize {
        if self.leader.read_format().contains(ReadFormat::LOST) { 3 } else { 2 }
    }
}

/// The attributes of a member. It has no period: the kernel would throttle it, and the count would be too low.
fn attr(event: &Event) -> Result<Attr, PerfError> {
    Ok(Attr { sample_period: 0, ..event.counting_attr(0)? })
}

/// The words before those of the events.
const HEAD: usize = 3;

/// `struct read_format` with `PERF_FORMAT_GROUP`: `{ u64 nr; u64 time_enabled; u64 time_running; struct { u64
/// value; u64 id; u64 lost; } cntr[nr]; }`. `None` unless these are the events.
fn parsed(words: &[u64], ids: &[u64], words_each: usize) -> Option<GroupReading> {
    let (&[count, enabled, running], events) = words.split_first_chunk::<HEAD>()?;
    let events: Vec<&[u64]> = events.chunks_exact(words_each).collect();
    if count != ids.len() as u64 || events.len() != ids.len() {
        return None;
    }
    let member = |id: &u64| {
        let event = events.iter().find(|event| event[1] == *id)?;
        Some(MemberReading { value: event[0], lost: event.get(2).copied() })
    };
    let members = ids.iter().map(member).collect::<Option<_>>()?;
    Some(GroupReading::new(Duration::from_nanos(enabled), Duration::from_nanos(running), members))
}

impl GroupReading {
    fn new(enabled: Duration, running: Duration, members: Vec<MemberReading>) -> Self {
        let estimates =
            members.iter().map(|member| scaled(member.value, enabled, running)).collect();
        Self { enabled, running, members, estimates }
    }

    /// Estimates the counts for the whole time that the group was enabled, in the order of [`members`](Self::members).
    /// `None` if the group was enabled but never counted.
    /// Also `None` if it was never counted on one of the threads or CPUs that are added up: each has a share of the time of
    /// its own.
    pub fn scaled(&self) -> Option<Vec<u64>> {
        self.estimates.clone()
    }

    fn plus(mut self, other: Self) -> Self {
        self.enabled += other.enabled;
        self.running += other.running;
        self.estimates = self.estimates.zip(other.estimates).map(|(sums, others)| {
            sums.into_iter().zip(others).map(|(sum, other)| sum.saturating_add(other)).collect()
        });
        for (sum, member) in self.members.iter_mut().zip(&other.members) {
            sum.value = sum.value.wrapping_add(member.value);
            sum.lost = sum.lost.zip(member.lost).map(|(sum, lost)| sum + lost);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_id_in_any_order() {
        let reading = parsed(&[2, 70, 50, 5, 901, 1, 6, 900, 2], &[900, 901], 3).unwrap();
        assert_eq!(reading.enabled, Duration::from_nanos(70));
        assert_eq!(reading.running, Duration::from_nanos(50));
        let members = reading.members.iter().map(|member| (member.value, member.lost));
        assert_eq!(members.collect::<Vec<_>>(), [(6, Some(2)), (5, Some(1))]);
        let reading = parsed(&[1, 70, 50, 5, 901], &[901], 2).unwrap();
        assert_eq!(reading.members, [MemberReading { value: 5, lost: None }]);
    }

    #[test]
    fn members_have_no_period() {
        let event: Event = "software/config=2,period=5/".parse().unwrap();
        let attr = attr(&event).unwrap();
        assert_eq!((attr.config, attr.sample_period), (2, 0));
    }

    #[test]
    fn all_members_are_scaled_to_the_time_of_the_group() {
        let reading = |running| parsed(&[2, 90, running, 8, 900, 3, 901], &[900, 901], 2).unwrap();
        assert_eq!(reading(30).scaled(), Some(vec![24, 9]));
        assert_eq!(reading(90).scaled(), Some(vec![8, 3]));
        assert_eq!(reading(0).scaled(), None, "never counted");
        assert_eq!(GroupReading::default().scaled(), Some(vec![]));
    }

    #[test]
    fn each_cpu_is_scaled_by_its_own_share() {
        let of = |value, running| {
            let [enabled, running] = [100, running].map(Duration::from_nanos);
            GroupReading::new(enabled, running, vec![MemberReading { value, lost: None }])
        };
        assert_eq!(of(0, 100).plus(of(1000, 50)).scaled(), Some(vec![2000]));
        assert_eq!(of(1000, 100).plus(of(0, 0)).scaled(), None);
    }

    #[test]
    fn words_of_other_events_are_not_a_reading() {
        for words in [
            &[][..],
            &[1, 70],
            &[0, 70, 50],
            &[1, 70, 50, 5],
            &[1, 70, 50, 5, 902],
            &[2, 70, 50, 5, 901],
            &[2, 70, 50, 5, 901, 6, 902],
        ] {
            assert_eq!(parsed(words, &[901], 2), None, "{words:?}");
        }
    }

    #[test]
    fn readings_add_up_and_losses_only_if_all_report_them() {
        let of = |value, lost| {
            let [enabled, running] = [10, 5].map(Duration::from_nanos);
            GroupReading::new(enabled, running, vec![MemberReading { value, lost }])
        };
        let sum = of(1, Some(2)).plus(of(3, Some(4)));
        assert_eq!(sum.members, [MemberReading { value: 4, lost: Some(6) }]);
        assert_eq!((sum.enabled.as_nanos(), sum.running.as_nanos()), (20, 10));
        let sum = sum.plus(of(1, None));
        assert_eq!(sum.members, [MemberReading { value: 5, lost: None }]);
    }
}
