//! A CPU that tests take away and bring back: only in a virtual machine.

use std::fs;
use std::time::{Duration, Instant};

/// The CPU that comes and goes.
pub const CPU: u32 = 1;

pub fn switch(on: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{CPU}/online");
    let start = Instant::now();
    // The kernel refuses now and then, while it is busy with the last time.
    while let Err(error) = fs::write(&path, if on { "1" } else { "0" }) {
        assert!(start.elapsed() < Duration::from_secs(30), "{path}: {error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has the CPU online again whatever a test does.
pub struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        switch(true);
    }
}
