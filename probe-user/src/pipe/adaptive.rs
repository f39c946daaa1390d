//! Adaptive wakeups, the consumer side: no interrupts at full speed, none when idle, and never more than the
//! requested latency.
//!
//! Each CPU is *eager* or *lazy*. While it is eager, it sends each record at once, and each record wakes the consumer.
//! While it is lazy, it wakes nobody, and may pack records into blocks. The consumer sweeps lazy CPUs on a timer, and has
//! a CPU send its block if the same block was already open at the last sweep. When no CPU is lazy, there is no timer.
//!
//! A CPU becomes lazy when wakeups get too frequent, or when it stops waking by itself because nobody answered. It
//! needs no notice: a record that still wakes the consumer does no harm. A CPU becomes eager when it has emitted little
//! for some time. For that, the consumer begins a new eager period, runs the flush program on this CPU, and looks at its
//! ring once more. Other CPUs are not involved.
//!
//! The flush program makes this safe, because it interrupts the CPU. There are three cases. A program there has
//! already ended: the last look finds its record. It begins later: its record wakes the consumer. Or it is in the
//! middle of a record: the flush program reports that, and the CPU stays lazy until another sweep.

use crate::pipe::claims::Claims;
use crate::pipe::rate::{Pace, Rate, Wakeups};
use crate::pipe::room;
use crate::pipe::ticker::Ticker;
use probe_common::control::Flushed;
use probe_sys::bpf;
use probe_sys::clock;
use probe_sys::control_page::CpuFlags;
use probe_sys::membarrier;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to ask a CPU for its block while it is in the middle of a record. If it is not done after that, its
/// program was preempted.
const FLUSH_ATTEMPTS: u32 = 4;

/// When the consumer looks at the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// When it is woken, and on a timer while a CPU is lazy.
    WhenWoken,
    /// Only on request: every CPU stays lazy and packs records, and nothing is swept.
    OnRequest,
}

#[derive(Debug)]
pub(crate) struct Adaptive {
    claims: Arc<Claims>,
    flush: Arc<OwnedFd>,
    ticker: Ticker,
    looks: Looks,
    /// The size of the longest block, in bytes of records.
    limit: u32,
    /// In ascending order of their ids.
    cpus: Vec<Cpu>,
    /// The number of the last eager period, never 0. No two have the same number, so a program that was preempted in one
    /// does not end another.
    period: u32,
    /// Whether programs must not pack for now.
    held: bool,
    max_latency: Duration,
    rate: Rate,
    swept: Instant,
    /// When the last sweep looked at the open blocks: `CLOCK_MONOTONIC`, in nanoseconds.
    looked: u64,
    /// Everything emitted before this time has been sent: `CLOCK_MONOTONIC`, in nanoseconds.
    settled: u64,
}

#[derive(Debug)]
struct Cpu {
    id: u32,
    mode: Mode,
    /// The block that was open at the last sweep.
    open: u32,
    /// The number of records since the last decision about this mode.
    records: u64,
    /// Whether the CPU has become lazy since the last decision about lazy CPUs, so that its rate is not known.
    is_fresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Each record wakes the consumer, in the eager period of this number.
    Eager(u32),
    /// The consumer sweeps the CPU.
    Lazy { packs: bool },
}

impl Cpu {
    fn new(id: u32) -> Self {
        Self { id, mode: Mode::Lazy { packs: true }, open: 0, records: 0, is_fresh: true }
    }

    fn is_lazy(&self) -> bool {
        matches!(self.mode, Mode::Lazy { .. })
    }
}

impl Adaptive {
    /// `cpus` are the CPUs that have queues, in ascending order. No program packs anything for them yet.
    ///
    /// # Errors
    ///
    /// If this kernel cannot run a program on a chosen CPU, or the control page has no entry for a CPU.
    pub(crate) fn new(
        claims: Arc<Claims>,
        flush: Arc<OwnedFd>,
        cpus: impl Iterator<Item = u32>,
        looks: Looks,
        max_latency: Duration,
        bytes_per_cpu: usize,
    ) -> io::Result<Self> {
        // A block waits for at most two sweeps, which leaves a fifth of the latency for everything else.
        let ticker = Ticker::new(max_latency / 5 * 2)?;
        let rate = Rate::new(ticker.interval());
        let now = clock::monotonic();
        let mut this = Self {
            claims,
            flush,
            ticker,
            looks,
            limit: room::longest_packed(bytes_per_cpu),
            cpus: Vec::new(),
            // A program that still emits for an earlier pipe knows other numbers.
            period: now as u32,
            held: false,
            max_latency,
            rate,
            swept: Instant::now(),
            looked: now,
            settled: now,
        };
        for cpu in cpus {
            this.add(cpu)?;
        }
        Ok(this)
    }

