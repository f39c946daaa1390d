//! A model of a CPU that goes offline and comes back. It tries every order of the steps by which the consumer
//! reacts and the steps of a program.
//!
//! The consumer's steps are those of `Coverage::follow`, `Queues::cover` and `EvQueue::drain` in
//! `probe-user/src/`. A program's steps are those of `bpf_perf_event_output`: it finds the event in the map, and
//! writes to the event's ring if the event is alive. Repeat every change there in this model. A program runs with
//! preemption off between these two steps, so its CPU does not go offline meanwhile. Other CPUs, where the consumer
//! runs, are free to do anything.

use crate::model;

/// The number of records that the program emits.
const RECORDS: u8 = 3;
/// One ring at first, and one for each notice that the CPU is online.
const RINGS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    /// The number of times that the CPU goes offline and comes back.
    trips: u8,
    /// One more notice arrives for a CPU that the consumer covers, so it replaces an event that is alive.
    notifies_again: bool,
    /// Between the change of the map and the last drain of the old ring, the consumer waits until every program
    /// that may have found the old event has ended.
    waits: bool,
    /// The old ring is drained before it is dropped.
    drains: bool,
    /// The new event is in the map before the old ring is drained and dropped.
    map_first: bool,
}

const AS_SHIPPED: Rules =
    Rules { trips: 1, notifies_again: false, waits: true, drains: true, map_first: true };

/// The next step of the consumer. Some steps have the index of the new ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Consumer {
    Listen,
    Open,
    /// Puts the new event into the map.
    Enter(usize),
    Wait(usize),
    /// Drains the ring that was replaced, before it is dropped.
    DrainOld(usize),
    Drop(usize),
    Drain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Program {
    Find,
    Write { event: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Ring {
    /// The ring is mapped.
    is_mapped: bool,
    /// The event accepts records, until its CPU goes offline.
    is_alive: bool,
    records: u8,
}

impl Ring {
    const NEW: Self = Self { is_mapped: true, is_alive: true, records: 0 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    is_online: bool,
    trips_left: u8,
    /// The number of notices, each that the CPU is online, that the consumer has not read yet.
    notices: u8,
    rings: [Ring; RINGS],
    opened: usize,
    in_map: usize,
    /// The ring that the queue reads.
    current: usize,
    consumer: Consumer,
    program: Program,
    left: u8,
    sent: u8,
    received: u8,
}

impl State {
    fn first(rules: Rules) -> Self {
        let mut rings = [Ring::default(); RINGS];
        rings[0] = Ring::NEW;
        Self {
            is_online: true,
            trips_left: rules.trips,
            notices: u8::from(rules.notifies_again),
            rings,
            opened: 1,
            in_map: 0,
            current: 0,
            consumer: Consumer::Listen,
            program: Program::Find,
            left: RECORDS,
            sent: 0,
            received: 0,
        }
    }

    /// The CPU goes offline, or comes back.
    fn cpu_steps(mut self) -> Option<Self> {
        if self.is_online {
            if self.trips_left == 0 || self.program != Program::Find {
                return None;
            }
            self.trips_left -= 1;
            self.rings.iter_mut().for_each(|ring| ring.is_alive = false);
        } else {
            self.notices += 1;
        }
        self.is_online = !self.is_online;
        Some(self)
    }

    fn program_steps(mut self) -> Result<Option<Self>, String> {
        if self.left == 0 || !self.is_online {
            return Ok(None);
        }
        match self.program {
            Program::Find => self.program = Program::Write { event: self.in_map },
            Program::Write { event } => {
                self.program = Program::Find;
                self.left -= 1;
                let ring = &mut self.rings[event];
                // A failed write is counted.
                if ring.is_alive {
                    if !ring.is_mapped {
                        return Err(format!("a record goes to an unmapped ring: {self:?}"));
                    }
                    ring.records += 1;
                    self.sent += 1;
                }
            }
        }
        Ok(Some(self))
    }

    fn consumer_steps(mut self, rules: Rules) -> Result<Option<Self>, String> {
        self.consumer = match self.consumer {
            Consumer::Listen if self.notices > 0 => {
                self.notices -= 1;
                Consumer::Open
            }
            Consumer::Listen => Consumer::Drain,
            // ENODEV: the CPU is offline again. Its return brings another notice.
            Consumer::Open if !self.is_online => Consumer::Listen,
            Consumer::Open => {
                let new = self.opened;
                self.opened += 1;
                self.rings[new] = Ring::NEW;
                if rules.map_first { Consumer::Enter(new) } else { Consumer::DrainOld(new) }
            }
            Consumer::Enter(new) => {
                self.in_map = new;
                match rules {
                    Rules { map_first: false, .. } => {
                        self.current = new;
                        Consumer::Listen
                    }
                    Rules { waits: true, .. } => Consumer::Wait(new),
                    _ => Consumer::DrainOld(new),
                }
            }
            Consumer::Wait(_) if matches!(self.program, Program::Write { event } if event != self.in_map) =>
            {
                return Ok(None);
            }
            Consumer::Wait(new) => Consumer::DrainOld(new),
            Consumer::DrainOld(new) => {
                if rules.drains {
                    self.receive(self.current);
                }
                Consumer::Drop(new)
            }
            Consumer::Drop(new) => {
                let old = &mut self.rings[self.current];
                if old.records > 0 {
                    return Err(format!("records are dropped with their ring: {self:?}"));
                }
                old.is_mapped = false;
                if rules.map_first {
                    self.current = new;
                    Consumer::Listen
                } else {
                    Consumer::Enter(new)
                }
            }
            Consumer::Drain => {
                self.receive(self.current);
                Consumer::Listen
            }
        };
        Ok(Some(self))
    }

    fn receive(&mut self, ring: usize) {
        self.received += std::mem::take(&mut self.rings[ring].records);
    }

    fn check(&self) -> Result<(), String> {
        let waiting: u8 = self.rings.iter().map(|ring| ring.records).sum();
        if self.sent != self.received + waiting {
            return Err(format!("a record was lost or received twice: {self:?}"));
        }
        Ok(())
    }
}

/// Returns the number of states, or what is wrong with one.
fn explore(rules: Rules) -> Result<usize, String> {
    model::explore(State::first(rules), |state| {
        state.check()?;
        let after = [state.cpu_steps(), state.program_steps()?, state.consumer_steps(rules)?];
        Ok(after.into_iter().flatten())
    })
}

#[test]
fn no_record_is_lost_when_a_cpu_goes_offline_and_online() {
    let states = explore(AS_SHIPPED).unwrap();
    assert!(states > 300, "only {states} states");
}

/// An event dies with its CPU. But the consumer also replaces events that are alive: when it reads two notices after
/// the CPU has gone offline and come back twice, or when the CPU came online while the pipe was opened. A program that
/// has found the old event could then be too late.
#[test]
fn replacing_a_live_event_is_safe_only_after_waiting() {
    for rules in [Rules { trips: 2, ..AS_SHIPPED }, Rules { notifies_again: true, ..AS_SHIPPED }] {
        explore(rules).unwrap();
        explore(Rules { waits: false, ..rules }).unwrap_err();
        explore(Rules { map_first: false, ..rules }).unwrap_err();
    }
}

/// Shows that the model finds mistakes.
#[test]
fn the_model_finds_a_ring_that_is_not_drained() {
    explore(Rules { drains: false, ..AS_SHIPPED }).unwrap_err();
}
