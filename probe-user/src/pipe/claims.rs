//! Which CPUs belong to a pipe, where several use the same maps.

use crate::pipe::part::CONTROL;
use probe_common::control::CONTROL_MAP;
use probe_sys::bpf::{self, SlotProbe};
use probe_sys::control_page::{ControlPage, CpuFlags};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The control page, and the number by which this pipe notes there that a CPU belongs to it.
///
/// A pipe that covers a CPU takes it from an earlier one. If that one was killed, its settings remain: this clears them. If
/// it still runs, it has to leave the CPU alone from then on.
///
/// When a consumer is killed, the kernel takes its events out of the map. So an event there belongs to a consumer that
/// is alive, or to a child that a consumer has forked, which has the same descriptor of the map.
#[derive(Debug)]
pub(crate) struct Claims {
    /// The page, or why there is none: an error, or that nobody knows of one.
    page: Result<Arc<ControlPage>, Option<io::Error>>,
    owner: u32,
    has_left: AtomicBool,
    /// Looks for events in the map. `None` where the kernel does not allow that.
    slots: Option<SlotProbe>,
}

impl Claims {
    /// With the map of the control page. Without one, looks for it among the maps of the programs that use `events`.
    pub(crate) fn new(events: BorrowedFd<'_>, control: Option<BorrowedFd<'_>>) -> Self {
        let page = match control {
            Some(control) => ControlPage::map(control).map(Arc::new).map_err(Some),
            // Any program may use the map: other loaders have no control page. And not everyone may look.
            None => bpf::map_beside(events, CONTROL_MAP)
                .ok()
                .flatten()
                .filter(|control| CONTROL.check(control.as_fd()).is_ok())
                .ok_or(None)
                .and_then(|control| ControlPage::map(control.as_fd()).map(Arc::new).map_err(Some)),
        };
        let owner = RandomState::new().build_hasher().finish() as u32;
        let (owner, has_left) = (owner.max(1), AtomicBool::new(false));
        Self { page, owner, has_left, slots: SlotProbe::load(events).ok() }
    }

    /// The page, if it can be used.
    pub(crate) fn page(&self) -> Option<Arc<ControlPage>> {
        self.page.as_ref().ok().cloned()
    }

    /// Why the page cannot be used, if it cannot.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        self.page.as_ref().err()?.as_ref()
    }

    /// Whether there is an event for a CPU, as far as the kernel tells. If it is not this pipe's, another consumer has the CPU.
    pub(crate) fn has_event(&self, cpu: u32) -> bool {
        self.slots.as_ref().is_some_and(|slots| slots.is_filled(cpu).unwrap_or(false))
    }

    /// Takes a CPU. It sends every record at once, without a wakeup, until the consumer asks for something else.
    pub(crate) fn take(&self, cpu: u32) {
        if let Some(cpu) = self.entry(cpu) {
            cpu.set_owner(self.owner);
            cpu.set_uncounted(0);
            cpu.set_limit(0);
            cpu.set_eager(0);
        }
    }

    /// Whether another pipe has taken a CPU that was ours, even if it has left it since.
    pub(crate) fn has_lost(&self, cpu: u32) -> bool {
        let is_other = |owner| owner != self.owner && !(owner == 0 && self.has_left.load(Relaxed));
        self.entry(cpu).is_some_and(|entry| is_other(entry.owner()))
    }

    /// Notes that this pipe gives its CPUs back from now on.
    pub(crate) fn leave(&self) {
        // ORDERING: nothing else depends on it.
        self.has_left.store(true, Relaxed);
    }

    /// Whether a CPU belongs to this pipe, as far as is known.
    pub(crate) fn has(&self, cpu: u32) -> bool {
        self.entry(cpu).is_none_or(|entry| entry.owner() == self.owner)
    }

    /// Notes that a CPU belongs to no pipe any more.
    pub(crate) fn give_back(&self, cpu: u32) {
        if let Some(entry) = self.ours(cpu) {
            entry.set_owner(0);
        }
    }

    /// The entry of a CPU in the control page.
    pub(crate) fn entry(&self, cpu: u32) -> Option<CpuFlags<'_>> {
        self.page.as_ref().ok()?.cpu(cpu)
    }

    /// The entry of a CPU, unless another pipe has taken it.
    pub(crate) fn ours(&self, cpu: u32) -> Option<CpuFlags<'_>> {
        self.entry(cpu).filter(|entry| entry.owner() == self.owner)
    }
}
