//! Processes that are busy in the background.

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::process::{Child, Command, Stdio};

/// A program that runs until this is dropped.
pub struct Busy {
    child: Child,
    /// The CPU affinity to restore.
    before: CpuSet,
}

impl Busy {
    /// `dd`, which makes many small system calls.
    pub fn start() -> Self {
        Self::run(Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "bs=1"]))
    }

    /// A shell that executes this again and again.
    pub fn repeat(script: &str) -> Self {
        Self::run(Command::new("sh").args(["-c", &format!("while :; do {script}; done")]))
    }

    fn run(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().unwrap(), before: sched_getaffinity(None).unwrap() }
    }

    /// Starts `dd` at the lowest priority on one CPU, and pins this thread and what it spawns to
    /// the same CPU. If one thread emulates all CPUs, a program busy on another CPU would take half
    /// of its time.
    pub fn beside_us() -> Self {
        let before = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).unwrap());
        sched_setaffinity(None, &one).unwrap();
        let mut this = Self::start();
        this.before = before;
        setpriority_process(Some(Pid::from_child(&this.child)), 19).unwrap();
        this
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        sched_setaffinity(None, &self.before).unwrap();
    }
}
