//! Events: what is observed.

mod error;
mod pmu;
mod source;

pub use error::{EventError, PmuError};
pub use pmu::{PmuEvent, Rate, kind_of};
pub use source::{Cache, CacheOperation, CacheResult, Hardware, Software, Source};

use crate::error::PerfError;
use crate::nearest::nearest;
use crate::tracefs;
use pmu::DEVICES;
use probe_sys::perf_event::{Attr, Flags};
use source::{
    PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW, PERF_TYPE_SOFTWARE,
    PERF_TYPE_TRACEPOINT, cache_name,
};
use std::fmt;
use std::io;
use std::str::FromStr;

/// An event, in the notation of `perf`: `cpu-clock`, `cycles:u`, `LLC-load-misses`, `sched:sched_switch`, `r1a8`; or a
/// PMU with terms: `cpu/event=0x3c,umask=1/`, `intel_pt//`. Several PMUs may match: see [`matching`](Self::matching).
///
/// A tracepoint may also be written `tracepoint:sched:sched_switch`. A modifier may follow: `:u` observes only user
/// space, `:k` only the kernel. After a slash, omit the colon.
///
/// ```
/// use probe_perf::{Event, Software};
///
/// assert_eq!("faults".parse::<Event>()?, Software::PageFaults.into());
/// assert!("page-fualts".parse::<Event>().unwrap_err().to_string().contains("page-faults"));
/// # Ok::<(), probe_perf::EventError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    source: Source,
    excluded: Flags,
}

/// The first period that is too long for the kernel.
pub(crate) const LONG: u64 = 1 << 63;

impl Event {
    /// Returns this event, observed only in the kernel.
    #[must_use]
    pub fn kernel_only(self) -> Self {
        Self { excluded: Flags::EXCLUDE_USER, ..self }
    }

    /// Returns this event, observed only in user space.
    #[must_use]
    pub fn user_only(self) -> Self {
        Self { excluded: Flags::EXCLUDE_KERNEL | Flags::EXCLUDE_HV, ..self }
    }

    /// Returns this event with a modifier.
    fn observed(self, modifier: &str) -> Result<Self, EventError> {
        match modifier {
            "u" => Ok(self.user_only()),
            "k" => Ok(self.kernel_only()),
            "uk" | "ku" => Ok(self),
            _ => Err(EventError::Modifier(modifier.to_owned())),
        }
    }

    /// The source of the event.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Parses a text that may stand for several events: for PMUs that differ only by a number, or that match a pattern.
    /// `uncore_imc/cas_count_read/`, `imc/cas_count_read/` and `*imc*/cas_count_read/` all stand for that event of
    /// `uncore_imc_0`, `uncore_imc_1` and so on.
    ///
    /// # Errors
    ///
    /// If there is no such event.
    pub fn matching(text: &str) -> Result<Vec<Self>, EventError> {
        let Some((pmu, rest)) = text.split_once('/') else {
            return Self::of_kernel(text).map(|event| vec![event]);
        };
        let not_closed = || PmuError::NotClosed(text.to_owned());
        let (terms, modifier) = rest.rsplit_once('/').ok_or_else(not_closed)?;
        let observed = |event| {
            let event = Self::from(Source::Pmu(event));
            if modifier.is_empty() { Ok(event) } else { event.observed(modifier) }
        };
        PmuEvent::matching(DEVICES.as_ref(), pmu, terms)?.into_iter().map(observed).collect()
    }

    /// Parses an event without a PMU.
    fn of_kernel(text: &str) -> Result<Self, EventError> {
        if let Some(source) = Source::known(text) {
            return Ok(source.into());
        }
        if let Some((name, modifier)) = text.rsplit_once(':')
            && let Some(event) = Source::known(name).map(Self::from)
        {
            return event.observed(modifier);
        }
        let named = text.strip_prefix("tracepoint:").unwrap_or(text);
        if let Some((category, name)) = named.split_once(':') {
            let is_name = |part: &str| {
                let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
                !part.is_empty() && !part.starts_with('.') && part.bytes().all(of_name)
            };
            let (name, modifier) = name.split_once(':').unwrap_or((name, "uk"));
            if is_name(category) && is_name(name) {
                return Self::from(Source::Tracepoint(category.into(), name.into()))
                    .observed(modifier);
            }
        }
        Err(EventError::Unknown { name: text.to_owned(), near: nearest(text, all()) })
    }

