//! A flag that stops a test's threads.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag on drop, so that threads stop even if the test panics.
pub struct SetOnDrop<'f>(pub &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
