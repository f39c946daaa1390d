//! What is observed.

use super::error::EventError;
use super::event_source::{self, PmuError, PmuEvent, Rate};
use super::names::{Cache, CacheOperation, CacheResult, Hardware, Software, named};
use crate::nearest::nearest;
use crate::sys::perf_event::{Attr, Flags};
use crate::tracefs;
use std::fmt;
use std::io;
use std::str::FromStr;

/// `enum perf_type_id`.
const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_TYPE_HW_CACHE: u32 = 3;
const PERF_TYPE_RAW: u32 = 4;

/// An event, written as `perf` writes it: `cpu-clock`, `cycles:u`, `LLC-load-misses`, `sched:sched_switch`,
/// `r1a8`; or by what counts it, and its terms there: `cpu/event=0x3c,umask=1/`, `intel_pt//`. What counts it may
/// be there several times: see [`matching`](Self::matching).
///
/// Behind it may stand where it is observed: `:u` in processes, `:k` in the kernel; behind a slash, without the
/// colon.
///
/// ```
/// use probe_user::perf::{Event, Software};
///
/// assert_eq!("faults".parse::<Event>()?, Software::PageFaults.into());
/// assert!("page-fualts".parse::<Event>().unwrap_err().to_string().contains("page-faults"));
/// # Ok::<(), probe_user::perf::EventError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    source: Source,
    excluded: Flags,
}

/// Where an event comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// A counter of the CPU.
    Hardware(Hardware),
    /// The kernel.
    Software(Software),
    /// A counter of the CPU's caches.
    Cache(Cache, CacheOperation, CacheResult),
    /// A tracepoint: a category and a name in it.
    Tracepoint(String, String),
    /// An event that a PMU describes.
    Pmu(PmuEvent),
    /// Whatever the number of a type (`/sys/bus/event_source/devices/*/type`) makes of the configuration.
    Raw {
        /// The type.
        kind: u32,
        /// `config` of `struct perf_event_attr`.
        config: u64,
        /// `config1`.
        config1: u64,
        /// `config2`.
        config2: u64,
    },
}

impl Event {
    /// The same, not observed while processes run their own code.
    #[must_use]
    pub fn kernel_only(self) -> Self {
        Self { excluded: Flags::EXCLUDE_USER, ..self }
    }

    /// The same, not observed while the kernel runs.
    #[must_use]
    pub fn user_only(self) -> Self {
        Self { excluded: Flags::EXCLUDE_KERNEL | Flags::EXCLUDE_HV, ..self }
    }

    /// The same, observed where the letters say.
    fn observed(self, modifier: &str) -> Result<Self, EventError> {
        match modifier {
            "u" => Ok(self.user_only()),
            "k" => Ok(self.kernel_only()),
            "uk" | "ku" => Ok(self),
            _ => Err(EventError::Modifier { modifier: modifier.to_owned() }),
        }
    }

