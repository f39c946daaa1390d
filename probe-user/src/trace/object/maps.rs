//! The object's maps: how many entries each has, created, and filled with what programs are told.

use super::{Config, OBJECT};
use crate::cpus;
use crate::sys::bpf;
use aya::maps::{Map, MapData};
use aya::{Ebpf, EbpfLoader};
use aya_obj::{EbpfSectionKind, Object};
use probe_common::call::{CALL_COUNTS, CALLS, USER_CALLS};
use probe_common::count::COUNTS;
use probe_common::counter::GENERATIONS;
use probe_common::fetch::{FetchTable, PROBES};
use probe_common::histogram::HISTOGRAMS;
use probe_common::sampling::{self, LATEST, SAMPLED, SECONDS};
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The map that programs log into.
const LOG: &str = "AYA_LOGS";

/// What a program that is loaded for one probe finds the probe's number in (`number.rs` of `probe-ebpf`).
/// What is linked first is a map that has the number of none.
pub(super) const NUMBER: &str = ".rodata.probe";

/// The maps, by their names.
pub(super) type Maps = HashMap<String, Map>;

/// Has programs find what `config` says where they look for it, and maps the right size for probes of these
/// tables.
pub(super) fn configure(
    object: &mut Object,
    config: &Config,
    tables: &[FetchTable],
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let number = |limit: Option<NonZeroU32>| limit.map_or(0, NonZeroU32::get);
    let (sample, rate) = (number(config.sampling.one_in), number(config.sampling.per_second));
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
    let small = [
        ("IN_CGROUP", config.in_cgroup),
        ("READ_STACKS", reads_stacks.into()),
        ("READ_COUNTERS", config.counters),
        (aya_log::LEVEL, config.log_level),
    ]
    .map(|(name, value)| (name, [value]));
    let words = globals.iter().map(|(name, value)| (*name, (value.as_slice(), true)));
    let bytes = small.iter().map(|(name, value)| (*name, (value.as_slice(), true)));
    object.patch_map_data(words.chain(bytes).collect())?;

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
        (GENERATIONS, or_one(config.counters > 0, cpu_ids()?)),
    ] {
        let map = object.maps.get_mut(name).ok_or_else(|| format!("it has no map {name}"))?;
        map.set_max_entries(entries);
    }
    Ok(())
}

/// How many ids CPUs have, up to the highest.
fn cpu_ids() -> io::Result<u32> {
    Ok(cpus::possible()?.last().map_or(1, |highest| highest + 1))
}

/// Creates the maps that an object declares; that of the log only if there is none yet.
pub(super) fn create(
    object: &Object,
    types: Option<BorrowedFd<'_>>,
    log: Option<&Ebpf>,
) -> Result<Maps, Box<dyn Error + Send + Sync>> {
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

/// The map of a probe's number.
pub(super) fn create_number(
    object: &Object,
    types: Option<BorrowedFd<'_>>,
    number: u32,
) -> Result<OwnedFd, Box<dyn Error + Send + Sync>> {
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
) -> Result<MapData, Box<dyn Error + Send + Sync>> {
    let map = MapData::create(declared.clone(), name, types)?;
    if !declared.data().is_empty() {
        bpf::map_set_bytes(map.fd().as_fd(), 0, declared.data())?;
    }
    if declared.section_kind() == EbpfSectionKind::Rodata {
        bpf::map_freeze(map.fd().as_fd())?;
    }
    Ok(map)
}

/// A log that aya's logger can read, which it does of what aya has loaded alone.
pub(super) fn create_log() -> Result<Ebpf, Box<dyn Error + Send + Sync>> {
    Ok(EbpfLoader::new().btf(None).load(OBJECT)?)
}

fn log_of(log: &Ebpf) -> Result<OwnedFd, Box<dyn Error + Send + Sync>> {
    match log.map(LOG) {
        Some(Map::RingBuf(map)) => Ok(map.fd().as_fd().try_clone_to_owned()?),
        _ => Err(format!("it has no map {LOG}").into()),
    }
}

/// The descriptor of a map, of whatever type.
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
