//! The parts of a loaded object that a pipe works with.

use crate::error::{OpenError, TallyError};
use crate::ledger::accounting::ScratchSlots;
use crate::ledger::accounts::Accounts;
use crate::ledger::tally::Tally;
use crate::pipe::part;
use probe_common::control::EAGER_MAP;
use probe_sys::bpf::{self, MapInfo};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The parts of a loaded object that belong to a pipe.
///
/// [`EvPipe::from_object`](crate::EvPipe::from_object) finds all parts in an object that aya has loaded. With another
/// loader, pass the parts that you have: the map of events is enough to receive records.
///
/// A clone refers to the same maps and the same program.
#[derive(Clone, Debug)]
pub struct PipeParts {
    pub(crate) events: Arc<OwnedFd>,
    pub(crate) tally: Option<Arc<Tally>>,
    pub(crate) scratch: Option<Arc<ScratchSlots>>,
    pub(crate) adaptive: Option<AdaptiveParts>,
}

/// What adaptive wakeups need besides the map of events.
#[derive(Clone, Debug)]
pub(crate) struct AdaptiveParts {
    pub(crate) eager: Arc<OwnedFd>,
    pub(crate) control: Arc<OwnedFd>,
    pub(crate) flush: Arc<OwnedFd>,
}

impl PipeParts {
    /// Starts with the map [`EVENTS_MAP`](probe_common::control::EVENTS_MAP), or another perf event array. The map is
    /// checked when the pipe is opened.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn new(events: impl AsFd) -> io::Result<Self> {
        let events = shared(events)?;
        Ok(Self { events, tally: None, scratch: None, adaptive: None })
    }

    /// Adds the maps [`TALLY_MAP`](probe_common::control::TALLY_MAP) and
    /// [`OUTPUTS_MAP`](probe_common::control::OUTPUTS_MAP), from which the pipe learns what the eBPF side counts.
    ///
    /// # Errors
    ///
    /// If the descriptors do not refer to such maps ([`OpenError::WrongPart`]).
    pub fn tally(mut self, tally: impl AsFd, outputs: impl AsFd) -> Result<Self, OpenError> {
        part::TALLY.check(tally.as_fd())?;
        part::OUTPUTS.check(outputs.as_fd())?;
        self.tally = Some(Arc::new(Tally::from_maps(tally, outputs)?));
        Ok(self)
    }

    /// Whether there are parts besides the map of events, which only objects with `probe_ebpf::pipe` have.
    pub(crate) fn are_of_probe_ebpf(&self) -> bool {
        self.tally.is_some() || self.scratch.is_some() || self.adaptive.is_some()
    }

    /// Opens the accounts of some CPUs, or of all without a list, if the loaded object has a tally. This has to happen before
    /// the maps have events.
    pub(crate) fn open_accounts(
        &self,
        cpus: Option<&[u32]>,
    ) -> Result<Option<Arc<Accounts>>, TallyError> {
        let accounts = self.tally.clone().map(|tally| Accounts::open(tally, cpus));
        Ok(accounts.transpose()?.map(Arc::new))
    }

    /// Adds the map [`SCRATCH_MAP`](probe_common::control::SCRATCH_MAP). There the pipe finds the records that a CPU
    /// had not sent yet when it went offline for good.
    ///
    /// # Errors
    ///
    /// If the descriptor does not refer to such a map ([`OpenError::WrongPart`]).
    pub fn scratch(mut self, scratch: impl AsFd) -> Result<Self, OpenError> {
        part::SCRATCH.check(scratch.as_fd())?;
        self.scratch = Some(Arc::new(ScratchSlots::from_map(scratch)?));
        Ok(self)
    }

    /// Adds what [`Wakeup::Adaptive`](crate::Wakeup::Adaptive) needs: the maps
    /// [`EAGER_MAP`](probe_common::control::EAGER_MAP) and [`CONTROL_MAP`](probe_common::control::CONTROL_MAP), and
    /// the loaded program [`FLUSH_PROGRAM`](probe_common::control::FLUSH_PROGRAM). When the pipe is opened, it checks
    /// that they are those of one object.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn adaptive(
        mut self,
        eager: impl AsFd,
        control: impl AsFd,
        flush: impl AsFd,
    ) -> io::Result<Self> {
        self.adaptive = Some(AdaptiveParts {
            eager: shared(eager)?,
            control: shared(control)?,
            flush: shared(flush)?,
        });
        Ok(self)
    }

    /// Checks the maps and the program that no earlier call has checked, and returns what the map of events is.
    pub(crate) fn check(&self) -> Result<MapInfo, OpenError> {
        let events = part::EVENTS.check(self.events.as_fd())?;
        if let Some(AdaptiveParts { eager, control, flush }) = &self.adaptive {
            part::check_adaptive(&events, eager.as_fd(), control.as_fd(), flush.as_fd())?;
        }
        Ok(events)
    }

    /// The map of the events that wake with every record: as given, or otherwise among the maps of the programs that use the
    /// map of events. Other loaders have none, and not everyone may look.
    pub(crate) fn eager_map(&self) -> Option<Arc<OwnedFd>> {
        if let Some(parts) = &self.adaptive {
            return Some(Arc::clone(&parts.eager));
        }
        let eager = bpf::map_beside(self.events.as_fd(), EAGER_MAP).ok()??;
        part::EAGER.check(eager.as_fd()).is_ok().then(|| Arc::new(eager))
    }

    /// Gathers all parts, whatever loaded them: the maps by their names, and the flush program.
    ///
    /// # Errors
    ///
    /// If `map` does not return one of the maps, and as [`tally`](Self::tally) and [`scratch`](Self::scratch).
    pub fn gather<'m>(
        flush: OwnedFd,
        map: impl Fn(&'static str) -> Option<BorrowedFd<'m>>,
    ) -> Result<Self, OpenError> {
        use probe_common::control::{CONTROL_MAP, EVENTS_MAP, OUTPUTS_MAP, SCRATCH_MAP, TALLY_MAP};

        let map = |name| map(name).ok_or(OpenError::NoMap { name });
        let (events, eager) = (map(EVENTS_MAP)?, map(EAGER_MAP)?);
        let (tally, outputs) = (map(TALLY_MAP)?, map(OUTPUTS_MAP)?);
        let (scratch, control) = (map(SCRATCH_MAP)?, map(CONTROL_MAP)?);
        let parts = Self::new(events)
            .and_then(|parts| parts.adaptive(eager, control, flush))
            .map_err(|cause| OpenError::MapInfo { cause })?;
        parts.tally(tally, outputs)?.scratch(scratch)
    }

    /// Gathers all parts of an object that aya has loaded. Loads the flush program.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::from_object`](crate::EvPipe::from_object), except for the errors of opening the pipe.
    #[cfg(feature = "aya")]
    pub fn of_object(object: &mut aya::Ebpf) -> Result<Self, OpenError> {
        use aya::maps::Map;
        use aya::programs::RawTracePoint;
        use probe_common::control::{CONTROL_MAP, EVENTS_MAP, FLUSH_PROGRAM};

        let why = |error: aya::programs::ProgramError| OpenError::Program {
            name: FLUSH_PROGRAM,
            why: error.to_string(),
        };
        let program = object
            .program_mut(FLUSH_PROGRAM)
            .ok_or(OpenError::NoProgram { name: FLUSH_PROGRAM })?;
        let program: &mut RawTracePoint = program.try_into().map_err(why)?;
        if program.fd().is_err() {
            program.load().map_err(why)?;
        }
        let flush = program.fd().map_err(why)?.as_fd().try_clone_to_owned();
        let flush = flush.map_err(|cause| OpenError::MapInfo { cause })?;
        Self::gather(flush, |name| match (name, object.map(name)?) {
            (EVENTS_MAP | EAGER_MAP, Map::PerfEventArray(map)) => Some(map.fd().as_fd()),
            (CONTROL_MAP, Map::Array(map)) => Some(map.fd().as_fd()),
            (EVENTS_MAP | EAGER_MAP | CONTROL_MAP, _) => None,
            (_, Map::PerCpuArray(map)) => Some(map.fd().as_fd()),
            _ => None,
        })
    }
}

/// A descriptor of our own for the same file.
fn shared(file: impl AsFd) -> io::Result<Arc<OwnedFd>> {
    file.as_fd().try_clone_to_owned().map(Arc::new)
}
