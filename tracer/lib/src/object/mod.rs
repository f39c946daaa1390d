//! The tracer's eBPF object: embedded, configured, its programs loaded as they are needed.

mod maps;
pub(crate) mod namespaces;
pub(crate) mod per_cpu;
mod programs;
mod specialized;

use crate::error::{Result, TraceError};
use aya::Ebpf;
use aya::maps::{Array, CgroupArray, Map, MapError};
use maps::{GATE, Maps, NUMBER, READERS, fd_of};
use probe_common::control::FLUSH_PROGRAM;
use probe_sys::bpf;
use probe_sys::bpf::load::{Purpose, Trampoline};
use probe_sys::process::DeferredSignals;
use probe_tracer_common::counter::{self, Counted};
use probe_tracer_common::fetch::{FetchTable, PROBES};
use probe_tracer_common::wait::{END_WAIT_PROGRAM, PAGE_FAULT_PROGRAM, WAITING, WAITS};
use probe_user::OpenError;
use probe_user::PipeParts;
use programs::{Image, Linked};
use specialized::Site;
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) use maps::{Config, Sampling, may_lack_memory};
pub(crate) use programs::Refused;

type AnyError = Box<dyn Error + Send + Sync>;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../ebpf/probe.bpf.o");

/// The side that a program's functions are on. Calls are kept apart by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// The kernel, also for hooks that are not functions.
    Kernel,
    /// Programs and libraries.
    Process,
}

/// A program's name, and the side that its functions are on.
type Variant = (String, Side);

/// The object, with its maps created.
#[derive(Debug)]
pub(crate) struct Object {
    code: aya_obj::Object,
    /// The types of its functions, if the kernel accepts any.
    types: Option<OwnedFd>,
    maps: Maps,
    linked: HashMap<Variant, Linked>,
    /// The programs that are loaded once for all probes, and whether each is for kprobe.multi.
    loaded: HashMap<(Variant, bool), OwnedFd>,
    /// The owner of the log map, if programs log.
    log: Option<Ebpf>,
    /// Whether hits may wait for the process's memory.
    hits_wait: bool,
    /// Whether predicates may remain undecided.
    may_be_undecided: bool,
    /// What each probe reads.
    tables: Vec<FetchTable>,
    /// Whether the tracer is in the initial PID namespace.
    is_in_initial_namespace: bool,
    /// How many bytes of a hit's tail are for counters.
    counters_len: usize,
    /// How many programs are specialized.
    specialized: usize,
    /// How many of them replace a program that could serve several probes.
    replacing: usize,
    /// The most programs that are specialized, if that was set.
    most_specialized: Option<usize>,
}

/// The most programs that are specialized where one program can serve all probes. Loading one takes longer than
/// attaching the other.
const MOST_SPECIALIZED: usize = 16;

/// The programs that follow descendants.
pub(crate) const FOLLOW_NEW: &str = "follow_new";
pub(crate) const FOLLOW_FREE: &str = "follow_free";

impl Object {
    /// Reads the object and creates its maps. Probe `n` reads what `tables[n]` says.
    pub(crate) fn load(config: &Config, tables: &[FetchTable]) -> Result<Self> {
        Self::create(config, tables).map_err(TraceError::load)
    }

    fn create(config: &Config, tables: &[FetchTable]) -> Result<Self, AnyError> {
        // aya tries the kernel's features, and takes a call that a signal interrupts for a missing one.
        let _deferred = DeferredSignals::new()?;
        let mut code = aya_obj::Object::parse(OBJECT)?;
        maps::configure(&mut code, config, tables)?;
        let types = programs::load_types(&mut code)?;
        let log = (config.log_level > 0).then(maps::create_log).transpose()?;
        let maps = maps::create(&code, types.as_ref().map(OwnedFd::as_fd), log.as_ref())?;
        let (linked, loaded) = (HashMap::new(), HashMap::new());
        let is_in_initial_namespace = config.namespace.inode == 0;
        let counters_len = Counted::bytes(config.counters.into());
        let hits_wait = maps::hits_wait(config, tables);
        let may_be_undecided = maps::may_be_undecided(tables);
        let mut this = Self {
            code,
            types,
            maps,
            linked,
            loaded,
            log,
            hits_wait,
            may_be_undecided,
            tables: tables.to_vec(),
            is_in_initial_namespace,
            counters_len,
            specialized: 0,
            replacing: 0,
            most_specialized: config.specialize,
        };
        let mut probes: Array<_, [u8; size_of::<FetchTable>()]> =
            this.map_mut(PROBES)?.try_into()?;
        for (number, table) in (0..).zip(tables) {
            let bytes: [u8; size_of::<FetchTable>()] = zerocopy::transmute!(*table);
            probes.set(number, bytes, 0)?;
        }
        Ok(this)
    }

