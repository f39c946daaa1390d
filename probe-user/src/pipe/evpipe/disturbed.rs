//! Disturbances of a process that has a pipe: signals, forks, handlers that panic.

use super::EvPipe;
#[cfg(feature = "tokio")]
use crate::consume::asynchronous::AsyncEvPipe;
use crate::consume::evhandler::EvHandlers;
use crate::consume::owned::OwnedRecords;
use crate::pipe::options::{Options, Wakeup};
use crate::pipe::stop::Stop;
use crate::suite::records::Numbered;
use crate::suite::{
    Received, classifier, descriptors, emit_one_on, generate_on, load, online, strict,
};
use probe_sys::disturb::{Interruptions, in_child};
use probe_testing::left::mappings;
#[cfg(feature = "tokio")]
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const N: u32 = 100_000;

/// A ring that never fills.
const AMPLE: usize = 16 << 20;

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn signals_all_the_time_lose_nothing() {
    for wakeup in [Options::new().policy(), Wakeup::EveryRecord] {
        let mut object = load();
        let options = Options::new().bytes_per_cpu(AMPLE).wakeup(wakeup);
        let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
        let mut received = Received::default();
        let stop = Stop::new().unwrap();
        let program = classifier(&mut object, "emit_numbered");
        let summary = std::thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                let _interruptions = Interruptions::start().unwrap();
                pipe.run(&stop, &mut strict(&mut received)).unwrap();
                // A wait that no event ends takes its full time.
                let start = Instant::now();
                let idle = Duration::from_millis(300);
                while start.elapsed() < idle {
                    let left = idle.saturating_sub(start.elapsed());
                    let progress = pipe.poll(Some(left), &mut strict(&mut received)).unwrap();
                    assert_eq!(progress.records, 0);
                }
                pipe.close(&mut strict(&mut received))
            });
            // Alternate between full speed and pauses in which the consumer sleeps.
            for _ in 0..10 {
                generate_on(program, &online(), N / 10);
                std::thread::sleep(Duration::from_millis(100));
            }
            stop.stop();
            consumer.join().unwrap()
        });
        received.assert_complete(&online(), u64::from(N));
        let ledger = summary.ledger.unwrap();
        assert!(ledger.balances() && ledger.handled() == received.total(), "{ledger}");
    }
}

/// Handlers that panic on the record with this number.
fn panics_at(number: u64, seen: &mut Vec<u64>) -> EvHandlers<'_> {
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(move |event| {
        seen.push(event.record.number);
        assert_ne!(event.record.number, number, "on purpose");
    });
    handlers
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_handler_that_panics_leaves_a_pipe_that_runs_on() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let cpu = online()[0];
    let stop = Stop::new().unwrap();
    stop.stop();
    let mut seen = Vec::new();
    for round in 0..3 {
        generate_on(classifier(&mut object, "emit_numbered"), &[cpu], 10);
        let run = || pipe.run(&stop, &mut panics_at(10 * round + 4, &mut seen));
        catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
        // Run again with the same stop.
        pipe.run(&stop, &mut panics_at(u64::MAX, &mut seen)).unwrap();
    }
    let ledger = pipe.close(&mut panics_at(u64::MAX, &mut seen)).ledger.unwrap();
    assert_eq!(seen, (0..30).collect::<Vec<_>>(), "each once, in order");
    assert!(ledger.balances() && ledger.handled() == 30, "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_handler_that_panics_leaves_an_ordered_pipe_that_runs_on() {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let mut pipe = pipe.ordered(Duration::from_millis(20)).unwrap();
    let cpu = online()[0];
    let stop = Stop::new().unwrap();
    stop.stop();
    let mut seen = Vec::new();
    generate_on(classifier(&mut object, "emit_numbered"), &[cpu], 10);
    let run = || pipe.run(&stop, &mut panics_at(4, &mut seen));
    catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
    pipe.run(&stop, &mut panics_at(u64::MAX, &mut seen)).unwrap();
    let summary = pipe.close(&mut panics_at(u64::MAX, &mut seen));
    assert_eq!(seen, (0..10).collect::<Vec<_>>(), "each once, in order");
    assert!(summary.ledger.unwrap().balances());
}