    /// Parses events with commas between them, each as [`matching`](Self::matching) does. Commas between slashes do not
    /// separate events.
    ///
    /// # Errors
    ///
    /// If one of them does not exist.
    ///
    /// ```
    /// use probe_perf::Event;
    ///
    /// let events = Event::list("cpu-clock,software/config=2,config1=0/,faults")?;
    /// assert_eq!(events.iter().map(Event::to_string).collect::<Vec<_>>(),
    ///     ["cpu-clock", "software/config=2,config1=0/", "page-faults"]);
    /// # Ok::<(), probe_perf::EventError>(())
    /// ```
    pub fn list(text: &str) -> Result<Vec<Self>, EventError> {
        let mut is_between = false;
        let is_end = |char| {
            is_between ^= char == '/';
            char == ',' && !is_between
        };
        let each = text.split(is_end).map(Self::matching).collect::<Result<Vec<_>, _>>()?;
        Ok(each.into_iter().flatten().collect())
    }

    /// Lists names of events: hardware, software and cache events, and this machine's PMUs
    /// (`/sys/bus/event_source/devices`) with and without their named events, both individually and
    /// [together](Self::matching). Not every CPU has every event. The list does not include tracepoints.
    pub fn names() -> Vec<String> {
        let hardware = Hardware::ALL.iter().flat_map(|(_, names)| *names);
        let software = Software::ALL.iter().flat_map(|(_, names)| *names);
        let mut all: Vec<_> = hardware.chain(software).map(|name| (*name).to_owned()).collect();
        for (cache, _) in Cache::ALL {
            for (operation, _) in CacheOperation::ALL {
                let name = |(result, _): &_| cache_name(*cache, *operation, *result);
                all.extend(CacheResult::ALL.iter().map(name));
            }
        }
        all.extend(pmu::known(DEVICES.as_ref()));
        all
    }

    /// The event of a PMU, if it is one.
    fn pmu(&self) -> Option<&PmuEvent> {
        if let Source::Pmu(event) = &self.source { Some(event) } else { None }
    }

    /// The name that its terms set.
    fn name(&self) -> Option<&str> {
        self.pmu()?.name.as_deref()
    }

    /// The notation of the event, without regard to its name.
    fn notation(&self) -> String {
        let name = self.source.notation();
        let colon = if self.pmu().is_some() { "" } else { ":" };
        let is = |flag| self.excluded.contains(flag);
        match (is(Flags::EXCLUDE_USER), is(Flags::EXCLUDE_KERNEL)) {
            (true, _) => format!("{name}{colon}k"),
            (_, true) => format!("{name}{colon}u"),
            _ => name,
        }
    }

    /// The name of the event and its notation, for errors.
    pub(super) fn described(&self) -> String {
        match self.name() {
            Some(name) => format!("{name} ({})", self.notation()),
            None => self.notation(),
        }
    }

    /// The rate of its samples, if its terms set one.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.pmu()?.rate
    }

    /// Whether the kernel looks for the PMU of the event among those of the cores.
    pub(crate) fn is_of_cores(&self) -> bool {
        match self.source {
            Source::Hardware(_) | Source::Cache(..) => true,
            // The upper half of other configurations names the PMU (`PERF_PMU_TYPE_SHIFT`).
            Source::Raw { kind: PERF_TYPE_HARDWARE | PERF_TYPE_HW_CACHE, config, .. } => {
                config >> 32 == 0
            }
            Source::Raw { kind, .. } => kind == PERF_TYPE_RAW,
            _ => false,
        }
    }

    /// The CPUs on which the event can be observed; `None` for all.
    pub(crate) fn cpus(&self) -> Option<&[u32]> {
        self.pmu()?.cpus.as_deref()
    }

    /// Whether the event can be observed on a CPU that went online.
    pub fn is_observed_on(&self, cpu: u32) -> bool {
        self.pmu().is_none_or(|event| event.is_observed_on(DEVICES.as_ref(), cpu))
    }

    /// The attributes of the event if it takes no samples. A `period` other than 0 replaces its own.
    pub(crate) fn counting_attr(&self, period: u64) -> Result<Attr, PerfError> {
        if let Some(Rate::Frequency(_)) = self.rate() {
            return Err(EventError::NotSampled(self.notation()).into());
        }
        let mut attr = self.attr()?;
        if period != 0 {
            attr.sample_period = period;
        }
        if attr.sample_period >= LONG {
            return Err(PerfError::Period(attr.sample_period));
        }
        Ok(attr)
    }

    /// The attributes of the event, with its period if it has one. Looks up the id of a tracepoint.
    pub(crate) fn attr(&self) -> Result<Attr, EventError> {
        let of =
            |kind, config| Attr { kind, config, flags: self.excluded.bits(), ..Attr::default() };
        Ok(match &self.source {
            Source::Hardware(event) => of(PERF_TYPE_HARDWARE, *event as u64),
            Source::Software(event) => of(PERF_TYPE_SOFTWARE, *event as u64),
            Source::Cache(cache, operation, result) => {
                let config = *cache as u64 | (*operation as u64) << 8 | (*result as u64) << 16;
                of(PERF_TYPE_HW_CACHE, config)
            }
            Source::Tracepoint(category, name) => {
                of(PERF_TYPE_TRACEPOINT, tracepoint_id(category, name)?)
            }
            Source::Pmu(event) => {
                let [config, config1, config2, config3] = event.words;
                let sample_period = if let Some(Rate::Period(n)) = event.rate { n } else { 0 };
                Attr { config1, config2, config3, sample_period, ..of(event.kind, config) }
            }
            &Source::Raw { kind, config, config1, config2 } => {
                Attr { config1, config2, ..of(kind, config) }
            }
        })
    }
}

