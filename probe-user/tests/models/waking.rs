//! A model of a CPU that becomes eager and lazy, and of the wakeups of its records. It tries every order of the steps of
//! the consumer, the programs and the flush program.
//!
//! The consumer's steps are those of `Adaptive::make_eager`, `make_lazy`, `drained` and `flush` in
//! `probe-user/src/pipe/adaptive.rs`, and of `EvPipe::drain`. A program's steps are those of `append` in
//! `probe-ebpf/src/pipe.rs` and of `offer` in `probe-ebpf/src/output.rs`. `pipe::flush` is one step, since it
//! interrupts its CPU. Repeat every change there in this model. A step is one access to memory that others can
//! see.
//!
//! One CPU is enough, because no step involves two.
//!
//! The search is written by hand instead of with `loom`, because the flush program runs in the middle of
//! another program on its CPU, which threads cannot do to each other. One order of all accesses is enough: a
//! CPU sees its own accesses in order, the interrupt that runs the flush program orders the consumer's accesses with
//! them, and so does a wakeup.

use crate::model;

const PROGRAMS: usize = 2;

/// The number of records that each program emits, in each run of the model. The programs preempt each other.
const SCENES: [[u8; PROGRAMS]; 3] = [[3, 1], [2, 2], [1, 4]];
/// The CPU becomes eager at most this often, which is more often than a mistake needs to show. A real consumer counts
/// to 2^32.
const PERIODS: u8 = 3;
/// A smaller `FLUSH_ATTEMPTS`.
const ATTEMPTS: u8 = 2;
/// A smaller `MOST_UNANSWERED`.
const MOST_UNANSWERED: u8 = 2;
/// The number of records in a block while the CPU is lazy.
const LIMIT: u8 = 3;

/// The next step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Take the first free slot. `slots.rs` in `probe-common/tests` models this in single steps.
    Take,
    /// Append to the block if the limit on the consumer's page allows it.
    Append,
    /// Read in which period the CPU is eager, and whether it has ended this period.
    AskEager,
    AskEnded(u8),
    /// Count the wakeup in this period.
    Count(u8),
    /// Read how many wakeups are answered, of this many.
    AskAnswered(u8, u8),
    Announce(u8),
    /// Write the block to the ring. `last` is whether the end of the period is announced.
    Output {
        period: u8,
        last: bool,
    },
    /// End this period.
    End(u8),
    GiveBack,
    Nothing,
}

/// The next step of the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Consumer {
    /// The CPU is lazy, and may become eager now: raise the flag.
    Lazy,
    Limit,
    /// Run the flush program, in this attempt.
    Flush(u8),
    /// Whether the period is over already. Programs of an earlier period, which may have overwritten its announcement,
    /// have ended by now.
    AskOver,
    /// Look at the ring once more.
    Look,
    /// The CPU is eager. Wait for a wakeup.
    Wait,
    /// After a wakeup.
    Drain,
    /// Note how many wakeups are answered.
    Answer,
    /// Whether the CPU has announced the end of the period.
    AskEnding,
    /// Make the CPU lazy: lower the flag, then set the limit.
    Lower,
    Pack,
}

/// A step that is left out or done in another order, to check that the model finds the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The flag is raised after the last look.
    RaiseLast,
    NoFlush,
    /// The consumer ignores the flush program's answer.
    DeafFlush,
    NoLook,
    /// The consumer takes it for granted that the period has not ended yet.
    NeverOver,
    /// A program ends the period without an announcement.
    NoAnnouncement,
    /// A program announces the end of the period after its last wakeup.
    AnnounceLate,
    /// The consumer ignores announcements.
    DeafToEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Program {
    next: Next,
    slot: usize,
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The CPU's entry in the control page.
    limit: u8,
    eager: u8,
    ending: u8,
    ended: u8,
    wakeups: u8,
    answered: u8,
    /// The records in the block of slot 0.
    fill: u8,
    held: [bool; PROGRAMS],
    /// The number of records in the ring.
    ring: u8,
    programs: [Program; PROGRAMS],
    consumer: Consumer,
    /// The number of the last eager period.
    period: u8,
    /// A wakeup that the consumer has not received yet.
    woken: bool,
}

impl State {
    /// The CPU is lazy.
    fn first(scene: [u8; PROGRAMS]) -> Self {
        Self {
            limit: LIMIT,
            eager: 0,
            ending: 0,
            ended: 0,
            wakeups: 0,
            answered: 0,
            fill: 0,
            held: [false; PROGRAMS],
            ring: 0,
            programs: scene.map(|left| Program { next: Next::Take, slot: 0, left }),
            consumer: Consumer::Lazy,
            period: 0,
            woken: false,
        }
    }