    /// A map of the object.
    pub(crate) fn map(&self, name: &str) -> Result<&Map, MapError> {
        self.maps.get(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
    }

    fn map_mut(&mut self, name: &str) -> Result<&mut Map, MapError> {
        self.maps.get_mut(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
    }

    /// Takes the owner of the log map, for a reader.
    pub(crate) fn take_log(&mut self) -> Option<Ebpf> {
        self.log.take()
    }

    /// Traces only the tasks of this cgroup, given its directory.
    pub(crate) fn only_in(&mut self, cgroup: BorrowedFd<'_>) -> Result<(), MapError> {
        CgroupArray::try_from(self.map_mut("CGROUP")?)?.set(0, cgroup, 0)
    }

    /// The maps of the counters, each indexed by CPU.
    pub(crate) fn counters(&self) -> Result<Vec<BorrowedFd<'_>>, MapError> {
        counter::MAPS.iter().map(|name| self.map_fd(name)).collect()
    }

    /// The array with the generation of each CPU's counters.
    pub(crate) fn counter_generations(&self) -> Result<BorrowedFd<'_>, MapError> {
        self.map_fd(counter::GENERATIONS)
    }

    /// Whether hits may wait for the process's memory.
    pub(crate) fn hits_wait(&self) -> bool {
        self.hits_wait
    }

    /// Whether predicates may remain undecided.
    pub(crate) fn may_be_undecided(&self) -> bool {
        self.may_be_undecided
    }

    /// The maps of the parts of waiting hits, and of their number.
    pub(crate) fn waiting(&self) -> Result<[BorrowedFd<'_>; 2], MapError> {
        Ok([self.map_fd(WAITING)?, self.map_fd(WAITS)?])
    }

