//! The end of threads that a test has started.

use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the threads that look at it, even if a test panics while it waits for them.
pub struct SetOnDrop<'f>(pub &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
