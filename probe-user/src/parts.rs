//! What of a loaded object a pipe works with.

use crate::error::OpenError;
use crate::scratch::ScratchSlots;
use crate::tally::Tally;
use std::io;
#[cfg(feature = "aya")]
use std::os::fd::BorrowedFd;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What a loaded object has of a pipe.
///
/// [`EvPipe::from_object`](crate::EvPipe::from_object) finds all of it in an object that aya has
/// loaded. With another loader, hand over what there is: the map of events is enough to receive
/// records.
///
/// A clone is the same maps and the same program.
#[derive(Clone, Debug)]
pub struct PipeParts {
    pub(crate) events: Arc<OwnedFd>,
    pub(crate) tally: Option<Arc<Tally>>,
    pub(crate) scratch: Option<Arc<ScratchSlots>>,
    pub(crate) adaptive: Option<AdaptiveParts>,
    /// Programs may emit records alone, as far as is known.
    pub(crate) emits_alone: bool,
}

/// What adaptive wakeups need beyond the events.
#[derive(Clone, Debug)]
pub(crate) struct AdaptiveParts {
    pub(crate) eager: Arc<OwnedFd>,
    pub(crate) control: Arc<OwnedFd>,
    pub(crate) flush: Arc<OwnedFd>,
}

impl PipeParts {
    /// The map [`EVENTS_MAP`](probe_common::control::EVENTS_MAP).
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn new(events: impl AsFd) -> io::Result<Self> {
        let events = shared(events)?;
        Ok(Self { events, tally: None, scratch: None, adaptive: None, emits_alone: true })
    }

    /// The maps [`TALLY_MAP`](probe_common::control::TALLY_MAP) and
    /// [`OUTPUTS_MAP`](probe_common::control::OUTPUTS_MAP), by which the pipe knows what the eBPF side
    /// counts.
    ///
    /// # Errors
    ///
    /// If they are not such maps.
    pub fn tally(mut self, tally: impl AsFd, outputs: impl AsFd) -> Result<Self, OpenError> {
        self.tally = Some(Arc::new(Tally::from_maps(tally, outputs)?));
        Ok(self)
    }

    /// The map [`SCRATCH_MAP`](probe_common::control::SCRATCH_MAP), where the pipe finds what a CPU
    /// that went offline, and did not come back, had not sent yet.
    ///
    /// # Errors
    ///
    /// If it is not such a map.
    pub fn scratch(mut self, scratch: impl AsFd) -> Result<Self, OpenError> {
        self.scratch = Some(Arc::new(ScratchSlots::from_map(scratch)?));
        Ok(self)
    }

    /// What [`Wakeup::Adaptive`](crate::Wakeup::Adaptive) needs: the maps
    /// [`EAGER_MAP`](probe_common::control::EAGER_MAP) and
    /// [`CONTROL_MAP`](probe_common::control::CONTROL_MAP), and the loaded program
    /// [`FLUSH_PROGRAM`](probe_common::control::FLUSH_PROGRAM).
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

    /// No program of the object emits records alone (it has no section
    /// [`ALONE_SECTION`](probe_common::control::ALONE_SECTION)): to pause a pipe takes microseconds then, and else a
    /// grace period of RCU.
    #[must_use]
    pub fn never_alone(mut self) -> Self {
        self.emits_alone = false;
        self
    }

    /// All of it: the maps by their names, and the flush program.
    #[cfg(feature = "aya")]
    pub(crate) fn gather<'m>(
        flush: OwnedFd,
        map: impl Fn(&'static str) -> Option<BorrowedFd<'m>>,
    ) -> Result<Self, OpenError> {
        use probe_common::control::{
            ALONE_SECTION, CONTROL_MAP, EAGER_MAP, EVENTS_MAP, OUTPUTS_MAP, SCRATCH_MAP, TALLY_MAP,
        };

        let emits_alone = map(ALONE_SECTION).is_some();
        let map = |name| map(name).ok_or(OpenError::NoMap { name });
        let (events, eager) = (map(EVENTS_MAP)?, map(EAGER_MAP)?);
        let (tally, outputs) = (map(TALLY_MAP)?, map(OUTPUTS_MAP)?);
        let (scratch, control) = (map(SCRATCH_MAP)?, map(CONTROL_MAP)?);
        let parts = Self::new(events)
            .and_then(|parts| parts.adaptive(eager, control, flush))
            .map_err(|source| OpenError::MapInfo { source })?;
        let parts = parts.tally(tally, outputs)?.scratch(scratch)?;
        Ok(if emits_alone { parts } else { parts.never_alone() })
    }

    /// All of it, out of an object that aya has loaded. Loads the flush program.
    ///
    /// # Errors
    ///
    /// As [`EvPipe::from_object`](crate::EvPipe::from_object), before that opens anything.
    #[cfg(feature = "aya")]
    pub fn of_object(object: &mut aya::Ebpf) -> Result<Self, OpenError> {
        use aya::maps::Map;
        use aya::programs::RawTracePoint;
        use probe_common::control::{
            ALONE_SECTION, CONTROL_MAP, EAGER_MAP, EVENTS_MAP, FLUSH_PROGRAM,
        };

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
        let flush = flush.map_err(|source| OpenError::MapInfo { source })?;
        Self::gather(flush, |name| match (name, object.map(name)?) {
            (EVENTS_MAP | EAGER_MAP, Map::PerfEventArray(map)) => Some(map.fd().as_fd()),
            (CONTROL_MAP | ALONE_SECTION, Map::Array(map)) => Some(map.fd().as_fd()),
            (EVENTS_MAP | EAGER_MAP | CONTROL_MAP | ALONE_SECTION, _) => None,
            (_, Map::PerCpuArray(map)) => Some(map.fd().as_fd()),
            _ => None,
        })
    }
}

/// A descriptor of our own of the same file.
fn shared(file: impl AsFd) -> io::Result<Arc<OwnedFd>> {
    file.as_fd().try_clone_to_owned().map(Arc::new)
}
