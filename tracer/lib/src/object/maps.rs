//! The object's configuration, and its maps: sized, created, and filled with the configuration.

use super::namespaces::PidNamespace;
use super::{AnyError, OBJECT};
use aya::maps::{Map, MapData};
use aya::{Ebpf, EbpfLoader};
use aya_obj::{EbpfSectionKind, Object};
use probe_sys::bpf;
use probe_sys::cpus;
use probe_tracer_common::call::{CALL_COUNTS, CALLS, USER_CALLS};
use probe_tracer_common::count::COUNTS;
use probe_tracer_common::counter::GENERATIONS;
use probe_tracer_common::fetch::{FetchTable, PROBES, flag, operator};
use probe_tracer_common::histogram::HISTOGRAMS;
use probe_tracer_common::sampling::{self, LATEST, SAMPLED, SECONDS};
use probe_tracer_common::wait::{Layout, UNDECIDED, WAITING, WAITING_HELD};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use zerocopy::IntoBytes;

/// The map that programs log into.
const LOG: &str = "AYA_LOGS";

/// The map in which a program that is loaded for one probe finds the probe's number (`hook/number.rs` of
/// the tracer's eBPF crate). Programs are first linked against a map whose number is not that of
/// any probe.
pub(super) const NUMBER: &str = ".rodata.probe";

/// The map with the gate (`filter.rs` of the tracer's eBPF crate).
pub(super) const GATE: &str = ".data.gate";

/// The map with the processes that read files for the tracer (as above).
pub(super) const READERS: &str = ".data.readers";

/// The maps, by name.
pub(super) type Maps = HashMap<String, Map>;

/// The configuration of the programs, set before they are loaded: the globals of the eBPF object.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The tracer's PID namespace.
    pub(crate) namespace: PidNamespace,
    /// The PID namespace of `only_pid` or `root_pid`.
    pub(crate) target_namespace: PidNamespace,
    /// Trace only this process; 0 for all.
    pub(crate) only_pid: u32,
    /// Trace only this process and its descendants; 0 for all.
    pub(crate) root_pid: u32,
    /// 1 to trace only the tasks of a cgroup, which [`Object::only_in`](super::Object::only_in) sets.
    pub(crate) in_cgroup: u8,
    /// The number of counters that programs read at a call's entry and return. They are in the maps
    /// [`Object::counters`](super::Object::counters).
    pub(crate) counters: u8,
    /// Do not trace this process.
    pub(crate) tracer_pid: u32,
    /// Do not trace [the processes that read files](super::Object::readers) either.
    pub(crate) leave_out_readers: bool,
    /// How many parts of calls of kernel functions are kept at one time; 0 if no probe is such a
    /// call.
    pub(crate) calls: u32,
    /// The same for functions of programs and libraries.
    pub(crate) user_calls: u32,
    /// Count hits, or time calls if there are any, and emit no records.
    pub(crate) count_only: bool,
    /// Where a task and its memory have what waiting hits compare.
    pub(crate) layout: Layout,
    /// Which hits of each probe are emitted.
    pub(crate) sampling: Sampling,
    /// `aya_log::Level`; 0 is off.
    pub(crate) log_level: u8,
    /// The most programs that are specialized for their probe; `None` for the default.
    pub(crate) specialize: Option<usize>,
}

/// Limits the hits of each probe that are emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sampling {
    /// Emit one in this many hits, on each CPU.
    pub(crate) one_in: Option<u32>,
    /// Emit at most this many hits per second.
    pub(crate) per_second: Option<u32>,
}

impl Sampling {
    /// Whether all hits are emitted.
    pub(crate) fn is_all(self) -> bool {
        self == Self::default()
    }
}

/// The map of followed tasks (`follow.rs` of the tracer's eBPF crate).
const FOLLOWED: &str = "FOLLOWED";

/// The most descendants that can be followed at one time, including threads and zombies.
const DESCENDANTS: u32 = 1 << 15;

/// How many parts of waiting hits are kept at one time; most hits have one.
const WAITING_PARTS: u32 = 1 << 12;