impl From<Source> for Event {
    fn from(source: Source) -> Self {
        Self { source, excluded: Flags::empty() }
    }
}

impl From<Hardware> for Event {
    fn from(event: Hardware) -> Self {
        Source::Hardware(event).into()
    }
}

impl From<Software> for Event {
    fn from(event: Software) -> Self {
        Source::Software(event).into()
    }
}

impl FromStr for Event {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        <[Self; 1]>::try_from(Self::matching(text)?).map(|[event]| event).map_err(|events| {
            let events = events.iter().map(Self::notation).collect();
            PmuError::Several { text: text.to_owned(), events }.into()
        })
    }
}

/// Displays the name that its terms set, or else its notation. Events that perf has no notation for appear as numbers.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or(&self.notation()))
    }
}

/// The names of the cores' PMUs, on machines with a separate PMU for each kind of core.
pub(crate) fn pmus_of_cores() -> Result<Vec<String>, EventError> {
    Ok(pmu::of_cores(DEVICES.as_ref())?)
}

/// The names of all events.
fn all() -> Vec<String> {
    let mut all = Event::names();
    all.extend(tracefs::root().map(|root| tracefs::tracepoints(&root)).unwrap_or_default());
    all
}

/// The id of a tracepoint.
fn tracepoint_id(category: &str, name: &str) -> Result<u64, EventError> {
    let root = tracefs::root().map_err(EventError::Tracefs)?;
    let path = root.join("events").join(category).join(name).join("id");
    match std::fs::read_to_string(path) {
        Ok(id) => id.trim().parse().map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, format!("invalid id: {error}"));
            EventError::Tracefs(error)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = format!("{category}:{name}");
            let near = nearest(&name, tracefs::tracepoints(&root));
            Err(EventError::Unknown { name, near })
        }
        Err(error) => Err(EventError::Tracefs(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> (u32, u64, u64) {
        let attr = text.parse::<Event>().unwrap().attr().unwrap();
        (attr.kind, attr.config, attr.flags)
    }

    #[test]
    fn what_takes_no_samples_has_no_frequency() {
        let attr = |text: &str| text.parse::<Event>().unwrap().counting_attr(0);
        let period = attr("software/config=0,period=7/").unwrap();
        assert_eq!(period.sample_period, 7);
        let long = attr(&format!("software/config=0,period={LONG}/")).unwrap_err();
        assert!(matches!(long, PerfError::Period(LONG)), "{long}");
        let refused = attr("software/config=0,freq=7/").unwrap_err().to_string();
        assert!(
            refused.starts_with("`software/config=0") && refused.ends_with("`freq`"),
            "{refused}"
        );
    }

    #[test]
    fn names_are_those_of_perf() {
        for (name, kind, number) in [
            ("cpu-clock", 1, 0),
            ("task-clock", 1, 1),
            ("faults", 1, 2),
            ("page-faults", 1, 2),
            ("cs", 1, 3),
            ("migrations", 1, 4),
            ("minor-faults", 1, 5),
            ("major-faults", 1, 6),
            ("dummy", 1, 9),
            ("cgroup-switches", 1, 11),
            ("cycles", 0, 0),
            ("cpu-cycles", 0, 0),
            ("instructions", 0, 1),
            ("branches", 0, 4),
            ("ref-cycles", 0, 9),
            ("LLC-loads", 3, 0x2),
            ("LLC-load-misses", 3, 0x1_0002),
            ("L1-dcache-store-misses", 3, 0x1_0100),
            ("L1-icache-prefetches", 3, 0x201),
            ("dTLB-speculative-read-refs", 3, 0x203),
            ("branch-load-misses", 3, 0x1_0005),
            ("node-misses", 3, 0x1_0006),
            ("r1a8", 4, 0x1a8),
        ] {
            assert_eq!(config(name), (kind, number, 0), "{name}");
        }
        assert_eq!(config("cycles:u").2, (1 << 5) | (1 << 6));
        assert_eq!(config("cycles:k").2, 1 << 4);
        assert_eq!(config("cycles:uk").2, 0);
    }

    #[test]
    fn displayed_events_parse_to_the_same_event() {
        for name in [
            "page-faults",
            "cycles:u",
            "LLC-load-misses",
            "iTLB-prefetches",
            "L1-dcache-stores:k",
            "sched:sched_switch",
            "sched:sched_switch:u",
            "software/config=2/",
            "software/config=2,config1=0/u",
            "software//k",
            "r1a8",
        ] {
            let event: Event = name.parse().unwrap();
            assert_eq!(event.to_string(), name);
            assert_eq!(event.to_string().parse::<Event>().unwrap(), event);
        }
    }

    #[test]
    fn unknown_events_are_errors_with_similar_names() {
        for (wrong, right) in [
            ("page-fualts", "page-faults"),
            ("LLC-laod-misses", "LLC-load-misses"),
            ("contxt-switches", "context-switches"),
        ] {
            let error = wrong.parse::<Event>().unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains(right), "{error}");
        }
        for wrong in
            ["", "r", "rx", "r+1", ":", "a:", ":b", "a/b:c", "..:x", "LLC-load-load", "LLC-"]
        {
            assert!(wrong.parse::<Event>().is_err(), "{wrong}");
        }
        for wrong in ["cycles:x", "software//x"] {
            let error = wrong.parse::<Event>().unwrap_err().to_string();
            assert!(error.contains("`x`"), "{error}");
        }
        let error = "software/config=2".parse::<Event>().unwrap_err().to_string();
        assert!(error.contains("`software/config=2` lacks the second slash"), "{error}");
    }

    #[test]
    fn the_name_in_the_terms_is_displayed() {
        for (text, described) in [
            ("software/config=2,name=faults/", "faults (software/config=2,name=faults/)"),
            ("software/name=a.b:c=1,config=2/u", "a.b:c=1 (software/name=a.b:c=1,config=2/u)"),
            ("software/config=2/k", "software/config=2/k"),
            ("faults:u", "page-faults:u"),
        ] {
            let event: Event = text.parse().unwrap();
            assert_eq!(event.described(), described);
            assert_eq!(event.to_string(), described.split(' ').next().unwrap());
        }
        let list = Event::list("software/config=2,name=x/,faults").unwrap();
        assert_eq!(list.iter().map(Event::to_string).collect::<Vec<_>>(), ["x", "page-faults"]);
    }

    #[test]
    fn a_pattern_that_matches_once_is_an_event() {
        for text in ["softwar[e]/config=2/", "sof*ware/config=2/", "software/config=2/"] {
            assert_eq!(Event::matching(text).unwrap().len(), 1, "{text}");
            let event: Event = text.parse().unwrap();
            assert_eq!(event.to_string(), "software/config=2/");
        }
        let all = Event::matching("[st]*ware/config=2/u").unwrap();
        assert_eq!(all[0].to_string(), "software/config=2/u");
    }

    #[test]
    fn several_matches_are_an_error_where_one_is_required() {
        // Every kernel has these two.
        let text = "[st][or][fa]*/config=1,name=one/u";
        let shown: Vec<_> = Event::list(text).unwrap().iter().map(Event::to_string).collect();
        assert_eq!(shown, ["software/one/", "tracepoint/one/"]);
        let error = text.parse::<Event>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`[st][or][fa]*/config=1,name=one/u` stands for 2 events: software/config=1,name=one/u, \
             tracepoint/config=1,name=one/u; name one of them"
        );
    }

    #[test]
    fn commas_between_slashes_do_not_separate_events() {
        let shown = |text: &str| -> Vec<String> {
            Event::list(text).unwrap().iter().map(Event::to_string).collect()
        };
        let of_pmu = "software/config=2,config1=0/u";
        assert_eq!(shown("cycles"), ["cycles"]);
        assert_eq!(shown(&format!("{of_pmu},cs")), [of_pmu, "context-switches"]);
        assert_eq!(
            shown(&format!("cs,software//,{of_pmu}")),
            ["context-switches", "software//", of_pmu]
        );
        for wrong in ["", "cycles,", "cycles,,cs", "software/config=2,cycles"] {
            assert!(Event::list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn terms_of_a_pmu_become_attributes() {
        let event: Event =
            "software/config=2,config2=5,config3=6,period=7,name=x/k".parse().unwrap();
        let attr = event.attr().unwrap();
        assert_eq!((attr.kind, attr.config, attr.config2, attr.config3), (1, 2, 5, 6));
        assert_eq!((attr.sample_period, attr.flags), (7, 1 << 4));
    }
}
