//! Adaptive wakeups, the consumer side: no interrupts at full speed, none when idle, and never more than the
//! requested latency.
//!
//! While the consumer is *awake*, programs pack records into blocks and wake nobody. The consumer sweeps the rings on
//! a timer, and has a CPU send its block if the same block was already open at the last sweep. When sweeps find
//! nothing any more, the consumer goes to *sleep*: it raises a flag for each CPU, has every CPU send its block, looks
//! at the rings once more, and disarms the timer. The first record that a CPU emits while its flag is up is sent at
//! once and wakes the consumer. Then the CPU notes which sleep it has ended.
//!
//! Running the flush program on a CPU makes this safe, because it interrupts the CPU. A program there has ended
//! before, or begins later and sees the flag, or is in the middle of a record. In the last case, the flush program
//! reports that, and the consumer stays awake for another sweep.

use crate::pipe::ticker::Ticker;
use probe_common::control::Flushed;
use probe_common::limits::MAX_PACKED;
use probe_sys::bpf;
use probe_sys::clock;
use probe_sys::control_page::{ControlPage, CpuFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of consecutive sweeps without records after which the consumer goes to sleep.
const IDLE_SWEEPS: u32 = 2;

/// How often to ask a CPU for its block while it is in the middle of a record. If it is not done after that, its
/// program was preempted.
const FLUSH_ATTEMPTS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Adaptive {
    control: ControlPage,
    flush: Arc<OwnedFd>,
    ticker: Ticker,
    /// The size of the longest block, in bytes of records.
    limit: u32,
    cpus: Vec<Cpu>,
    asleep: bool,
    /// The number of the last sleep, never 0. A CPU that reports late that one sleep has ended does not end another
    /// sleep.
    sleep: u32,
    /// Whether programs must not pack for now.
    held: bool,
    max_latency: Duration,
    swept: Instant,
    /// When the last sweep looked at the open blocks: `CLOCK_MONOTONIC`, in nanoseconds.
    looked: u64,
    /// Everything emitted before this time has been sent: `CLOCK_MONOTONIC`, in nanoseconds.
    settled: u64,
    /// Whether a drain has found records since the last sweep.
    found: bool,
    /// The number of consecutive sweeps that found nothing.
    idle: u32,
}

#[derive(Debug)]
struct Cpu {
    id: u32,
    /// The block that was open at the last sweep.
    open: u32,
}

/// The result of a sweep.
pub(crate) enum Sweep {
    /// There is nothing to do.
    Nothing,
    /// Blocks have been sent, and are in the rings now.
    Sent,
    /// No records have arrived for so long that it is time to sleep.
    Idle,
}

impl Adaptive {
    /// `cpus` are the CPUs that have queues. No program packs anything for them yet.
    ///
    /// # Errors
    ///
    /// If this kernel cannot run a program on a chosen CPU or map the control page, or the page has no entry for a
    /// CPU.
    pub(crate) fn new(
        control: BorrowedFd<'_>,
        flush: Arc<OwnedFd>,
        cpus: impl Iterator<Item = u32>,
        max_latency: Duration,
        bytes_per_cpu: usize,
    ) -> io::Result<Self> {
        let control = ControlPage::map(control)?;
        let cpus: Vec<_> = cpus.map(|id| Cpu { id, open: 0 }).collect();
        for cpu in &cpus {
            if control.cpu(cpu.id).is_none() {
                return Err(no_entry(cpu.id));
            }
            bpf::run_on(flush.as_fd(), cpu.id)?;
        }
        // A block waits for at most two sweeps, which leaves a fifth of the latency for everything else.
        let interval = max_latency * 2 / 5;
        // A block that takes more than a fraction of the ring would often find no room.
        let limit = MAX_PACKED.min(u32::try_from(bytes_per_cpu / 8).unwrap_or(u32::MAX));
        let mut ticker = Ticker::new(interval)?;
        ticker.start(Instant::now())?;
        // Programs do not pack until `ask` sets the limit below.
        let now = clock::monotonic();
        let this = Self {
            control,
            flush,
            ticker,
            limit,
            cpus,
            asleep: false,
            // A program that still emits for an earlier pipe knows other numbers.
            sleep: now as u32,
            held: false,
            max_latency,
            swept: Instant::now(),
            looked: now,
            settled: now,
            found: false,
            idle: 0,
        };
        this.ask(false, limit);
        Ok(this)
    }

    /// Adds a CPU that is online, perhaps again: gives it the same settings as the others, and has it send any block
    /// that was open when it went offline.
    ///
    /// # Errors
    ///
    /// If the control page has no entry for the CPU.
    pub(crate) fn add(&mut self, cpu: u32) -> io::Result<()> {
        if self.control.cpu(cpu).is_none() {
            return Err(no_entry(cpu));
        }
        if !self.cpus.iter().any(|known| known.id == cpu) {
            self.cpus.push(Cpu { id: cpu, open: 0 });
        }
        if self.asleep {
            self.number_sleep();
        }
        self.set_asleep(self.asleep);
        let _ = self.flush(cpu);
        Ok(())
    }

    /// Readable when a sweep is due.
    pub(crate) fn timer(&self) -> BorrowedFd<'_> {
        self.ticker.as_fd()
    }

    /// Whether the consumer sleeps and no CPU has woken it.
    pub(crate) fn sleeps_on(&self) -> bool {
        self.asleep && !self.is_ended()
    }

    /// Whether a CPU has ended the sleep with the current number.
    fn is_ended(&self) -> bool {
        self.cpus.iter().any(|cpu| self.of(cpu.id, |cpu| cpu.has_ended(self.sleep)))
    }

    /// Gives the next sleep a number that no CPU has ended, not even for an earlier pipe.
    fn number_sleep(&mut self) {
        loop {
            self.sleep = self.sleep.wrapping_add(1).max(1);
            if !self.is_ended() {
                return;
            }
        }
    }

    /// Whether the consumer sleeps, as far as it knows itself.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// The time up to which the latency is kept: everything emitted more than `max_latency` before it has been sent.
    /// It is `now`, unless the last sweep was too long ago. Both times are `CLOCK_MONOTONIC`, in nanoseconds; the
    /// caller has already read `now`.
    pub(crate) fn punctual_until(&self, now: u64) -> u64 {
        if self.sleeps_on() {
            return now;
        }
        now.min(self.settled.saturating_add(self.max_latency.as_nanos() as u64))
    }

    /// Notes that a drain that woke the consumer has found everything emitted before `time`: the record that wakes is
    /// sent at once, and only the records after it are packed.
    pub(crate) fn settle(&mut self, time: u64) {
        self.settled = self.settled.max(time);
    }

    /// Notes that the consumer looks at the rings and so is awake. [`sweep`](Self::sweep) has to follow.
    pub(crate) fn wake(&mut self) {
        if self.asleep {
            self.asleep = false;
            self.idle = 0;
            self.set_asleep(false);
            self.swept = Instant::now();
        }
    }

    /// If a sweep is due, has CPUs send the blocks that were already open at the last sweep. `found` is whether a
    /// drain has just found records.
    ///
    /// # Errors
    ///
    /// If the timer for the next sweep cannot be armed.
    pub(crate) fn sweep(&mut self, found: bool) -> io::Result<Sweep> {
        self.found |= found;
        let now = Instant::now();
        // The timer is armed only now, because a record that wakes the consumer must not wait for it.
        self.ticker.start(now)?;
        self.ticker.clear(now);
        // A tick can be a little early by this clock.
        if now.duration_since(self.swept) < self.ticker.interval() * 9 / 10 {
            return Ok(Sweep::Nothing);
        }
        self.swept = now;
        let looked = std::mem::replace(&mut self.looked, clock::monotonic());
        let (mut busy, mut sent) = (std::mem::take(&mut self.found), false);
        let mut settled = true;
        for at in 0..self.cpus.len() {
            let Cpu { id, open: before } = self.cpus[at];
            let open = self.of(id, |cpu| cpu.open());
            self.cpus[at].open = open;
            if open == 0 || open != before {
                busy |= open != 0;
                continue;
            }
            let flushed = self.flush(id).unwrap_or(Flushed::Held);
            sent |= flushed == Flushed::Sent;
            // A CPU that keeps its block has nothing to wait for until its next event is there.
            busy |= flushed != Flushed::Kept;
            settled &= flushed != Flushed::Held;
        }
        if settled {
            // A block that was open at that time has been sent by now at the latest.
            self.settled = looked;
        }
        self.idle = if busy { 0 } else { self.idle + 1 };
        Ok(match sent {
            true => Sweep::Sent,
            false if self.idle >= IDLE_SWEEPS => Sweep::Idle,
            false => Sweep::Nothing,
        })
    }

    /// Goes to sleep, unless a CPU emits something meanwhile, or `look` finds something in a ring. Returns whether
    /// the consumer sleeps now.
    pub(crate) fn fall_asleep(&mut self, look: impl FnOnce() -> bool) -> io::Result<bool> {
        self.idle = 0;
        let now = clock::monotonic();
        self.number_sleep();
        self.set_asleep(true);
        if !self.flush_all() || look() {
            self.set_asleep(false);
            return Ok(false);
        }
        if let Err(error) = self.ticker.stop() {
            self.set_asleep(false);
            return Err(error);
        }
        self.asleep = true;
        (self.looked, self.settled) = (now, now);
        Ok(true)
    }

    /// Has every CPU send its block. Returns whether everything emitted before the call is now in the rings, as far
    /// as there are rings.
    pub(crate) fn flush_all(&self) -> bool {
        let mut all = true;
        for cpu in &self.cpus {
            all &= self.flush(cpu.id).is_ok_and(|flushed| flushed != Flushed::Held);
        }
        all
    }

    /// Has a CPU send its block.
    fn flush(&self, cpu: u32) -> io::Result<Flushed> {
        for _ in 0..FLUSH_ATTEMPTS {
            match bpf::run_on(self.flush.as_fd(), cpu) {
                Ok(answer) => match Flushed::of(answer) {
                    Some(Flushed::Held) | None => {}
                    Some(flushed) => return Ok(flushed),
                },
                // The CPU is offline: it emits nothing.
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                    return Ok(Flushed::Kept);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::Held)
    }

    /// Resets all settings, and has every CPU send its block. Returns the CPUs that have kept theirs: they are
    /// offline, or were until now; or the kernel refuses the call, because a process may have lost its privileges.
    pub(crate) fn close(mut self) -> Vec<u32> {
        self.ask(false, 0);
        let cpus = self.cpus.iter().map(|cpu| cpu.id);
        let kept =
            cpus.filter(|&cpu| !self.flush(cpu).is_ok_and(|flushed| flushed != Flushed::Kept));
        let kept = kept.collect();
        // This leaves nothing for `drop` to do.
        self.cpus.clear();
        kept
    }

    fn set_asleep(&self, asleep: bool) {
        self.ask(asleep, if asleep || self.held { 0 } else { self.limit });
    }

    /// Disables sweeps, for a consumer that looks at the rings only on request.
    ///
    /// # Errors
    ///
    /// If the timer cannot be disarmed.
    pub(crate) fn never_sweep(&mut self) -> io::Result<()> {
        self.ticker.stop()
    }

    /// Has every CPU send its block, and then each record at once, until [`pack`](Self::pack) is called. A program
    /// that is in the middle of a record keeps its open block, if it has one.
    pub(crate) fn hold(&mut self) {
        self.held = true;
        self.set_asleep(self.asleep);
        self.flush_all();
    }

    /// Ends a [`hold`](Self::hold).
    pub(crate) fn pack(&mut self) {
        self.held = false;
        self.set_asleep(self.asleep);
    }

    /// Sets for every CPU whether the consumer sleeps, and how long blocks may become.
    fn ask(&self, asleep: bool, limit: u32) {
        let asleep = if asleep { self.sleep } else { 0 };
        for cpu in &self.cpus {
            self.of(cpu.id, |cpu| {
                cpu.set_asleep(asleep);
                cpu.set_limit(limit);
            });
        }
    }

    fn of<T: Default>(&self, cpu: u32, look: impl FnOnce(&CpuFlags<'_>) -> T) -> T {
        self.control.cpu(cpu).map(|flags| look(&flags)).unwrap_or_default()
    }
}

fn no_entry(cpu: u32) -> io::Error {
    let what = format!("the control page has no entry for CPU {cpu}");
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// Resets all settings: every record is sent at once, and what is packed is sent now.
impl Drop for Adaptive {
    fn drop(&mut self) {
        // A forked child has no page for the settings, so there this only has blocks sent.
        self.ask(false, 0);
        self.flush_all();
    }
}