#[cfg(feature = "tokio")]
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_handler_that_panics_leaves_an_asynchronous_pipe_that_runs_on() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let mut pipe = {
        let _inside = runtime.enter();
        AsyncEvPipe::new(pipe).unwrap()
    };
    let cpu = online()[0];
    let mut seen = Vec::new();
    for round in 0..3 {
        generate_on(classifier(&mut object, "emit_numbered"), &[cpu], 10);
        // Packed records may arrive in any number of polls.
        let mut run = || runtime.block_on(pipe.poll(&mut panics_at(10 * round + 4, &mut seen)));
        while catch_unwind(AssertUnwindSafe(&mut run)).is_ok() {}
        while (seen.len() as u64) < 10 * (round + 1) {
            let _ = runtime.block_on(pipe.poll(&mut panics_at(u64::MAX, &mut seen))).unwrap();
        }
    }
    let ledger = pipe.into_inner().close(&mut panics_at(u64::MAX, &mut seen)).ledger.unwrap();
    assert_eq!(seen, (0..30).collect::<Vec<_>>(), "each once, in order");
    assert!(ledger.balances() && ledger.handled() == 30, "{ledger}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_handler_that_panics_while_a_pipe_is_closed_leaves_nothing_behind() {
    let mut object = load();
    let before = (descriptors(), mappings());
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    generate_on(classifier(&mut object, "emit_numbered"), &[online()[0]], 10);
    let opened = descriptors();
    let mut seen = Vec::new();
    let close = || pipe.close(&mut panics_at(4, &mut seen));
    catch_unwind(AssertUnwindSafe(close)).expect_err("it panics");
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    // Only the programs remain, which were loaded meanwhile.
    assert!(descriptors() < opened && descriptors() <= before.0 + 2);
    assert_eq!(mappings(), before.1);
    // The object can serve another pipe.
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    generate_on(classifier(&mut object, "emit_numbered"), &[online()[0]], 10);
    let summary = pipe.close(&mut panics_at(u64::MAX, &mut seen));
    assert_eq!(summary.total.records, 10);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_forked_child_has_no_rings_and_does_no_harm() {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    assert!(mappings() > online().len(), "the rings, and the page that both sides share");
    let mut received = Received::default();
    for _ in 0..3 {
        let inherited = in_child(|| mappings() as u8).unwrap();
        assert_eq!(inherited, 0);
        online().into_iter().for_each(|cpu| emit_one_on(&mut object, cpu));
    }
    // A child that executes another program does not inherit the descriptors either.
    let child = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let listed = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(listed.contains("0 -> ") && !listed.contains("anon_inode"), "{listed}");
    let ledger = pipe.close(&mut received).ledger.unwrap();
    received.assert_complete(&online(), 3);
    assert!(ledger.balances(), "{ledger}");
}

/// Does everything that a child can do with the pipe of its parent. Returns 0 if each attempt reports that it is
/// impossible.
fn whatever_a_child_can(mut pipe: EvPipe, drops: bool) -> u8 {
    let mut received = Received::default();
    let polled = pipe.poll(Some(Duration::ZERO), &mut received);
    let refusals = [
        polled.map(|_| ()).map_err(|error| error.to_string()),
        pipe.pause().map_err(|error| error.to_string()),
        pipe.resume().map_err(|error| error.to_string()),
        pipe.ledger().map(|_| ()).map_err(|error| error.to_string()),
    ];
    let all_refused =
        refusals.iter().all(|one| one.as_ref().is_err_and(|error| error.contains("forked")));
    let mut records = pipe.drain(&mut received).records;
    let _ = pipe.drain_all(&mut received);
    if !drops {
        records += pipe.close(&mut received).total.records;
    }
    u8::from(!all_refused || records + received.total() != 0)
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_forked_child_that_ends_its_pipe_does_no_harm() {
    let watermark = Options::new().wakeup(Wakeup::Watermark(1 << 10));
    let recorder = Options::new().overwrite();
    for options in [Options::new(), watermark, recorder] {
        let mut object = load();
        let mut pipe = Some(EvPipe::from_object(&mut object, &options).unwrap());
        let mut received = Received::default();
        for drops in [true, false] {
            generate_on(classifier(&mut object, "emit_numbered"), &online(), 50);
            let child = in_child(|| whatever_a_child_can(pipe.take().unwrap(), drops)).unwrap();
            assert_eq!(child, 0, "{options:?}, drops: {drops}");
        }
        generate_on(classifier(&mut object, "emit_numbered"), &online(), 50);
        let ledger = pipe.unwrap().close(&mut received).ledger.unwrap();
        assert_eq!(ledger.handled(), 150 * online().len() as u64, "{options:?}");
        assert!(ledger.balances(), "{options:?}: {ledger}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_forked_child_leaves_the_stop_of_its_parent_alone() {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let stop = Stop::new().unwrap();
    let mut records = Some(OwnedRecords::until(pipe, &stop).unwrap());
    let child = in_child(|| {
        let (mut pipe, _) = records.take().unwrap().into_parts();
        let refused = pipe.run(&stop, &mut Received::default()).unwrap_err().to_string();
        u8::from(!refused.contains("forked"))
    });
    assert_eq!(child.unwrap(), 0);
    let mut records = records.unwrap();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| records.next_within(Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(100));
        let stopped = Instant::now();
        stop.stop();
        assert_eq!(ended.join().unwrap().unwrap(), None);
        assert!(stopped.elapsed() < Duration::from_secs(30));
    });
}

#[cfg(feature = "tokio")]
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_record_that_only_the_runtime_has_noticed_wakes_the_pipe_that_is_taken_out() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    classifier(&mut object, "emit_numbered");
    let pipe = runtime.block_on(async {
        let mut pipe = AsyncEvPipe::new(pipe).unwrap();
        let quiet = Duration::from_millis(100);
        tokio::time::timeout(quiet, pipe.poll(&mut Received::default())).await.unwrap_err();
        emit_one_on(&mut object, online()[0]);
        // The runtime looks at its descriptors meanwhile.
        tokio::time::sleep(Duration::from_millis(20)).await;
        pipe.into_inner()
    });
    let (mut pipe, mut received, begin) = (pipe, Received::default(), Instant::now());
    let _ = pipe.poll(Some(Duration::from_secs(60)), &mut received).unwrap();
    assert_eq!(received.total(), 1);
    assert!(begin.elapsed() < Duration::from_secs(30), "it waited for another record");
}

#[cfg(feature = "tokio")]
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_break_ends_a_run_even_if_something_else_is_ready() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    generate_on(classifier(&mut object, "emit_numbered"), &online(), 10);
    let mut seen = 0;
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|_| {
        seen += 1;
        if seen == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    runtime.block_on(async {
        let mut pipe = AsyncEvPipe::new(pipe).unwrap();
        for _ in 0..100 {
            tokio::select! {
                biased;
                ended = pipe.run(&mut handlers) => return ended.unwrap(),
                () = std::future::ready(()) => {}
            }
        }
    });
    drop(handlers);
    assert_eq!(seen, 1);
}

#[cfg(feature = "tokio")]
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_forked_child_that_drops_an_asynchronous_pipe_takes_no_wakeups() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    classifier(&mut object, "emit_numbered");
    let mut pipe = {
        let _inside = runtime.enter();
        Some(AsyncEvPipe::new(pipe).unwrap())
    };
    let quiet = Duration::from_millis(100);
    let mut received = Received::default();
    let poll = |pipe: &mut AsyncEvPipe, within, received: &mut Received| {
        runtime.block_on(async { tokio::time::timeout(within, pipe.poll(received)).await.is_ok() })
    };
    // After this, nothing is pending, so the pipe notices the record only if the runtime wakes it.
    assert!(!poll(pipe.as_mut().unwrap(), quiet, &mut received));
    let child = in_child(|| {
        let _inside = runtime.enter();
        drop(pipe.take());
        0
    });
    assert_eq!(child.unwrap(), 0);
    emit_one_on(&mut object, online()[0]);
    assert!(poll(pipe.as_mut().unwrap(), Duration::from_secs(60), &mut received));
    assert_eq!(received.total(), 1);
}

