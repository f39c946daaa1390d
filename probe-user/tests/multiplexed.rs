//! Events that take turns, by PMUs of our own that have room for one at a time on each CPU: it counts the time while
//! it is there, so everybody knows what the others missed.

#[path = "suite/aux_module.rs"]
mod aux_module;

use aux_module::is_loaded;
use probe_user::perf::{Counter, Event, Flags, Group, Reading, Sampler, Scope};
use std::time::Duration;

/// The kernel has another event take its turn every 4 ms or so: there are many of them.
const WHILE: Duration = Duration::from_secs(1);

fn event(text: &str) -> Event {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A CPU that is online, on which these tests count.
fn cpu() -> Scope {
    Scope::Cpu(*probe_user::cpus::online().unwrap().last().unwrap())
}

/// Counts events on a CPU, each by itself, for some time.
fn counted<const N: usize>(events: [&str; N]) -> [Reading; N] {
    let counters = events.map(|text| Counter::open(&event(text), &cpu()).unwrap());
    counters.iter().for_each(|counter| counter.enable().unwrap());
    std::thread::sleep(WHILE);
    counters.iter().for_each(|counter| counter.disable().unwrap());
    counters.map(|counter| counter.read().unwrap())
}

/// Whether a number is another one, but for a fifth: each turn begins a bit later for the PMU than for the kernel, which
/// is much in a slow machine.
fn is_about(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= other / 5 + 5_000_000
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn events_that_take_turns_are_estimated() {
    if !is_loaded() {
        return;
    }
    let rates = [1, 3, 2];
    let readings = counted([
        "probe_narrow_0/config=1/",
        "probe_narrow_0/config=3/",
        "probe_narrow_0/config=2,name=twice/",
    ]);
    for (reading, rate) in readings.iter().zip(rates) {
        let Reading { value, enabled, running, .. } = *reading;
        assert!(enabled >= WHILE && !running.is_zero(), "{readings:?}");
        // A third each, if nobody is late.
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
fn what_has_room_is_counted_all_the_time() {
    if !is_loaded() {
        return;
    }
    let readings = counted(["probe_narrow_0/config=1/", "probe_narrow_1/config=1/"]);
    for reading in readings {
        assert_eq!(reading.running, reading.enabled);
        assert_eq!(reading.scaled(), Some(reading.value));
        assert!(is_about(reading.value, nanos(reading.enabled)), "{reading:?}");
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_counter_is_not_counted_while_somebody_has_its_place() {
    if !is_loaded() {
        return;
    }
    let pinned = Sampler::builder().event(event("probe_narrow_0/config=1/")).period(0);
    let mut pinned = pinned.flags(Flags::PINNED).scope(cpu()).open().unwrap();
    pinned.enable().unwrap();
    let [never, elsewhere] = counted(["probe_narrow_0/config=1/", "probe_narrow_1/config=1/"]);
    assert!(never.enabled >= WHILE, "{never:?}");
    assert_eq!((never.value, never.running, never.scaled()), (0, Duration::ZERO, None));
    assert!(elsewhere.scaled().is_some(), "{elsewhere:?}");
    drop(pinned);
    let [alone] = counted(["probe_narrow_0/config=1/"]);
    assert_eq!(alone.running, alone.enabled);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn groups_that_take_turns_are_counted_together() {
    if !is_loaded() {
        return;
    }
    // Of a clock of the kernel, a group's leader decides when it is counted.
    let groups = [1, 4].map(|rate| {
        let events = [event(&format!("probe_narrow_0/config={rate}/")), event("cpu-clock")];
        (rate, Group::open(&events, &cpu()).unwrap())
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
fn a_group_that_cannot_fit_says_so() {
    if !is_loaded() {
        return;
    }
    let group = |events: [&str; 3]| Group::open(&events.map(event), &cpu());
    let (first, second) = ("probe_narrow_0/config=1/", "probe_narrow_0/config=2,name=second/");
    let told = group([first, "cpu-clock", second]).unwrap_err().to_string();
    for part in [
        "cannot open second (probe_narrow_0/config=2,name=second/) on CPU ",
        " in a group with probe_narrow_0/config=1/, cpu-clock: ",
        "there may be no counters for so many",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // A PMU that does not look takes it, and never counts it: what members have then, they counted while the kernel
    // tried whether they fit.
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
fn a_name_without_its_number_is_all_pmus_of_the_sort() {
    if !is_loaded() {
        return;
    }
    let all = ["probe_narrow_0/config=7/", "probe_narrow_1/config=7/"];
    for text in ["probe_narrow/config=7/", "probe_narrow_*/config=7/", "*narrow?[01]/config=7/"] {
        let events = Event::matching(text).unwrap();
        assert_eq!(events, all.map(event), "{text}");
        let counters = events.iter().map(|event| Counter::open(event, &cpu()).unwrap());
        let counters: Vec<_> = counters.collect();
        counters.iter().for_each(|counter| counter.enable().unwrap());
        std::thread::sleep(WHILE / 10);
        for counter in counters {
            counter.disable().unwrap();
            let reading = counter.read().unwrap();
            assert_eq!(reading.running, reading.enabled, "{text}");
            assert!(is_about(reading.value / 7, nanos(reading.enabled)), "{text}: {reading:?}");
        }
    }
    let written = ["probe_narrow/", "probe_narrow_0/", "probe_narrow_1/"];
    let names = Event::names();
    assert!(written.iter().all(|own| names.iter().any(|name| name == own)), "{names:?}");
}
