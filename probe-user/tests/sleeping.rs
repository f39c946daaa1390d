//! A model of falling asleep and being woken: every way in which the consumer's steps, the programs'
//! steps and the flush program can come one after another, tried out.
//!
//! The consumer's steps are those of `Adaptive::fall_asleep`, `flush` and `wake` in
//! `probe-user/src/adaptive.rs`, and of `EvPipe::drain`; a program's are those of `append` in
//! `probe-ebpf/src/pipe.rs` and `send` in `probe-ebpf/src/output.rs`, or, where it emits alone, of `send_slotless`;
//! `pipe::flush` is one step, since it interrupts its CPU. What changes there has to change here. A step is one access
//! to what another can see.
//!
//! It is a search by hand and not one by `loom`, because the flush program runs in the middle of a
//! program, on its CPU, which threads cannot do to each other. One order of all accesses is enough: a
//! CPU sees its own accesses in order, and the interrupt that the flush program takes orders those of
//! the consumer with them.

mod model;

/// What a program does: two on one CPU can preempt each other.
#[derive(Clone, Copy, Debug)]
struct Emits {
    cpu: usize,
    records: u8,
    alone: bool,
}

const PROGRAMS: usize = 3;

const fn packs(cpu: usize, records: u8) -> Emits {
    Emits { cpu, records, alone: false }
}

const fn alone(cpu: usize, records: u8) -> Emits {
    Emits { cpu, records, alone: true }
}

/// Who is there.
const SCENES: [[Emits; PROGRAMS]; 4] = [
    [packs(0, 2), packs(0, 1), packs(1, 2)],
    [alone(0, 2), packs(0, 1), packs(1, 2)],
    [alone(0, 1), alone(0, 2), packs(0, 1)],
    [alone(0, 1), alone(0, 1), alone(1, 2)],
];
const CPUS: usize = 2;
/// The consumer falls asleep no more often than this, which is more often than it takes to go wrong. A real one counts
/// to 2^32.
const SLEEPS: u8 = 2;
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
        sleep: u8,
    },
    /// Note that this sleep is ended.
    End {
        sleep: u8,
    },
    GiveBack,
    /// One that emits alone: puts the block into the ring, then reads whether the consumer sleeps.
    OutputAlone,
    AskAfter,
    /// It does, for this time: puts a block with nothing into the ring, which wakes, and notes that it did.
    Wake {
        sleep: u8,
    },
    EndAlone {
        sleep: u8,
    },
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
    /// Who emits alone looks whether the consumer sleeps before it is done, not after.
    AskEarly,
    /// That a sleep is ended is noted without which.
    EndAny,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Cpu {
    /// The consumer's page.
    asleep: u8,
    woken: u8,
    limit: u8,
    /// Slot 0: its block, and the limit it remembers.
    fill: u8,
    known_limit: u8,
    held: [bool; 2],
    /// Records in the ring.
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
    next: Next,
    slot: usize,
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    cpus: [Cpu; CPUS],
    programs: [Program; PROGRAMS],
    consumer: Consumer,
    /// How often the consumer has begun to fall asleep.
    sleeps: u8,
    /// A wakeup that the consumer has not had yet.
    woken: bool,
}

impl State {
    /// The consumer is awake, and has just drained.
    fn first(scene: &[Emits; PROGRAMS], mistake: Mistake) -> Self {
        let cpu = Cpu { limit: LIMIT, known_limit: LIMIT, ..Cpu::default() };
        let program = |emits: Emits| {
            let next = Self::begin(emits, mistake);
            Program { next, slot: 0, left: emits.records }
        };
        Self {
            cpus: [cpu; CPUS],
            programs: scene.map(program),
            consumer: Consumer::Drain { cpu: 0 },
            sleeps: 0,
            woken: false,
        }
    }

    /// What emitting a record begins with.
    fn begin(emits: Emits, mistake: Mistake) -> Next {
        match (emits.alone, mistake) {
            (false, _) => Next::Take,
            (true, Mistake::AskEarly) => Next::AskAfter,
            (true, _) => Next::OutputAlone,
        }
    }

