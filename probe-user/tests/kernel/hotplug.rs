//! CPU hotplug. For virtual machines only: these tests take CPUs offline.
//!
//! `PROBE_HOTPLUG_CYCLES` sets how often a CPU goes offline and online; the default is 10.

use crate::suite::{
    BURST, Generators, Loaded, Log, adaptive, descriptors, emit_on, emit_one_on, generate,
    make_lazy, number_from, on_numbered, online, open, open_per_cpu, stay_off, try_to_emit_one,
    try_to_stay_on, wait_until, while_running,
};
use probe_testing::cpu::{CPU, Restore, switch};
use probe_testing::left::mappings;
use probe_testing::set_on_drop::SetOnDrop;
use probe_user::common::RawRecord;
use probe_user::common::tally::FailureClass;
use probe_user::ledger::Ledger;
use probe_user::{AsyncEvPipe, Consumer, EvPipe, Options, Wakeup};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn policies() -> [Wakeup; 3] {
    [adaptive(Duration::from_millis(20)), Wakeup::EveryRecord, Wakeup::Watermark(4096)]
}

/// Polls until `is_done`.
fn poll_until(pipe: &mut EvPipe, log: &mut Log, is_done: impl Fn(&Log) -> bool) {
    let start = Instant::now();
    while !is_done(log) {
        let _ = pipe.poll(Some(Duration::from_secs(1)), log).unwrap();
        assert!(start.elapsed() < Duration::from_secs(30), "too late: {:?}", log.changes);
    }
}

