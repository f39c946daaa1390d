//! Multiplexed events, with test PMUs that have room for one event at a time on each CPU. The
//! events count the time while scheduled, so what they miss is known.

use crate::common::event;
use probe_perf::{Counter, Event, Flags, Group, Reading, Sampler, Target};
use probe_sys::cpus;
use probe_testing::aux_module::{MISSING, is_loaded};
use probe_testing::skip::skip;
use std::time::Duration;

/// Many rotations: the kernel rotates events about every 4 ms.
const WHILE: Duration = Duration::from_secs(1);

/// A CPU that is online, on which these tests count. Without the test PMUs, `None`.
fn cpu() -> Option<Target> {
    is_loaded().then(|| Target::Cpu(*cpus::online().unwrap().last().unwrap()))
}

/// Counts events on a CPU for a while, each with its own counter.
fn counted<const N: usize>(cpu: &Target, events: [&str; N]) -> [Reading; N] {
    let counters = events.map(|text| Counter::open(&event(text), cpu).unwrap());
    counters.iter().for_each(|counter| counter.enable().unwrap());
    std::thread::sleep(WHILE);
    counters.iter().for_each(|counter| counter.disable().unwrap());
    counters.map(|counter| counter.read().unwrap())
}

/// Whether two numbers differ by at most a fifth. The PMU starts each time slice slightly later
/// than the kernel does, which adds up on a slow machine.
fn is_about(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= other / 5 + 5_000_000
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn counts_of_multiplexed_events_are_estimated() {
    let Some(cpu) = cpu() else { return skip(MISSING) };
    let rates = [1, 3, 2];
    let readings = counted(
        &cpu,
        [
            "probe_narrow_0/config=1/",
            "probe_narrow_0/config=3/",
            "probe_narrow_0/config=2,name=twice/",
        ],
    );
    for (reading, rate) in readings.iter().zip(rates) {
        let Reading { value, enabled, running, .. } = *reading;
        assert!(enabled >= WHILE && !running.is_zero(), "{readings:?}");
        // A third each, if nothing is delayed.
        assert!(running < enabled * 3 / 4 && running > enabled / 12, "{readings:?}");
        assert!(is_about(value, rate * nanos(running)), "{readings:?}");
        let estimate = reading.scaled().unwrap();
        assert!(is_about(estimate / rate, nanos(enabled)), "{estimate}: {readings:?}");
    }
    let all: Duration = readings.iter().map(|reading| reading.running).sum();
    assert!(is_about(nanos(all), nanos(readings[0].enabled)), "one at a time: {readings:?}");
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn events_with_room_are_counted_all_the_time() {
    let Some(cpu) = cpu() else { return skip(MISSING) };
    let readings = counted(&cpu, ["probe_narrow_0/config=1/", "probe_narrow_1/config=1/"]);
    for reading in readings {
        assert_eq!(reading.running, reading.enabled);
        assert_eq!(reading.scaled(), Some(reading.value));
        assert!(is_about(reading.value, nanos(reading.enabled)), "{reading:?}");
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn an_event_is_not_counted_while_a_pinned_one_has_its_counter() {
    let Some(cpu) = cpu() else { return skip(MISSING) };
    let pinned = Sampler::builder().event(event("probe_narrow_0/config=1/")).period(0);
    let mut pinned = pinned.flags(Flags::PINNED).target(cpu.clone()).open().unwrap();
    pinned.enable().unwrap();
    let [never, elsewhere] =
        counted(&cpu, ["probe_narrow_0/config=1/", "probe_narrow_1/config=1/"]);
    assert!(never.enabled >= WHILE, "{never:?}");
    assert_eq!((never.value, never.running, never.scaled()), (0, Duration::ZERO, None));
    assert!(elsewhere.scaled().is_some(), "{elsewhere:?}");
    drop(pinned);
    let [alone] = counted(&cpu, ["probe_narrow_0/config=1/"]);
    assert_eq!(alone.running, alone.enabled);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn events_of_a_multiplexed_group_are_counted_together() {
    let Some(cpu) = cpu() else { return skip(MISSING) };
    // A group's leader decides when a kernel clock in it counts.
    let groups = [1, 4].map(|rate| {
        let events = [event(&format!("probe_narrow_0/config={rate}/")), event("cpu-clock")];
        (rate, Group::open(&events, &cpu).unwrap())
    });
    groups.iter().for_each(|(_, group)| group.enable().unwrap());
    std::thread::sleep(WHILE);
    groups.iter().for_each(|(_, group)| group.disable().unwrap());
    for (rate, group) in groups {
        let reading = group.read().unwrap();
        let (enabled, running) = (nanos(reading.enabled), nanos(reading.running));
        assert!(running > enabled / 8 && running < enabled * 7 / 8, "{reading:?}");
        let [own, clock] = reading.members[..] else { panic!("{reading:?}") };
        assert!(is_about(own.value, rate * running), "{reading:?}");
        assert!(is_about(clock.value, running), "{reading:?}");
        let scaled = reading.scaled().unwrap();
        assert!(is_about(scaled[0], rate * enabled), "{scaled:?}: {reading:?}");
        assert!(is_about(scaled[1], enabled), "{scaled:?}: {reading:?}");
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_group_that_cannot_fit_is_refused_or_never_counted() {
    let Some(cpu) = cpu() else { return skip(MISSING) };
    let group = |events: [&str; 3]| Group::open(&events.map(event), &cpu);
    let (first, second) = ("probe_narrow_0/config=1/", "probe_narrow_0/config=2,name=second/");
    let error = group([first, "cpu-clock", second]).unwrap_err().to_string();
    for part in [
        "cannot open second (probe_narrow_0/config=2,name=second/) on CPU ",
        " in a group with probe_narrow_0/config=1/, cpu-clock: ",
        "the CPU may have too few counters",
    ] {
        assert!(error.contains(part), "{error}");
    }
    // A PMU that does not check accepts the group, but never counts it. Members only counted
    // briefly while the kernel tested whether they fit.
    let unseen = group(["probe_narrow_0/config=1,config1=1/", "cpu-clock", second]).unwrap();
    unseen.enable().unwrap();
    std::thread::sleep(WHILE);
    let reading = unseen.read().unwrap();
    assert!(reading.enabled >= WHILE && reading.running.is_zero(), "{reading:?}");
    assert_eq!(reading.scaled(), None, "{reading:?}");
    assert_eq!(reading.members.len(), 3);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_name_without_a_number_is_all_pmus_of_that_name() {
    let Some(cpu) = cpu() else { return skip(MISSING) };
    let all = ["probe_narrow_0/config=7/", "probe_narrow_1/config=7/"];
    for text in ["probe_narrow/config=7/", "probe_narrow_*/config=7/", "*narrow?[01]/config=7/"] {
        assert_eq!(Event::matching(text).unwrap(), all.map(event), "{text}");
    }
    for reading in counted(&cpu, all) {
        assert_eq!(reading.running, reading.enabled);
        assert!(is_about(reading.value / 7, nanos(reading.enabled)), "{reading:?}");
    }
    let listed = ["probe_narrow/", "probe_narrow_0/", "probe_narrow_1/"];
    let names = Event::names();
    assert!(listed.iter().all(|own| names.iter().any(|name| name == own)), "{names:?}");
}
