//! How often the scheduler says that a thread has left its CPU.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

const THIS_THREAD: &str = "/proc/thread-self";

/// How often a thread, by its directory in `/proc`, has given up the CPU to wait, and how often it was taken from it:
/// of one moment.
fn voluntary_and_not(thread: &str) -> [u64; 2] {
    let status = std::fs::read_to_string(format!("{thread}/status")).unwrap();
    let count = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().parse().unwrap()
    };
    [count("voluntary_ctxt_switches"), count("nonvoluntary_ctxt_switches")]
}

/// How often this thread has given up the CPU to wait.
pub fn waits() -> u64 {
    waits_of(THIS_THREAD)
}

/// The same of another thread, by its directory in `/proc`.
pub fn waits_of(thread: &str) -> u64 {
    voluntary_and_not(thread)[0]
}

/// How often this thread has left its CPU, whatever for.
pub fn switches() -> u64 {
    voluntary_and_not(THIS_THREAD).iter().sum()
}
