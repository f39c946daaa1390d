//! A model of how programs on one CPU take scratch slots and give them back. It tries every order in which
//! three programs can preempt each other.
//!
//! The steps are those of `take_any`, `Claim` and `Taken::give_back` in `probe-ebpf/src/slot.rs`. That file is
//! not built for the machine that runs the tests, so repeat every change there in this model. A step is one
//! access to a counter of a slot, since a program can be preempted between any two accesses. All programs on
//! one CPU see the accesses in the same order.

use std::collections::HashSet;

/// The number of programs that preempt each other. Each emits `RECORDS` records.
const PROGRAMS: usize = 3;
const RECORDS: u8 = 2;
/// One less than the number of programs, so that some find no slot. Apart from that, the value of
/// `limits::DEPTH` makes no difference.
const SLOTS: usize = 2;

/// The next step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Claim the slot, atomically.
    Claim,
    /// Store the loaded value plus one, for a claim that is not atomic.
    StoreClaim(u8),
    /// Check whether the claim is the only one: read `given_back` first, then `claims`.
    CheckGivenBack,
    CheckClaims(u8),
    /// Withdraw a claim that is not the only one, atomically.
    Withdraw,
    /// Store the loaded value minus one, for a withdrawal that is not atomic.
    StoreWithdraw(u8),
    /// Hold the slot, then give it back: store the number of earlier returns plus one. Only the program that
    /// holds the slot stores this counter.
    GiveBack(u8),
    /// All records were emitted.
    Nothing,
}

/// The first step of every record.
const FIRST: Next = Next::Claim;

/// The steps that the programs take, or a variant with a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    AsItIs,
    /// A claim is a load and a store.
    ClaimOfTwoSteps,
    /// A withdrawal is a load and a store.
    WithdrawalOfTwoSteps,
    /// A program that withdraws adds to the counter that the slot's holder stores.
    OneCounterOfEnds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Program {
    next: Next,
    slot: usize,
    /// The records that are still to be emitted.
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
        let after_check = |claims: u8, given_back: u8| {
            if claims == given_back + 1 { Next::GiveBack(given_back) } else { Next::Withdraw }
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
            Next::CheckClaims(given_back) => *next = after_check(*claims, given_back),
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
            Next::Nothing => unreachable!("the program has ended"),
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
                return Err(format!("slot {slot} has two holders: {self:?}"));
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

/// How the steps of the programs alternate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// After any step, any program may continue.
    Preempting,
    /// A program continues only while none of those after it is in the middle of a record: they interrupt it.
    Interrupting,
}

impl Order {
    /// Whether the program `at` may continue.
    fn lets(self, state: &State, at: usize) -> bool {
        let has_begun = |program: &Program| {
            program.slot != 0 || ![FIRST, Next::Nothing].contains(&program.next)
        };
        state.programs[at].next != Next::Nothing
            && (self == Self::Preempting || !state.programs[at + 1..].iter().any(has_begun))
    }
}

/// Explores every reachable state. Returns the number of states, or what is wrong with one.
fn explore(protocol: Protocol, order: Order) -> Result<usize, String> {
    let mut seen = HashSet::from([State::first()]);
    let mut to_do = vec![State::first()];
    while let Some(state) = to_do.pop() {
        state.check()?;
        let first = state.programs[0];
        if order == Order::Interrupting && (first.slot != 0 || first.next == Next::Withdraw) {
            return Err(format!("the interrupted program has another slot: {state:?}"));
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
fn each_slot_has_one_holder_at_a_time_and_is_free_in_the_end() {
    let states = explore(Protocol::AsItIs, Order::Preempting).unwrap();
    assert!(states > 1000, "only {states} states");
}

/// Otherwise its records would overtake those that wait in the first slot.
#[test]
fn a_program_that_is_only_interrupted_has_the_first_slot() {
    let states = explore(Protocol::AsItIs, Order::Interrupting).unwrap();
    assert!(states > 100, "only {states} states");
}

#[test]
fn the_model_finds_mistakes() {
    for protocol in
        [Protocol::ClaimOfTwoSteps, Protocol::WithdrawalOfTwoSteps, Protocol::OneCounterOfEnds]
    {
        explore(protocol, Order::Preempting).unwrap_err();
    }
}
