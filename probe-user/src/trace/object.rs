//! The tracer's eBPF object: embedded, configured, its programs loaded as they are needed.

mod maps;
mod memlock;
mod programs;

use super::error::TraceError;
use super::sampling::Sampling;
use crate::error::OpenError;
use crate::parts::PipeParts;
use crate::sys::bpf;
use crate::sys::bpf::load::{Purpose, Trampoline};
use aya::Ebpf;
use aya::maps::{Array, CgroupArray, Map, MapError};
use maps::{Maps, NUMBER, fd_of};
use probe_common::control::FLUSH_PROGRAM;
use probe_common::counter;
use probe_common::fetch::{FetchTable, PROBES};
use programs::{Linked, Number};
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(super) use programs::Refused;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/probe.bpf.o");

/// What the programs are told before they are loaded: the globals of `probe-ebpf`.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// Trace this process alone; 0 for all.
    pub(super) only_pid: u32,
    /// Trace this process and its descendants alone; 0 for all.
    pub(super) root_pid: u32,
    /// Trace the tasks of a cgroup alone: 1. Which one, [`Object::only_in`] says.
    pub(super) in_cgroup: u8,
    /// How many counters programs read where calls are entered, and where they return. Which ones,
    /// [`Object::counters`] are told.
    pub(super) counters: u8,
    /// Do not trace this process.
    pub(super) tracer_pid: u32,
    /// How many parts of calls of the kernel's functions are kept at one time; 0 if no probe is such a call.
    pub(super) calls: u32,
    /// The same of functions of programs and libraries.
    pub(super) user_calls: u32,
    /// Count hits, or time calls if there are any, and tell of none.
    pub(super) count_only: bool,
    /// How many hits of each probe are told.
    pub(super) sampling: Sampling,
    /// `aya_log::Level`; 0 is off.
    pub(super) log_level: u8,
}

/// Whose functions a program is for: their calls are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// Those of the kernel, or no functions.
    Kernel,
    /// Those of programs and libraries.
    Process,
}

/// A program, by its name, and whose functions it is for.
type Variant = (String, Side);

/// The object, its maps created.
#[derive(Debug)]
pub(super) struct Object {
    code: aya_obj::Object,
    /// The types of its functions, if the kernel takes any.
    types: Option<OwnedFd>,
    maps: Maps,
    linked: HashMap<Variant, Linked>,
    /// Those that are loaded once for all probes, and whether they are for many functions at once.
    loaded: HashMap<(Variant, bool), OwnedFd>,
    /// What has the map that programs log into, if they do.
    log: Option<Ebpf>,
}

impl Object {
    /// Reads the object for probes that read what `tables` says, by their numbers, and creates its maps.
    pub(super) fn load(config: &Config, tables: &[FetchTable]) -> Result<Self, TraceError> {
        let mut code = aya_obj::Object::parse(OBJECT).map_err(TraceError::load)?;
        maps::configure(&mut code, config, tables).map_err(TraceError::load)?;
        let types = programs::load_types(&mut code).map_err(TraceError::load)?;
        let log = (config.log_level > 0).then(maps::create_log).transpose();
        let log = log.map_err(TraceError::load)?;
        let maps = maps::create(&code, types.as_ref().map(OwnedFd::as_fd), log.as_ref());
        let maps = maps.map_err(TraceError::load)?;
        let (linked, loaded) = (HashMap::new(), HashMap::new());
        let mut this = Self { code, types, maps, linked, loaded, log };
        this.write(tables).map_err(TraceError::load)?;
        Ok(this)
    }

    fn write(&mut self, tables: &[FetchTable]) -> Result<(), MapError> {
        let mut probes: Array<_, [u8; size_of::<FetchTable>()]> =
            self.map_mut(PROBES)?.try_into()?;
        for (number, table) in (0..).zip(tables) {
            let bytes: [u8; size_of::<FetchTable>()] = zerocopy::transmute!(*table);
            probes.set(number, bytes, 0)?;
        }
        Ok(())
    }

    /// A map of the object.
    pub(super) fn map(&self, name: &str) -> Result<&Map, MapError> {
        self.maps.get(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
    }

    fn map_mut(&mut self, name: &str) -> Result<&mut Map, MapError> {
        self.maps.get_mut(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
    }

    /// What programs log into, for whoever reads it.
    pub(super) fn take_log(&mut self) -> Option<Ebpf> {
        self.log.take()
    }

    /// Has tasks of this cgroup traced alone, given its directory.
    pub(super) fn only_in(&mut self, cgroup: BorrowedFd<'_>) -> Result<(), MapError> {
        CgroupArray::try_from(self.map_mut("CGROUP")?)?.set(0, cgroup, 0)
    }

    /// The maps of the CPUs' counters, each by the CPU's number.
    pub(super) fn counters(&self) -> Result<Vec<BorrowedFd<'_>>, MapError> {
        counter::MAPS.iter().map(|name| self.map_fd(name)).collect()
    }

    /// The array that tells, by the CPU's number, which counters of it these are.
    pub(super) fn counter_generations(&self) -> Result<BorrowedFd<'_>, MapError> {
        self.map_fd(counter::GENERATIONS)
    }