/// How many places can be held at one time: at least one for each program that runs.
const HELD_PLACES: u32 = 1 << 12;

/// Whether hits of probes with these tables may need memory of the process that is missing.
pub(crate) fn may_lack_memory(tables: &[FetchTable]) -> bool {
    tables.iter().any(|table| table.waiting_fields != 0)
}

/// Whether hits of probes with these tables may wait for such memory.
pub(super) fn hits_wait(config: &Config, tables: &[FetchTable]) -> bool {
    may_lack_memory(tables) && config.layout != Layout::default()
}

/// Whether a predicate may depend on what was not read: memory that is missing, or the end of a long string.
pub(super) fn may_be_undecided(tables: &[FetchTable]) -> bool {
    may_lack_memory(tables) || tables.iter().any(|table| table.checks_text != 0)
}

/// Whether a table's predicate compares strings with patterns or with each other.
fn compares_strings(table: &FetchTable) -> bool {
    let checks = &table.checks[..table.check_count.into()];
    checks.iter().any(|check| matches!(check.operator, operator::LIKE | operator::SAME))
}

/// Sets the programs' globals as `config` says, and sizes the maps for probes with these tables.
pub(super) fn configure(
    object: &mut Object,
    config: &Config,
    tables: &[FetchTable],
) -> Result<(), AnyError> {
    let Sampling { one_in, per_second } = config.sampling;
    let (sample, rate) = (one_in.unwrap_or(0), per_second.unwrap_or(0));
    let globals = [
        ("ONLY_PID", config.only_pid),
        ("ROOT_PID", config.root_pid),
        ("TRACER_PID", config.tracer_pid),
        ("COUNT_ONLY", config.count_only.into()),
        ("SAMPLE", sample),
        ("RATE", rate),
    ]
    .map(|(name, value)| (name, value.to_ne_bytes()));
    let reads_stacks = tables.iter().any(|table| table.stack_count > 0);
    let hits_wait = hits_wait(config, tables);
    let compare_strings = tables.iter().any(compares_strings);
    let fields = tables.iter().flat_map(|table| &table.fields[..table.field_count.into()]);
    let read_callers = fields.clone().any(|field| field.flags & flag::CALLER != 0);
    let most = |counts: &mut dyn Iterator<Item = u8>| counts.max().unwrap_or(0);
    let small = [
        ("MOST_FIELDS", most(&mut tables.iter().map(|table| table.field_count))),
        ("MOST_STEPS", most(&mut fields.map(|field| field.steps))),
        ("MOST_CHECKS", most(&mut tables.iter().map(|table| table.check_count))),
        ("IN_CGROUP", config.in_cgroup),
        ("LEAVE_OUT_READERS", config.leave_out_readers.into()),
        ("READ_STACKS", reads_stacks.into()),
        ("READ_CALLERS", read_callers.into()),
        ("HITS_WAIT", hits_wait.into()),
        ("COMPARE_STRINGS", compare_strings.into()),
        ("READ_COUNTERS", config.counters),
        (aya_log::LEVEL, config.log_level),
    ]
    .map(|(name, value)| (name, [value]));
    let long = [
        ("NAMESPACE", config.namespace.inode),
        ("NAMESPACE_DEVICE", config.namespace.device),
        ("TARGET_NAMESPACE", config.target_namespace.inode),
    ]
    .map(|(name, value)| (name, value.to_ne_bytes()));
    let words = globals.iter().map(|(name, value)| (*name, (value.as_slice(), true)));
    let bytes = small.iter().map(|(name, value)| (*name, (value.as_slice(), true)));
    let longs = long.iter().map(|(name, value)| (*name, (value.as_slice(), true)));
    let layout = ("LAYOUT", (config.layout.as_bytes(), true));
    object.patch_map_data(words.chain(bytes).chain(longs).chain([layout]).collect())?;

    let probes = tables.len().max(1) as u32;
    let has_calls = config.calls > 0 || config.user_calls > 0;
    let or_one = |is_wanted, entries| if is_wanted { entries } else { 1 };
    for (name, entries) in [
        (PROBES, probes),
        (SAMPLED, or_one(!config.sampling.is_all(), probes)),
        (SECONDS, or_one(rate != 0, sampling::seconds(probes))),
        (LATEST, or_one(rate != 0, probes)),
        (COUNTS, or_one(config.count_only, probes)),
        (HISTOGRAMS, or_one(config.count_only && has_calls, probes)),
        (CALL_COUNTS, or_one(has_calls, probes)),
        (CALLS, config.calls.max(1)),
        (USER_CALLS, config.user_calls.max(1)),
        (FOLLOWED, or_one(config.root_pid != 0, DESCENDANTS)),
        (WAITING, or_one(hits_wait, WAITING_PARTS)),
        (WAITING_HELD, or_one(hits_wait, HELD_PLACES)),
        (UNDECIDED, or_one(may_be_undecided(tables), probes)),
        (GENERATIONS, or_one(config.counters > 0, cpu_ids()?)),
    ] {
        let map = object.maps.get_mut(name).ok_or_else(|| format!("it has no map {name}"))?;
        map.set_max_entries(entries);
    }
    Ok(())
}

