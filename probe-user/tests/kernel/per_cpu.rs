//! One consumer per CPU, on a real kernel.

use crate::suite::{
    AMPLE, End, Log, Received, adaptive, classifier, emit_on, emit_one_on, generate, load,
    on_numbered, online, open_per_cpu, page_size, stay_on, wait_until, while_emitting,
    while_running,
};
use probe_testing::set_on_drop::SetOnDrop;
use probe_testing::switches::waits_of;
use probe_testing::version::kernel;
use probe_user::{EvPipe, OpenError, Options, PerCpuPipe, Stop, Summary, Wakeup};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::thread::disable_transparent_huge_pages;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Records per CPU.
const N: u32 = 100_000;

fn new_log(_cpu: u32) -> Log {
    Log::default()
}

/// Asserts that each consumer received its CPU's records, `count` in order, and no others.
fn assert_each_complete(summary: &Summary<Log>, count: u64) {
    let cpus: Vec<_> = summary.consumers.iter().map(|&(cpu, _)| cpu).collect();
    assert_eq!(cpus, online());
    for (cpu, log) in &summary.consumers {
        log.received.assert_complete(&[*cpu], count);
        assert!(log.elsewhere == 0 && log.lost.is_empty(), "CPU {cpu}: {log:?}");
    }
}

