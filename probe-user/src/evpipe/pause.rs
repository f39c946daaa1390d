//! Pausing a pipe.

use super::EvPipe;
use crate::error::{PauseError, forked};
use crate::evqueue::EvQueue;
use crate::pausing::Pausing;
use crate::sys::membarrier;

impl EvPipe {
    /// Takes no records from here on, until the pipe [resumes](Self::resume). When this returns, every
    /// program has ended that had begun to write before: what there will be of it is in the rings.
    ///
    /// A pipe that is paused already stays paused as it is.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to pause a ring (before 4.7), or this process was forked from the one that opened
    /// the pipe; it is not paused, then.
    pub fn pause(&mut self, how: Pausing) -> Result<(), PauseError> {
        self.check_rings()?;
        if self.queues.paused().is_some() {
            return Ok(());
        }
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.hold();
        }
        if let Err(error) = self.queues.pause(how) {
            self.pack();
            return Err(error);
        }
        self.wait_for_writers();
        Ok(())
    }

    /// Takes records again. Nothing happens where it does already.
    ///
    /// # Errors
    ///
    /// If an event cannot be put back into the map. Other CPUs go on; this can be tried again. And if this
    /// process was forked from the one that opened the pipe.
    pub fn resume(&mut self) -> Result<(), PauseError> {
        self.check_rings()?;
        let result = self.queues.resume();
        self.pack();
        result
    }

    /// How the pipe is paused, if it is.
    pub fn paused(&self) -> Option<Pausing> {
        self.queues.paused()
    }

    /// Whether this process has the rings.
    pub(super) fn check_rings(&self) -> Result<(), PauseError> {
        match self.queues.are_here() {
            true => Ok(()),
            false => Err(PauseError {
                cpu: self.queues().first().map_or(0, EvQueue::cpu),
                source: forked(),
            }),
        }
    }

    /// Lets programs pack again.
    pub(super) fn pack(&mut self) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.pack();
        }
    }

    /// Waits until no program writes any more that had begun to before the pipe was paused.
    pub(super) fn wait_for_writers(&self) {
        // The flush program interrupts its CPU, and tells if anybody is between a record's beginning and
        // the end of its output there, but for those that emit alone. Nothing is packed, so it sends nothing.
        if !self.emits_alone && self.adaptive.as_ref().is_some_and(|adaptive| adaptive.flush_all())
        {
            return;
        }
        // Where the kernel cannot wait, that is left to luck.
        let _ = membarrier::wait_for_programs();
    }
}
