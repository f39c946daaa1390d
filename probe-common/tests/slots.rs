//! A model of how programs on one CPU take scratch slots and give them back: every way in which
//! three of them can preempt each other, tried out.
//!
//! The steps are those of `take_any`, `take` and `give_back` in `probe-ebpf/src/slot.rs`, which is
//! not built for the machine that tests run on: what changes there has to change here. A step is
//! one access to the counter of a slot, since a program can be preempted between any two. On one
//! CPU, all see the accesses in one order.

use std::collections::HashSet;

/// Programs that preempt each other, each of which emits so many records.
const PROGRAMS: usize = 3;
const RECORDS: u8 = 2;
/// One less than there are programs, so that some find none: `limits::DEPTH` makes no difference
/// else.
const SLOTS: usize = 2;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// See whether somebody holds the slot.
    Look,
    /// Claim it, atomically.
    Claim,
    /// Load the counter for a claim that is not atomic, and store one more than was loaded.
    LoadClaim,
    StoreClaim(u8),
    /// See whether the claim is the only one.
    Check,
    /// Take back a claim that is not.
    Withdraw,
    /// Have the slot, and give it back.
    GiveBack,
    /// All records are emitted.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Program {
    next: Next,
    slot: usize,
    /// Records that are yet to be emitted.
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    claims: [u8; SLOTS],
    programs: [Program; PROGRAMS],
}

impl State {
    fn first() -> Self {
        let program = Program { next: Next::Look, slot: 0, left: RECORDS };
        Self { claims: [0; SLOTS], programs: [program; PROGRAMS] }
    }

    /// The state after the next step of the program `at`.
    fn step(mut self, at: usize, claim: Next) -> Self {
        let Program { next, slot, left } = &mut self.programs[at];
        let claims = &mut self.claims[*slot];
        let mut is_taken = false;
        match *next {
            Next::Look if *claims == 0 => *next = claim,
            Next::Look => is_taken = true,
            Next::Claim => {
                *claims += 1;
                *next = Next::Check;
            }
            Next::LoadClaim => *next = Next::StoreClaim(*claims),
            Next::StoreClaim(loaded) => {
                *claims = loaded + 1;
                *next = Next::Check;
            }
            Next::Check if *claims == 1 => *next = Next::GiveBack,
            Next::Check => *next = Next::Withdraw,
            Next::Withdraw => {
                // Below 0 it goes on from the other end, as in the kernel.
                *claims = claims.wrapping_sub(1);
                is_taken = true;
            }
            Next::GiveBack => {
                *claims = claims.wrapping_sub(1);
                *left -= 1;
                *slot = 0;
                *next = Next::Look;
            }
            Next::Nothing => unreachable!("it has ended"),
        }
        if is_taken {
            *slot += 1;
            *next = Next::Look;
            if *slot == SLOTS {
                // The record is refused.
                *slot = 0;
                *left -= 1;
            }
        }
        if *left == 0 {
            *next = Next::Nothing;
        }
        self
    }

    fn check(&self) -> Result<(), String> {
        for slot in 0..SLOTS {
            let has = |program: &&Program| program.next == Next::GiveBack && program.slot == slot;
            if self.programs.iter().filter(has).count() > 1 {
                return Err(format!("two have slot {slot}: {self:?}"));
            }
        }
        let is_over = self.programs.iter().all(|program| program.next == Next::Nothing);
        if is_over && self.claims != [0; SLOTS] {
            return Err(format!("a slot is held for ever: {self:?}"));
        }
        Ok(())
    }
}

/// Goes to every state that there is a way to. How many there are, or what is wrong with one.
fn explore(claim: Next) -> Result<usize, String> {
    let mut seen = HashSet::from([State::first()]);
    let mut to_do = vec![State::first()];
    while let Some(state) = to_do.pop() {
        state.check()?;
        for at in 0..PROGRAMS {
            if state.programs[at].next != Next::Nothing {
                let after = state.step(at, claim);
                if seen.insert(after) {
                    to_do.push(after);
                }
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn a_slot_is_never_had_by_two_and_is_free_in_the_end() {
    let states = explore(Next::Claim).unwrap();
    assert!(states > 1000, "{states} states are not all");
}

/// What the model is good for.
#[test]
fn a_claim_that_is_not_atomic_is_found_out() {
    explore(Next::LoadClaim).unwrap_err();
}