    /// Where it comes from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Reads all events that a text stands for. That is one, but for PMUs of which there are several that differ by
    /// a number, or that a pattern matches: `uncore_imc/cas_count_read/` is an event of each of `uncore_imc_0`,
    /// `uncore_imc_1` and so on that has it, and so is `imc/cas_count_read/`, or `*imc*/cas_count_read/`.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn matching(text: &str) -> Result<Vec<Self>, EventError> {
        let Some((pmu, rest)) = text.split_once('/') else {
            return Self::of_kernel(text).map(|event| vec![event]);
        };
        let not_closed = || PmuError::NotClosed { text: text.to_owned() };
        let (terms, modifier) = rest.rsplit_once('/').ok_or_else(not_closed)?;
        let observed = |event| {
            let event = Self::from(Source::Pmu(event));
            if modifier.is_empty() { Ok(event) } else { event.observed(modifier) }
        };
        PmuEvent::matching(pmu, terms)?.into_iter().map(observed).collect()
    }

    /// Reads an event that needs no PMU to be named.
    fn of_kernel(text: &str) -> Result<Self, EventError> {
        if let Some(source) = known(text) {
            return Ok(source.into());
        }
        if let Some((name, modifier)) = text.rsplit_once(':')
            && let Some(event) = known(name).map(Self::from)
        {
            return event.observed(modifier);
        }
        if let Some((category, name)) = text.split_once(':') {
            let is_name = |part: &str| {
                let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
                !part.is_empty() && !part.starts_with('.') && part.bytes().all(of_name)
            };
            // With a modifier: a third part.
            let (name, modifier) = match name.split_once(':') {
                Some((name, modifier)) => (name, Some(modifier)),
                None => (name, None),
            };
            if is_name(category) && is_name(name) {
                let event = Self::from(Source::Tracepoint(category.into(), name.into()));
                return modifier.map_or(Ok(event.clone()), |modifier| event.observed(modifier));
            }
        }
        Err(EventError::Unknown { name: text.to_owned(), near: nearest(text, all()) })
    }

    /// Reads events with commas between them, each as [`matching`](Self::matching) does: what is between slashes
    /// stays together.
    ///
    /// # Errors
    ///
    /// If one of them is none.
    ///
    /// ```
    /// use probe_user::perf::Event;
    ///
    /// let events = Event::list("cpu-clock,software/config=2,config1=0/,faults")?;
    /// assert_eq!(events.iter().map(Event::to_string).collect::<Vec<_>>(),
    ///     ["cpu-clock", "software/config=2,config1=0/", "page-faults"]);
    /// # Ok::<(), probe_user::perf::EventError>(())
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

    /// Names that can be written for events: those of the CPU, the kernel and caches; and of the PMUs of this
    /// machine (`/sys/bus/event_source/devices`) as far as their slash, or with what they have a name for, each and
    /// [together](Self::matching). Not every CPU has every event. Tracepoints are not among them.
    pub fn names() -> Vec<String> {
        let hardware = Hardware::ALL.iter().flat_map(|(_, names)| *names);
        let software = Software::ALL.iter().flat_map(|(_, names)| *names);
        let mut all: Vec<_> = hardware.chain(software).map(|name| (*name).to_owned()).collect();
        for (cache, _) in Cache::ALL {
            for (operation, _) in CacheOperation::ALL {
                for (result, _) in CacheResult::ALL {
                    all.push(cache_name(*cache, *operation, *result));
                }
            }
        }
        all.extend(event_source::known());
        all
    }

    /// What its terms call it.
    fn name(&self) -> Option<&str> {
        match &self.source {
            Source::Pmu(event) => event.name(),
            _ => None,
        }
    }

    /// As it is written, whatever it is called.
    fn spelled(&self) -> String {
        let name = match &self.source {
            Source::Hardware(event) => event.name().to_owned(),
            Source::Software(event) => event.name().to_owned(),
            Source::Cache(cache, operation, result) => cache_name(*cache, *operation, *result),
            Source::Tracepoint(category, name) => format!("{category}:{name}"),
            Source::Pmu(event) => event.text().to_owned(),
            Source::Raw { kind: PERF_TYPE_RAW, config, config1: 0, config2: 0 } => {
                format!("r{config:x}")
            }
            Source::Raw { kind, config, config1, config2 } => {
                format!("type {kind}, config {config:#x}, {config1:#x}, {config2:#x}")
            }
        };
        let colon = if matches!(self.source, Source::Pmu(_)) { "" } else { ":" };
        let is = |flag| self.excluded.contains(flag);
        match (is(Flags::EXCLUDE_USER), is(Flags::EXCLUDE_KERNEL)) {
            (true, _) => format!("{name}{colon}k"),
            (_, true) => format!("{name}{colon}u"),
            _ => name,
        }
    }

    /// What it is called, and, if that does not tell, as it is written: for errors.
    pub(super) fn described(&self) -> String {
        match self.name() {
            Some(name) => format!("{name} ({})", self.spelled()),
            None => self.spelled(),
        }
    }

    /// How often samples of it are taken, if it says so.
    pub(super) fn rate(&self) -> Option<Rate> {
        match &self.source {
            Source::Pmu(event) => event.rate(),
            _ => None,
        }
    }

    /// The CPUs on which it is observed, where that is not all of them.
    pub(crate) fn cpus(&self) -> Option<&[u32]> {
        match &self.source {
            Source::Pmu(event) => event.cpus(),
            _ => None,
        }
    }

    /// Whether it is observed on a CPU that has come.
    pub(crate) fn is_observed_on(&self, cpu: u32) -> bool {
        match &self.source {
            Source::Pmu(event) => event.is_observed_on(cpu),
            _ => true,
        }
    }

    /// What the kernel calls it, with a period if it has one of its own. Finds the id of a tracepoint.
    pub(crate) fn attr(&self) -> Result<Attr, EventError> {
        let of = |kind, config| Attr { kind, config, flags: self.excluded.bits(), ..Attr::new() };
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
                let [config, config1, config2, config3] = event.words();
                let sample_period = event.period().unwrap_or(0);
                let attr = of(event.kind(), config);
                Attr { config1, config2, config3, sample_period, ..attr }
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
        let mut events = Self::matching(text)?;
        match events.pop() {
            Some(event) if events.is_empty() => Ok(event),
            last => {
                let events = events.iter().chain(&last).map(Self::spelled).collect();
                Err(PmuError::Several { text: text.to_owned(), events }.into())
            }
        }
    }
}

/// As its terms call it; else as it is written. What perf has no name for is shown by its numbers.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => f.write_str(&self.spelled()),
        }
    }
}

/// What a name without a colon stands for.
fn known(name: &str) -> Option<Source> {
    let hardware = || named(Hardware::ALL, name).map(Source::Hardware);
    let software = || named(Software::ALL, name).map(Source::Software);
    software().or_else(hardware).or_else(|| cache(name)).or_else(|| raw(name))
}

