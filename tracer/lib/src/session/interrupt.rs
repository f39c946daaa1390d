//! A signal that interrupts the attaching of probes, and the waiting for symbols.

use crate::error::TraceError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of a signal, once there is one, and 0 until then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(pub(crate) Option<Arc<AtomicUsize>>);

impl Interrupt {
    /// Fails once there is a signal.
    pub(crate) fn check(&self) -> Result<(), TraceError> {
        // ORDERING: nothing else depends on the number.
        match self.0.as_ref().map_or(0, |signal| signal.load(Ordering::Relaxed)) {
            0 => Ok(()),
            signal => Err(TraceError::Interrupted(signal)),
        }
    }
}
