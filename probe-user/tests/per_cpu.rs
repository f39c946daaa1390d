//! A consumer on each CPU, on a real kernel.

mod suite;

use probe_user::common::RawRecord;
use probe_user::{
    Consumer, EvHandlers, EvPipe, Loss, Malformed, OpenError, Options, PerCpuPipe, PerCpuSummary,
    Stop, Wakeup,
};
use rustix::thread::sched_getcpu;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use suite::records::Numbered;
use suite::switches::waits_of;
use suite::version::kernel;
use suite::{Received, classifier, emit_one_on, generate, generate_on, load, online};

/// Records per CPU.
const N: u32 = 100_000;

/// A ring that never fills: see `pipe.rs`.
const AMPLE: usize = 16 << 20;

/// How many records came elsewhere than where they were emitted; and what came.
#[derive(Debug, Default)]
struct Local {
    received: Received,
    elsewhere: u64,
    lost: u64,
    told: u64,
    /// What to do with the record of this number.
    at: Option<(u64, Deed)>,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Break,
    Panic,
}

impl Consumer for Local {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.elsewhere += u64::from(sched_getcpu() != cpu as usize);
        self.received.record(cpu, record)?;
        let number = self.received.by_cpu[&cpu].next - 1;
        match self.at.take_if(|(at, _)| *at == number) {
            Some((_, Deed::Break)) => ControlFlow::Break(()),
            Some((_, Deed::Panic)) => panic!("as planned"),
            None => ControlFlow::Continue(()),
        }
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.lost += loss.count;
        self.told += loss.records.unwrap();
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }
}

/// Each of them got its CPU's records, `count` in order, and no other.
fn assert_each_complete(summary: &PerCpuSummary<Local>, count: u64) {
    let cpus: Vec<_> = summary.consumers.iter().map(|&(cpu, _)| cpu).collect();
    assert_eq!(cpus, online());
    for (cpu, local) in &summary.consumers {
        local.received.assert_complete(&[*cpu], count);
        assert_eq!((local.elsewhere, local.lost), (0, 0), "CPU {cpu}");
    }
}

fn policies() -> [Wakeup; 4] {
    let max_latency = Duration::from_millis(10);
    [
        Wakeup::Adaptive { max_latency },
        Wakeup::EveryRecord,
        Wakeup::Watermark(2048),
        Wakeup::PollOnly,
    ]
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn exactly_n_arrive_on_the_cpu_that_emitted_them() {
    for wakeup in policies() {
        let mut object = load();
        let options = Options::new().bytes_per_cpu(AMPLE).wakeup(wakeup);
        let mut pipe =
            PerCpuPipe::from_object(&mut object, &options, |_| Local::default()).unwrap();
        let stop = Stop::new().unwrap();
        let program = classifier(&mut object, "emit_numbered");
        std::thread::scope(|scope| {
            let running = scope.spawn(|| pipe.run(&stop).unwrap());
            generate_on(program, &online(), N);
            stop.stop();
            running.join().unwrap();
        });
        // The run has drained what was emitted before the stop.
        assert_eq!(pipe.ledger().unwrap().unread(), 0, "{wakeup:?}");
        let summary = pipe.close();
        assert_each_complete(&summary, u64::from(N));
        let ledger = summary.pipe.ledger.as_ref().unwrap();
        let emitted = u64::from(N) * online().len() as u64;
        assert_eq!((ledger.attempted(), ledger.handled()), (emitted, emitted), "{ledger}");
        assert!(ledger.is_complete(), "{wakeup:?}: {ledger}");
        assert_eq!(summary.pipe.total.records, emitted);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_record_comes_in_time_to_a_consumer_that_sleeps() {
    let mut object = load();
    let mut pipe =
        PerCpuPipe::from_object(&mut object, &Options::new(), |_| Local::default()).unwrap();
    assert_eq!(pipe.fallback(), None);
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| pipe.run(&stop).unwrap());
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(100));
            online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        }
        std::thread::sleep(Duration::from_millis(100));
        stop.stop();
        running.join().unwrap();
    });
    assert_each_complete(&pipe.close(), 5);
}

/// How often the threads of all CPUs have given up their CPU to wait.
fn waits() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let tasks = tasks.map(|task| task.unwrap().path().display().to_string());
    // Those that end meanwhile are none of ours.
    let name = |task: &str| std::fs::read_to_string(format!("{task}/comm"));
    let ours = tasks.filter(|task| name(task).is_ok_and(|name| name.starts_with("evpipe/")));
    let waits: Vec<_> = ours.map(|task| waits_of(&task)).collect();
    assert_eq!(waits.len(), online().len());
    waits.into_iter().sum()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn consumers_that_are_idle_do_not_wake() {
    let mut object = load();
    let max_latency = Duration::from_millis(2);
    let options = Options::new().wakeup(Wakeup::Adaptive { max_latency });
    let mut pipe = PerCpuPipe::from_object(&mut object, &options, |_| Local::default()).unwrap();
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let _end = StopOnDrop(&stop);
        scope.spawn(|| pipe.run(&stop).unwrap());
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        std::thread::sleep(Duration::from_secs(1));
        let before = waits();
        std::thread::sleep(Duration::from_secs(3));
        // A timer of one of them would have ticked thousands of times.
        let woken = waits() - before;
        assert!(woken <= 2, "woke {woken} times");
    });
    assert_each_complete(&pipe.close(), 1);
}