/// Reads `LLC`, `LLC-loads` or `LLC-load-misses`.
fn cache(name: &str) -> Option<Source> {
    // The longest first: a cache's name may be the beginning of another's.
    let mut caches: Vec<_> = Cache::ALL
        .iter()
        .flat_map(|(cache, names)| names.iter().map(|name| (*cache, *name)))
        .filter(|(_, own)| name.starts_with(own))
        .collect();
    caches.sort_by_key(|(_, own)| std::cmp::Reverse(own.len()));
    let (cache, own) = *caches.first()?;
    let (mut operation, mut result) = (None, None);
    let mut rest = &name[own.len()..];
    while let Some(text) = rest.strip_prefix('-') {
        // A name may have a dash of its own.
        let ends = text.match_indices('-').map(|(at, _)| at).chain([text.len()]);
        let (end, found) = ends
            .filter_map(|end| {
                let part = &text[..end];
                let operation = named(CacheOperation::ALL, part).map(Ok);
                Some((end, operation.or_else(|| named(CacheResult::ALL, part).map(Err))?))
            })
            .next_back()?;
        let earlier = match found {
            Ok(found) => operation.replace(found).is_some(),
            Err(found) => result.replace(found).is_some(),
        };
        if earlier {
            return None;
        }
        rest = &text[end..];
    }
    let operation = operation.unwrap_or(CacheOperation::Read);
    let is_whole = rest.is_empty();
    is_whole.then_some(Source::Cache(cache, operation, result.unwrap_or(CacheResult::Access)))
}

fn cache_name(cache: Cache, operation: CacheOperation, result: CacheResult) -> String {
    match result {
        CacheResult::Access => format!("{}-{}", cache.name(), plural(operation)),
        CacheResult::Miss => format!("{}-{}-{}", cache.name(), operation.name(), result.name()),
    }
}

fn plural(operation: CacheOperation) -> &'static str {
    match operation {
        CacheOperation::Read => "loads",
        CacheOperation::Write => "stores",
        CacheOperation::Prefetch => "prefetches",
    }
}

/// Reads `r1a8`: a number of this CPU's manual.
fn raw(name: &str) -> Option<Source> {
    let digits = name.strip_prefix('r').filter(|digits| !digits.starts_with('+'))?;
    let config = u64::from_str_radix(digits, 16).ok()?;
    Some(Source::Raw { kind: PERF_TYPE_RAW, config, config1: 0, config2: 0 })
}

/// Names of all events that have one.
fn all() -> Vec<String> {
    let mut all = Event::names();
    all.extend(tracefs::root().map(|root| tracefs::tracepoints(&root)).unwrap_or_default());
    all
}

/// The number by which perf events name a tracepoint.
fn tracepoint_id(category: &str, name: &str) -> Result<u64, EventError> {
    let failed = |source| EventError::Tracefs { source };
    let root = tracefs::root().map_err(failed)?;
    let path = root.join("events").join(category).join(name).join("id");
    match std::fs::read_to_string(path) {
        Ok(id) => id.trim().parse().map_err(|error| {
            failed(io::Error::new(io::ErrorKind::InvalidData, format!("its id is none: {error}")))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = format!("{category}:{name}");
            let near = nearest(&name, tracefs::tracepoints(&root));
            Err(EventError::Unknown { name, near })
        }
        Err(error) => Err(failed(error)),
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
    fn what_is_shown_is_read_back() {
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
    fn what_is_not_known_has_something_like_it() {
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
        assert!(error.contains("`software/config=2` has no end"), "{error}");
    }

    #[test]
    fn an_event_is_called_as_its_terms_say() {
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
    fn what_matches_once_is_an_event() {
        for text in ["softwar[e]/config=2/", "sof*ware/config=2/", "software/config=2/"] {
            assert_eq!(Event::matching(text).unwrap().len(), 1, "{text}");
            let event: Event = text.parse().unwrap();
            assert_eq!(event.to_string(), "software/config=2/");
        }
        let all = Event::matching("[st]*ware/config=2/u").unwrap();
        assert_eq!(all[0].to_string(), "software/config=2/u");
    }

    #[test]
    fn several_events_are_not_one() {
        // Every kernel has these two.
        let text = "[st][or][fa]*/config=1,name=one/u";
        let shown: Vec<_> = Event::list(text).unwrap().iter().map(Event::to_string).collect();
        assert_eq!(shown, ["software/one/", "tracepoint/one/"]);
        let error = text.parse::<Event>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`[st][or][fa]*/config=1,name=one/u` is 2 events: software/config=1,name=one/u, \
             tracepoint/config=1,name=one/u; name one of them"
        );
    }

    #[test]
    fn a_list_is_not_cut_between_slashes() {
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
    fn an_event_of_a_pmu_is_the_attribute_of_its_terms() {
        let event: Event =
            "software/config=2,config2=5,config3=6,period=7,name=x/k".parse().unwrap();
        let attr = event.attr().unwrap();
        assert_eq!((attr.kind, attr.config, attr.config2, attr.config3), (1, 2, 5, 6));
        assert_eq!((attr.sample_period, attr.flags), (7, 1 << 4));
    }
}
