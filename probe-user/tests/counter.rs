//! Counters, beside what is known to have happened, and beside what `perf stat` says.

#[path = "suite/switches.rs"]
mod switches;

use probe_user::perf::{
    Clock, Counter, CounterOptions, Event, Group, PerfError, ReadBy, Reading, Scope,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::process::{Pid, Signal, getppid, kill_process};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use switches::switches;

/// A system call that nothing else in these tests makes.
const GETPPID: &str = "syscalls:sys_enter_getppid";

fn event(name: &str) -> Event {
    name.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn this_thread() -> Scope {
    Scope::Thread(gettid().as_raw_nonzero().get().cast_unsigned())
}

fn of_this_thread(name: &str) -> Counter {
    Counter::open(&event(name), &this_thread()).unwrap_or_else(|error| panic!("{error}"))
}

/// Makes the system call of [`GETPPID`] so many times.
fn call(times: usize) {
    for _ in 0..times {
        std::hint::black_box(getppid());
    }
}

/// Touches so many pages that nobody has touched yet.
fn fault(pages: usize) {
    let len = pages * rustix::param::page_size();
    // SAFETY: the kernel chooses the address.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .unwrap();
    // One fault is for one page.
    // SAFETY: it is the mapping that was just made.
    unsafe { madvise(mapped, len, Advice::LinuxNoHugepage) }.unwrap();
    for page in 0..pages {
        // SAFETY: as above.
        let byte = unsafe { mapped.byte_add(page * rustix::param::page_size()) }.cast::<u8>();
        // SAFETY: as above.
        unsafe { byte.write_volatile(1) };
    }
    // SAFETY: nothing borrows from it.
    unsafe { munmap(mapped, len) }.unwrap();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn faults_of_pages_that_nobody_has_touched_are_one_each() {
    let faults = of_this_thread("page-faults");
    for (round, pages) in [1, 100, 1000].into_iter().enumerate() {
        // What is used for the first time now, is not then.
        for _ in 0..2 {
            faults.reset().unwrap();
            faults.enable().unwrap();
            fault(pages);
            faults.disable().unwrap();
        }
        assert_eq!(faults.read().unwrap().value, pages as u64, "round {round}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_tracepoint_is_counted_in_its_thread_alone() {
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
fn context_switches_are_those_of_the_scheduler() {
    let counter = of_this_thread("context-switches");
    // Until the thread left its CPU neither while it began to be counted nor while it ceased to.
    for _ in 0..100 {
        counter.reset().unwrap();
        let before = switches();
        counter.enable().unwrap();
        let after = switches();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_micros(50));
        }
        let last = switches();
        counter.disable().unwrap();
        let end = switches();
        let counted = counter.read().unwrap().value;
        assert!((last - after..=end - before).contains(&counted), "{counted}: {after}..{last}");
        if before == after && last == end {
            assert!(counted > 0, "twenty sleeps, and none of them was long enough");
            return;
        }
    }
    panic!("the thread never had its CPU for long enough");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn disabled_is_not_one_count_more_whoever_counts() {
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
        let result = std::panic::catch_unwind(|| {
            let counter = Counter::open(&event(GETPPID), &Scope::ThisProcess).unwrap();
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
                // What disables a counter may interrupt a thread that is about to add to it.
                let later = counter.read().unwrap();
                assert_eq!((later.enabled, later.running), (counted.enabled, counted.running));
                let under_way = later.value - counted.value;
                assert!(under_way <= THREADS, "{counted:?}, and later {later:?}");
            }
        });
        end.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn times_are_those_in_which_it_counted_and_places_add_up() {
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

    let everywhere = Counter::open(&event(GETPPID), &Scope::System).unwrap();
    everywhere.enable().unwrap();
    call(1000);
    everywhere.disable().unwrap();
    let each = everywhere.each().unwrap();
    let cpus: Vec<_> = each.iter().map(|place| place.cpu.unwrap()).collect();
    assert_eq!(cpus, probe_user::cpus::online().unwrap());
    let mut sum = Reading::default();
    for place in &each {
        assert_eq!(place.reading.enabled, place.reading.running, "{place:?}");
        sum += place.reading;
    }
    assert_eq!(everywhere.read().unwrap(), sum);
    assert!(sum.value >= 1000, "{sum:?}");
    let ids: std::collections::HashSet<_> = everywhere.ids().unwrap().into_iter().collect();
    assert_eq!(ids.len(), cpus.len());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_is_inherited_is_counted_wherever_it_runs() {
    let scope = Scope::ProcessAndChildren(std::process::id());
    let executed = Counter::open(&event("sched:sched_process_exec"), &scope).unwrap();
    let calls = Counter::open(&event(GETPPID), &scope).unwrap();
    let own = Counter::open(&event("sched:sched_process_exec"), &Scope::ThisProcess).unwrap();
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
    assert!(calls.control_page().is_none(), "the kernel has none of it");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_refreshed_counter_stops_by_itself() {
    let options = CounterOptions::new().period(10);
    let calls = Counter::open_with(&event(GETPPID), &this_thread(), &options).unwrap();
    calls.refresh(3).unwrap();
    call(1000);
    assert_eq!(calls.read().unwrap().value, 30);

    let faults = Counter::open_with(&event("page-faults"), &this_thread(), &options).unwrap();
    for round in 1..=3 {
        faults.refresh(3).unwrap();
        fault(1000);
        assert_eq!(faults.read().unwrap().value, round * 30, "round {round}");
    }
    let error = of_this_thread(GETPPID).refresh(1).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot refresh {GETPPID} of thread ")), "{error}");
    assert!(error.ends_with(". The kernel does not do this with an event of this sort"), "{error}");
}

/// Loads a program for tracepoints that says whether a hit is counted.
fn program(counts: bool) -> OwnedFd {
    const BPF_PROG_LOAD: libc::c_long = 5;
    const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;
    // r0 = counts; exit
    let code: [u64; 2] = [0xb7 | u64::from(counts) << 32, 0x95];
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        code: *const u64,
        license: *const libc::c_char,
        others: [u64; 4],
    }
    let load = Load {
        kind: BPF_PROG_TYPE_TRACEPOINT,
        count: 2,
        code: code.as_ptr(),
        license: c"GPL".as_ptr(),
        others: [0; 4],
    };
    // SAFETY: the pointers are good, and the rest is zero.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just opened it for us.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
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
    let faults = of_this_thread("page-faults");
    let error = faults.attach_program(program(true).as_fd()).unwrap_err();
    assert!(error.to_string().starts_with("cannot attach a program to page-faults of thread "));
}

/// A map whose keys are numbers.
fn map(kind: u32, value_size: u32, entries: u32) -> OwnedFd {
    const BPF_MAP_CREATE: libc::c_long = 0;
    let create = [kind, 4, value_size, entries];
    // SAFETY: the kernel reads as much as it is told.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, create.as_ptr(), size_of_val(&create))
    };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just opened it for us.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn counters_of_cpus_go_into_perf_event_arrays() {
    const ARRAY: u32 = 2;
    const PERF_EVENT_ARRAY: u32 = 4;
    let cpus = probe_user::cpus::online().unwrap();
    let last = cpus[cpus.len() - 1];
    let array = |entries| map(PERF_EVENT_ARRAY, 4, entries);
    let of_cpus = Counter::open(&event("page-faults"), &Scope::System).unwrap();
    of_cpus.put_into(array(last + 1).as_fd()).unwrap();
    let refused = |counter: &Counter, map: OwnedFd| match counter.put_into(map.as_fd()) {
        Err(PerfError::Call { what: "put into a map", source, .. }) => source.raw_os_error(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&of_cpus, array(last)), Some(libc::E2BIG));
    // One whose values are longer would be given what is behind the descriptor.
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
        fault(10);
        call(3);
        let [all, calls, minor, again, major]: [u64; 5] = values().0.try_into().unwrap();
        assert!(all >= 10 * round, "{all} in round {round}");
        assert_eq!(all, again);
        assert_eq!(all, minor + major);
        assert_eq!(calls, 3 * round);
    }
    group.disable().unwrap();
    let (values_then, then) = values();
    fault(10);
    call(3);
    assert_eq!(values(), (values_then, then.clone()));
    group.reset().unwrap();
    let (zeroes, now) = values();
    assert_eq!((zeroes, now.enabled), (vec![0; 5], then.enabled));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn groups_of_places_add_up() {
    let names = [GETPPID, "page-faults"].map(event);
    let group = Group::open(&names, &Scope::System).unwrap();
    group.enable().unwrap();
    call(500);
    fault(500);
    group.disable().unwrap();
    let read = group.read().unwrap();
    assert_eq!(read.members.len(), 2);
    assert!(read.members.iter().all(|member| member.value >= 500), "{read:?}");
    assert_eq!(group.ids().count(), probe_user::cpus::online().unwrap().len());

    let inherited = Group::open(&names, &Scope::ProcessAndChildren(std::process::id())).unwrap();
    inherited.enable().unwrap();
    std::thread::spawn(|| call(100)).join().unwrap();
    assert_eq!(inherited.read().unwrap().members[0].value, 100);
}

/// What is counted of a command from when it is executed. It waits until it is counted.
fn counted(name: &str, command: &[&str]) -> u64 {
    let (mut read, mut write) = std::io::pipe().unwrap();
    let mut run = Command::new("setarch");
    run.arg("-R").args(command).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: both are system calls and nothing else.
    unsafe {
        run.pre_exec(move || {
            write.write_all(&std::process::id().to_ne_bytes())?;
            Ok(kill_process(rustix::process::getpid(), Signal::STOP)?)
        })
    };
    let running = std::thread::spawn(move || run.status());
    let mut id = [0; 4];
    read.read_exact(&mut id).unwrap();
    let id = u32::from_ne_bytes(id);
    let stat = format!("/proc/{id}/stat");
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        std::thread::yield_now();
    }
    let options = CounterOptions::new().enabled_by_exec();
    let scope = Scope::ProcessAndChildren(id);
    let counter = Counter::open_with(&event(name), &scope, &options).unwrap();
    kill_process(Pid::from_raw(id.cast_signed()).unwrap(), Signal::CONT).unwrap();
    running.join().unwrap().unwrap();
    counter.read().unwrap().value
}

/// What `perf stat` says of it. `None` if there is no perf.
fn perf_stat(name: &str, command: &[&str]) -> Option<u64> {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x,", "-e", name, "--", "setarch", "-R"]).args(command);
    let output = perf.stdout(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().find(|line| line.contains(name))?;
    line.split(',').next()?.parse().ok()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn counts_are_those_of_perf_stat() {
    if Command::new("perf").arg("--version").output().is_err() {
        eprintln!("there is no perf here to compare with: install linux-perf");
        return;
    }
    let copies = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=1000"];
    let writes = "syscalls:sys_enter_write";
    let Some(perf) = perf_stat(writes, &copies) else {
        eprintln!("this perf counts no tracepoints of this kernel, which is newer");
        return;
    };
    assert!(perf >= 1000, "{perf}");
    assert_eq!(counted(writes, &copies), perf);

    let children =
        ["sh", "-c", "for n in 1 2 3 4; do dd if=/dev/zero of=/dev/null count=10; done; :"];
    let reads = "syscalls:sys_enter_read";
    assert_eq!(counted(reads, &children), perf_stat(reads, &children).expect("perf counts it"));

    let faults = "page-faults";
    if counted("major-faults", &copies) > 0 {
        eprintln!("files are not kept in memory here: how many faults there are, is up to others");
        return;
    }
    // They are about the same each time, and so of most times the same.
    let often = |count: &dyn Fn() -> u64| {
        let mut counts: Vec<_> = (0..15).map(|_| count()).collect();
        counts.sort_unstable();
        counts
    };
    let ours = often(&|| counted(faults, &copies));
    let theirs = often(&|| perf_stat(faults, &copies).expect("perf counts it"));
    assert!(ours.contains(&theirs[7]) && theirs.contains(&ours[7]), "{ours:?}, perf: {theirs:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn errors_say_what_to_do() {
    let said = |result: Result<Counter, PerfError>| result.unwrap_err().to_string();
    let faults = event("page-faults");
    let nobody = said(Counter::open(&faults, &Scope::Thread(u32::MAX >> 1)));
    assert!(nobody.starts_with("cannot open page-faults of thread 2147483647: "), "{nobody}");
    assert!(
        nobody.ends_with(". The thread has ended, or there is none of this number"),
        "{nobody}"
    );
    let nowhere = said(Counter::open(&faults, &Scope::Cpu(99_999)));
    assert!(nowhere.starts_with("CPU 99999 is offline or does not exist"), "{nowhere}");
    let none = said(Counter::open(&event("sched:no_such_thing"), &this_thread()));
    assert!(none.starts_with("there is no event `sched:no_such_thing`"), "{none}");
    let group = Group::open(&[], &this_thread()).unwrap_err().to_string();
    assert_eq!(group, "a group of no events counts nothing: name at least one");
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Perf's clock cannot be read, but for how long an event has been enabled: that, and the time, have the
/// moment when it was enabled between them, which is the same for ever.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn time_is_the_kernels_while_counters_are_switched() {
    const READS: usize = 1_000_000;
    let cpu = probe_user::cpus::online().unwrap()[0];
    let is_exact = std::env::var_os("PROBE_EXACT_TIME").is_some();
    let (enabled, end) = (of_cpu("dummy", cpu), AtomicBool::new(false));
    enabled.enable().unwrap();
    let page = enabled.control_page().expect("a CPU's counter has a page");
    println!("{:?}", page.snapshot().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = of_cpu("cpu-clock", cpu);
            while !end.load(Ordering::Relaxed) {
                other.enable().unwrap();
                other.disable().unwrap();
            }
        });
        if is_exact {
            // A CPU that asks another one waits for an interrupt.
            let mut only = CpuSet::new();
            only.set(cpu as usize);
            sched_setaffinity(None, &only).unwrap();
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (mut last, mut earliest, mut latest) = (0, i128::MIN, i128::MAX);
            let mut widest = 0;
            let (_, clock) = enabled.time();
            assert_eq!(clock == Clock::Perf, page.snapshot().unwrap().capabilities.time_zero());
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
            // In between lies the difference of both, if there is one.
            println!("{clock:?}: {earliest}..={latest}, widest {widest} ns");
            assert!(earliest <= latest, "{earliest}, {latest}");
            if clock == Clock::Monotonic {
                assert!(earliest <= 0 && 0 <= latest);
            }
            if is_exact {
                // So it is from the middle.
                assert!(latest - earliest <= 2 * 1000, "{} ns", latest - earliest);
            }
        }));
        end.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The one thing besides that is stamped by perf's clock: the kernel's log, in microseconds.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn time_counts_from_when_the_kernels_does() {
    let counter = of_this_thread("dummy");
    if counter.time().1 != Clock::Perf {
        eprintln!("perf's clock cannot be read here without a system call");
        return;
    }
    let mut options = File::options();
    let mut log =
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").unwrap();
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

fn of_cpu(name: &str, cpu: u32) -> Counter {
    Counter::open(&event(name), &Scope::Cpu(cpu)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn who_reads_without_a_system_call_is_told_so() {
    let faults = of_this_thread("page-faults");
    faults.enable().unwrap();
    fault(10);
    let (reading, by) = faults.read_here().unwrap();
    assert_eq!(by, ReadBy::SystemCall, "the kernel counts it, not the CPU");
    assert!(reading.value >= 10);
    // Where the CPU counts, both ways have to agree.
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
            let allowed = page.capabilities.counter() && page.capabilities.time();
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
    fault(10);
    group.disable().unwrap();
    let [by_name, by_pmu] = group.read().unwrap().members[..] else { panic!("two events") };
    assert!(by_name.value >= 10 && by_pmu.value == by_name.value, "{by_name:?}, {by_pmu:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_event_that_the_kernel_describes_is_its_terms() {
    if !Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists() {
        eprintln!("skipped: this machine has no msr/tsc/");
        return;
    }
    // What is counted for longer is more.
    let open = |name| Counter::open(&event(name), &Scope::Cpu(0)).unwrap();
    let (inner, outer) = (open("msr/tsc/"), open("msr/event=0x00/"));
    outer.enable().unwrap();
    inner.enable().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    inner.disable().unwrap();
    outer.disable().unwrap();
    let (inner, outer) = (inner.read().unwrap().value, outer.read().unwrap().value);
    assert!(0 < inner && inner <= outer, "{inner}, {outer}");
}
