//! Events that are counted together.

use super::error::PerfError;
use super::event::Event;
use super::opened::opened;
use super::place::Place;
use super::reading::scaled;
use super::scope::Scope;
use crate::sys::perf_event::{Attr, Flags, PerfEvent, ReadFormat};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Events of which the kernel counts all or none at any time, and whose counts are read at one moment: what
/// they count can be compared.
///
/// Counts of software events change while others read them: of those, only what is read by the thread that is
/// observed itself, or while the group is off, is of one moment.
///
/// ```no_run
/// use probe_user::perf::{Group, Scope};
///
/// let events = ["page-faults", "minor-faults"].map(|name| name.parse().expect("an event"));
/// let group = Group::open(&events, &Scope::ThisProcess)?;
/// group.enable()?;
/// // ...
/// let [all, minor] = group.read()?.members[..] else { panic!("two of them") };
/// assert!(minor.value <= all.value);
/// # Ok::<(), probe_user::perf::PerfError>(())
/// ```
#[derive(Debug)]
pub struct Group {
    /// As they are written, one after the other.
    names: String,
    places: Vec<(Place, Members)>,
}

/// What is open at one place.
#[derive(Debug)]
struct Members {
    leader: PerfEvent,
    /// Held open, since an event lives as long as its descriptor.
    _others: Vec<PerfEvent>,
    /// Of all of them, in order.
    ids: Vec<u64>,
}

/// What the members of a group counted up to one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReading {
    /// For how long the group was enabled.
    pub enabled: Duration,
    /// For how long of that it counted.
    pub running: Duration,
    /// In the order in which the events were given.
    pub members: Vec<MemberReading>,
}

/// What a member of a group counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberReading {
    /// How often the event happened while the group counted.
    pub value: u64,
    /// Records of it that were lost. `None` where the kernel does not say (before 6.0).
    pub lost: Option<u64>,
}

/// What is read of a group, besides what was lost.
const READ_FORMAT: ReadFormat = ReadFormat::GROUP
    .union(ReadFormat::ID)
    .union(ReadFormat::TOTAL_TIME_ENABLED)
    .union(ReadFormat::TOTAL_TIME_RUNNING);

impl Group {
    /// Opens them, not counting yet. The first leads: the others are counted when it is.
    ///
    /// # Errors
    ///
    /// If there are no events, no such event, nobody of whom it could be counted, or no privilege to do so;
    /// EINVAL, too, for events that the kernel does not put into one group, as where the CPU has too few counters for
    /// all of them. Not every PMU tells: else, such a group is [never counted](GroupReading::scaled).
    pub fn open(events: &[Event], scope: &Scope) -> Result<Self, PerfError> {
        let names: Vec<_> = events.iter().map(Event::described).collect();
        let attrs = events.iter().map(Event::attr).collect::<Result<Vec<_>, _>>()?;
        if attrs.is_empty() {
            return Err(PerfError::EmptyGroup);
        }
        let places = opened(scope, events, |place| Members::open(&attrs, &names, place))?;
        Ok(Self { names: names.join(", "), places })
    }

    /// Counts from now on, all of them.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn enable(&self) -> Result<(), PerfError> {
        self.tell("enable", PerfEvent::enable_group)
    }

    /// Counts no more: what happens after this returns is in no count.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn disable(&self) -> Result<(), PerfError> {
        self.tell("disable", PerfEvent::disable_group)
    }

    /// All counts begin at 0 again. The times go on; so do the counts of processes that inherited the events
    /// and have ended.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn reset(&self) -> Result<(), PerfError> {
        self.tell("reset", PerfEvent::reset_group)
    }

    /// All counts, of each place at one moment; and of all places added up, as are the times.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn read(&self) -> Result<GroupReading, PerfError> {
        let mut sum: Option<GroupReading> = None;
        for (place, members) in &self.places {
            let read = members.read().map_err(|source| self.failed("read", place, source))?;
            match &mut sum {
                Some(sum) => sum.add(&read),
                None => sum = Some(read),
            }
        }
        Ok(sum.unwrap_or_default())
    }

    /// The kernel's numbers of the events, for each place, in the order in which they were given.
    pub fn ids(&self) -> impl Iterator<Item = &[u64]> {
        self.places.iter().map(|(_, members)| &*members.ids)
    }

    fn tell(
        &self,
        what: &'static str,
        tell: impl Fn(&PerfEvent) -> io::Result<()>,
    ) -> Result<(), PerfError> {
        for (place, members) in &self.places {
            tell(&members.leader).map_err(|source| self.failed(what, place, source))?;
        }
        Ok(())
    }

    fn failed(&self, what: &'static str, place: &Place, source: io::Error) -> PerfError {
        let event = format!("the group of {}", self.names);
        PerfError::Call { what, event, place: place.to_string(), source }
    }
}