/// The number of possible CPU ids: the highest one, plus 1.
fn cpu_ids() -> io::Result<u32> {
    Ok(cpus::possible()?.last().map_or(1, |highest| highest + 1))
}

/// Creates the maps that an object declares. The log map is taken from `log` if there is one.
pub(super) fn create(
    object: &Object,
    types: Option<BorrowedFd<'_>>,
    log: Option<&Ebpf>,
) -> Result<Maps, AnyError> {
    let mut maps = Maps::new();
    for (name, declared) in &object.maps {
        let data = match log.filter(|_| name == LOG) {
            Some(log) => MapData::from_fd(log_of(log)?)?,
            None => create_one(declared, name, types)?,
        };
        maps.insert(name.clone(), Map::from_map_data(data)?);
    }
    Ok(maps)
}

/// Creates the map of a probe's number.
pub(super) fn create_number(
    object: &Object,
    types: Option<BorrowedFd<'_>>,
    number: u32,
) -> Result<OwnedFd, AnyError> {
    let mut declared = object.maps.get(NUMBER).ok_or_else(|| format!("no map {NUMBER}"))?.clone();
    let number = number.to_ne_bytes();
    if declared.data().len() != number.len() {
        return Err(format!("{NUMBER} has more than a number").into());
    }
    declared.data_mut().copy_from_slice(&number);
    let map = create_one(&declared, NUMBER, types)?;
    Ok(map.fd().as_fd().try_clone_to_owned()?)
}

fn create_one(
    declared: &aya_obj::Map,
    name: &str,
    types: Option<BorrowedFd<'_>>,
) -> Result<MapData, AnyError> {
    let map = MapData::create(declared.clone(), name, types)?;
    if !declared.data().is_empty() {
        bpf::map_set_bytes(map.fd().as_fd(), 0, declared.data())?;
    }
    if declared.section_kind() == EbpfSectionKind::Rodata {
        bpf::map_freeze(map.fd().as_fd())?;
    }
    Ok(map)
}

/// Loads an object whose log aya's logger can read: it reads only logs of what aya has loaded.
pub(super) fn create_log() -> Result<Ebpf, AnyError> {
    Ok(EbpfLoader::new().btf(None).load(OBJECT)?)
}

fn log_of(log: &Ebpf) -> Result<OwnedFd, AnyError> {
    match log.map(LOG) {
        Some(Map::RingBuf(map)) => Ok(map.fd().as_fd().try_clone_to_owned()?),
        _ => Err(format!("it has no map {LOG}").into()),
    }
}

/// The descriptor of a map of any type that the object uses.
pub(super) fn fd_of(map: &Map) -> Option<BorrowedFd<'_>> {
    match map {
        Map::Array(map)
        | Map::CgroupArray(map)
        | Map::HashMap(map)
        | Map::LruHashMap(map)
        | Map::PerCpuArray(map)
        | Map::PerfEventArray(map)
        | Map::RingBuf(map) => Some(map.fd().as_fd()),
        _ => None,
    }
}
