//! The consumer allocates nothing for a record.

mod suite;

use probe_user::{EvHandlers, EvPipe, Options, Wakeup};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use suite::records::Numbered;
use suite::{classifier, generate_on, load, online};

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    /// Without a destructor or a lazy initial value, it can be used while memory is allocated.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread allocates in `run`.
fn allocations_in(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

/// Asserts that to drain and to poll 100,000 records each allocates nothing.
fn assert_no_allocation(wakeup: Wakeup) {
    /// 96 bytes of ring each are 9.6 of 16 MiB; they wrap in the middle of a record at times.
    const RECORDS: u32 = 100_000;
    let mut object = load();
    let cpu = online()[0];
    let options = Options::new().bytes_per_cpu(16 << 20).wakeup(wakeup);
    let mut pipe = EvPipe::from_object(&mut object, &options).unwrap();
    let (mut received, mut sum) = (0, 0u64);
    let mut handlers = EvHandlers::new();
    handlers.on::<Numbered, _>(|event| {
        received += 1;
        sum = sum.wrapping_add(event.number);
    });
    let mut emit = |count| generate_on(classifier(&mut object, "emit_numbered"), &[cpu], count);
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
    // The counter counts.
    assert_eq!(allocations_in(|| drop(std::hint::black_box(Box::new(sum)))), 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn packed_records_are_drained_without_allocations() {
    assert_no_allocation(Wakeup::Adaptive { max_latency: Duration::from_millis(10) });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn single_records_are_drained_without_allocations() {
    assert_no_allocation(Wakeup::Every(100));
}