#[cfg(feature = "tokio")]
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_runtime_of_a_forked_child_is_refused() {
    for options in [Options::new(), Options::new().wakeup(Wakeup::PollOnly)] {
        let mut object = load();
        let mut pipe = Some(EvPipe::from_object(&mut object, &options).unwrap());
        let child = in_child(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let run = async {
                let mut pipe = AsyncEvPipe::new(pipe.take().unwrap()).map_err(|e| e.to_string())?;
                let polled = pipe.poll(&mut Received::default()).await;
                polled.map(drop).map_err(|error| error.to_string())
            };
            let refused = runtime.unwrap().block_on(run).unwrap_err();
            u8::from(!refused.contains("forked"))
        });
        assert_eq!(child.unwrap(), 0, "{options:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_forked_child_does_not_have_the_records_that_an_ordered_pipe_holds() {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let mut pipe = Some(pipe.ordered(Duration::from_millis(500)).unwrap());
    let mut received = Received::default();
    generate_on(classifier(&mut object, "emit_numbered"), &[online()[0]], 50);
    let _ = pipe.as_mut().unwrap().drain(&mut received);
    let held = pipe.as_ref().unwrap().held();
    assert!(held > 0);
    let child = in_child(|| {
        let (mut pipe, mut received) = (pipe.take().unwrap(), Received::default());
        let _ = pipe.drain(&mut received);
        let _ = pipe.drain_all(&mut received);
        let _ = pipe.close(&mut received);
        u8::from(received.total() != 0)
    });
    assert_eq!(child.unwrap(), 0);
    let mut pipe = pipe.unwrap();
    let begun = Instant::now();
    while pipe.held() > 0 {
        let _ = pipe.poll(Some(Duration::from_secs(60)), &mut received).unwrap();
    }
    // The child has left the timer alone.
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(received.total(), 50);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_pipe_moves_between_threads() {
    let mut object = load();
    let mut pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let mut received = Received::default();
    for _ in 0..3 {
        generate_on(classifier(&mut object, "emit_numbered"), &online(), 1000);
        let consumer = std::thread::spawn(move || {
            assert!(pipe.drain_all(&mut received).is_continue());
            (pipe, received)
        });
        (pipe, received) = consumer.join().unwrap();
    }
    let ledger = std::thread::spawn(move || pipe.close(&mut received).ledger).join().unwrap();
    let ledger = ledger.unwrap();
    assert_eq!(ledger.handled(), 3000 * online().len() as u64);
    assert!(ledger.balances(), "{ledger}");
}
