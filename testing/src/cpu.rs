//! Taking a CPU offline and online. For virtual machines only.

use std::fs;
use std::time::{Duration, Instant};

/// The CPU that is switched off and on.
pub const CPU: u32 = 1;

pub fn switch(on: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{CPU}/online");
    let start = Instant::now();
    // The kernel may refuse while the last switch is still in progress.
    while let Err(error) = fs::write(&path, if on { "1" } else { "0" }) {
        assert!(start.elapsed() < Duration::from_secs(30), "{path}: {error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Brings the CPU back online on drop.
pub struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        switch(true);
    }
}
