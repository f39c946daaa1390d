//! Looks at a process until it has ended: how much memory it has, and whether it does as it is asked.

use crate::resident::peak_kib;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it looks: what is allocated later than that before the end is not seen.
const LOOK: Duration = Duration::from_millis(20);
/// Whoever was asked to end and has not done so by then is told to: Python may lose a Ctrl-C that comes while
/// C calls it back, and never sees one if it was started with SIGINT ignored.
const PATIENCE: Duration = Duration::from_secs(3);
/// Nobody takes that long, unless it hangs: it is killed.
pub(super) const LIMIT: Duration = Duration::from_secs(180);

pub(super) struct Watch {
    thread: JoinHandle<u64>,
    asked: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn start(pid: Pid) -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        let sees = asked.clone();
        Self { thread: thread::spawn(move || look(pid, &sees)), asked }
    }

    /// The process was asked to end.
    pub(super) fn asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// The most that was resident, in KiB, once it has ended and before it is reaped.
    pub(super) fn peak_kib(self) -> u64 {
        self.thread.join().unwrap_or_default()
    }
}

fn look(pid: Pid, asked: &AtomicBool) -> u64 {
    let status = format!("/proc/{}/status", pid.as_raw_pid());
    let started = Instant::now();
    let mut since = None;
    let mut peak = 0;
    while let Some(kib) = fs::read_to_string(&status).ok().as_deref().and_then(peak_kib) {
        peak = peak.max(kib);
        // Where that fails, it has ended just now.
        if started.elapsed() >= LIMIT {
            let _ = kill_process(pid, Signal::KILL);
        } else if asked.load(Ordering::Relaxed) {
            let since = since.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        thread::sleep(LOOK);
    }
    peak
}