fn policies() -> [Wakeup; 4] {
    let adaptive = adaptive(Duration::from_millis(10));
    [adaptive, Wakeup::EveryRecord, Wakeup::Watermark(2048), Wakeup::PollOnly]
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_on_the_cpu_that_emitted_them() {
    for wakeup in policies() {
        let options = Options::new().bytes_per_cpu(AMPLE).wakeup(wakeup);
        let (mut object, mut pipe) = open_per_cpu(&options, new_log);
        let meter = pipe.meter();
        while_emitting(&mut object, N, |stop| pipe.run(stop).unwrap());
        assert_eq!(meter.counts(), pipe.counts().collect::<Vec<_>>());
        // The run drains everything emitted before the stop.
        assert_eq!(pipe.ledger().unwrap().unread(), 0, "{wakeup:?}");
        let summary = pipe.close();
        assert_each_complete(&summary, u64::from(N));
        let ledger = summary.ledger.as_ref().unwrap();
        let emitted = u64::from(N) * online().len() as u64;
        assert_eq!((ledger.attempted(), ledger.handled()), (emitted, emitted), "{ledger}");
        assert!(ledger.balances(), "{wakeup:?}: {ledger}");
        assert_eq!(summary.total.records, emitted);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_sleeping_consumer_receives_records() {
    let (mut object, mut pipe) = open_per_cpu(&Options::new(), new_log);
    assert_eq!(pipe.fallback(), None);
    let act = || {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(100));
            online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    while_running(|stop| pipe.run(stop).unwrap(), act);
    assert_each_complete(&pipe.close(), 5);
}

/// The directories of the consumer threads in `/proc`.
fn consumers() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let tasks = tasks.map(|task| task.unwrap().path().display().to_string());
    // Threads that end meanwhile are not consumers.
    let name = |task: &str| std::fs::read_to_string(format!("{task}/comm"));
    tasks.filter(|task| name(task).is_ok_and(|name| name.starts_with("evpipe/"))).collect()
}

/// Voluntary context switches of all consumer threads.
fn waits() -> u64 {
    let consumers = consumers();
    assert_eq!(consumers.len(), online().len());
    consumers.iter().map(|task| waits_of(task)).sum()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn idle_consumers_do_not_wake() {
    let options = Options::new().wakeup(adaptive(Duration::from_millis(2)));
    let (mut object, mut pipe) = open_per_cpu(&options, new_log);
    let act = || {
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        wait_until(|| consumers().len() == online().len());
        // They sweep until their CPUs are eager again.
        let is_quiet = || {
            let before = waits();
            std::thread::sleep(Duration::from_millis(300));
            waits() == before
        };
        wait_until(is_quiet);
        let before = waits();
        std::thread::sleep(Duration::from_secs(3));
        // A single periodic timer would have fired thousands of times.
        let woken = waits() - before;
        assert!(woken <= 2, "woke {woken} times");
    };
    while_running(|stop| pipe.run(stop).unwrap(), act);
    assert_each_complete(&pipe.close(), 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn losses_are_exact_on_each_cpu() {
    for wakeup in policies() {
        let options = Options::new().bytes_per_cpu(page_size()).wakeup(wakeup);
        let (mut object, mut pipe) = open_per_cpu(&options, new_log);
        emit_on(&mut object, &online(), N);
        let stop = Stop::new().unwrap();
        stop.stop();
        pipe.run(&stop).unwrap();
        let summary = pipe.close();
        let ledger = summary.ledger.unwrap();
        assert!(ledger.balances(), "{wakeup:?}: {ledger}");
        for (cpu, log) in &summary.consumers {
            let lost = log.lost_records();
            assert_eq!(lost, u64::from(N) - log.count(*cpu), "CPU {cpu}, {wakeup:?}: {ledger}");
            assert!(log.lost[cpu].outputs > 0, "CPU {cpu} was not starved");
        }
        let lost: u64 = summary.consumers.iter().map(|(_, log)| log.lost_records()).sum();
        assert_eq!(lost, ledger.failed());
    }
}

/// The consumer of the first CPU breaks or panics on its record 10, while records keep arriving. `run`
/// has to return.
fn assert_one_ends_all(end: End, run: impl Fn(&mut dyn FnMut())) {
    let first = online()[0];
    let options = Options::new().bytes_per_cpu(AMPLE);
    let (mut object, mut pipe) = open_per_cpu(&options, |cpu| Log {
        end: (cpu == first).then_some((10, end)),
        ..Log::default()
    });
    let (program, ended) = (classifier(&mut object, "emit_numbered"), AtomicBool::new(false));
    let (stop, start) = (Stop::new().unwrap(), Instant::now());
    let is_over = || ended.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for cpu in online() {
            scope.spawn(move || {
                stay_on(cpu);
                // No more than the rings hold, even if nothing is read.
                (0..N / 100).take_while(|&n| n == 0 || !is_over()).for_each(|_| {
                    generate(program, 100);
                    std::thread::sleep(Duration::from_millis(1));
                });
            });
        }
        scope.spawn(|| {
            while !is_over() && start.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.stop();
        });
        let _end = SetOnDrop(&ended);
        run(&mut || pipe.run(&stop).unwrap());
        assert!(!stop.is_stopped(), "only the stop ended it");
    });
    // Records emitted afterwards are not lost.
    let summary = pipe.close();
    let ledger = summary.ledger.as_ref().unwrap();
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!(ledger.handled(), ledger.attempted(), "{ledger}");
    for (cpu, log) in &summary.consumers {
        let seen = &log.received.by_cpu[cpu];
        assert_eq!((seen.count, seen.missing), (seen.next, 0), "CPU {cpu}");
        assert!(log.end.is_none() && log.lost.is_empty());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_breaks_or_panics_ends_all_and_loses_nothing() {
    assert_one_ends_all(End::Break, |run| run());
    assert_one_ends_all(End::Panic, |run| {
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "on purpose");
    });
}

/// Scheduling policy and real-time priority of this thread, from `proc_pid_stat(5)`.
fn scheduling() -> [u32; 2] {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The third field follows the name, which may contain spaces.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<_> = fields.split_whitespace().collect();
    [41, 40].map(|field| fields[field - 3].parse().unwrap())
}

/// The time slice that this thread requests, from `sched_getattr(2)`; 0 if the kernel does not
/// support it.
fn slice() -> Duration {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attributes);
    // SAFETY: the kernel writes at most `size` bytes; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    Duration::from_nanos(attributes.sched_runtime)
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn consumers_request_short_time_slices() {
    let shortest = Duration::from_micros(if kernel() < (6, 12) { 0 } else { 100 });
    let before = slice();
    let seen = Mutex::new(Vec::new());
    let (mut object, mut pipe) = open_per_cpu(&Options::new(), |_| {
        let seen = &seen;
        on_numbered(move |_| {
            seen.lock().unwrap().push(slice());
            ControlFlow::<()>::Break(())
        })
    });
    emit_one_on(&mut object, online()[0]);
    pipe.run(&Stop::new().unwrap()).unwrap();
    drop(pipe);
    assert_eq!(seen.into_inner().unwrap(), [shortest]);
    assert_eq!(slice(), before, "the caller's time slice changed");
}

/// Consumers preempt the producers on their CPU, so even small rings never fill.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn consumers_with_a_realtime_priority_lose_nothing() {
    const FIFO: u32 = 1;
    /// 80 MB, 800 times the ring's capacity.
    const MANY: u32 = 1_000_000;
    // A consumer must not wait for memory: not for its code to be read from disk, and not for
    // khugepaged, which holds the lock of the address space while it builds a huge page.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = disable_transparent_huge_pages(false);
            let _ = munlockall();
        }
    }
    let _restore = Restore;
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).unwrap();
    disable_transparent_huge_pages(true).unwrap();
    let options = Options::new().bytes_per_cpu(128 << 10).realtime(7);
    let seen = Mutex::new(Vec::new());
    let (mut object, mut pipe) = open_per_cpu(&options, |_| {
        let (mut received, seen) = (Received::default(), &seen);
        on_numbered(move |event| {
            if received.total() == 0 {
                seen.lock().unwrap().push(scheduling());
            }
            received.take(&event);
        })
    });
    let act = || {
        // Wait until all consumers run.
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        wait_until(|| seen.lock().unwrap().len() == online().len());
        emit_on(&mut object, &online(), MANY);
    };
    while_running(|stop| pipe.run(stop).unwrap(), act);
    let ledger = pipe.close().ledger.unwrap();
    assert_eq!(*seen.lock().unwrap(), vec![[FIFO, 7]; online().len()]);
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!(ledger.handled(), u64::from(1 + MANY) * online().len() as u64);
}

