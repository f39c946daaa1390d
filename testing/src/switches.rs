//! Context switch counts of threads.

const THIS_THREAD: &str = "/proc/thread-self";

/// Voluntary and involuntary context switches of a thread, read at once. `thread` is its directory
/// in `/proc`.
fn voluntary_and_not(thread: &str) -> [u64; 2] {
    let status = std::fs::read_to_string(format!("{thread}/status")).unwrap();
    let count = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().parse().unwrap()
    };
    [count("voluntary_ctxt_switches"), count("nonvoluntary_ctxt_switches")]
}

/// Voluntary context switches of this thread.
pub fn waits() -> u64 {
    waits_of(THIS_THREAD)
}

/// Voluntary context switches of another thread. `thread` is its directory in `/proc`.
pub fn waits_of(thread: &str) -> u64 {
    voluntary_and_not(thread)[0]
}

/// All context switches of this thread.
pub fn switches() -> u64 {
    voluntary_and_not(THIS_THREAD).iter().sum()
}
