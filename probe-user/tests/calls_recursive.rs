//! Calls of a function that calls itself.

use probe_user::common::RawRecord;
use probe_user::trace::{Scope, TraceEvent, Tracer, Value};
use probe_user::{Consumer, Loss, Malformed, Stop};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::ops::ControlFlow;

/// When calls began and ended.
#[derive(Default)]
struct Calls {
    probes: Vec<probe_user::trace::Probe>,
    spans: Vec<(u64, u64)>,
}

impl Consumer for Calls {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        let event = TraceEvent::decode(cpu, record).unwrap();
        let values: Vec<_> = event.values(&self.probes[0]).map(|(_, value)| value).collect();
        let [Value::Integer(result), Value::Integer(latency)] = values[..] else {
            panic!("{values:?}")
        };
        assert!(result < 10, "{result}");
        self.spans.push((event.time - latency, event.time));
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        panic!("{loss}")
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }
}

/// To add an epoll to another, the kernel looks for loops in what it watches, and in what that watches.
#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_function_that_calls_itself_has_an_event_for_each_call() {
    let mut tracer = Tracer::builder()
        .scope(Scope::Process(std::process::id()))
        .probe("ep_loop_check_proc(retval, latency)".parse().unwrap())
        .calls()
        .attach()
        .unwrap();
    let chain: Vec<_> = (0..4).map(|_| epoll::create(CreateFlags::CLOEXEC).unwrap()).collect();
    for pair in chain.windows(2).rev() {
        epoll::add(&pair[0], &pair[1], EventData::new_u64(0), EventFlags::IN).unwrap();
    }
    let mut calls = Calls { probes: tracer.probes().to_vec(), spans: Vec::new() };
    let stop = Stop::new().unwrap();
    stop.stop();
    tracer.run(&stop, &mut calls).unwrap();
    let ledger = tracer.close(&mut calls).unwrap();
    assert!(ledger.is_complete() && ledger.missed[0].is_nothing(), "{ledger} {:?}", ledger.missed);
    // One by itself, one with another in it, one with two.
    let mut spans = calls.spans;
    spans.sort_unstable();
    assert_eq!(spans.len(), 1 + 2 + 3, "{spans:?}");
    for group in [&spans[..1], &spans[1..3], &spans[3..]] {
        assert!(group.is_sorted_by(|outer, inner| inner.1 <= outer.1), "{spans:?}");
    }
    assert!(spans[0].1 < spans[1].0 && spans[1].1 < spans[3].0, "{spans:?}");
}
