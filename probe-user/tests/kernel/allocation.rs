//! Consuming a record allocates nothing.

use crate::suite::{AMPLE, adaptive, emit_on, on_numbered, online, open};
use probe_user::{Options, Wakeup};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

/// Counts allocations per thread.
struct Counting;

thread_local! {
    /// Needs neither a destructor nor lazy initialization, so it works inside the allocator.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system's allocator. The other methods call `alloc` by default.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations of this thread in `run`.
fn allocations_in(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

/// Asserts that neither draining nor polling 100,000 records allocates.
fn assert_no_allocation(wakeup: Wakeup) {
    /// At 96 bytes each, they take 9.6 MB of a ring of 16 MiB. Some of them wrap.
    const RECORDS: u32 = 100_000;
    let cpu = online()[0];
    let (mut object, mut pipe) = open(&Options::new().bytes_per_cpu(AMPLE).wakeup(wakeup));
    let (mut received, mut sum) = (0, 0u64);
    let mut handlers = on_numbered(|event| {
        received += 1;
        sum = sum.wrapping_add(event.number);
    });
    let mut emit = |count| emit_on(&mut object, &[cpu], count);
    emit(1000);
    assert!(pipe.drain_all(&mut handlers).is_continue());

    emit(RECORDS);
    let by_draining = allocations_in(|| assert!(pipe.drain_all(&mut handlers).is_continue()));
    emit(RECORDS);
    let mut polled = 0;
    let by_polling = allocations_in(|| {
        while polled < u64::from(RECORDS) {
            let progress = pipe.poll(Some(Duration::from_secs(20)), &mut handlers).unwrap();
            polled += progress.records;
        }
    });
    drop(handlers);
    assert_eq!(received, 1000 + 2 * RECORDS);
    assert_eq!((by_draining, by_polling), (0, 0), "allocations, with {wakeup:?}");
    // Check that the counter works.
    assert_eq!(allocations_in(|| drop(std::hint::black_box(Box::new(sum)))), 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn packed_and_unpacked_records_are_drained_without_allocations() {
    assert_no_allocation(adaptive(Duration::from_millis(10)));
    assert_no_allocation(Wakeup::Every(100));
}
