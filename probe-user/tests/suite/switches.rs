//! How often the scheduler says that this thread has left its CPU.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

/// How often this thread has given up the CPU to wait, and how often it was taken from it: of one
/// moment.
fn voluntary_and_not() -> [u64; 2] {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().parse().unwrap()
    };
    [count("voluntary_ctxt_switches"), count("nonvoluntary_ctxt_switches")]
}

/// How often this thread has given up the CPU to wait.
pub fn waits() -> u64 {
    voluntary_and_not()[0]
}

/// How often this thread has left its CPU, whatever for.
pub fn switches() -> u64 {
    voluntary_and_not().iter().sum()
}