    fn map_fd(&self, name: &str) -> Result<BorrowedFd<'_>, MapError> {
        fd_of(self.map(name)?).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
    }

    /// Returns the parts that a pipe needs, and loads the flush program.
    pub(crate) fn pipe_parts(&mut self) -> Result<PipeParts, OpenError> {
        let flush = self
            .program(FLUSH_PROGRAM)
            .map_err(|error| OpenError::Program { name: FLUSH_PROGRAM, why: error.to_string() })?;
        let flush = flush.try_clone_to_owned().map_err(|cause| OpenError::MapInfo { cause })?;
        PipeParts::gather(flush, |name| self.maps.get(name).and_then(fd_of))
    }

    /// Loads a program on first use, and returns its descriptor.
    pub(crate) fn program(&mut self, name: &str) -> Result<BorrowedFd<'_>> {
        self.program_on(Side::Kernel, name)
    }

    /// Like [`program`](Self::program), for functions on either side.
    pub(crate) fn program_on(&mut self, side: Side, name: &str) -> Result<BorrowedFd<'_>> {
        let purpose = programs::purpose(&self.code, name).map_err(TraceError::load)?;
        self.loaded_for((name.to_owned(), side), purpose, false)
    }

    /// Like [`program`](Self::program), for a program that kprobe.multi attaches (5.18+).
    pub(crate) fn multi_program(&mut self, name: &str) -> Result<BorrowedFd<'_>> {
        self.loaded_for((name.to_owned(), Side::Kernel), Purpose::ManyFunctions, true)
    }

    fn loaded_for(
        &mut self,
        variant: Variant,
        purpose: Purpose<'_>,
        is_multi: bool,
    ) -> Result<BorrowedFd<'_>> {
        let key = (variant, is_multi);
        if !self.loaded.contains_key(&key) {
            let variant = &key.0;
            self.link(variant)?;
            let program = self.load_image(variant, self.linked[variant].image(), purpose);
            self.loaded.insert(key.clone(), program.map_err(TraceError::load)?);
        }
        Ok(self.loaded[&key].as_fd())
    }

    /// Loads a program for the probe of this number, specialized if possible.
    pub(crate) fn program_of(&mut self, side: Side, name: &str, number: u32) -> Result<OwnedFd> {
        let purpose = programs::purpose(&self.code, name).map_err(TraceError::load)?;
        let variant = (name.to_owned(), side);
        self.load_numbered(&variant, purpose, number)?.map_err(TraceError::load)
    }

    /// Like [`program_of`](Self::program_of), but the program is not specialized.
    pub(crate) fn interpreted(&mut self, side: Side, name: &str, number: u32) -> Result<OwnedFd> {
        let purpose = programs::purpose(&self.code, name).map_err(TraceError::load)?;
        let variant = (name.to_owned(), side);
        let (own, _map) = self.own(&variant, number)?;
        self.load_image(&variant, &own, purpose).map_err(TraceError::load)
    }

    /// Loads a trampoline's program for the probe of this number. The inner error means that the
    /// kernel refused it.
    pub(crate) fn trampoline(
        &mut self,
        name: &str,
        function: Trampoline<'_>,
        number: u32,
    ) -> Result<Result<OwnedFd, Refused>> {
        let variant = (name.to_owned(), Side::Kernel);
        self.load_numbered(&variant, Purpose::Trampoline(function), number)
    }

    /// Loads a specialized program for the probe of this number, in place of one that serves several probes. `None` if the kernel
    /// refuses it, or if there are so many already that the other one starts sooner.
    pub(crate) fn specialized(
        &mut self,
        side: Side,
        name: &str,
        number: u32,
    ) -> Result<Option<OwnedFd>> {
        if self.replacing >= self.most_specialized.unwrap_or(MOST_SPECIALIZED) {
            return Ok(None);
        }
        let purpose = programs::purpose(&self.code, name).map_err(TraceError::load)?;
        let variant = (name.to_owned(), side);
        let (own, _map) = self.own(&variant, number)?;
        let program = self.load_specialized(&variant, &own, purpose, number);
        self.replacing += usize::from(program.is_some());
        Ok(program)
    }

    /// Notes that the kernel has not attached a specialized program.
    pub(crate) fn not_attached(&mut self) {
        self.specialized -= 1;
    }

    fn load_numbered(
        &mut self,
        variant: &Variant,
        purpose: Purpose<'_>,
        number: u32,
    ) -> Result<Result<OwnedFd, Refused>> {
        let (own, _map) = self.own(variant, number)?;
        if self.most_specialized.is_none_or(|most| self.specialized < most)
            && let Some(program) = self.load_specialized(variant, &own, purpose, number)
        {
            return Ok(Ok(program));
        }
        Ok(self.load_image(variant, &own, purpose))
    }

    fn load_specialized(
        &mut self,
        variant: &Variant,
        own: &Image,
        purpose: Purpose<'_>,
        number: u32,
    ) -> Option<OwnedFd> {
        let program = &self.linked[variant];
        let site = self.site(program, number);
        let Some(specialized) = site.and_then(|site| program.specialized(own, &site)) else {
            log::info!(
                "the table of probe {number} is interpreted, not compiled: there are no instructions for what it reads"
            );
            return None;
        };
        match self.load_image(variant, &specialized, purpose) {
            Ok(loaded) => {
                self.specialized += 1;
                Some(loaded)
            }
            Err(why) => {
                let why_not = &why.source;
                log::info!("the table of probe {number} is interpreted, not compiled: {why_not}");
                log::debug!("{why}");
                None
            }
        }
    }

    /// How many programs are specialized.
    pub(crate) fn specialized_count(&self) -> usize {
        self.specialized
    }

    fn load_image(
        &self,
        variant: &Variant,
        image: &Image,
        purpose: Purpose<'_>,
    ) -> Result<OwnedFd, Refused> {
        let types = self.types.as_ref().map(OwnedFd::as_fd);
        self.linked[variant].load(image, types, purpose)
    }

    /// The program for the probe of this number, linked on first use, and the map with the number. Once it is loaded, the
    /// program holds the map.
    fn own(&mut self, variant: &Variant, number: u32) -> Result<(Image, OwnedFd)> {
        self.link(variant)?;
        let types = self.types.as_ref().map(OwnedFd::as_fd);
        let map = maps::create_number(&self.code, types, number).map_err(TraceError::load)?;
        let linked = self.map_fd(NUMBER).map_err(TraceError::load)?;
        let own = self.linked[variant].numbered(linked, map.as_fd()).map_err(TraceError::load)?;
        Ok((own, map))
    }

    /// What is known about a probe before its program is loaded.
    fn site(&self, program: &Linked, number: u32) -> Option<Site<'_>> {
        Some(Site {
            table: self.tables.get(number as usize)?,
            number,
            context: program.context()?,
            is_in_initial_namespace: self.is_in_initial_namespace,
            counters_len: self.counters_len,
        })
    }

    /// Links a program on first use.
    fn link(&mut self, variant: &Variant) -> Result<()> {
        if !self.linked.contains_key(variant) {
            let linked = Linked::new(&self.code, &self.maps, variant).map_err(TraceError::load)?;
            self.linked.insert(variant.clone(), linked);
        }
        Ok(())
    }

    /// The number of hits that the kernel did not pass on to the programs that serve several probes,
    /// because another program was running on the CPU (6.7+; 0 before).
    pub(crate) fn skipped(&self) -> Result<u64> {
        // Hits do not run these.
        let others = [FLUSH_PROGRAM, PAGE_FAULT_PROGRAM, END_WAIT_PROGRAM, FOLLOW_NEW, FOLLOW_FREE];
        self.misses(|name| !others.contains(&name))
    }

    /// How often the kernel did not run some programs, because another one was running on the CPU (6.7+; 0 before).
    fn misses(&self, of: impl Fn(&str) -> bool) -> Result<u64> {
        let programs = self.loaded.iter().filter(|(((name, _), _), _)| of(name));
        let misses = programs.map(|(_, program)| bpf::recursion_misses(program.as_fd()));
        let sum = misses.map(|misses| Ok(misses?.unwrap_or(0))).sum::<io::Result<u64>>();
        sum.map_err(TraceError::Counts)
    }

    /// The number of tasks that should have been followed but found no room, and of those that the kernel may have created
    /// without telling: some kernels (`PREEMPT_RT`) can do that while another task creates one on the same CPU.
    pub(crate) fn not_followed(&self) -> Result<u64> {
        let map = self.map("NOT_FOLLOWED").map_err(TraceError::load)?;
        let counter: Array<_, u64> = map.try_into().map_err(TraceError::load)?;
        let no_room = counter.get(&0, 0).map_err(TraceError::load)?;
        Ok(no_room.saturating_add(self.misses(|name| name == FOLLOW_NEW)?))
    }

    /// Makes hits of all probes count from now on, or no longer. Before this is called, none counts.
    pub(crate) fn set_gate(&self, is_open: bool) -> Result<()> {
        let gate = self.map_fd(GATE).map_err(TraceError::load)?;
        bpf::map_set_bytes(gate, 0, &u32::from(is_open).to_ne_bytes()).map_err(TraceError::load)
    }

    /// The map with the processes that read files for the tracer.
    pub(crate) fn readers(&self) -> Result<OwnedFd> {
        let map = self.map_fd(READERS).map_err(TraceError::load)?;
        map.try_clone_to_owned().map_err(TraceError::load)
    }

    /// Makes `cpu` send its block.
    pub(crate) fn flush(&self, cpu: u32) -> io::Result<()> {
        match self.loaded.get(&((FLUSH_PROGRAM.to_owned(), Side::Kernel), false)) {
            Some(program) => bpf::run_on(program.as_fd(), cpu).map(drop),
            None => Ok(()),
        }
    }
}
