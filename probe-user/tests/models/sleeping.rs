//! A model of falling asleep and being woken. It tries every order of the steps of the consumer, the programs and
//! the flush program.
//!
//! The consumer's steps are those of `Adaptive::fall_asleep`, `flush` and `wake` in
//! `probe-user/src/pipe/adaptive.rs`, and of `EvPipe::drain`. A program's steps are those of `append` in
//! `probe-ebpf/src/pipe.rs` and of `send` in `probe-ebpf/src/output.rs`. `pipe::flush` is one step, since it
//! interrupts its CPU. Repeat every change there in this model. A step is one access to memory that others can
//! see.
//!
//! The search is written by hand instead of with `loom`, because the flush program runs in the middle of
//! another program on its CPU, which threads cannot do to each other. One order of all accesses is enough: a
//! CPU sees its own accesses in order, and the interrupt that runs the flush program orders the consumer's
//! accesses with them.

use crate::model;

const PROGRAMS: usize = 3;

/// The programs in each run of the model: their CPU, and the number of records that they emit. Programs on one
/// CPU can preempt each other.
const SCENES: [[(usize, u8); PROGRAMS]; 2] = [[(0, 2), (0, 1), (1, 2)], [(0, 1), (0, 2), (1, 1)]];
const CPUS: usize = 2;
/// The consumer falls asleep at most this often, which is more often than a mistake needs to show. A real consumer
/// counts to 2^32.
const SLEEPS: u8 = 2;
/// A smaller `FLUSH_ATTEMPTS`.
const ATTEMPTS: u8 = 2;
/// The number of records in a block while the consumer is awake.
const LIMIT: u8 = 3;

/// The next step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Take the first free slot. `slots.rs` in `probe-common/tests` models this in single steps.
    Take,
    /// Append to the block if the limit that the slot remembers allows it. Otherwise read the consumer's page
    /// first.
    Append,
    AskLimit,
    /// Read whether the consumer sleeps, then write the block to the ring.
    AskAsleep,
    Output(u8),
    /// Note that this sleep has ended.
    End(u8),
    GiveBack,
    Nothing,
}

/// The next step of the consumer, for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Consumer {
    /// `EvPipe::drain`: lower the flags after a sleep.
    Wake(usize),
    Drain(usize),
    /// `fall_asleep`, for each CPU: raise the flag, then set the limit.
    Raise(usize),
    Limit(usize),
    /// Run the flush program, in this attempt.
    Flush(usize, u8),
    Look(usize),
    /// Do not sleep this time: lower the flags.
    Refuse(usize),
    Asleep,
}

/// A step that is left out or done in another order, to check that the model finds the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The flags are raised after the last look.
    RaiseLast,
    NoFlush,
    /// The consumer ignores the flush program's answer.
    DeafFlush,
    NoLook,
    /// A program notes that a sleep has ended without saying which.
    EndAny,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Cpu {
    /// The consumer's page.
    asleep: u8,
    woken: u8,
    limit: u8,
    /// Slot 0: its block, and the limit that it remembers.
    fill: u8,
    known_limit: u8,
    held: [bool; 2],
    /// The number of records in the ring.
    ring: u8,
}

impl Cpu {
    fn sleep_to_end(&self) -> u8 {
        if self.asleep == self.woken { 0 } else { self.asleep }
    }

