//! Samples of CPUs that come and go. Only in a virtual machine: it takes CPUs away from everybody.

mod cpu;
#[path = "suite/left.rs"]
mod left;

use cpu::{CPU, Restore, switch};
use probe_user::perf::record::Body;
use probe_user::perf::{Event, Flags, Sampler, SamplerBuilder, Scope, Software};
use rustix::process::getppid;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use std::collections::BTreeSet;

/// Calls that are sampled, on the CPU, by a thread that it makes for that. Gives its id.
fn call_there(times: u64) -> u32 {
    let call = move || {
        let mut set = CpuSet::new();
        set.set(CPU as usize);
        sched_setaffinity(None, &set).unwrap();
        (0..times).for_each(|_| _ = getppid());
        gettid().as_raw_nonzero().get() as u32
    };
    std::thread::spawn(call).join().unwrap()
}

fn builder(scope: Scope) -> SamplerBuilder {
    let event: Event = "syscalls:sys_enter_getppid".parse().unwrap();
    Sampler::builder().event(event).event(Software::Dummy).scope(scope)
}

/// Reads everything that is there now: samples of each of the threads, all of which are on the CPU.
fn samples_of(sampler: &mut Sampler, threads: &BTreeSet<u32>) -> u64 {
    let mut count = 0;
    while let Some(record) = sampler.next_record() {
        let record = record.unwrap();
        let Body::Sample(sample) = record.body else { panic!("{record:?}") };
        if threads.contains(&sample.thread.unwrap().tid) {
            assert_eq!(sample.cpu, Some(CPU));
            count += 1;
        }
    }
    count
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_comes_and_goes_is_sampled_whenever_it_is_there() {
    let _restore = Restore;
    for scope in [Scope::System, Scope::Cpu(CPU), Scope::Cpus(vec![0, CPU])] {
        let mut sampler = builder(scope.clone()).open().unwrap();
        sampler.enable().unwrap();
        let (mut read, mut threads) = (0, BTreeSet::new());
        for cycle in 1..=3 {
            threads.insert(call_there(33));
            switch(false);
            // What it had when it went is read now, or when it is back.
            if cycle != 2 {
                read += samples_of(&mut sampler, &threads);
                assert_eq!(read, cycle * 33, "{scope:?}");
            }
            switch(true);
            read += samples_of(&mut sampler, &threads);
            assert_eq!(read, cycle * 33, "{scope:?}");
            let counts = sampler.counts().unwrap();
            assert!(counts.samples >= read, "{counts:?}");
            assert_eq!((counts.lost, counts.malformed), (0, 0));
        }
        assert!(sampler.uncovered().next().is_none() && sampler.hotplug_error().is_none());
        let ids: BTreeSet<_> = sampler.ids().values().collect();
        assert_eq!(ids.len(), 2, "each of both events");
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_was_away_at_first_is_sampled() {
    let _restore = Restore;
    let own = Scope::ProcessAndChildren(std::process::id());
    for scope in [Scope::System, own] {
        switch(false);
        let mut sampler = builder(scope.clone()).open().unwrap();
        sampler.enable().unwrap();
        switch(true);
        assert_eq!(samples_of(&mut sampler, &BTreeSet::new()), 0);
        let thread = BTreeSet::from([call_there(33)]);
        assert_eq!(samples_of(&mut sampler, &thread), 33, "{scope:?}");
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_sampler_that_is_off_is_off_on_cpus_that_come() {
    let _restore = Restore;
    let mut sampler = builder(Scope::System).open().unwrap();
    sampler.enable().unwrap();
    sampler.disable().unwrap();
    samples_of(&mut sampler, &BTreeSet::new());
    switch(false);
    switch(true);
    assert_eq!(samples_of(&mut sampler, &BTreeSet::new()), 0);
    let thread = BTreeSet::from([call_there(33)]);
    assert_eq!(samples_of(&mut sampler, &thread), 0);
    sampler.enable().unwrap();
    let thread = BTreeSet::from([call_there(33)]);
    assert_eq!(samples_of(&mut sampler, &thread), 33);
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn other_cpus_that_come_are_not_sampled() {
    let _restore = Restore;
    let mut sampler = builder(Scope::Cpu(0)).flags(Flags::TASK).open().unwrap();
    sampler.enable().unwrap();
    switch(false);
    switch(true);
    while sampler.next_record().is_some() {}
    let thread = BTreeSet::from([call_there(33)]);
    while let Some(record) = sampler.next_record() {
        let record = record.unwrap();
        if let Body::Sample(sample) = record.body {
            assert!(!thread.contains(&sample.thread.unwrap().tid), "{record:?}");
        }
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn nothing_leaks_when_a_cpu_that_is_sampled_comes_and_goes() {
    let _restore = Restore;
    let mut sampler = builder(Scope::System).open().unwrap();
    sampler.enable().unwrap();
    let mut cycle = |times: usize| {
        for _ in 0..times {
            switch(false);
            switch(true);
            samples_of(&mut sampler, &BTreeSet::new());
            samples_of(&mut sampler, &BTreeSet::new());
        }
        (std::fs::read_dir("/proc/self/fd").unwrap().count(), left::mappings())
    };
    let before = cycle(1);
    assert_eq!(cycle(10), before);
}