struct StopOnDrop<'s>(&'s Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn losses_are_exact_on_each_cpu() {
    for wakeup in policies() {
        let mut object = load();
        let options = Options::new().bytes_per_cpu(suite::page_size()).wakeup(wakeup);
        let mut pipe =
            PerCpuPipe::from_object(&mut object, &options, |_| Local::default()).unwrap();
        let program = classifier(&mut object, "emit_numbered");
        generate_on(program, &online(), N);
        let stop = Stop::new().unwrap();
        stop.stop();
        pipe.run(&stop).unwrap();
        let summary = pipe.close();
        let ledger = summary.pipe.ledger.unwrap();
        assert!(ledger.is_complete(), "{wakeup:?}: {ledger}");
        for (cpu, local) in &summary.consumers {
            let seen = &local.received.by_cpu[cpu];
            assert_eq!(local.told, u64::from(N) - seen.count, "CPU {cpu}, {wakeup:?}: {ledger}");
            assert!(local.lost > 0, "CPU {cpu} was not starved");
        }
        let told: u64 = summary.consumers.iter().map(|(_, local)| local.told).sum();
        assert_eq!(told, ledger.failed());
    }
}

/// The consumer of the first CPU does what it does with its record 10, while records keep coming. `run` has to
/// return.
fn one_ends_all(deed: Deed, run: impl Fn(&mut dyn FnMut())) {
    let mut object = load();
    let first = online()[0];
    let options = Options::new().bytes_per_cpu(AMPLE);
    let mut pipe = PerCpuPipe::from_object(&mut object, &options, |cpu| Local {
        at: (cpu == first).then_some((10, deed)),
        ..Local::default()
    })
    .unwrap();
    let (program, ended) = (classifier(&mut object, "emit_numbered"), AtomicBool::new(false));
    let (stop, start) = (Stop::new().unwrap(), Instant::now());
    let is_over = || ended.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for cpu in online() {
            scope.spawn(move || {
                suite::stay_on(cpu);
                // As many as there is room for, whoever reads them.
                (0..N / 100).take_while(|_| !is_over()).for_each(|_| {
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
        let _end = suite::set_on_drop::SetOnDrop(&ended);
        run(&mut || pipe.run(&stop).unwrap());
        assert!(!stop.is_stopped(), "it goes on");
    });
    // What came afterwards is not lost.
    let summary = pipe.close();
    let ledger = summary.pipe.ledger.as_ref().unwrap();
    assert!(ledger.is_complete() && ledger.failed() == 0, "{ledger}");
    assert_eq!(ledger.handled(), ledger.attempted(), "{ledger}");
    for (cpu, local) in &summary.consumers {
        let seen = &local.received.by_cpu[cpu];
        assert_eq!((seen.count, seen.missing), (seen.next, 0), "CPU {cpu}");
        assert!(local.at.is_none());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_breaks_ends_all_and_loses_nothing() {
    one_ends_all(Deed::Break, |run| run());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_panics_ends_all_and_loses_nothing() {
    one_ends_all(Deed::Panic, |run| {
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "as planned");
    });
}

/// The policy and the real-time priority of this thread, by `proc_pid_stat(5)`.
fn scheduling() -> [u32; 2] {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // Behind the name, which may have spaces, is the third field.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<_> = fields.split_whitespace().collect();
    [41, 40].map(|field| fields[field - 3].parse().unwrap())
}

/// The length of the turns that this thread asks for, by `sched_getattr(2)`: 0 where the kernel does not know of any.
fn slice() -> Duration {
    // SAFETY: integers, of which zeros are some.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attributes);
    // SAFETY: the kernel writes as many bytes as it is told; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    Duration::from_nanos(attributes.sched_runtime)
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn consumers_ask_for_short_turns() {
    let shortest = Duration::from_micros(if kernel() < (6, 12) { 0 } else { 100 });
    let before = slice();
    let mut object = load();
    let seen = Mutex::new(Vec::new());
    let mut pipe = PerCpuPipe::from_object(&mut object, &Options::new(), |_| {
        let (mut handlers, seen) = (EvHandlers::new(), &seen);
        handlers.on::<Numbered, _>(move |_| {
            seen.lock().unwrap().push(slice());
            ControlFlow::<()>::Break(())
        });
        handlers
    })
    .unwrap();
    emit_one_on(&mut object, online()[0]);
    pipe.run(&Stop::new().unwrap()).unwrap();
    drop(pipe);
    assert_eq!(seen.into_inner().unwrap(), [shortest]);
    assert_eq!(slice(), before, "the caller's is its own");
}

/// On their CPUs, full speed is what they leave to others: no ring is full, as small as it is.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn who_emits_waits_for_consumers_with_a_realtime_priority() {
    const FIFO: u32 = 1;
    /// 80 MB, of which the ring has room for an eight hundredth.
    const MANY: u32 = 1_000_000;
    /// For these there is room, whoever reads them.
    const AT_A_TIME: u32 = 1000;
    const FEW: u32 = 10;
    let mut object = load();
    let options = Options::new().bytes_per_cpu(128 << 10).realtime(7);
    let (had, has) = (Mutex::new(Vec::new()), |seen: &mut Vec<_>| seen.push(scheduling()));
    let mut pipe = PerCpuPipe::from_object(&mut object, &options, |_| {
        let (mut handlers, mut received) = (EvHandlers::new(), Received::default());
        let had = &had;
        handlers.on::<Numbered, _>(move |event| {
            if received.total() == 0 {
                has(&mut had.lock().unwrap());
            }
            received.take(&event);
        });
        handlers
    })
    .unwrap();
    let stop = Stop::new().unwrap();
    classifier(&mut object, "emit_numbered");
    std::thread::scope(|scope| {
        let _end = StopOnDrop(&stop);
        let running = scope.spawn(|| pipe.run(&stop).unwrap());
        // Until they all run.
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
        while had.lock().unwrap().len() < online().len() && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let program = classifier(&mut object, "emit_numbered");
        // Code is read from its file when it runs for the first time, and waited for.
        for _ in 0..FEW {
            generate_on(program, &online(), AT_A_TIME);
            std::thread::sleep(Duration::from_millis(20));
        }
        generate_on(program, &online(), MANY);
        stop.stop();
        running.join().unwrap();
    });
    let ledger = pipe.close().pipe.ledger.unwrap();
    assert_eq!(*had.lock().unwrap(), vec![[FIFO, 7]; online().len()]);
    assert!(ledger.is_complete() && ledger.failed() == 0, "{ledger}");
    assert_eq!(ledger.handled(), u64::from(1 + FEW * AT_A_TIME + MANY) * online().len() as u64);
}

/// Without the capability, which threads inherit.
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
fn a_priority_that_is_refused_is_told() {
    const TOLD: &str = "CAP_SYS_NICE or RLIMIT_RTPRIO";
    let mut object = load();
    let options = Options::new().realtime(1);
    let refused = without_sys_nice(|| {
        PerCpuPipe::from_object(&mut object, &options, |_| Local::default()).unwrap_err()
    });
    assert!(matches!(refused, OpenError::Realtime { .. }), "{refused}");
    assert!(refused.to_string().contains(TOLD), "{refused}");
    // One that has been allowed, and is not any more.
    let mut pipe = PerCpuPipe::from_object(&mut object, &options, |_| Local::default()).unwrap();
    let stop = Stop::new().unwrap();
    let refused = without_sys_nice(|| pipe.run(&stop).unwrap_err());
    assert!(refused.to_string().contains(TOLD), "{refused}");
    assert!(!stop.is_stopped());
    let refused = EvPipe::from_object(&mut object, &options).unwrap_err().to_string();
    assert!(refused.contains("open a PerCpuPipe"), "{refused}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn only_the_cpus_that_are_wanted_have_consumers() {
    let mut object = load();
    let wanted = *online().last().unwrap();
    let options = Options::new().cpus([wanted]);
    let pipe = PerCpuPipe::from_object(&mut object, &options, |_| Local::default()).unwrap();
    online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
    let summary = pipe.close();
    assert_eq!(summary.consumers.iter().map(|&(cpu, _)| cpu).collect::<Vec<_>>(), [wanted]);
    let ledger = summary.pipe.ledger.unwrap();
    // The others' have failed, which is counted.
    assert_eq!((ledger.attempted(), ledger.handled()), (online().len() as u64, 1), "{ledger}");
    assert!(ledger.is_complete(), "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_cannot_be_is_refused() {
    let mut object = load();
    let mut open = |options: &Options| {
        PerCpuPipe::from_object(&mut object, options, |_| Local::default()).unwrap_err()
    };
    let recorder = open(&Options::new().overwrite());
    assert!(recorder.to_string().contains("a flight recorder has no consumers"), "{recorder}");
    assert!(matches!(open(&Options::new().cpus([])), OpenError::NoCpu { .. }));
    assert!(matches!(open(&Options::new().cpus([0, 4095])), OpenError::CpuPastEnd { .. }));
    assert!(matches!(open(&Options::new().bytes_per_cpu(5)), OpenError::Bytes { .. }));
}