    fn end(&mut self, sleep: u8, mistake: Mistake) {
        match mistake {
            Mistake::EndAny => self.woken = self.asleep,
            _ => self.woken = sleep,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Program {
    cpu: usize,
    next: Next,
    slot: usize,
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    cpus: [Cpu; CPUS],
    programs: [Program; PROGRAMS],
    consumer: Consumer,
    /// The number of times that the consumer has begun to fall asleep.
    sleeps: u8,
    /// A wakeup that the consumer has not received yet.
    woken: bool,
}

impl State {
    /// The consumer is awake, and has just drained.
    fn first(scene: [(usize, u8); PROGRAMS]) -> Self {
        let cpu = Cpu { limit: LIMIT, known_limit: LIMIT, ..Cpu::default() };
        let program = |(cpu, left)| Program { cpu, next: Next::Take, slot: 0, left };
        Self {
            cpus: [cpu; CPUS],
            programs: scene.map(program),
            consumer: Consumer::Drain(0),
            sleeps: 0,
            woken: false,
        }
    }

    /// The state after the next step of the program `at`.
    fn program_steps(mut self, at: usize, mistake: Mistake) -> Self {
        let Program { cpu, next, slot, left } = &mut self.programs[at];
        let cpu = &mut self.cpus[*cpu];
        *next = match *next {
            Next::Take => {
                *slot = usize::from(cpu.held[0]);
                assert!(!cpu.held[*slot], "there are as many slots as programs");
                cpu.held[*slot] = true;
                // Only slot 0 packs.
                if *slot == 0 { Next::Append } else { Next::AskAsleep }
            }
            Next::Append if cpu.fill != 0 && cpu.fill + 2 <= cpu.known_limit => {
                cpu.fill += 1;
                Next::GiveBack
            }
            Next::Append => Next::AskLimit,
            Next::AskLimit => {
                cpu.known_limit = cpu.limit;
                if cpu.fill + 2 <= cpu.limit {
                    cpu.fill += 1;
                    Next::GiveBack
                } else {
                    Next::AskAsleep
                }
            }
            Next::AskAsleep => Next::Output(cpu.sleep_to_end()),
            Next::Output(sleep) => {
                cpu.ring += 1;
                if *slot == 0 {
                    cpu.ring += std::mem::take(&mut cpu.fill);
                }
                self.woken |= sleep != 0;
                if sleep != 0 { Next::End(sleep) } else { Next::GiveBack }
            }
            Next::End(sleep) => {
                cpu.end(sleep, mistake);
                Next::GiveBack
            }
            Next::GiveBack => {
                cpu.held[*slot] = false;
                *left -= 1;
                if *left == 0 { Next::Nothing } else { Next::Take }
            }
            Next::Nothing => unreachable!("the program has ended"),
        };
        self
    }

    /// Runs the flush program on its CPU. Returns whether all emitted records are in the ring now.
    fn flush(&mut self, cpu: usize, mistake: Mistake) -> bool {
        let cpu = &mut self.cpus[cpu];
        if cpu.held != [false; 2] {
            return false;
        }
        if cpu.fill != 0 {
            cpu.ring += std::mem::take(&mut cpu.fill);
            let sleep = cpu.sleep_to_end();
            self.woken |= sleep != 0;
            if sleep != 0 {
                cpu.end(sleep, mistake);
            }
        }
        true
    }

    /// The state after the consumer's next step, if it has one.
    fn consumer_steps(mut self, mistake: Mistake) -> Option<Self> {
        use Consumer::*;
        let after = |cpu: usize, again: fn(usize) -> Consumer, then: Consumer| match cpu + 1 {
            CPUS => then,
            next => again(next),
        };
        let look = if mistake == Mistake::NoLook { Asleep } else { Look(0) };
        let flush = if mistake == Mistake::NoFlush { look } else { Flush(0, 1) };
        let refuse = Refuse(0);
        let late = mistake == Mistake::RaiseLast;
        self.consumer = match self.consumer {
            Wake(cpu) => {
                (self.cpus[cpu].asleep, self.cpus[cpu].limit) = (0, LIMIT);
                after(cpu, Wake, Drain(0))
            }
            Drain(cpu) => {
                self.cpus[cpu].ring = 0;
                let then = if late { flush } else { Raise(0) };
                after(cpu, Drain, then)
            }
            Raise(cpu) => {
                self.sleeps += u8::from(cpu == 0);
                self.cpus[cpu].asleep = self.sleeps;
                Limit(cpu)
            }
            Limit(cpu) => {
                self.cpus[cpu].limit = 0;
                after(cpu, Raise, if late { Asleep } else { flush })
            }
            Flush(cpu, attempt) => {
                if self.flush(cpu, mistake) || mistake == Mistake::DeafFlush {
                    let then = if late { Look(0) } else { look };
                    after(cpu, |cpu| Flush(cpu, 1), then)
                } else if attempt < ATTEMPTS {
                    Flush(cpu, attempt + 1)
                } else {
                    refuse
                }
            }
            Look(cpu) if self.cpus[cpu].ring == 0 => {
                after(cpu, Look, if late { Raise(0) } else { Asleep })
            }
            Look(_) => refuse,
            Refuse(cpu) => {
                (self.cpus[cpu].asleep, self.cpus[cpu].limit) = (0, LIMIT);
                after(cpu, Refuse, Drain(0))
            }
            Asleep if self.woken => {
                self.woken = false;
                Wake(0)
            }
            Asleep => return None,
        };
        Some(self)
    }

    /// When no step is left, every record has arrived.
    fn check_end(&self) -> Result<(), String> {
        if self.cpus.iter().any(|cpu| cpu.ring != 0 || cpu.fill != 0) {
            return Err(format!("the consumer sleeps for ever: {self:?}"));
        }
        Ok(())
    }
}

/// Returns the number of states, or what is wrong with one.
fn explore(scene: [(usize, u8); PROGRAMS], mistake: Mistake) -> Result<usize, String> {
    model::explore(State::first(scene), |state| {
        if state.sleeps > SLEEPS {
            return Ok(Vec::new());
        }
        let running = (0..PROGRAMS).filter(|&at| state.programs[at].next != Next::Nothing);
        let after: Vec<_> = running
            .map(|at| state.program_steps(at, mistake))
            .chain(state.consumer_steps(mistake))
            .collect();
        if after.is_empty() {
            state.check_end()?;
        }
        Ok(after)
    })
}

#[test]
fn no_wakeup_is_lost_in_any_order() {
    for scene in SCENES {
        let states = explore(scene, Mistake::None).unwrap();
        println!("{states} states: {scene:?}");
        assert!(states > 100_000, "only {states} states: {scene:?}");
    }
}

/// Shows that the model finds mistakes.
#[test]
fn every_step_of_falling_asleep_is_needed() {
    for mistake in
        [Mistake::RaiseLast, Mistake::NoFlush, Mistake::DeafFlush, Mistake::NoLook, Mistake::EndAny]
    {
        let is_found = SCENES.into_iter().any(|scene| explore(scene, mistake).is_err());
        assert!(is_found, "the model misses {mistake:?}");
    }
}
