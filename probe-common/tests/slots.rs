//! A model of how programs on one CPU take scratch slots and give them back: every way in which
//! three of them can preempt each other, tried out.
//!
//! The steps are those of `take_any`, `Claim` and `Taken::give_back` in `probe-ebpf/src/slot.rs`, which is
//! not built for the machine that tests run on: what changes there has to change here. A step is
//! one access to a counter of a slot, since a program can be preempted between any two. On one
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
    /// Claim the slot, atomically.
    Claim,
    /// Store one more than was loaded, for a claim that is not atomic.
    StoreClaim(u8),
    /// See whether the claim is the only one: what has ended first.
    CheckGivenBack,
    CheckClaims(u8),
    /// Take back a claim that is not the only one, atomically.
    Withdraw,
    /// Store one less than was loaded, for a withdrawal that is not atomic.
    StoreWithdraw(u8),
    /// Have the slot, and give it back, as often as it was given back before and once more: only who has it
    /// stores this counter.
    GiveBack(u8),
    /// All records are emitted.
    Nothing,
}

/// What a record begins with.
const FIRST: Next = Next::Claim;

/// What is done as it is in the programs, or worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    AsItIs,
    /// A claim is loaded and stored.
    ClaimOfTwoSteps,
    /// A withdrawal is loaded and stored.
    WithdrawalOfTwoSteps,
    /// Who withdraws adds to the counter that who has the slot stores.
    OneCounterOfEnds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Program {
    next: Next,
    slot: usize,
    /// Records that are yet to be emitted.
    left: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Counters {
    claims: u8,
    given_back: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    slots: [Counters; SLOTS],
    programs: [Program; PROGRAMS],
}

impl State {
    fn first() -> Self {
        let program = Program { next: FIRST, slot: 0, left: RECORDS };
        Self { slots: [Counters::default(); SLOTS], programs: [program; PROGRAMS] }
    }

    /// The state after the next step of the program `at`.
    fn step(mut self, at: usize, protocol: Protocol) -> Self {
        let Program { next, slot, left } = &mut self.programs[at];
        let Counters { claims, given_back } = &mut self.slots[*slot];
        let is_only = |claims: u8, given_back: u8| match claims == given_back + 1 {
            true => Next::GiveBack(given_back),
            false => Next::Withdraw,
        };
        let mut is_taken = false;
        match *next {
            Next::Claim if protocol == Protocol::ClaimOfTwoSteps => {
                *next = Next::StoreClaim(*claims)
            }
            Next::Claim => {
                *claims += 1;
                *next = Next::CheckGivenBack;
            }
            Next::StoreClaim(loaded) => {
                *claims = loaded + 1;
                *next = Next::CheckGivenBack;
            }
            Next::CheckGivenBack => *next = Next::CheckClaims(*given_back),
            Next::CheckClaims(given_back) => *next = is_only(*claims, given_back),
            Next::Withdraw => match protocol {
                Protocol::WithdrawalOfTwoSteps => *next = Next::StoreWithdraw(*claims),
                Protocol::OneCounterOfEnds => {
                    *given_back += 1;
                    is_taken = true;
                }
                _ => {
                    *claims -= 1;
                    is_taken = true;
                }
            },
            Next::StoreWithdraw(loaded) => {
                *claims = loaded - 1;
                is_taken = true;
            }
            Next::GiveBack(before) => {
                *given_back = before + 1;
                *left -= 1;
                *slot = 0;
                *next = FIRST;
            }
            Next::Nothing => unreachable!("it has ended"),
        }
        if is_taken {
            *slot += 1;
            *next = FIRST;
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
            let has = |program: &&Program| {
                matches!(program.next, Next::GiveBack(_)) && program.slot == slot
            };
            if self.programs.iter().filter(has).count() > 1 {
                return Err(format!("two have slot {slot}: {self:?}"));
            }
        }
        let is_over = self.programs.iter().all(|program| program.next == Next::Nothing);
        let is_held = |slot: &Counters| slot.claims != slot.given_back;
        if is_over && self.slots.iter().any(is_held) {
            return Err(format!("a slot is held for ever: {self:?}"));
        }
        Ok(())
    }
}

/// How programs come between each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// After any step, any goes on.
    Preempting,
    /// Who has begun a record goes on once those after it have none begun: they interrupt.
    Interrupting,
}

impl Order {
    /// Whether the program `at` may go on.
    fn lets(self, state: &State, at: usize) -> bool {
        let has_begun = |program: &Program| {
            program.slot != 0 || ![FIRST, Next::Nothing].contains(&program.next)
        };
        state.programs[at].next != Next::Nothing
            && (self == Self::Preempting || !state.programs[at + 1..].iter().any(has_begun))
    }
}

/// Goes to every state that there is a way to. How many there are, or what is wrong with one.
fn explore(protocol: Protocol, order: Order) -> Result<usize, String> {
    let mut seen = HashSet::from([State::first()]);
    let mut to_do = vec![State::first()];
    while let Some(state) = to_do.pop() {
        state.check()?;
        let first = state.programs[0];
        if order == Order::Interrupting && (first.slot != 0 || first.next == Next::Withdraw) {
            return Err(format!("who is only interrupted has not the first slot: {state:?}"));
        }
        for at in (0..PROGRAMS).filter(|&at| order.lets(&state, at)) {
            let after = state.step(at, protocol);
            if seen.insert(after) {
                to_do.push(after);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn a_slot_is_never_had_by_two_and_is_free_in_the_end() {
    let states = explore(Protocol::AsItIs, Order::Preempting).unwrap();
    assert!(states > 1000, "{states} states are not all");
}

/// Otherwise its records would overtake those that wait in the first slot.
#[test]
fn who_is_only_interrupted_has_the_first_slot() {
    let states = explore(Protocol::AsItIs, Order::Interrupting).unwrap();
    assert!(states > 100, "{states} states are not all");
}

/// What the model is good for.
#[test]
fn a_claim_that_is_not_atomic_is_found_out() {
    explore(Protocol::ClaimOfTwoSteps, Order::Preempting).unwrap_err();
}

#[test]
fn a_withdrawal_that_is_not_atomic_is_found_out() {
    explore(Protocol::WithdrawalOfTwoSteps, Order::Preempting).unwrap_err();
}

#[test]
fn who_withdraws_has_no_part_in_what_is_given_back() {
    explore(Protocol::OneCounterOfEnds, Order::Preempting).unwrap_err();
}
