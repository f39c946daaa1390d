//! The tracer's eBPF object: embedded, configured, loaded.

mod multi;

use super::error::TraceError;
use super::sampling::Sampling;
use crate::sys::bpf;
use aya::maps::{Array, CgroupArray, Map, MapError};
use aya::programs::{KProbe, Program, RawTracePoint, TracePoint};
use aya::{Ebpf, EbpfLoader};
use multi::MultiPrograms;
use probe_common::call::{CALL_COUNTS, CALLS};
use probe_common::control::FLUSH_PROGRAM;
use probe_common::count::COUNTS;
use probe_common::fetch::{FetchTable, PROBES};
use probe_common::histogram::HISTOGRAMS;
use probe_common::sampling::{self, LATEST, SAMPLED, SECONDS};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/probe.bpf.o");

/// How many probes the programs without cookies can tell apart.
pub(super) const SLOTS: usize = 32;

/// What the programs are told before they are loaded: the globals of `probe-ebpf`.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// Trace this process alone; 0 for all.
    pub(super) only_pid: u32,
    /// Trace this process and its descendants alone; 0 for all.
    pub(super) root_pid: u32,
    /// Trace the tasks of a cgroup alone: 1. Which one, [`Object::only_in`] says.
    pub(super) in_cgroup: u8,
    /// Do not trace this process.
    pub(super) tracer_pid: u32,
    /// How many parts of calls are kept at one time; 0 if no probe is a call.
    pub(super) calls: u32,
    /// Count hits, or time calls if there are any, and tell of none.
    pub(super) count_only: bool,
    /// How many hits of each probe are told.
    pub(super) sampling: Sampling,
    /// `aya_log::Level`; 0 is off.
    pub(super) log_level: u8,
}

/// The object, its maps created.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) ebpf: Ebpf,
    multi: Option<MultiPrograms>,
}

impl Object {
    /// Loads the object for probes that read what `tables` says, by their numbers.
    pub(super) fn load(config: &Config, tables: &[FetchTable]) -> Result<Self, TraceError> {
        // Without BTF: nothing in the object is relocated against it, and reading it takes long.
        let count_only = u32::from(config.count_only);
        let probes = tables.len().max(1) as u32;
        let number = |limit: Option<NonZeroU32>| limit.map_or(0, NonZeroU32::get);
        let Sampling { one_in, per_second } = config.sampling;
        let (sample, rate) = (number(one_in), number(per_second));
        let times = config.count_only && config.calls > 0;
        let mut loader = EbpfLoader::new();
        loader
            .btf(None)
            .override_global("ONLY_PID", &config.only_pid, true)
            .override_global("ROOT_PID", &config.root_pid, true)
            .override_global("IN_CGROUP", &config.in_cgroup, true)
            .override_global("TRACER_PID", &config.tracer_pid, true)
            .override_global("COUNT_ONLY", &count_only, true)
            .override_global("SAMPLE", &sample, true)
            .override_global("RATE", &rate, true)
            .override_global(aya_log::LEVEL, &config.log_level, true)
            .map_max_entries(PROBES, probes)
            .map_max_entries(SAMPLED, if config.sampling.is_all() { 1 } else { probes })
            .map_max_entries(SECONDS, if rate == 0 { 1 } else { sampling::seconds(probes) })
            .map_max_entries(LATEST, if rate == 0 { 1 } else { probes })
            .map_max_entries(COUNTS, if config.count_only { probes } else { 1 })
            .map_max_entries(HISTOGRAMS, if times { probes } else { 1 })
            .map_max_entries(CALL_COUNTS, if config.calls == 0 { 1 } else { probes })
            .map_max_entries(CALLS, config.calls.max(1));
        let ebpf = loader.load(OBJECT).map_err(TraceError::load)?;
        let mut this = Self { ebpf, multi: None };
        this.write(tables).map_err(TraceError::load)?;
        Ok(this)
    }

    fn write(&mut self, tables: &[FetchTable]) -> Result<(), MapError> {
        let map = self.ebpf.map_mut(PROBES).ok_or(MapError::InvalidName { name: PROBES.into() })?;
        let mut probes: Array<_, [u8; size_of::<FetchTable>()]> = map.try_into()?;
        for (number, table) in (0..).zip(tables) {
            let bytes: [u8; size_of::<FetchTable>()] = zerocopy::transmute!(*table);
            probes.set(number, bytes, 0)?;
        }
        Ok(())
    }

    /// Has tasks of this cgroup traced alone, given its directory.
    pub(super) fn only_in(&mut self, cgroup: BorrowedFd<'_>) -> Result<(), MapError> {
        let name = "CGROUP";
        let map = self.ebpf.map_mut(name).ok_or(MapError::InvalidName { name: name.into() })?;
        CgroupArray::try_from(map)?.set(0, cgroup, 0)
    }

    /// Loads a program, once, and lends its descriptor.
    pub(super) fn program(&mut self, name: &str) -> Result<BorrowedFd<'_>, TraceError> {
        let program = self
            .ebpf
            .program_mut(name)
            .ok_or_else(|| TraceError::load(format!("it has no program {name}")))?;
        if program.fd().is_err() {
            match &mut *program {
                Program::KProbe(program) => KProbe::load(program),
                Program::TracePoint(program) => TracePoint::load(program),
                Program::RawTracePoint(program) => RawTracePoint::load(program),
                _ => return Err(TraceError::load(format!("program {name} is of no known type"))),
            }
            .map_err(TraceError::load)?;
        }
        Ok(program.fd().map_err(TraceError::load)?.as_fd())
    }

    /// The same of a program for many functions at once (5.18+). All maps have to be with the object,
    /// still.
    pub(super) fn multi_program(&mut self, name: &str) -> Result<&OwnedFd, TraceError> {
        let programs = match self.multi.take() {
            Some(programs) => programs,
            None => MultiPrograms::link(&self.ebpf).map_err(TraceError::load)?,
        };
        self.multi.insert(programs).program(name).map_err(TraceError::load)
    }

    /// How many tasks should have been followed, and found no room.
    pub(super) fn not_followed(&self) -> Result<u64, TraceError> {
        match self.ebpf.map("NOT_FOLLOWED") {
            Some(map @ Map::Array(_)) => {
                let counter: Array<_, u64> = map.try_into().map_err(TraceError::load)?;
                counter.get(&0, 0).map_err(TraceError::load)
            }
            _ => Ok(0),
        }
    }

    /// Has `cpu` send its block.
    pub(super) fn flush(&self, cpu: u32) -> io::Result<()> {
        let Some(Program::RawTracePoint(program)) = self.ebpf.program(FLUSH_PROGRAM) else {
            return Ok(());
        };
        let fd = program.fd().map_err(io::Error::other)?;
        bpf::run_on(fd.as_fd(), cpu).map(drop)
    }
}
