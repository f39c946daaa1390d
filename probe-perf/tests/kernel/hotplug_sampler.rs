//! Sampling across CPU hotplug. For virtual machines only: these tests take CPUs offline.

use crate::common::{GETPPID, call_on, drain, enabled, event};
use probe_perf::record::Body;
use probe_perf::{Flags, Sampler, SamplerBuilder, Software, Target};
use probe_testing::cpu::{CPU, Restore, switch};
use probe_testing::left;
use std::collections::BTreeSet;

fn builder(target: Target) -> SamplerBuilder {
    Sampler::builder().event(event(GETPPID)).event(Software::Dummy).target(target)
}

/// Samples 33 calls on the CPU, made by a new thread. Returns how many of them are available.
fn samples_of_calls(sampler: &mut Sampler) -> u64 {
    let thread = call_on(CPU, 33);
    samples_of(sampler, &BTreeSet::from([thread]))
}

/// Counts the samples of `threads` that are available now, all of which must be from the CPU.
fn samples_of(sampler: &mut Sampler, threads: &BTreeSet<u32>) -> u64 {
    let mut count = 0;
    drain(sampler, |record| {
        let Body::Sample(sample) = record.body else { panic!("{record:?}") };
        if threads.contains(&sample.thread.unwrap().tid) {
            assert_eq!(sample.cpu, Some(CPU));
            count += 1;
        }
    });
    count
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_is_sampled_whenever_it_is_online() {
    let _restore = Restore;
    for target in [Target::System, Target::Cpu(CPU), Target::Cpus(vec![0, CPU])] {
        let mut sampler = enabled(builder(target.clone()));
        let (mut read, mut threads) = (0, BTreeSet::new());
        for cycle in 1..=3 {
            threads.insert(call_on(CPU, 33));
            switch(false);
            // Samples left when the CPU went offline are read either now or once it is back.
            if cycle != 2 {
                read += samples_of(&mut sampler, &threads);
                assert_eq!(read, cycle * 33, "{target:?}");
            }
            switch(true);
            read += samples_of(&mut sampler, &threads);
            assert_eq!(read, cycle * 33, "{target:?}");
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
fn a_cpu_that_was_offline_at_first_is_sampled() {
    let _restore = Restore;
    let own = Target::ProcessAndChildren(std::process::id());
    for target in [Target::System, own] {
        switch(false);
        let mut sampler = enabled(builder(target.clone()));
        switch(true);
        assert_eq!(samples_of(&mut sampler, &BTreeSet::new()), 0);
        assert_eq!(samples_of_calls(&mut sampler), 33, "{target:?}");
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_disabled_sampler_is_disabled_on_cpus_that_go_online() {
    let _restore = Restore;
    let mut sampler = enabled(builder(Target::System));
    sampler.disable().unwrap();
    samples_of(&mut sampler, &BTreeSet::new());
    switch(false);
    switch(true);
    assert_eq!(samples_of(&mut sampler, &BTreeSet::new()), 0);
    assert_eq!(samples_of_calls(&mut sampler), 0);
    sampler.enable().unwrap();
    assert_eq!(samples_of_calls(&mut sampler), 33);
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn other_cpus_that_go_online_are_not_sampled() {
    let _restore = Restore;
    let mut sampler = enabled(builder(Target::Cpu(0)).flags(Flags::TASK));
    switch(false);
    switch(true);
    drain(&mut sampler, |_| ());
    let thread = call_on(CPU, 33);
    drain(&mut sampler, |record| {
        if let Body::Sample(sample) = record.body {
            assert_ne!(sample.thread.unwrap().tid, thread, "{record:?}");
        }
    });
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn nothing_leaks_when_a_sampled_cpu_goes_offline_and_online() {
    let _restore = Restore;
    let mut sampler = enabled(builder(Target::System));
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
