//! Producers: `sched_cls` programs that pinned threads run with `BPF_PROG_TEST_RUN`.

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Loads a program of the object.
pub(crate) fn load(object: &mut Ebpf, name: &str) -> Result<()> {
    let program: &mut SchedClassifier =
        object.program_mut(name).with_context(|| format!("no program {name}"))?.try_into()?;
    Ok(program.load()?)
}

/// A program loaded by [`load`].
pub(crate) fn loaded<'e>(object: &'e Ebpf, name: &str) -> Result<&'e SchedClassifier> {
    Ok(object.program(name).with_context(|| format!("no program {name}"))?.try_into()?)
}

/// Pins this thread to one CPU.
pub(crate) fn pin(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs a program `count` times. Returns the CPU time used, which excludes other tasks on the CPU.
pub(crate) fn run(program: &SchedClassifier, count: u32) -> Result<Duration> {
    let packet = [0u8; 64];
    let mut options = TestRunOptions::new();
    options.data_in = Some(&packet);
    options.repeat = count;
    let before = cpu_time();
    program.test_run(options)?;
    Ok(cpu_time() - before)
}

/// Runs a program until `end`, `count` times per call. Returns the number of runs and the CPU time
/// per run in nanoseconds.
pub(crate) fn run_until(program: &SchedClassifier, count: u32, end: Instant) -> Result<(u64, f64)> {
    let (mut runs, mut time) = (0, Duration::ZERO);
    loop {
        time += run(program, count)?;
        runs += u64::from(count);
        if Instant::now() >= end {
            return Ok((runs, time.as_nanos() as f64 / runs as f64));
        }
    }
}

/// CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(tv_sec as u64, tv_nsec as u32)
}

/// Number of voluntary context switches of this thread.
pub(crate) fn waits() -> u64 {
    // SAFETY: an all-zero rusage is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills it in.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nvcsw as u64
}

/// Joins a thread and returns its result, or resumes its panic.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs a program `rate` times a second for the given time, at equal intervals or at those of a Poisson process. Returns
/// the number of runs.
pub(crate) fn pace(
    program: &SchedClassifier,
    rate: u32,
    random: bool,
    time: Duration,
) -> Result<u64> {
    let start = Instant::now();
    let period = Duration::from_secs(1) / rate;
    // The same intervals in each run.
    let mut numbers = fastrand::Rng::with_seed(rate.into());
    let (mut count, mut due) = (0, Duration::ZERO);
    loop {
        if due >= time {
            return Ok(count);
        }
        let early = due.saturating_sub(start.elapsed());
        // Spins, because timers are too coarse for the higher rates.
        if early > Duration::from_micros(200) {
            std::thread::sleep(early - Duration::from_micros(100));
        }
        while start.elapsed() < due {
            std::hint::spin_loop();
        }
        run(program, 1)?;
        count += 1;
        due += if random { period.mul_f64(-(1.0 - numbers.f64()).ln()) } else { period };
    }
}