/// Closes the pipe. Asserts that no record failed, and that all `attempted` records of the CPU were delivered.
fn assert_nothing_lost(pipe: EvPipe, mut log: Log, attempted: u64) -> Ledger {
    let ledger = pipe.close(&mut log).ledger.unwrap();
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!(log.count(CPU), attempted, "{:?}", log.changes);
    ledger
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_flight_recorder_keeps_records_of_a_cpu_that_goes_offline() {
    let _restore = Restore;
    for options in [Options::new(), Options::new().wakeup(Wakeup::PollOnly)] {
        let (mut object, mut pipe) = open(&options.overwrite());
        let mut log = Log::default();
        for (cycle, changes) in [(1, 2), (2, 4)] {
            (0..10).for_each(|_| emit_one_on(&mut object, CPU));
            switch(false);
            poll_until(&mut pipe, &mut log, |log| log.changes.len() == changes - 1);
            switch(true);
            poll_until(&mut pipe, &mut log, |log| log.changes.len() == changes);
            (0..10).for_each(|_| emit_one_on(&mut object, CPU));
            let _ = pipe.dump(&mut log).unwrap();
            assert_eq!(log.count(CPU), cycle * 20, "{:?}", log.changes);
        }
        emit_one_on(&mut object, CPU);
        let ledger = pipe.close(&mut log).ledger.unwrap();
        assert_eq!((log.count(CPU), log.received.by_cpu[&CPU].missing), (41, 0));
        assert!(ledger.balances() && ledger.overwritten() == 0, "{ledger}");
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn delivery_resumes_when_a_cpu_is_online_again() {
    let _restore = Restore;
    let mut resumed = Vec::new();
    for wakeup in policies() {
        let (mut object, mut pipe) = open(&Options::new().wakeup(wakeup));
        let mut log = Log::default();
        emit_one_on(&mut object, CPU);
        poll_until(&mut pipe, &mut log, |log| log.count(CPU) == 1);
        switch(false);
        poll_until(&mut pipe, &mut log, |log| log.changes == ["CPU 1 is offline"]);
        assert!(!pipe.queue(CPU).unwrap().is_online());
        switch(true);
        let online_since = Instant::now();
        poll_until(&mut pipe, &mut log, |log| log.changes.len() == 2);
        resumed.push(online_since.elapsed());
        assert_eq!(log.changes[1], "CPU 1 is online");
        emit_one_on(&mut object, CPU);
        let start = Instant::now();
        while log.count(CPU) < 2 {
            let _ = pipe.poll(Some(Duration::from_secs(20)), &mut log).unwrap();
        }
        // A record that wakes nobody would arrive when the wait times out.
        assert!(start.elapsed() < Duration::from_secs(10), "{wakeup:?}: {:?}", start.elapsed());
        assert_eq!(assert_nothing_lost(pipe, log, 2).handled(), 2);
    }
    // The machine may stall for a while, but not each time.
    assert!(
        resumed.iter().min().is_some_and(|least| *least < Duration::from_secs(1)),
        "{resumed:?}"
    );
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_that_is_offline_at_first_is_covered_when_it_is_online() {
    let _restore = Restore;
    switch(false);
    for wakeup in policies() {
        let (mut object, mut pipe) = open(&Options::new().wakeup(wakeup));
        let mut log = Log::default();
        // The online CPU ids have a gap, and the CPUs behind it deliver.
        for &cpu in &online() {
            emit_one_on(&mut object, cpu);
        }
        poll_until(&mut pipe, &mut log, |log| online().iter().all(|&cpu| log.count(cpu) == 1));
        assert!(online().contains(&2) && !online().contains(&CPU));
        switch(true);
        poll_until(&mut pipe, &mut log, |log| log.changes == ["CPU 1 is online"]);
        emit_one_on(&mut object, CPU);
        poll_until(&mut pipe, &mut log, |log| log.count(CPU) == 1);
        assert_nothing_lost(pipe, log, 1);
        switch(false);
    }
}

/// One wakeup stands for both the record and the CPU.
#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_runtime_covers_a_cpu_that_comes_online_with_a_record() {
    let _restore = Restore;
    switch(false);
    let (mut object, pipe) = open(&Options::new().wakeup(Wakeup::EveryRecord));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut pipe = AsyncEvPipe::new(pipe).unwrap();
        let mut log = Log::default();
        let asleep = Duration::from_millis(100);
        tokio::time::timeout(asleep, pipe.poll(&mut log)).await.unwrap_err();
        switch(true);
        emit_one_on(&mut object, 0);
        let drained = pipe.poll(&mut log).await.unwrap();
        assert_eq!((drained.records, log.changes.len()), (1, 0));
        // There is nothing to return but the change.
        tokio::time::timeout(asleep, pipe.poll(&mut log)).await.unwrap_err();
        assert_eq!(log.changes, ["CPU 1 is online"]);
    });
}

/// A pipe, and seven records in the open block of the CPU.
fn open_with_packed_records() -> (Loaded, EvPipe) {
    // Long enough that no sweep flushes the block before the CPU goes offline, or the test flushes it.
    let wakeup = adaptive(Duration::from_secs(3600));
    let (mut object, mut pipe) = open(&Options::new().wakeup(wakeup));
    make_lazy(&mut object, &mut pipe, &[CPU]);
    emit_on(&mut object, &[CPU], 7);
    (object, pipe)
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn packed_records_of_an_offline_cpu_are_not_lost() {
    let _restore = Restore;
    for comes_back in [false, true] {
        let (_object, mut pipe) = open_with_packed_records();
        let mut log = Log::default();
        switch(false);
        poll_until(&mut pipe, &mut log, |log| log.changes.len() == 1);
        assert_eq!(log.count(CPU), 0);
        if comes_back {
            switch(true);
            poll_until(&mut pipe, &mut log, |log| log.count(CPU) == 7);
        }
        let ledger = assert_nothing_lost(pipe, log, 7);
        let all = u64::from(BURST) + 7;
        assert_eq!((ledger.attempted(), ledger.handled()), (all, all));
        if !comes_back {
            switch(true);
        }
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn packed_records_that_a_consumer_refuses_are_unread() {
    /// Breaks at this record of the CPU.
    struct Breaks(u64);

    impl Consumer for Breaks {
        fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
            self.0 -= 1;
            if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    let _restore = Restore;
    for (breaks_at, handled) in [(1, 1), (3, 3), (100, 7)] {
        let (_object, mut pipe) = open_with_packed_records();
        let mut log = Log::default();
        switch(false);
        poll_until(&mut pipe, &mut log, |log| log.changes.len() == 1);
        let ledger = pipe.close(&mut Breaks(breaks_at)).ledger.unwrap();
        let burst = u64::from(BURST);
        assert_eq!((ledger.attempted(), ledger.handled()), (burst + 7, burst + handled));
        assert!(ledger.balances() && ledger.unread() == 7 - handled, "{ledger}");
        switch(true);
    }
}

/// A CPU has no event between its return and the moment when the consumer notices it. A flush in
/// between must not lose the block.
#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn packed_records_wait_for_the_next_event_of_their_cpu() {
    let _restore = Restore;
    for is_covered in [true, false] {
        let (_object, mut pipe) = open_with_packed_records();
        let mut log = Log::default();
        switch(false);
        switch(true);
        if is_covered {
            // The drain flushes first, and notices the CPU afterwards.
            assert!(pipe.drain_all(&mut log).is_continue());
            assert_eq!(log.changes, ["CPU 1 is offline", "CPU 1 is online"]);
            assert_eq!(log.count(CPU), 7);
        }
        let ledger = assert_nothing_lost(pipe, log, 7);
        let all = u64::from(BURST) + 7;
        assert_eq!((ledger.attempted(), ledger.handled()), (all, all));
    }
}

/// Number of offline/online cycles.
fn cycles() -> u32 {
    number_from("PROBE_HOTPLUG_CYCLES", 10)
}

fn switch_off_and_on(cycles: u32) {
    for _ in 0..cycles {
        switch(false);
        std::thread::sleep(Duration::from_millis(5));
        switch(true);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Emits at intervals on `cpu`, or on any other CPU while that is offline.
fn emit_until(ended: &AtomicBool, generators: &Generators<'_>, cpu: u32) {
    while !ended.load(Ordering::Relaxed) {
        // Fails while the CPU is offline.
        let _ = try_to_stay_on(cpu);
        generate(generators.here, 200);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Emits continuously on every online CPU while one CPU goes offline and online.
#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn accounting_is_exact_while_a_cpu_goes_offline_and_online() {
    let _restore = Restore;
    let cycles = cycles();
    // Other CPUs make this one emit and flush. If the consumer flushed on the CPU itself, an
    // emission could interrupt the flush and overtake the block.
    stay_off(CPU);
    for wakeup in policies() {
        let (mut object, mut pipe) = open(&Options::new().wakeup(wakeup));
        let (mut log, ended) = (Log::default(), AtomicBool::new(false));
        let generators = Generators::load(&mut object);
        let others = online().into_iter().filter(|&cpu| cpu != CPU);
        std::thread::scope(|scope| {
            let (ended, generators) = (&ended, &generators);
            for cpu in others {
                scope.spawn(move || emit_until(ended, generators, cpu));
            }
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    // Fails while the CPU is offline.
                    let _ = try_to_emit_one(generators.there, CPU);
                }
            });
            let switcher = scope.spawn(move || {
                switch_off_and_on(cycles);
                ended.store(true, Ordering::Relaxed);
            });
            let (mut finished, mut is_over) = (None, false);
            while !is_over {
                let has_finished = switcher.is_finished();
                if has_finished {
                    let since = finished.get_or_insert_with(Instant::now).elapsed();
                    assert!(since < Duration::from_secs(30), "it stays offline: {:?}", log.changes);
                }
                let progress = pipe.poll(Some(Duration::from_millis(100)), &mut log).unwrap();
                // Without records, it has looked for all changes.
                let has_looked = has_finished && progress.records == 0;
                is_over = has_looked && pipe.queue(CPU).unwrap().is_online();
            }
        });
        let ledger = pipe.close(&mut log).ledger.unwrap();
        assert!(ledger.balances(), "{wakeup:?}: {ledger}");
        // Each missing record failed for a counted reason.
        let missing: u64 = log.received.by_cpu.values().map(|seen| seen.missing).sum();
        assert_eq!(log.received.total(), ledger.handled());
        assert!(missing <= ledger.failed(), "{wakeup:?}: {missing} are missing: {ledger}");
        assert_eq!(ledger.attempted(), ledger.handled() + ledger.failed());
        let uncovered = ledger.tally().failed_for(FailureClass::NotActive)
            + ledger.tally().failed_for(FailureClass::NoEvent);
        println!("{wakeup:?}: {ledger}; {uncovered} before a CPU was covered again");
        // The CPU may be offline again before the consumer looks, but it ends up online. It also comes online without a
        // notice, if failed records are noticed first.
        let times = log.changes.iter().filter(|change| change.ends_with("online")).count();
        assert!((1..=2 * cycles as usize).contains(&times), "{:?}", log.changes);
        assert_eq!(log.changes.last().unwrap(), "CPU 1 is online");
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_cpu_has_a_consumer_when_it_is_online() {
    let _restore = Restore;
    for (wakeup, is_online_at_first) in
        policies().into_iter().flat_map(|wakeup| [(wakeup, true), (wakeup, false)])
    {
        switch(is_online_at_first);
        let (total, covered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let make = |_| {
            let (total, covered) = (Arc::clone(&total), Arc::clone(&covered));
            Log { total, covered, ..Log::default() }
        };
        let (mut object, mut pipe) = open_per_cpu(&Options::new().wakeup(wakeup), make);
        if !is_online_at_first {
            switch(true);
            // The consumer has not noticed the CPU yet.
            emit_one_on(&mut object, CPU);
        }
        let mut emitted = 0;
        while_running(
            |stop| pipe.run(stop).unwrap(),
            || {
                for cycle in 0..3 {
                    if is_online_at_first || cycle > 0 {
                        switch(false);
                        switch(true);
                    }
                    // Records fail until the CPU is covered again.
                    wait_until(|| covered.load(Ordering::Relaxed) == cycle + 1);
                    for _ in 0..10 {
                        emit_one_on(&mut object, CPU);
                        emit_one_on(&mut object, 0);
                    }
                    emitted += 20;
                    wait_until(|| total.load(Ordering::Relaxed) >= emitted);
                }
            },
        );
        let summary = pipe.close();
        let ledger = summary.ledger.unwrap();
        assert!(ledger.balances(), "{wakeup:?}: {ledger}");
        let too_early = ledger.tally().failed_for(FailureClass::NoEvent);
        let expected = u64::from(!is_online_at_first);
        assert_eq!((too_early, ledger.failed()), (expected, too_early), "{wakeup:?}");
        assert_eq!(ledger.handled(), emitted);
        let cpus: Vec<_> = summary.consumers.iter().map(|&(cpu, _)| cpu).collect();
        assert_eq!(cpus, online());
        let of = |cpu: u32| &summary.consumers[cpu as usize].1;
        for cpu in [0, CPU] {
            assert_eq!((of(cpu).count(cpu), of(cpu).elsewhere), (30, 0), "{wakeup:?}");
        }
        let mut changes = ["CPU 1 is offline", "CPU 1 is online"].repeat(3);
        changes.drain(..usize::from(!is_online_at_first));
        assert_eq!(of(CPU).changes, changes);
        assert!(of(0).changes.is_empty());
    }
}

/// Like [`accounting_is_exact_while_a_cpu_goes_offline_and_online`], with a consumer on each CPU. The emitting
/// thread of the offline CPU moves to another one and preempts the thread there, so this test does
/// not check the order.
#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn accounting_of_all_consumers_is_exact_while_a_cpu_goes_offline_and_online() {
    let _restore = Restore;
    for wakeup in policies() {
        let (total, of_it, ended) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let make = |cpu| {
            let (total, of_it) = (&total, &of_it);
            on_numbered(move |_| {
                total.fetch_add(1, Ordering::Relaxed);
                of_it.fetch_add(u64::from(cpu == CPU), Ordering::Relaxed);
            })
        };
        let (mut object, mut pipe) = open_per_cpu(&Options::new().wakeup(wakeup), make);
        let generators = Generators::load(&mut object);
        let act = || {
            std::thread::scope(|scope| {
                let (ended, generators) = (&ended, &generators);
                for cpu in online() {
                    scope.spawn(move || emit_until(ended, generators, cpu));
                }
                // Otherwise the threads would go on after a panic.
                let _end = SetOnDrop(ended);
                switch_off_and_on(cycles());
                // A slow machine may have covered the CPU at no time so far. Now it stays online.
                let before = of_it.load(Ordering::Relaxed);
                wait_until(|| of_it.load(Ordering::Relaxed) > before);
            });
        };
        while_running(|stop| pipe.run(stop).unwrap(), act);
        let summary = pipe.close();
        let ledger = summary.ledger.unwrap();
        assert!(ledger.balances() && ledger.unread() == 0, "{wakeup:?}: {ledger}");
        assert_eq!(total.load(Ordering::Relaxed), ledger.handled(), "{ledger}");
        let (_, of_it) = summary.cpus.iter().find(|(cpu, _)| *cpu == CPU).unwrap();
        assert!(of_it.records > 0, "{wakeup:?}: {ledger}");
        println!("{wakeup:?}: {ledger}");
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn nothing_leaks_when_a_cpu_goes_offline_and_online() {
    let _restore = Restore;
    for options in [Options::new(), Options::new().overwrite()] {
        let (mut object, mut pipe) = open(&options);
        let mut log = Log::default();
        let mut cycle = |times: usize| {
            for _ in 0..times {
                emit_one_on(&mut object, CPU);
                for on in [false, true] {
                    let before = log.changes.len();
                    switch(on);
                    poll_until(&mut pipe, &mut log, |log| log.changes.len() > before);
                }
            }
            (descriptors(), mappings())
        };
        // A flight recorder keeps the rings of some earlier times.
        let before = cycle(3);
        assert_eq!(cycle(10), before);
        let ledger = pipe.close(&mut log).ledger.unwrap();
        assert!(ledger.balances(), "{ledger}");
        assert_eq!((log.count(CPU) + ledger.overwritten(), ledger.failed()), (13, 0), "{ledger}");
    }
}
