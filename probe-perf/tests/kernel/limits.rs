//! Limits of users without privileges: locked memory and descriptors, with more threads than they allow.

use crate::common::{Touched, event};
use probe_perf::{Counter, PerfError, Sampler, Target};
use probe_sys::disturb::in_child;
use probe_testing::skip::skip;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::sync::Barrier;
use std::{fs, thread};

const THREADS: usize = 300;

/// Nobody else has this id, so that all memory of its limit is free.
const USER: libc::uid_t = 54_321;

/// Samples all threads of this process, with a ring of this many bytes for each.
fn sample(bytes: usize) -> Result<Sampler, PerfError> {
    Sampler::builder().event(event("page-faults:u")).bytes_per_ring(bytes).open()
}

/// Runs `run` in a child that has many threads, these limits and no privileges. `locked` is in bytes. Panics if `run`
/// returns `false`.
fn with_threads(descriptors: u64, locked: u64, run: impl Fn() -> bool) {
    let child = in_child(|| {
        for (resource, limit) in [(Resource::Nofile, descriptors), (Resource::Memlock, locked)] {
            setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
        }
        // SAFETY: no preconditions. The child has only this thread.
        assert_eq!(unsafe { libc::setresuid(USER, USER, USER) }, 0);
        let (ready, end) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    ready.wait();
                    end.wait();
                });
            }
            ready.wait();
            let is_right = run();
            end.wait();
            u8::from(is_right)
        })
    });
    assert_eq!(child.unwrap(), 1);
}

/// Whether the error of opening names the limit. Prints it otherwise.
fn names<T>(limit: &str, opened: Result<T, PerfError>) -> bool {
    let message = opened.map_or_else(|error| error.to_string(), |_| "it opens".to_owned());
    let is_named = message.contains(limit);
    if !is_named {
        eprintln!("{message}");
    }
    is_named
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn many_threads_are_sampled_or_the_error_names_the_limit() {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if paranoid.trim().parse::<i32>().unwrap() > 2 {
        return skip("users without privileges have no perf events here");
    }
    const PAGE: usize = 4096;
    const LARGE: usize = 512 << 10;
    with_threads(64, 0, || {
        let counted = Counter::open(&event("page-faults:u"), &Target::ThisProcess);
        let limit = "raise RLIMIT_NOFILE";
        names(limit, counted) && names(limit, sample(PAGE))
    });
    with_threads(4096, 0, || names("kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK", sample(LARGE)));
    // Each ring takes two pages.
    with_threads(4096, 4 << 20, || {
        let mut sampler = sample(PAGE).unwrap();
        sampler.enable().unwrap();
        Touched::new(8);
        sampler.disable().unwrap();
        while sampler.next_record().is_some() {}
        let counts = sampler.counts().unwrap();
        counts.samples >= 8 && counts.malformed == 0
    });
}