    /// Adds a CPU that is online, perhaps again. It has to be looked at afterwards: it sends any block that was open when
    /// it went offline.
    ///
    /// # Errors
    ///
    /// If the control page has no entry for the CPU, or this kernel cannot run a program there.
    pub(crate) fn add(&mut self, cpu: u32) -> io::Result<()> {
        if self.claims.entry(cpu).is_none() {
            return Err(no_entry(cpu));
        }
        let at = match self.position(cpu) {
            Ok(at) => at,
            Err(at) => {
                self.cpus.insert(at, Cpu::new(cpu));
                at
            }
        };
        match self.looks {
            Looks::WhenWoken => {
                self.make_eager(at)?;
            }
            Looks::OnRequest => {
                self.tell(&self.cpus[at]);
                self.flush(cpu)?;
            }
        }
        Ok(())
    }

    /// Forgets a CPU that another consumer has taken over.
    pub(crate) fn remove(&mut self, cpu: u32) {
        if let Ok(at) = self.position(cpu) {
            self.cpus.remove(at);
        }
    }

    fn position(&self, cpu: u32) -> Result<usize, usize> {
        self.cpus.binary_search_by_key(&cpu, |cpu| cpu.id)
    }

    /// Readable when a sweep is due.
    pub(crate) fn timer(&self) -> BorrowedFd<'_> {
        self.ticker.as_fd()
    }

    /// Whether a CPU is lazy, so that there is something to sweep.
    fn has_lazy(&self) -> bool {
        self.cpus.iter().any(Cpu::is_lazy)
    }

    /// The CPUs whose records wake nobody.
    pub(crate) fn lazy(&self) -> impl Iterator<Item = u32> {
        self.cpus.iter().filter(|cpu| cpu.is_lazy()).map(|cpu| cpu.id)
    }

    /// The time up to which the latency is kept: everything emitted more than `max_latency` before it has been sent.
    /// It is `now`, unless a CPU is lazy and the last sweep was too long ago. Both times are `CLOCK_MONOTONIC`, in
    /// nanoseconds; the caller has already read `now`.
    pub(crate) fn punctual_until(&self, now: u64) -> u64 {
        match self.has_lazy() {
            true => {
                let latency = u64::try_from(self.max_latency.as_nanos()).unwrap_or(u64::MAX);
                now.min(self.settled.saturating_add(latency))
            }
            false => now,
        }
    }

    /// Notes that everything emitted before `time` has been sent.
    pub(crate) fn settle(&mut self, time: u64) {
        self.settled = self.settled.max(time);
    }

    /// Notes that a drain has looked at the ring of a CPU and has found `records` records.
    pub(crate) fn drained(&mut self, cpu: u32, records: u64) {
        let Ok(at) = self.position(cpu) else { return };
        self.cpus[at].records += records;
        if let Mode::Eager(period) = self.cpus[at].mode {
            self.rate.woken(records);
            if self.of(cpu, |cpu| cpu.answer(period)) {
                self.make_lazy(at, true);
            }
        }
    }

    /// Chooses the mode of each CPU, and sweeps the lazy ones if a sweep is due: has CPUs send the blocks that were
    /// already open at the last sweep. `look_again` gets the CPUs whose rings have to be looked at once more.
    ///
    /// # Errors
    ///
    /// If the timer for the next sweep cannot be armed or disarmed.
    pub(crate) fn sweep(&mut self, mut look_again: impl FnMut(u32)) -> io::Result<()> {
        if self.looks == Looks::OnRequest {
            return Ok(());
        }
        if let Some(too_high) = self.rate.of_wakeups() {
            self.calm(too_high);
        }
        if !self.has_lazy() {
            return self.ticker.stop();
        }
        let now = Instant::now();
        self.ticker.start(now)?;
        // Every tick has a sweep, however close to the last one: blocks wait for at most two intervals. Where the consumer is
        // busy, it sweeps a little early instead of being woken.
        let has_ticked = self.ticker.clear(now);
        if !has_ticked && now.duration_since(self.swept) < self.ticker.interval() * 9 / 10 {
            return Ok(());
        }
        self.swept = now;
        self.send_old_blocks(&mut look_again);
        if let Some(mut pace) = self.rate.pace(now) {
            self.choose(&mut pace, &mut look_again);
        }
        Ok(())
    }

    /// Has CPUs send the blocks that were already open at the last sweep.
    fn send_old_blocks(&mut self, look_again: &mut impl FnMut(u32)) {
        let looked = std::mem::replace(&mut self.looked, clock::monotonic());
        let (mut settled, mut is_refused) = (true, false);
        for at in 0..self.cpus.len() {
            if !self.cpus[at].is_lazy() {
                continue;
            }
            let Cpu { id, open: before, .. } = self.cpus[at];
            let open = self.of(id, |cpu| cpu.open());
            self.cpus[at].open = open;
            if open == 0 || open != before {
                continue;
            }
            match self.flush(id) {
                Ok(Flushed::Sent) => look_again(id),
                Ok(Flushed::Held) => settled = false,
                Ok(Flushed::Kept) => {}
                // This process may not ask any more, for instance because it has given up its privileges.
                Err(_) => is_refused = true,
            }
        }
        if is_refused {
            self.stop_packing();
        }
        if settled {
            // A block that was open at that time has been sent by now at the latest.
            self.settled = looked;
        }
    }

    /// Has every CPU send each record at once, which also sends a block that is open there. For a consumer that cannot ask for
    /// blocks: otherwise they would wait until they are full.
    fn stop_packing(&mut self) {
        self.limit = 0;
        self.tell_all();
    }

    /// Stops packing if this process may not ask for blocks, before there are any: it may have given up its privileges. Asks
    /// a CPU that does not exist, so this interrupts nobody.
    fn check_privileges(&mut self) {
        const NO_CPU: u32 = i32::MAX as u32;
        if self.limit > 0 && self.flush(NO_CPU).is_err() {
            self.stop_packing();
        }
    }

    /// Begins a new measurement of eager CPUs. If there were too many wakeups, makes those CPUs lazy that caused more
    /// than others.
    fn calm(&mut self, wakeups: Wakeups) {
        let active = self.cpus.iter().filter(|cpu| !cpu.is_lazy() && cpu.records > 0).count();
        for at in 0..self.cpus.len() {
            if self.cpus[at].is_lazy() {
                continue;
            }
            let records = std::mem::take(&mut self.cpus[at].records);
            if wakeups.are_too_many_from(records, active) {
                self.make_lazy(at, wakeups.deserve_packing(records));
            }
        }
    }

    /// Makes lazy CPUs eager that have become quiet, and has the others pack if that is worth while.
    fn choose(&mut self, pace: &mut Pace, look_again: &mut impl FnMut(u32)) {
        for at in 0..self.cpus.len() {
            let Mode::Lazy { packs } = self.cpus[at].mode else { continue };
            let records = std::mem::take(&mut self.cpus[at].records);
            if std::mem::take(&mut self.cpus[at].is_fresh) {
                continue;
            }
            if pace.has_room_for(records) {
                // If the kernel refuses, the CPU stays lazy.
                if self.make_eager(at).unwrap_or(false) {
                    look_again(self.cpus[at].id);
                }
            } else if packs != pace.deserves_packing(records) {
                if !packs {
                    self.check_privileges();
                }
                self.cpus[at].mode = Mode::Lazy { packs: !packs };
                self.tell(&self.cpus[at]);
            }
        }
    }

    /// Makes an eager CPU lazy.
    fn make_lazy(&mut self, at: usize, packs: bool) {
        let is_first = !self.has_lazy();
        if is_first {
            // Until now, everything has been sent at once.
            let now = clock::monotonic();
            (self.looked, self.settled) = (now, now);
            self.swept = Instant::now();
            self.rate.restart(self.swept);
        }
        if packs {
            self.check_privileges();
        }
        let id = self.cpus[at].id;
        self.cpus[at] = Cpu { mode: Mode::Lazy { packs }, is_fresh: !is_first, ..Cpu::new(id) };
        self.tell(&self.cpus[at]);
    }

    /// Makes a lazy CPU eager, unless a program there is in the middle of a record. Returns whether it is eager now; if
    /// so, its ring has to be looked at once more.
    fn make_eager(&mut self, at: usize) -> io::Result<bool> {
        let Cpu { id, mode: lazy, .. } = self.cpus[at];
        let period = self.number_period(id);
        self.cpus[at].mode = Mode::Eager(period);
        self.cpus[at].records = 0;
        self.tell(&self.cpus[at]);
        // A CPU that is offline keeps its block, and has nothing to wait for until it is added again.
        let flushed = self.flush(id);
        // The CPU may have ended this period already. A program of an earlier period, which has ended by now, may have
        // overwritten the announcement.
        let is_eager = matches!(flushed, Ok(Flushed::Sent | Flushed::Kept))
            && !self.of(id, |cpu| cpu.knows(period));
        if !is_eager {
            self.cpus[at].mode = lazy;
            self.tell(&self.cpus[at]);
        }
        flushed.map(|_| is_eager)
    }

    /// A number for the next eager period of a CPU, which has had none of this number, not even for an earlier pipe.
    fn number_period(&mut self, cpu: u32) -> u32 {
        loop {
            self.period = self.period.wrapping_add(1).max(1);
            if !self.of(cpu, |cpu| cpu.knows(self.period)) {
                return self.period;
            }
        }
    }

    /// Tries to make every CPU eager, whatever its rate. Returns whether they all are.
    #[cfg(all(test, feature = "aya"))]
    pub(crate) fn rest(&mut self, mut look_again: impl FnMut(u32)) -> bool {
        for at in 0..self.cpus.len() {
            if self.cpus[at].is_lazy() && self.make_eager(at).unwrap() {
                look_again(self.cpus[at].id);
            }
        }
        !self.has_lazy()
    }

    /// Makes every CPU lazy.
    #[cfg(all(test, feature = "aya"))]
    pub(crate) fn stir(&mut self) {
        for at in 0..self.cpus.len() {
            if !self.cpus[at].is_lazy() {
                self.make_lazy(at, true);
            }
        }
    }

    /// Has every CPU that may have an open block send it, unless a program there is in the middle of a record.
    pub(crate) fn send_blocks(&self) {
        self.flush_each(|cpu| cpu.is_lazy() || self.of(cpu.id, |cpu| cpu.open()) != 0);
    }

    /// Interrupts every CPU, and has it send its open block. Returns whether no program is in the middle of a record
    /// that it began before the call.
    pub(crate) fn flush_all(&self) -> bool {
        self.flush_each(|_| true)
    }

    /// Has some CPUs send their blocks. Returns whether none of them is in the middle of a record.
    fn flush_each(&self, of: impl Fn(&Cpu) -> bool) -> bool {
        let mut all = true;
        for cpu in self.cpus.iter().filter(|cpu| of(cpu)) {
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
        self.reset();
        let mut answers: Vec<_> = self.cpus.iter().map(|cpu| self.flush(cpu.id)).collect();
        if answers.iter().any(|answer| matches!(answer, Ok(Flushed::Held))) {
            // Programs in the middle of a record send their blocks at its end, and those to come pack nothing.
            let _ = membarrier::wait_for_programs();
            for (cpu, answer) in self.cpus.iter().zip(&mut answers) {
                if matches!(answer, Ok(Flushed::Held)) {
                    *answer = self.flush(cpu.id);
                }
            }
        }
        let has_kept = |answer: &io::Result<Flushed>| {
            answer.as_ref().map_or(true, |flushed| *flushed == Flushed::Kept)
        };
        let kept = self.cpus.iter().zip(&answers).filter(|(_, answer)| has_kept(answer));
        let kept = kept.map(|(cpu, _)| cpu.id).collect();
        // This leaves nothing for `drop` to do.
        self.cpus.clear();
        kept
    }

    /// Has every CPU send its block, and then each record at once, until [`pack`](Self::pack) is called. A program
    /// that is in the middle of a record keeps its open block, if it has one.
    pub(crate) fn hold(&mut self) {
        self.held = true;
        self.tell_all();
        self.send_blocks();
    }

    /// Ends a [`hold`](Self::hold).
    pub(crate) fn pack(&mut self) {
        self.held = false;
        self.tell_all();
    }

    /// Tells every CPU its mode.
    fn tell_all(&self) {
        self.cpus.iter().for_each(|cpu| self.tell(cpu));
    }

    /// Tells a CPU its mode.
    fn tell(&self, cpu: &Cpu) {
        let (period, limit) = match cpu.mode {
            Mode::Eager(period) => (period, 0),
            Mode::Lazy { packs } => (0, if packs && !self.held { self.limit } else { 0 }),
        };
        self.of(cpu.id, |cpu| {
            cpu.set_eager(period);
            cpu.set_limit(limit);
        });
    }

    /// Has every CPU send each record at once, without a wakeup.
    fn reset(&mut self) {
        for cpu in &mut self.cpus {
            cpu.mode = Mode::Lazy { packs: false };
        }
        self.tell_all();
    }

    fn of<T: Default>(&self, cpu: u32, look: impl FnOnce(&CpuFlags<'_>) -> T) -> T {
        self.claims.ours(cpu).map(|flags| look(&flags)).unwrap_or_default()
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
        self.reset();
        self.flush_all();
    }
}