impl Members {
    fn open(attrs: &[Attr], names: &[String], place: &Place) -> Result<Self, PerfError> {
        let mut events: Vec<PerfEvent> = Vec::with_capacity(attrs.len());
        for (attr, name) in attrs.iter().zip(names) {
            let mut attr = Attr { read_format: READ_FORMAT.bits(), ..place.attr(attr) };
            if events.is_empty() {
                attr.flags |= Flags::DISABLED.bits();
            }
            let leader = events.first().map(PerfEvent::as_fd);
            let opened = attr.open_telling_lost(place.pid(), place.cpu(), leader);
            let event = opened.map_err(|source| match leader {
                None => place.refused(name, source),
                Some(_) => {
                    let others = names[..events.len()].join(", ");
                    let (event, place) = (name.clone(), place.to_string());
                    PerfError::Member { event, place, others, source }
                }
            })?;
            events.push(event);
        }
        let ids = events.iter().map(PerfEvent::id).collect::<io::Result<_>>();
        let ids = ids.map_err(|source| PerfError::Call {
            what: "ask for the ids of",
            event: format!("the group of {}", names.join(", ")),
            place: place.to_string(),
            source,
        })?;
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

    /// How many words the kernel has for each event.
    fn words_each(&self) -> usize {
        if self.leader.read_format().contains(ReadFormat::LOST) { 3 } else { 2 }
    }
}

/// How many words there are before the events.
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
    Some(GroupReading {
        enabled: Duration::from_nanos(enabled),
        running: Duration::from_nanos(running),
        members: ids.iter().map(member).collect::<Option<_>>()?,
    })
}

impl GroupReading {
    /// What the counts would have been, had the group counted all the time, in the order of its
    /// [`members`](Self::members). `None` if it did not at all, although it was enabled.
    pub fn scaled(&self) -> Option<Vec<u64>> {
        let scaled = |member: &MemberReading| scaled(member.value, self.enabled, self.running);
        self.members.iter().map(scaled).collect()
    }

    fn add(&mut self, other: &Self) {
        self.enabled += other.enabled;
        self.running += other.running;
        for (sum, member) in self.members.iter_mut().zip(&other.members) {
            sum.value = sum.value.wrapping_add(member.value);
            sum.lost = sum.lost.zip(member.lost).map(|(sum, lost)| sum + lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_known_by_their_ids_whatever_their_order() {
        let reading = parsed(&[2, 70, 50, 5, 901, 1, 6, 900, 2], &[900, 901], 3).unwrap();
        assert_eq!(reading.enabled, Duration::from_nanos(70));
        assert_eq!(reading.running, Duration::from_nanos(50));
        let members = reading.members.iter().map(|member| (member.value, member.lost));
        assert_eq!(members.collect::<Vec<_>>(), [(6, Some(2)), (5, Some(1))]);
        let reading = parsed(&[1, 70, 50, 5, 901], &[901], 2).unwrap();
        assert_eq!(reading.members, [MemberReading { value: 5, lost: None }]);
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
    fn other_events_than_those_of_the_group_are_no_reading() {
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
    fn places_add_up_and_what_one_does_not_tell_nobody_does() {
        let of = |value, lost| GroupReading {
            enabled: Duration::from_nanos(10),
            running: Duration::from_nanos(5),
            members: vec![MemberReading { value, lost }],
        };
        let mut sum = of(1, Some(2));
        sum.add(&of(3, Some(4)));
        assert_eq!(sum.members, [MemberReading { value: 4, lost: Some(6) }]);
        assert_eq!((sum.enabled.as_nanos(), sum.running.as_nanos()), (20, 10));
        sum.add(&of(1, None));
        assert_eq!(sum.members, [MemberReading { value: 5, lost: None }]);
    }
}
