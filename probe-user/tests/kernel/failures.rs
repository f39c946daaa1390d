//! Records that fail for another reason than a full ring, and CPUs that fall silent.

use crate::suite::records::Numbered;
use crate::suite::{adaptive, classifier, emit_on, generate_on, map, online, open};
use aya::Ebpf;
use probe_sys::bpf;
use probe_sys::disturb::{pretend_suspension, set_clock};
use probe_user::common::control::{EAGER_MAP, EVENTS_MAP};
use probe_user::common::tally::FailureClass;
use probe_user::{EvHandlers, EvPipe, Options, Wakeup};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Longer than a pipe waits before it looks for failures again.
const A_LOOK: Duration = Duration::from_millis(1100);

/// What a consumer has received.
#[derive(Debug, Default, PartialEq)]
struct Received {
    records: u64,
    failures: Vec<(u32, FailureClass, u64)>,
    changes: Vec<String>,
}

/// Runs `consume`, and returns everything that it passed to its handlers.
fn received_by(consume: impl FnOnce(&mut EvHandlers<'_, probe_user::OneThread>)) -> Received {
    let received = RefCell::new(Received::default());
    let mut handlers = EvHandlers::local();
    handlers
        .on_unknown::<()>(|_, _| received.borrow_mut().records += 1)
        .on_failure::<()>(|one| {
            received.borrow_mut().failures.push((one.cpu, one.class, one.records));
        })
        .on_cpu_change(|change| received.borrow_mut().changes.push(change.to_string()));
    consume(&mut handlers);
    drop(handlers);
    received.into_inner()
}

/// Takes the events of a CPU out of the maps, as somebody else may.
fn delete_slots(object: &Ebpf, cpu: u32) {
    for name in [EVENTS_MAP, EAGER_MAP] {
        // The pipe uses only one of them without adaptive wakeups.
        let deleted = bpf::map_delete(map(object, name), cpu);
        assert!(deleted.is_ok() || name == EAGER_MAP, "{name}: {deleted:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_cpu_whose_slot_was_deleted_is_reported_and_covered_again() {
    for wakeup in [adaptive(Duration::from_millis(10)), Wakeup::EveryRecord, Wakeup::PollOnly] {
        let (mut object, mut pipe) = open(&Options::new().wakeup(wakeup));
        let cpus = online();
        let cpu = *cpus.last().unwrap();
        let poll = |pipe: &mut EvPipe| {
            std::thread::sleep(A_LOOK);
            received_by(|handlers| assert!(pipe.poll(Some(Duration::ZERO), handlers).is_ok()))
        };
        assert_eq!(poll(&mut pipe), Received::default());
        delete_slots(&object, cpu);
        emit_on(&mut object, &[cpu], 3);
        let failures = vec![(cpu, FailureClass::NoEvent, 3)];
        let changes = vec![format!("CPU {cpu} is online")];
        assert_eq!(poll(&mut pipe), Received { failures, changes, records: 0 }, "{wakeup:?}");
        // Nothing is reported twice, and the CPU's records arrive again.
        emit_on(&mut object, &cpus, 5);
        let received = received_by(|handlers| {
            std::thread::sleep(A_LOOK);
            assert!(pipe.drain_all(handlers).is_continue());
        });
        let records = 5 * cpus.len() as u64;
        assert_eq!(received, Received { records, ..Received::default() }, "{wakeup:?}");
        let ledger = pipe.ledger().unwrap();
        assert!(ledger.balances() && ledger.failed() == 3, "{ledger}");
    }
}

/// As losses and records, failures stay where they are until a consumer has received them.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_consumer_that_breaks_receives_the_other_failures_later() {
    let (mut object, mut pipe) = open(&Options::new().wakeup(Wakeup::EveryRecord));
    let cpus = online();
    let failed = RefCell::new(Vec::new());
    let mut handlers = EvHandlers::local();
    handlers.on_failure(|one| {
        failed.borrow_mut().push((one.cpu, one.records));
        ControlFlow::Break(())
    });
    handlers.on::<Numbered, _>(|_| ControlFlow::Break(()));
    std::thread::sleep(A_LOOK);
    let _ = pipe.drain(&mut handlers);
    // From here on, the first CPU has its turn last, and leaves no ring to look at.
    emit_on(&mut object, &cpus[..1], 1);
    assert!(pipe.drain(&mut handlers).flow.is_break());
    let _ = pipe.drain(&mut handlers);
    cpus.iter().for_each(|&cpu| delete_slots(&object, cpu));
    emit_on(&mut object, &cpus, 3);
    std::thread::sleep(A_LOOK);
    assert!(pipe.drain(&mut handlers).flow.is_break());
    // Nothing wakes the pipe for the others, so it must not wait.
    let (start, ages) = (Instant::now(), Duration::from_secs(60));
    // Not even after it breaks at a record.
    emit_on(&mut object, &cpus[..1], 1);
    assert!(pipe.poll(Some(ages), &mut handlers).unwrap().flow.is_break());
    assert_eq!(failed.borrow().len(), 1);
    for number in 2..=cpus.len() {
        assert!(pipe.poll(Some(ages), &mut handlers).unwrap().flow.is_break());
        assert_eq!(failed.borrow().len(), number);
    }
    assert!(start.elapsed() < ages);
    assert!(pipe.drain(&mut handlers).flow.is_continue());
    drop(handlers);
    assert_eq!(failed.into_inner(), cpus.iter().map(|&cpu| (cpu, 3)).collect::<Vec<_>>());
}

/// Nobody is notified of CPUs that are offline while the machine is suspended.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_idle_pipe_covers_all_cpus_again_after_a_suspension() {
    let cpus = online();
    for wakeup in [adaptive(Duration::from_millis(10)), Wakeup::EveryRecord] {
        let (mut object, mut pipe) = open(&Options::new().wakeup(wakeup));
        let wait = |pipe: &mut EvPipe, timeout| {
            received_by(|handlers| assert!(pipe.poll(Some(timeout), handlers).is_ok()))
        };
        let idle = Duration::from_millis(500);
        let is_idle = |pipe: &mut EvPipe| {
            let start = Instant::now();
            assert_eq!(wait(pipe, idle), Received::default(), "{wakeup:?}");
            start.elapsed() >= idle
        };
        while !is_idle(&mut pipe) {}
        delete_slots(&object, cpus[0]);
        pretend_suspension().unwrap();
        let start = Instant::now();
        let changes = cpus.iter().map(|cpu| format!("CPU {cpu} is online")).collect();
        let resumed = wait(&mut pipe, Duration::from_secs(60));
        assert_eq!(resumed, Received { changes, ..Received::default() }, "{wakeup:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "{wakeup:?}");
        while !is_idle(&mut pipe) {}
        // Nothing was suspended, and the pipe sleeps on.
        set_clock().unwrap();
        while !is_idle(&mut pipe) {}
        emit_on(&mut object, &cpus, 5);
        let received = received_by(|handlers| assert!(pipe.drain_all(handlers).is_continue()));
        let records = 5 * cpus.len() as u64;
        assert_eq!(received, Received { records, ..Received::default() }, "{wakeup:?}");
        assert!(pipe.ledger().unwrap().is_complete());
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn whatever_failed_is_reported_at_the_latest_when_the_pipe_is_closed() {
    let (mut object, mut pipe) = open(&Options::new());
    let cpus = online();
    // Each run drops one reservation, and fails to send a record that is too long. That is no failed output.
    let refuse = |object: &mut Ebpf| {
        generate_on(classifier(object, "emit_nothing"), &cpus[..1], 10);
        (cpus[0], FailureClass::TooBig, 10)
    };
    let refused = refuse(&mut object);
    std::thread::sleep(A_LOOK);
    let drained = received_by(|handlers| assert!(pipe.drain(handlers).flow.is_continue()));
    assert_eq!(drained.failures, [refused]);
    let refused = refuse(&mut object);
    delete_slots(&object, cpus[0]);
    emit_on(&mut object, &cpus[..1], 2);
    let received = received_by(|handlers| drop(pipe.close(handlers)));
    assert_eq!(received.failures, [(cpus[0], FailureClass::NoEvent, 2), refused]);
}
