//! A model of falling asleep and being woken: every way in which the consumer's steps, the programs'
//! steps and the flush program can come one after another, tried out.
//!
//! The consumer's steps are those of `Adaptive::fall_asleep`, `flush`, `flags_are_up` and `wake` in
//! `probe-user/src/adaptive.rs`, and of `EvPipe::drain`; a program's are those of `append` in
//! `probe-ebpf/src/pipe.rs` and `send` in `probe-ebpf/src/output.rs`; `pipe::flush` is one step, since
//! it interrupts its CPU. What changes there has to change here. A step is one access to what another
//! can see.
//!
//! It is a search by hand and not one by `loom`, because the flush program runs in the middle of a
//! program, on its CPU, which threads cannot do to each other. One order of all accesses is enough: a
//! CPU sees its own accesses in order, and the interrupt that the flush program takes orders those of
//! the consumer with them.

mod model;

/// Which CPU each program runs on: two can preempt each other.
const PROGRAMS: [usize; 3] = [0, 0, 1];
/// How many records each program emits.
const RECORDS: [u8; 3] = [2, 1, 2];
const CPUS: usize = 2;
/// `FLUSH_ATTEMPTS`, fewer of them.
const ATTEMPTS: u8 = 2;
/// Records in a block, while the consumer is awake.
const LIMIT: u8 = 3;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Take the first slot that is free: `slots.rs` in `probe-common/tests` has that in steps.
    Take,
    /// Append to the block, if the limit that the slot remembers allows it; `None` if the consumer's
    /// page has to be asked.
    Append,
    AskLimit,
    /// Read whether the consumer sleeps, then put the block into the ring.
    AskAsleep,
    Output {
        asleep: bool,
    },
    /// Take the flag down.
    Lower,
    GiveBack,
    Nothing,
}

/// What the consumer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Consumer {
    /// `EvPipe::drain`: take the flags down, if it slept.
    Wake {
        cpu: usize,
    },
    Drain {
        cpu: usize,
    },
    /// `fall_asleep`, for each CPU: raise the flag, then set the limit.
    Raise {
        cpu: usize,
    },
    Limit {
        cpu: usize,
    },
    Flush {
        cpu: usize,
        attempt: u8,
    },
    CheckFlags {
        cpu: usize,
    },
    Look {
        cpu: usize,
    },
    /// Not this time: take the flags down.
    Refuse {
        cpu: usize,
    },
    Asleep,
}

