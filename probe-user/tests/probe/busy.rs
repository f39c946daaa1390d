//! Somebody who always runs.

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::process::{Child, Command, Stdio};

/// A program that never ends, until this is dropped.
pub struct Busy {
    dd: Child,
    /// Where this thread may run afterwards.
    before: CpuSet,
}

impl Busy {
    pub fn start() -> Self {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "of=/dev/null"]).stdin(Stdio::null()).stderr(Stdio::null());
        Self { dd: dd.spawn().unwrap(), before: sched_getaffinity(None).unwrap() }
    }

    /// Gives it what nobody else wants of one CPU, where what this thread starts from now on runs, too: when one
    /// thread emulates all CPUs, who is busy on another one takes half of its time.
    pub fn beside_us() -> Self {
        let before = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).unwrap());
        sched_setaffinity(None, &one).unwrap();
        let mut this = Self::start();
        this.before = before;
        setpriority_process(Some(Pid::from_child(&this.dd)), 19).unwrap();
        this
    }

    pub fn pid(&self) -> String {
        self.dd.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.dd.kill().unwrap();
        self.dd.wait().unwrap();
        sched_setaffinity(None, &self.before).unwrap();
    }
}