    /// The state after the next step of the program `at`.
    fn program_steps(mut self, at: usize, mistake: Mistake) -> Self {
        let Program { next, slot, .. } = self.programs[at];
        let next = match next {
            Next::Take => {
                let slot = usize::from(self.held[0]);
                assert!(!self.held[slot], "there are as many slots as programs");
                self.held[slot] = true;
                self.programs[at].slot = slot;
                // Only slot 0 packs.
                if slot == 0 { Next::Append } else { Next::AskEager }
            }
            Next::Append if self.fill + 2 <= self.limit => {
                self.fill += 1;
                Next::GiveBack
            }
            // The record ends the block.
            Next::Append => Next::AskEager,
            Next::AskEager if self.eager == 0 => Next::Output { period: 0, last: false },
            Next::AskEager => Next::AskEnded(self.eager),
            Next::AskEnded(period) if self.ended == period => {
                Next::Output { period: 0, last: false }
            }
            Next::AskEnded(period) => Next::Count(period),
            Next::Count(period) => {
                // Programs that preempt each other here would only count one wakeup less.
                self.wakeups += 1;
                Next::AskAnswered(period, self.wakeups)
            }
            Next::AskAnswered(period, wakeups) => {
                let last = wakeups - self.answered.min(wakeups) >= MOST_UNANSWERED;
                match mistake {
                    Mistake::NoAnnouncement | Mistake::AnnounceLate => {
                        Next::Output { period, last }
                    }
                    _ if last => Next::Announce(period),
                    _ => Next::Output { period, last },
                }
            }
            Next::Announce(period) => {
                self.ending = period;
                Next::Output { period, last: true }
            }
            Next::Output { period, last } => {
                self.ring += 1;
                if slot == 0 {
                    self.ring += std::mem::take(&mut self.fill);
                }
                self.woken |= period != 0;
                if last { Next::End(period) } else { Next::GiveBack }
            }
            Next::End(period) => {
                if mistake == Mistake::AnnounceLate {
                    self.ending = period;
                }
                self.ended = period;
                Next::GiveBack
            }
            Next::GiveBack => {
                self.held[slot] = false;
                self.programs[at].left -= 1;
                if self.programs[at].left == 0 { Next::Nothing } else { Next::Take }
            }
            Next::Nothing => unreachable!("the program has ended"),
        };
        self.programs[at].next = next;
        self
    }

    /// Runs the flush program on the CPU. Returns whether all emitted records are in the ring now.
    fn flush(&mut self, mistake: Mistake) -> bool {
        if self.held != [false; PROGRAMS] {
            return false;
        }
        if self.fill != 0 {
            self.ring += std::mem::take(&mut self.fill);
            let period = self.eager;
            if period != 0 && period != self.ended {
                self.wakeups += 1;
                self.woken = true;
                if self.wakeups - self.answered.min(self.wakeups) >= MOST_UNANSWERED {
                    if mistake != Mistake::NoAnnouncement {
                        self.ending = period;
                    }
                    self.ended = period;
                }
            }
        }
        true
    }

    /// The states after the consumer's next step. There are two where the consumer has a choice.
    fn consumer_steps(mut self, mistake: Mistake) -> Vec<Self> {
        use Consumer::*;
        let look = if mistake == Mistake::NoLook { Wait } else { Look };
        let late = mistake == Mistake::RaiseLast;
        let mut choice = None;
        self.consumer = match self.consumer {
            Lazy if self.period == PERIODS => return Vec::new(),
            Lazy => {
                self.period += 1;
                if !late {
                    self.eager = self.period;
                }
                Limit
            }
            Limit => {
                self.limit = 0;
                if mistake == Mistake::NoFlush { look } else { Flush(1) }
            }
            Flush(attempt) => {
                if self.flush(mistake) || mistake == Mistake::DeafFlush {
                    if mistake == Mistake::NeverOver { look } else { AskOver }
                } else if attempt < ATTEMPTS {
                    Flush(attempt + 1)
                } else {
                    Lower
                }
            }
            AskOver if [self.ending, self.ended].contains(&self.period) => Lower,
            AskOver => look,
            Look => {
                self.ring = 0;
                if late {
                    self.eager = self.period;
                }
                Wait
            }
            Wait if self.woken => {
                self.woken = false;
                Drain
            }
            Wait => return Vec::new(),
            Drain => {
                self.ring = 0;
                Answer
            }
            Answer => {
                self.answered = self.wakeups;
                AskEnding
            }
            AskEnding if self.ending == self.period && mistake != Mistake::DeafToEnd => Lower,
            AskEnding => {
                // Wakeups may be too frequent.
                choice = Some(Lower);
                Wait
            }
            Lower => {
                self.eager = 0;
                Pack
            }
            Pack => {
                self.limit = LIMIT;
                Lazy
            }
        };
        let mut after = vec![self];
        if let Some(consumer) = choice {
            after.push(Self { consumer, ..self });
        }
        after
    }

    /// When no step is left, every record has arrived, unless the consumer sweeps the CPU.
    fn check_end(&self) -> Result<(), String> {
        if self.consumer == Consumer::Wait && (self.ring != 0 || self.fill != 0) {
            return Err(format!("the consumer waits for ever: {self:?}"));
        }
        Ok(())
    }
}

/// Returns the number of states, or what is wrong with one.
fn explore(scene: [u8; PROGRAMS], mistake: Mistake) -> Result<usize, String> {
    model::explore(State::first(scene), |state| {
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
        assert!(states > 10_000, "only {states} states: {scene:?}");
    }
}

/// Shows that the model finds mistakes.
#[test]
fn every_step_of_the_protocol_is_needed() {
    for mistake in [
        Mistake::RaiseLast,
        Mistake::NoFlush,
        Mistake::DeafFlush,
        Mistake::NoLook,
        Mistake::NeverOver,
        Mistake::NoAnnouncement,
        Mistake::AnnounceLate,
        Mistake::DeafToEnd,
    ] {
        let is_found = SCENES.into_iter().any(|scene| explore(scene, mistake).is_err());
        assert!(is_found, "the model misses {mistake:?}");
    }
}