    /// The state after the next step of the program `at`.
    fn program_steps(mut self, at: usize, emits: Emits, mistake: Mistake) -> Self {
        let Program { next, slot, left } = &mut self.programs[at];
        let cpu = &mut self.cpus[emits.cpu];
        let early = mistake == Mistake::AskEarly;
        let mut end = || {
            *left -= 1;
            if *left == 0 { Next::Nothing } else { Self::begin(emits, mistake) }
        };
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
            Next::AskAsleep => Next::Output { sleep: cpu.sleep_to_end() },
            Next::Output { sleep } => {
                cpu.ring += 1;
                if *slot == 0 {
                    cpu.ring += std::mem::take(&mut cpu.fill);
                }
                self.woken |= sleep != 0;
                if sleep != 0 { Next::End { sleep } } else { Next::GiveBack }
            }
            Next::End { sleep } => {
                cpu.end(sleep, mistake);
                Next::GiveBack
            }
            Next::GiveBack => {
                cpu.held[*slot] = false;
                end()
            }
            Next::OutputAlone => {
                cpu.ring += 1;
                if early { end() } else { Next::AskAfter }
            }
            Next::AskAfter => match cpu.sleep_to_end() {
                0 if early => Next::OutputAlone,
                0 => end(),
                sleep => Next::Wake { sleep },
            },
            Next::Wake { sleep } => {
                cpu.ring += 1;
                self.woken = true;
                Next::EndAlone { sleep }
            }
            Next::EndAlone { sleep } => {
                cpu.end(sleep, mistake);
                if early { Next::OutputAlone } else { end() }
            }
            Next::Nothing => unreachable!("it has ended"),
        };
        self
    }

    /// The flush program, on its CPU. Whether all that was emitted is in the ring now.
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
        let raise = Raise { cpu: 0 };
        let look = if mistake == Mistake::NoLook { Asleep } else { Look { cpu: 0 } };
        let flush = if mistake == Mistake::NoFlush { look } else { Flush { cpu: 0, attempt: 1 } };
        let refuse = Refuse { cpu: 0 };
        let late = mistake == Mistake::RaiseLast;
        self.consumer = match self.consumer {
            Wake { cpu } => {
                (self.cpus[cpu].asleep, self.cpus[cpu].limit) = (0, LIMIT);
                after(cpu, |cpu| Wake { cpu }, Drain { cpu: 0 })
            }
            Drain { cpu } => {
                self.cpus[cpu].ring = 0;
                let then = if late { flush } else { raise };
                after(cpu, |cpu| Drain { cpu }, then)
            }
            Raise { cpu } => {
                self.sleeps += u8::from(cpu == 0);
                self.cpus[cpu].asleep = self.sleeps;
                Limit { cpu }
            }
            Limit { cpu } => {
                self.cpus[cpu].limit = 0;
                after(cpu, |cpu| Raise { cpu }, if late { Asleep } else { flush })
            }
            Flush { cpu, attempt } => {
                if self.flush(cpu, mistake) || mistake == Mistake::DeafFlush {
                    let then = if late { Look { cpu: 0 } } else { look };
                    after(cpu, |cpu| Flush { cpu, attempt: 1 }, then)
                } else if attempt < ATTEMPTS {
                    Flush { cpu, attempt: attempt + 1 }
                } else {
                    refuse
                }
            }
            Look { cpu } if self.cpus[cpu].ring == 0 => {
                after(cpu, |cpu| Look { cpu }, if late { raise } else { Asleep })
            }
            Look { .. } => refuse,
            Refuse { cpu } => {
                (self.cpus[cpu].asleep, self.cpus[cpu].limit) = (0, LIMIT);
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
fn explore(scene: &[Emits; PROGRAMS], mistake: Mistake) -> Result<usize, String> {
    model::explore(State::first(scene, mistake), |state| {
        if state.sleeps > SLEEPS {
            return Ok(Vec::new());
        }
        let running = (0..PROGRAMS).filter(|&at| state.programs[at].next != Next::Nothing);
        let after: Vec<_> = running
            .map(|at| state.program_steps(at, scene[at], mistake))
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
        let states = explore(&scene, Mistake::None).unwrap();
        println!("{states} states: {scene:?}");
        assert!(states > 100_000, "{states} states are not all: {scene:?}");
    }
}

/// What the model is good for.
#[test]
fn every_step_of_falling_asleep_is_needed() {
    for mistake in [
        Mistake::RaiseLast,
        Mistake::NoFlush,
        Mistake::DeafFlush,
        Mistake::NoLook,
        Mistake::AskEarly,
        Mistake::EndAny,
    ] {
        let is_found = SCENES.iter().any(|scene| explore(scene, mistake).is_err());
        assert!(is_found, "{mistake:?} is not found out");
    }
}
