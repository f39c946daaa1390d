//! Opening a pipe: over a map, over the parts of an object, or over a pinned map.

use crate::error::OpenError;
use crate::ledger::accounting::Accounting;
use crate::ledger::accounts::Accounts;
use crate::pipe::coverage::Coverage;
use crate::pipe::evpipe::{EvPipe, Flight};
use crate::pipe::options::Options;
use crate::pipe::parts::PipeParts;
use crate::pipe::pinning::open_pinned;
use crate::pipe::trigger::Trigger;
use crate::pipe::waiting::Waiting;
use crate::queue::contents::Contents;
use probe_sys::epoll::Epoll;
use probe_sys::membarrier;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

impl EvPipe {
    /// Opens a pipe over a perf event array that any loader has created. A descriptor of the map is enough.
    ///
    /// If the map has too few entries for all online CPUs, the pipe covers those that have one, and reports the others to
    /// the consumer ([`CpuChange::Uncovered`](crate::CpuChange::Uncovered)).
    ///
    /// # Errors
    ///
    /// If the map is not a perf event array ([`OpenError::WrongPart`]), or events, rings or descriptors cannot be
    /// created; if another consumer has a CPU ([`OpenError::InUse`]); and if the map has no entry for a requested CPU
    /// ([`OpenError::MapTooSmall`]), or for none that is online. The call leaves nothing behind then.
    pub fn from_map(map: impl AsFd, options: &Options) -> Result<Self, OpenError> {
        let parts = PipeParts::new(map).map_err(|cause| OpenError::MapInfo { cause })?;
        Self::open(parts, options)
    }

    /// Opens a pipe over the parts of a loaded object.
    ///
    /// # Errors
    ///
    /// As [`from_map`](Self::from_map), for each of the parts. A wrong part is neither used nor changed.
    pub fn open(parts: PipeParts, options: &Options) -> Result<Self, OpenError> {
        if options.realtime_priority().is_some() {
            let why = "an EvPipe has no threads: open a PerCpuPipe, or set the priority of the thread that drains";
            return Err(OpenError::Realtime { why: why.to_owned() });
        }
        let accounts = parts.open_accounts(options.wanted_cpus())?;
        Self::open_with(parts, accounts, options)
    }

    /// Opens a pipe whose accounts are already open, and may be shared with other pipes.
    pub(crate) fn open_with(
        parts: PipeParts,
        accounts: Option<Arc<Accounts>>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let options = &options.within_limit()?;
        options.check()?;
        if options.contents() == Contents::Raw && parts.are_of_probe_ebpf() {
            let what =
                "the object uses probe_ebpf::pipe, which sends blocks of records: leave out raw()";
            return Err(OpenError::Raw { what });
        }
        let events = parts.check()?;
        let poll = |cause| OpenError::Poll { cause };
        let epoll = Epoll::new().map_err(poll)?;
        let mut coverage = Coverage::open(&parts, events, accounts.clone(), options, &epoll)?;
        let adaptive = match (parts.adaptive, &parts.scratch) {
            (Some(adaptive), Some(_)) => Ok(adaptive),
            // What a CPU has packed when it goes offline would be lost.
            (Some(_), None) => Err("the map of open blocks is not known (PipeParts::scratch)"),
            (None, _) => Err("only the map of events is known, not the rest of the object"),
        };
        let waiting = Waiting::open(epoll, &mut coverage.queues, adaptive, options)?;
        let mut flight = None;
        if options.overwrites() {
            let trigger = Trigger::new().map_err(poll)?;
            waiting.epoll.add(trigger.as_fd()).map_err(poll)?;
            if waiting.adaptive.is_none() {
                // Better now than when the first dump is needed.
                membarrier::wait_for_programs().map_err(|cause| OpenError::Recorder { cause })?;
            }
            flight = Some(Flight { trigger, dumps: 0 });
        }
        let page = coverage.queues.control_page();
        Ok(Self {
            waiting,
            coverage,
            accounting: Accounting::new(accounts, parts.scratch, page, options.wanted_cpus()),
            budget: options.budget_bytes(),
            bytes_per_cpu: options.bytes(),
            contents: options.contents(),
            flight,
        })
    }

    /// Opens a pipe over a directory in which all its parts are [pinned](PipeParts::pin), with a ledger and adaptive
    /// wakeups; or over a perf event array alone that is pinned at `path`.
    ///
    /// # Errors
    ///
    /// If a part at `path` cannot be opened, and as [`from_map`](Self::from_map).
    pub fn from_pinned(path: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        match path.is_dir() {
            true => Self::open(PipeParts::from_pinned(path)?, options),
            false => Self::from_map(open_pinned(path)?, options),
        }
    }

    /// Opens a pipe over an object that aya has loaded. Uses its maps, and loads its flush program.
    ///
    /// # Errors
    ///
    /// If the object's program does not use `probe_ebpf::pipe`, and as
    /// [`from_map`](Self::from_map).
    #[cfg(feature = "aya")]
    pub fn from_object(object: &mut aya::Ebpf, options: &Options) -> Result<Self, OpenError> {
        Self::open(PipeParts::of_object(object)?, options)
    }
}