    fn map_fd(&self, name: &str) -> Result<BorrowedFd<'_>, MapError> {
        let fd = fd_of(self.map(name)?);
        fd.ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
    }

    /// What a pipe works with. Loads the flush program.
    pub(super) fn pipe_parts(&mut self) -> Result<PipeParts, OpenError> {
        let flush = self
            .program(FLUSH_PROGRAM)
            .map_err(|error| OpenError::Program { name: FLUSH_PROGRAM, why: error.to_string() })?;
        let flush = flush.try_clone_to_owned().map_err(|source| OpenError::MapInfo { source })?;
        PipeParts::gather(flush, |name| self.maps.get(name).and_then(fd_of))
    }

    /// Loads a program, once, and lends its descriptor.
    pub(super) fn program(&mut self, name: &str) -> Result<BorrowedFd<'_>, TraceError> {
        self.program_on(Side::Kernel, name)
    }

    /// The same of a program for functions of either side.
    pub(super) fn program_on(
        &mut self,
        side: Side,
        name: &str,
    ) -> Result<BorrowedFd<'_>, TraceError> {
        let purpose = programs::purpose(&self.code, name).map_err(TraceError::load)?;
        self.loaded_for((name.to_owned(), side), purpose, false)
    }

    /// The same of a program for many functions at once (5.18+).
    pub(super) fn multi_program(&mut self, name: &str) -> Result<BorrowedFd<'_>, TraceError> {
        self.loaded_for((name.to_owned(), Side::Kernel), Purpose::ManyFunctions, true)
    }

    fn loaded_for(
        &mut self,
        variant: Variant,
        purpose: Purpose<'_>,
        is_multi: bool,
    ) -> Result<BorrowedFd<'_>, TraceError> {
        let key = (variant, is_multi);
        if !self.loaded.contains_key(&key) {
            let variant = &key.0;
            self.link(variant).map_err(TraceError::load)?;
            let types = self.types.as_ref().map(OwnedFd::as_fd);
            let program = self.linked[variant].load(types, purpose).map_err(TraceError::load)?;
            self.loaded.insert(key.clone(), program);
        }
        let program = self.loaded.get(&key);
        program.map(OwnedFd::as_fd).ok_or_else(|| TraceError::load("it was not loaded"))
    }

    /// Loads a program for the probe of a number.
    pub(super) fn program_of(
        &mut self,
        side: Side,
        name: &str,
        number: u32,
    ) -> Result<OwnedFd, TraceError> {
        let purpose = programs::purpose(&self.code, name).map_err(TraceError::load)?;
        let variant = (name.to_owned(), side);
        self.load_numbered(&variant, purpose, number)?.map_err(TraceError::load)
    }

    /// Loads a program for a trampoline, and for the probe of a number. The inner error, if the kernel does
    /// not take it.
    pub(super) fn trampoline(
        &mut self,
        name: &str,
        function: Trampoline<'_>,
        number: u32,
    ) -> Result<Result<OwnedFd, Refused>, TraceError> {
        let variant = (name.to_owned(), Side::Kernel);
        self.load_numbered(&variant, Purpose::Trampoline(function), number)
    }

    fn load_numbered(
        &mut self,
        variant: &Variant,
        purpose: Purpose<'_>,
        number: u32,
    ) -> Result<Result<OwnedFd, Refused>, TraceError> {
        self.link(variant).map_err(TraceError::load)?;
        let types = self.types.as_ref().map(OwnedFd::as_fd);
        // The program has it, once it is loaded.
        let own = maps::create_number(&self.code, types, number).map_err(TraceError::load)?;
        let linked = fd_of(self.map(NUMBER).map_err(TraceError::load)?);
        let linked = linked.ok_or_else(|| TraceError::load("its numbers are in no array"))?;
        let number = Number { linked, own: own.as_fd() };
        self.linked[variant].load_numbered(&number, types, purpose).map_err(TraceError::load)
    }

    /// Links a program, once.
    fn link(&mut self, variant: &Variant) -> Result<(), Box<dyn Error + Send + Sync>> {
        if !self.linked.contains_key(variant) {
            let linked = Linked::new(&self.code, &self.maps, variant)?;
            self.linked.insert(variant.clone(), linked);
        }
        Ok(())
    }

    /// How many tasks should have been followed, and found no room.
    pub(super) fn not_followed(&self) -> Result<u64, TraceError> {
        let map = self.map("NOT_FOLLOWED").map_err(TraceError::load)?;
        let counter: Array<_, u64> = map.try_into().map_err(TraceError::load)?;
        counter.get(&0, 0).map_err(TraceError::load)
    }

    /// Has `cpu` send its block.
    pub(super) fn flush(&self, cpu: u32) -> io::Result<()> {
        match self.loaded.get(&((FLUSH_PROGRAM.to_owned(), Side::Kernel), false)) {
            Some(program) => bpf::run_on(program.as_fd(), cpu).map(drop),
            None => Ok(()),
        }
    }
}
