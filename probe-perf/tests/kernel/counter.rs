//! Counters, compared with known counts and with `perf stat`.

use crate::common::{GETPPID, PerfStat, Touched, call, event, held, this_thread};
use crate::suite;
use probe_perf::{Clock, Counter, Group, PageCapabilities, PerfError, ReadBy, Reading, Target};
use probe_sys::bpf::load::{Code, Purpose, load};
use probe_sys::clock::monotonic;
use probe_sys::cpus;
use probe_testing::set_on_drop::SetOnDrop;
use probe_testing::skip::skip;
use probe_testing::switches::switches;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn open(name: &str, target: &Target) -> Counter {
    Counter::open(&event(name), target).unwrap_or_else(|error| panic!("{error}"))
}

fn of_this_thread(name: &str) -> Counter {
    open(name, &this_thread())
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn each_fresh_page_is_one_fault() {
    let faults = of_this_thread("page-faults");
    for (round, pages) in [1, 100, 1000].into_iter().enumerate() {
        // The first pass takes the faults of code and data used for the first time.
        for _ in 0..2 {
            faults.reset().unwrap();
            faults.enable().unwrap();
            Touched::new(pages);
            faults.disable().unwrap();
        }
        assert_eq!(faults.read().unwrap().value, pages as u64, "round {round}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_tracepoint_is_counted_in_its_thread_only() {
    let calls = of_this_thread(GETPPID);
    call(3);
    calls.enable().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| call(1000));
        call(1234);
    });
    assert_eq!(calls.read().unwrap().value, 1234, "while it counts");
    calls.disable().unwrap();
    call(7);
    assert_eq!(calls.read().unwrap().value, 1234);
    calls.enable().unwrap();
    call(1);
    assert_eq!(calls.read().unwrap().value, 1235, "goes on where it was");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn context_switches_agree_with_the_scheduler() {
    const SLEEPS: u64 = 1000;
    let counter = of_this_thread("context-switches");
    let before = switches();
    counter.enable().unwrap();
    let after = switches();
    for _ in 0..SLEEPS {
        std::thread::sleep(Duration::from_micros(50));
    }
    let last = switches();
    counter.disable().unwrap();
    let end = switches();
    let counted = counter.read().unwrap().value;
    assert!(last - after >= SLEEPS / 2, "few of {SLEEPS} sleeps gave up the CPU");
    // The thread may leave its CPU while the counter is enabled or disabled, too: these switches count, or do not.
    assert!(
        (last - after..=end - before).contains(&counted),
        "{counted}: {before}, {after}..{last}, {end}"
    );
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_disabled_counter_stands_still_in_all_threads() {
    const THREADS: u64 = 2;
    let (calls, end) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    call(1);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _end = SetOnDrop(&end);
        let counter = open(GETPPID, &Target::ThisProcess);
        assert!(counter.ids().unwrap().len() >= 3);
        for _ in 0..200 {
            counter.reset().unwrap();
            counter.enable().unwrap();
            let begun = calls.load(Ordering::Relaxed);
            while calls.load(Ordering::Relaxed) < begun + 50 {
                std::thread::yield_now();
            }
            counter.disable().unwrap();
            let counted = counter.read().unwrap();
            let stopped = calls.load(Ordering::Relaxed);
            while calls.load(Ordering::Relaxed) < stopped + 50 {
                std::thread::yield_now();
            }
            assert!(counted.value >= 48, "{counted:?}");
            // Disabling may interrupt a thread that is about to add to the counter.
            let later = counter.read().unwrap();
            assert_eq!((later.enabled, later.running), (counted.enabled, counted.running));
            let under_way = later.value - counted.value;
            assert!(under_way <= THREADS, "{counted:?}, and later {later:?}");
        }
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn times_are_those_of_counting_and_cpus_add_up() {
    let counter = of_this_thread(GETPPID);
    assert_eq!(counter.read().unwrap(), Reading::default());
    let begun = Instant::now();
    counter.enable().unwrap();
    call(1000);
    let first = counter.read().unwrap();
    call(1000);
    counter.disable().unwrap();
    let (second, elapsed) = (counter.read().unwrap(), begun.elapsed());
    assert!(Duration::ZERO < first.running && first.running < second.running, "{second:?}");
    assert!(second.running <= elapsed, "{second:?} in {elapsed:?}");
    assert_eq!(first.enabled, first.running);
    assert_eq!(second.enabled, second.running);
    assert_eq!(second.scaled(), Some(2000));
    call(1000);
    assert_eq!(counter.read().unwrap(), second, "time stands still, too");
    counter.reset().unwrap();
    let reset = counter.read().unwrap();
    assert_eq!((reset.value, reset.enabled), (0, second.enabled), "times go on");

    let everywhere = open(GETPPID, &Target::System);
    everywhere.enable().unwrap();
    call(1000);
    everywhere.disable().unwrap();
    let each = everywhere.each().unwrap();
    let cpus: Vec<_> = each.iter().map(|one| one.cpu.unwrap()).collect();
    assert_eq!(cpus, cpus::online().unwrap());
    let mut sum = Reading::default();
    for one in &each {
        assert_eq!(one.reading.enabled, one.reading.running, "{one:?}");
        sum += one.reading;
    }
    assert_eq!(everywhere.read().unwrap(), sum);
    assert!(sum.value >= 1000, "{sum:?}");
    let ids: std::collections::HashSet<_> = everywhere.ids().unwrap().into_iter().collect();
    assert_eq!(ids.len(), cpus.len());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn children_and_new_threads_are_counted() {
    let target = Target::ProcessAndChildren(std::process::id());
    let executed = open("sched:sched_process_exec", &target);
    let calls = open(GETPPID, &target);
    let own = open("sched:sched_process_exec", &Target::ThisProcess);
    for counter in [&executed, &calls, &own] {
        counter.enable().unwrap();
    }
    for _ in 0..5 {
        assert!(Command::new("true").status().unwrap().success());
    }
    std::thread::spawn(|| call(100)).join().unwrap();
    assert_eq!(executed.read().unwrap().value, 5);
    assert_eq!(own.read().unwrap().value, 0);
    assert_eq!(calls.read().unwrap().value, 100);
    assert!(calls.control_page().is_none(), "inherited counters have no page");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_refreshed_counter_stops_by_itself() {
    let builder = Counter::builder().period(10);
    let calls = builder.open(&event(GETPPID), &this_thread()).unwrap();
    calls.refresh(3).unwrap();
    call(1000);
    assert_eq!(calls.read().unwrap().value, 30);

    let faults = builder.open(&event("page-faults"), &this_thread()).unwrap();
    for round in 1..=3 {
        faults.refresh(3).unwrap();
        Touched::new(1000);
        assert_eq!(faults.read().unwrap().value, round * 30, "round {round}");
    }
    let error = faults.refresh(0).unwrap_err().to_string();
    assert!(error.contains(": Invalid argument"), "{error}");
    let error = of_this_thread(GETPPID).refresh(1).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot refresh {GETPPID} for thread ")), "{error}");
    assert!(
        error.ends_with(". The kernel does not support this for an event of this type"),
        "{error}"
    );
}

/// Loads a tracepoint program that decides whether a hit is counted.
fn program(counts: bool) -> OwnedFd {
    // r0 = counts; exit
    let instructions = &[0xb7 | u64::from(counts) << 32, 0x95];
    let code = Code { name: "decides", instructions, license: c"GPL", functions: None };
    load(&code, Purpose::Tracepoint, &mut []).unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_program_decides_what_is_counted() {
    for (counts, expected) in [(true, 50), (false, 0)] {
        let counter = of_this_thread(GETPPID);
        counter.attach_program(program(counts).as_fd()).unwrap();
        counter.enable().unwrap();
        call(50);
        assert_eq!(counter.read().unwrap().value, expected, "{counts}");
    }
    // A tracepoint has the program once, whatever the number of threads or CPUs that are counted.
    let everywhere = open(GETPPID, &Target::System);
    everywhere.attach_program(program(false).as_fd()).unwrap();
    everywhere.enable().unwrap();
    call(50);
    assert_eq!(everywhere.read().unwrap().value, 0);
    let faults = of_this_thread("page-faults");
    let error = faults.attach_program(program(true).as_fd()).unwrap_err();
    assert!(error.to_string().starts_with("cannot attach a program to page-faults for thread "));
}

/// Creates a map with u32 keys.
fn map(kind: u32, value_size: u32, entries: u32) -> OwnedFd {
    const BPF_MAP_CREATE: libc::c_long = 0;
    let create = [kind, 4, value_size, entries];
    // SAFETY: the kernel reads `size_of_val(&create)` bytes.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, create.as_ptr(), size_of_val(&create))
    };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just returned this descriptor.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn counters_of_cpus_go_into_perf_event_arrays() {
    const ARRAY: u32 = 2;
    const PERF_EVENT_ARRAY: u32 = 4;
    let cpus = cpus::online().unwrap();
    let last = cpus[cpus.len() - 1];
    let array = |entries| map(PERF_EVENT_ARRAY, 4, entries);
    let of_cpus = open("page-faults", &Target::System);
    of_cpus.put_into(array(last + 1).as_fd()).unwrap();
    let refused = |counter: &Counter, map: OwnedFd| match counter.put_into(map.as_fd()) {
        Err(PerfError::Call { what: "put into a map", cause, .. }) => cause.raw_os_error(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&of_cpus, array(last)), Some(libc::E2BIG));
    // With larger values, the kernel would read past the descriptor.
    assert_eq!(refused(&of_cpus, map(ARRAY, 4096, last + 1)), Some(libc::EINVAL));
    assert_eq!(refused(&of_this_thread("page-faults"), array(last + 1)), Some(libc::EINVAL));
    let file = File::open("/dev/null").unwrap();
    assert_eq!(refused(&of_cpus, file.into()), Some(libc::EINVAL));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_group_is_read_at_one_moment() {
    let names = ["page-faults", GETPPID, "minor-faults", "page-faults", "major-faults"];
    let group = Group::open(&names.map(event), &this_thread()).unwrap();
    let ids: Vec<_> = group.ids().map(<[u64]>::to_vec).collect();
    assert!(ids.len() == 1 && ids[0].len() == 5, "{ids:?}");
    let values = || {
        let read = group.read().unwrap();
        assert_eq!(read.enabled, read.running);
        (read.members.iter().map(|member| member.value).collect::<Vec<_>>(), read)
    };
    assert_eq!(values().0, [0; 5]);
    group.enable().unwrap();
    for round in 1..=100 {
        Touched::new(10);
        call(3);
        let [all, calls, minor, again, major]: [u64; 5] = values().0.try_into().unwrap();
        assert!(all >= 10 * round, "{all} in round {round}");
        assert_eq!(all, again);
        assert_eq!(all, minor + major);
        assert_eq!(calls, 3 * round);
    }
    group.disable().unwrap();
    let (values_then, then) = values();
    Touched::new(10);
    call(3);
    assert_eq!(values(), (values_then, then.clone()));
    group.reset().unwrap();
    let (zeroes, now) = values();
    assert_eq!((zeroes, now.enabled), (vec![0; 5], then.enabled));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn groups_of_all_cpus_and_threads_add_up() {
    let names = [GETPPID, "page-faults"].map(event);
    let group = Group::open(&names, &Target::System).unwrap();
    group.enable().unwrap();
    call(500);
    Touched::new(500);
    group.disable().unwrap();
    let read = group.read().unwrap();
    assert_eq!(read.members.len(), 2);
    assert!(read.members.iter().all(|member| member.value >= 500), "{read:?}");
    assert_eq!(group.ids().count(), cpus::online().unwrap().len());

    let inherited = Group::open(&names, &Target::ProcessAndChildren(std::process::id())).unwrap();
    inherited.enable().unwrap();
    std::thread::spawn(|| call(100)).join().unwrap();
    assert_eq!(inherited.read().unwrap().members[0].value, 100);
}

/// Counts an event of one run of a command and its children. Returns perf's count as well.
fn counted_twice(
    name: &str,
    command: &[&str],
    open: impl Fn(&str, &Target) -> Counter,
) -> Option<(u64, u64)> {
    let held = held(command);
    let perf = PerfStat::begin(name, &held)?;
    let counter = open(name, &Target::ProcessAndChildren(held.pid()));
    held.release().unwrap().wait().unwrap();
    Some((counter.read().unwrap().value, perf.count()))
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn counts_are_those_of_perf_stat() {
    if Command::new("perf").arg("--version").output().is_err() {
        return skip("there is no perf here to compare with: install linux-perf");
    }
    let enabled = |name: &str, target: &Target| {
        let counter = open(name, target);
        counter.enable().unwrap();
        counter
    };
    // Before its exec, the command makes none of these calls.
    let enabled_by_exec = |name: &str, target: &Target| {
        Counter::builder().enabled_by_exec().open(&event(name), target).unwrap()
    };
    let copies = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=1000"];
    let script = "for n in 1 2 3 4; do dd if=/dev/zero of=/dev/null count=10; done; :";
    let children = ["sh", "-c", script];
    let Some((ours, perfs)) = counted_twice("syscalls:sys_enter_write", &copies, enabled_by_exec)
    else {
        return skip("this perf is older than the kernel and counts none of its tracepoints");
    };
    assert!(perfs >= 1000, "{perfs}");
    assert_eq!(ours, perfs);
    for (name, open) in [
        ("syscalls:sys_enter_read", &enabled_by_exec as &dyn Fn(&str, &Target) -> Counter),
        ("page-faults", &enabled),
    ] {
        let (ours, perfs) = counted_twice(name, &children, open).expect("perf counts it");
        assert!(perfs >= 40, "{name}: {perfs}");
        assert_eq!(ours, perfs, "{name}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn errors_say_what_to_do() {
    let message = |result: Result<Counter, PerfError>| result.unwrap_err().to_string();
    let faults = event("page-faults");
    let no_thread = message(Counter::open(&faults, &Target::Thread(u32::MAX >> 1)));
    assert!(
        no_thread.starts_with("cannot open page-faults for thread 2147483647: "),
        "{no_thread}"
    );
    assert!(no_thread.ends_with(". The thread has ended or does not exist"), "{no_thread}");
    let no_cpu = message(Counter::open(&faults, &Target::Cpu(99_999)));
    assert!(no_cpu.starts_with("CPU 99999 is offline or does not exist"), "{no_cpu}");
    let no_event = message(Counter::open(&event("sched:no_such_thing"), &this_thread()));
    assert!(no_event.starts_with("there is no event `sched:no_such_thing`"), "{no_event}");
    let group = Group::open(&[], &this_thread()).unwrap_err().to_string();
    assert_eq!(group, "a group needs at least one event");
}

/// Perf's clock cannot be read directly, but the time for which an event has been enabled can. The
/// difference between the two is the moment of enabling, which is constant.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn time_is_the_kernels_while_counters_are_switched() {
    const READS: usize = 1_000_000;
    let cpu = cpus::online().unwrap()[0];
    let is_exact = std::env::var_os("PROBE_EXACT_TIME").is_some();
    let (enabled, end) = (open("dummy", &Target::Cpu(cpu)), AtomicBool::new(false));
    enabled.enable().unwrap();
    let page = enabled.control_page().expect("a CPU's counter has a page");
    println!("{:?}", page.snapshot().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = open("cpu-clock", &Target::Cpu(cpu));
            while !end.load(Ordering::Relaxed) {
                other.enable().unwrap();
                other.disable().unwrap();
            }
        });
        if is_exact {
            // Reading another CPU's event waits for an interrupt there.
            suite::stay_on(cpu);
        }
        let _end = SetOnDrop(&end);
        let (mut last, mut earliest, mut latest) = (0, i128::MIN, i128::MAX);
        let mut widest = 0;
        let (_, clock) = enabled.time();
        assert_eq!(
            clock == Clock::Perf,
            page.snapshot().unwrap().capabilities.contains(PageCapabilities::TIME_ZERO)
        );
        for _ in 0..READS {
            let (before, used) = enabled.time();
            let truth = match clock {
                Clock::Perf => enabled.read().unwrap().enabled.as_nanos() as i128,
                _ => i128::from(monotonic()),
            };
            let (after, _) = enabled.time();
            assert_eq!(used, clock);
            assert!(last <= before && before <= after, "{last}, {before}, {after}");
            last = after;
            widest = widest.max(after - before);
            earliest = earliest.max(i128::from(before) - truth);
            latest = latest.min(i128::from(after) - truth);
        }
        // The true difference lies in between, if there is one.
        println!("{clock:?}: {earliest}..={latest}, widest {widest} ns");
        assert!(earliest <= latest, "{earliest}, {latest}");
        if clock == Clock::Monotonic {
            assert!(earliest <= 0 && 0 <= latest);
        }
        if is_exact {
            // The midpoint is then exact to 1 µs.
            assert!(latest - earliest <= 2 * 1000, "{} ns", latest - earliest);
        }
    });
}

/// The kernel log is the only other user of perf's clock, with microsecond resolution.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn time_has_the_origin_of_the_kernel_log() {
    let counter = of_this_thread("dummy");
    if counter.time().1 != Clock::Perf {
        return skip("perf's clock cannot be read here without a system call");
    }
    let mut options = File::options();
    let mut log =
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").unwrap();
    // Earlier messages may be overwritten while they are read.
    log.seek(SeekFrom::End(0)).unwrap();
    let text = format!("a test of the clock of perf {}", std::process::id());
    let (before, _) = counter.time();
    log.write_all(format!("{text}\n").as_bytes()).unwrap();
    let (after, _) = counter.time();
    let mut line = [0; 8192];
    let time = loop {
        let len = log.read(&mut line).expect("the kernel logs what it is given");
        let line = String::from_utf8_lossy(&line[..len]);
        if line.contains(&text) {
            break line.split(',').nth(2).unwrap().parse::<u64>().unwrap();
        }
    };
    assert!((before / 1000..=after / 1000).contains(&time), "{before} ns, {time} us, {after} ns");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_reading_says_whether_it_took_a_system_call() {
    let faults = of_this_thread("page-faults");
    faults.enable().unwrap();
    Touched::new(10);
    let (reading, by) = faults.read_here().unwrap();
    assert_eq!(by, ReadBy::SystemCall, "the kernel counts it, not the CPU");
    assert!(reading.value >= 10);
    // If the CPU counts the event, both ways of reading have to agree.
    match Counter::open(&event("instructions:u"), &this_thread()) {
        Err(error) => {
            assert!(error.to_string().contains("This machine has no such event"), "{error}");
        }
        Ok(instructions) => {
            instructions.enable().unwrap();
            let before = instructions.read().unwrap();
            let (between, by) = instructions.read_here().unwrap();
            let after = instructions.read().unwrap();
            assert!(before.value <= between.value && between.value <= after.value, "{by:?}");
            assert!(before.enabled <= between.enabled && between.enabled <= after.enabled);
            assert!(before.running <= between.running && between.running <= after.running);
            let page = instructions.control_page().unwrap().snapshot().unwrap();
            let allowed =
                page.capabilities.contains(PageCapabilities::COUNTER | PageCapabilities::TIME);
            assert_eq!(by == ReadBy::ControlPage, allowed && page.index != 0, "{page:?}");
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_event_by_the_name_of_its_pmu_is_that_event() {
    let events = [event("page-faults"), event("software/config=2/")];
    let group = Group::open(&events, &this_thread()).unwrap();
    group.enable().unwrap();
    Touched::new(10);
    group.disable().unwrap();
    let [by_name, by_pmu] = group.read().unwrap().members[..] else { panic!("two events") };
    assert!(by_name.value >= 10 && by_pmu.value == by_name.value, "{by_name:?}, {by_pmu:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_described_event_counts_as_its_terms_do() {
    // The code of tsc is 0, but virtual machines often have no other event.
    let events = Path::new("/sys/bus/event_source/devices/msr/events");
    let both = |name: &&str| {
        let terms = std::fs::read_to_string(events.join(name)).ok()?;
        Some([format!("msr/{name}/"), format!("msr/{}/", terms.trim())])
    };
    let Some(both) = ["aperf", "mperf", "tsc"].iter().find_map(both) else {
        return skip("this machine has no msr/tsc/");
    };
    // Some count only while the CPU is not idle.
    suite::stay_on(0);
    // What is counted for longer is more, but the kernel interrupts it while it enables the other one.
    let [inner, outer] = both.map(|name| open(&name, &Target::Cpu(0)));
    outer.enable().unwrap();
    inner.enable().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    inner.disable().unwrap();
    outer.disable().unwrap();
    let (inner, outer) = (inner.read().unwrap().value, outer.read().unwrap().value);
    assert!(0 < inner && inner <= outer + outer / 20, "{inner}, {outer}");
}
