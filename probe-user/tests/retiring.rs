//! A model of a CPU that goes and comes back: every way in which what the consumer does about it can
//! come between a program's steps, tried out.
//!
//! The consumer's steps are those of `EvPipe::follow_cpus`, `Queues::cover` and `EvQueue::drain` in
//! `probe-user/src/`; a program's are those of `bpf_perf_event_output`: find the event in the map, write
//! to its ring, if the event lives. What changes there has to change here. A program runs with
//! preemption off between the two, so that its CPU does not go meanwhile; other CPUs, where the consumer
//! runs, do as they like.

mod model;

/// How many records the program emits.
const RECORDS: u8 = 3;
/// One at first, and one for each time that the CPU is told to be online.
const RINGS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    /// How often the CPU goes and comes back.
    trips: u8,
    /// The consumer is told once more of a CPU that it covers: an event is replaced that lives.
    tells_again: bool,
    /// Between the map and the old ring's last drain, the consumer waits until programs have ended
    /// that may have found the old event.
    waits: bool,
    /// The old ring is drained before it is dropped.
    drains: bool,
    /// The new event is in the map before the old ring is drained and dropped.
    map_first: bool,
}

const AS_IT_IS: Rules =
    Rules { trips: 1, tells_again: false, waits: true, drains: true, map_first: true };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Consumer {
    Listen,
    Open,
    /// The new event goes into the map.
    Enter {
        new: usize,
    },
    Wait {
        new: usize,
    },
    /// Drains the ring that was replaced, then drops it.
    DrainOld {
        new: usize,
    },
    Drop {
        new: usize,
    },
    Drain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Program {
    Find,
    Write { event: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Ring {
    /// It is mapped.
    is_there: bool,
    /// Its event takes records: until its CPU goes.
    lives: bool,
    records: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    is_online: bool,
    trips_left: u8,
    /// That the CPU is online has been told so often, and not been heard yet.
    told: u8,
    rings: [Ring; RINGS],
    opened: usize,
    in_map: usize,
    /// The ring of the queue.
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
        rings[0] = Ring { is_there: true, lives: true, records: 0 };
        Self {
            is_online: true,
            trips_left: rules.trips,
            told: u8::from(rules.tells_again),
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

    /// The CPU goes, or comes back.
    fn cpu_steps(mut self) -> Option<Self> {
        if self.is_online {
            if self.trips_left == 0 || self.program != Program::Find {
                return None;
            }
            self.trips_left -= 1;
            self.rings.iter_mut().for_each(|ring| ring.lives = false);
        } else {
            self.told += 1;
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
                // Where it fails, it is counted.
                if ring.lives {
                    if !ring.is_there {
                        return Err(format!("a record goes to a ring that is gone: {self:?}"));
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
            Consumer::Listen if self.told > 0 => {
                self.told -= 1;
                Consumer::Open
            }
            Consumer::Listen => Consumer::Drain,
            // ENODEV: it has gone again, which is told, too.
            Consumer::Open if !self.is_online => Consumer::Listen,
            Consumer::Open => {
                let new = self.opened;
                self.opened += 1;
                self.rings[new] = Ring { is_there: true, lives: true, records: 0 };
                if rules.map_first { Consumer::Enter { new } } else { Consumer::DrainOld { new } }
            }
            Consumer::Enter { new } => {
                self.in_map = new;
                match rules {
                    Rules { map_first: false, .. } => {
                        self.current = new;
                        Consumer::Listen
                    }
                    Rules { waits: true, .. } => Consumer::Wait { new },
                    _ => Consumer::DrainOld { new },
                }
            }
            Consumer::Wait { .. } if matches!(self.program, Program::Write { event } if event != self.in_map) =>
            {
                return Ok(None);
            }
            Consumer::Wait { new } => Consumer::DrainOld { new },
            Consumer::DrainOld { new } => {
                if rules.drains {
                    self.receive(self.current);
                }
                Consumer::Drop { new }
            }
            Consumer::Drop { new } => {
                let old = &mut self.rings[self.current];
                if old.records > 0 {
                    return Err(format!("records go with their ring: {self:?}"));
                }
                old.is_there = false;
                if rules.map_first {
                    self.current = new;
                    Consumer::Listen
                } else {
                    Consumer::Enter { new }
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
        match self.sent == self.received + waiting {
            true => Ok(()),
            false => Err(format!("not what was sent: {self:?}")),
        }
    }
}

/// How many states there are, or what is wrong with one.
fn explore(rules: Rules) -> Result<usize, String> {
    model::explore(State::first(rules), |state| {
        state.check()?;
        let after = [state.cpu_steps(), state.program_steps()?, state.consumer_steps(rules)?];
        Ok(after.into_iter().flatten())
    })
}

#[test]
fn no_record_is_lost_when_a_cpu_goes_and_comes_back() {
    let states = explore(AS_IT_IS).unwrap();
    assert!(states > 300, "{states} states are not all");
}

/// An event dies with its CPU. But who hears of a CPU twice when it is there, since it has gone and come
/// back twice by then, or came while the pipe was opened, replaces an event that lives; a program that
/// has found the old one could be too late, then.
#[test]
fn an_event_that_lives_is_replaced_safely_only_by_who_waits() {
    for rules in [Rules { trips: 2, ..AS_IT_IS }, Rules { tells_again: true, ..AS_IT_IS }] {
        explore(rules).unwrap();
        explore(Rules { waits: false, ..rules }).unwrap_err();
        explore(Rules { map_first: false, ..rules }).unwrap_err();
    }
}

/// What the model is good for.
#[test]
fn a_ring_that_is_not_drained_is_found_out() {
    explore(Rules { drains: false, ..AS_IT_IS }).unwrap_err();
}