/// Runs `run` without CAP_SYS_NICE, which its threads inherit.
fn without_sys_nice<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective -= rustix::thread::CapabilitySet::SYS_NICE;
            rustix::thread::set_capabilities(None, sets).unwrap();
            run()
        });
        thread.join().unwrap()
    })
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_refused_priority_is_an_error_with_a_hint() {
    const HINT: &str = "CAP_SYS_NICE or RLIMIT_RTPRIO";
    let mut object = load();
    let options = Options::new().realtime(1);
    let refused =
        without_sys_nice(|| PerCpuPipe::from_object(&mut object, &options, new_log).unwrap_err());
    assert!(matches!(refused, OpenError::Realtime { .. }), "{refused}");
    assert!(refused.to_string().contains(HINT), "{refused}");
    // The pipe was opened with the capability, but runs without it.
    let mut pipe = PerCpuPipe::from_object(&mut object, &options, new_log).unwrap();
    let stop = Stop::new().unwrap();
    let refused = without_sys_nice(|| pipe.run(&stop).unwrap_err());
    assert!(refused.to_string().contains(HINT), "{refused}");
    assert!(!stop.is_stopped());
    let refused = EvPipe::from_object(&mut object, &options).unwrap_err().to_string();
    assert!(refused.contains("open a PerCpuPipe"), "{refused}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn only_the_requested_cpus_have_consumers() {
    let requested = *online().last().unwrap();
    let (mut object, pipe) = open_per_cpu(&Options::new().cpus([requested]), new_log);
    online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
    let summary = pipe.close();
    assert_eq!(summary.consumers.iter().map(|&(cpu, _)| cpu).collect::<Vec<_>>(), [requested]);
    let ledger = summary.ledger.unwrap();
    // The records of the other CPUs have failed, which does not concern this pipe.
    assert_eq!((ledger.attempted(), ledger.handled()), (1, 1), "{ledger}");
    assert!(ledger.is_complete(), "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn invalid_options_are_refused() {
    let mut object = load();
    let mut open =
        |options: &Options| PerCpuPipe::from_object(&mut object, options, new_log).unwrap_err();
    let recorder = open(&Options::new().overwrite());
    assert!(recorder.to_string().contains("a flight recorder has no consumers"), "{recorder}");
    assert!(matches!(open(&Options::new().cpus([])), OpenError::NoCpu { .. }));
    assert!(matches!(open(&Options::new().cpus([0, 4095])), OpenError::MapTooSmall { .. }));
    assert!(matches!(open(&Options::new().bytes_per_cpu(usize::MAX)), OpenError::RingSize { .. }));
}