/// What is left out, or done in another order, to see the model find it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The flags are raised after the last look.
    RaiseLast,
    NoFlush,
    /// What the flush program says is not heard.
    DeafFlush,
    NoLook,
    /// Whether the flags are still up is not asked.
    BlindFlags,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Cpu {
    /// The consumer's page.
    asleep: bool,
    limit: u8,
    /// Slot 0: its block, and the limit it remembers.
    fill: u8,
    known_limit: u8,
    held: [bool; 2],
    /// Records in the ring.
    ring: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Program {
    next: Next,
    slot: usize,
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    cpus: [Cpu; CPUS],
    programs: [Program; PROGRAMS.len()],
    consumer: Consumer,
    /// A wakeup that the consumer has not had yet.
    woken: bool,
}

impl State {
    /// The consumer is awake, and has just drained.
    fn first() -> Self {
        let cpu = Cpu { limit: LIMIT, known_limit: LIMIT, ..Cpu::default() };
        let program = |at: usize| Program { next: Next::Take, slot: 0, left: RECORDS[at] };
        Self {
            cpus: [cpu; CPUS],
            programs: std::array::from_fn(program),
            consumer: Consumer::Drain { cpu: 0 },
            woken: false,
        }
    }

    /// The state after the next step of the program `at`.
    fn program_steps(mut self, at: usize) -> Self {
        let Program { next, slot, left } = &mut self.programs[at];
        let cpu = &mut self.cpus[PROGRAMS[at]];
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
            Next::AskAsleep => Next::Output { asleep: cpu.asleep },
            Next::Output { asleep } => {
                cpu.ring += 1;
                if *slot == 0 {
                    cpu.ring += std::mem::take(&mut cpu.fill);
                }
                self.woken |= asleep;
                if asleep { Next::Lower } else { Next::GiveBack }
            }
            Next::Lower => {
                cpu.asleep = false;
                Next::GiveBack
            }
            Next::GiveBack => {
                cpu.held[*slot] = false;
                *left -= 1;
                if *left == 0 { Next::Nothing } else { Next::Take }
            }
            Next::Nothing => unreachable!("it has ended"),
        };
        self
    }

    /// The flush program, on its CPU. Whether all that was emitted is in the ring now.
    fn flush(&mut self, cpu: usize) -> bool {
        let cpu = &mut self.cpus[cpu];
        if cpu.held != [false; 2] {
            return false;
        }
        if cpu.fill != 0 {
            cpu.ring += std::mem::take(&mut cpu.fill);
            self.woken |= cpu.asleep;
            cpu.asleep = false;
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
        let raise = Raise { cpu: 0 };
        let look = if mistake == Mistake::NoLook { Asleep } else { Look { cpu: 0 } };
        let check = if mistake == Mistake::BlindFlags { look } else { CheckFlags { cpu: 0 } };
        let flush = if mistake == Mistake::NoFlush { check } else { Flush { cpu: 0, attempt: 1 } };
        let refuse = Refuse { cpu: 0 };
        let late = mistake == Mistake::RaiseLast;
        self.consumer = match self.consumer {
            Wake { cpu } => {
                (self.cpus[cpu].asleep, self.cpus[cpu].limit) = (false, LIMIT);
                after(cpu, |cpu| Wake { cpu }, Drain { cpu: 0 })
            }
            Drain { cpu } => {
                self.cpus[cpu].ring = 0;
                let then = if late { flush } else { raise };
                after(cpu, |cpu| Drain { cpu }, then)
            }
            Raise { cpu } => {
                self.cpus[cpu].asleep = true;
                Limit { cpu }
            }
            Limit { cpu } => {
                self.cpus[cpu].limit = 0;
                after(cpu, |cpu| Raise { cpu }, if late { Asleep } else { flush })
            }
            Flush { cpu, attempt } => {
                if self.flush(cpu) || mistake == Mistake::DeafFlush {
                    let then = if late { Look { cpu: 0 } } else { check };
                    after(cpu, |cpu| Flush { cpu, attempt: 1 }, then)
                } else if attempt < ATTEMPTS {
                    Flush { cpu, attempt: attempt + 1 }
                } else {
                    refuse
                }
            }
            CheckFlags { cpu } if self.cpus[cpu].asleep => {
                after(cpu, |cpu| CheckFlags { cpu }, look)
            }
            Look { cpu } if self.cpus[cpu].ring == 0 => {
                after(cpu, |cpu| Look { cpu }, if late { raise } else { Asleep })
            }
            CheckFlags { .. } | Look { .. } => refuse,
            Refuse { cpu } => {
                (self.cpus[cpu].asleep, self.cpus[cpu].limit) = (false, LIMIT);
                after(cpu, |cpu| Refuse { cpu }, Drain { cpu: 0 })
            }
            Asleep if self.woken => {
                self.woken = false;
                Wake { cpu: 0 }
            }
            Asleep => return None,
        };
        Some(self)
    }

    /// Where nobody does anything any more, everything has arrived.
    fn check_end(&self) -> Result<(), String> {
        match self.cpus.iter().all(|cpu| cpu.ring == 0 && cpu.fill == 0) {
            true => Ok(()),
            false => Err(format!("the consumer sleeps for ever: {self:?}")),
        }
    }
}

/// How many states there are, or what is wrong with one.
fn explore(mistake: Mistake) -> Result<usize, String> {
    model::explore(State::first(), |state| {
        let running = (0..PROGRAMS.len()).filter(|&at| state.programs[at].next != Next::Nothing);
        let after: Vec<_> = running
            .map(|at| state.program_steps(at))
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
    let states = explore(Mistake::None).unwrap();
    assert!(states > 100_000, "{states} states are not all");
}

/// What the model is good for.
#[test]
fn every_step_of_falling_asleep_is_needed() {
    for mistake in [
        Mistake::RaiseLast,
        Mistake::NoFlush,
        Mistake::DeafFlush,
        Mistake::NoLook,
        Mistake::BlindFlags,
    ] {
        assert!(explore(mistake).is_err(), "{mistake:?} is not found out");
    }
}
