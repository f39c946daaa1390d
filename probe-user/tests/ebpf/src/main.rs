//! eBPF programs of the test suite: generators that `BPF_PROG_TEST_RUN` drives at full speed, on
//! any kernel and without a probe.

#![no_std]
#![no_main]

#[path = "../../kernel/suite/records.rs"]
mod records;

use aya_ebpf::{
    EbpfContext,
    bindings::BPF_F_CURRENT_CPU,
    helpers::{bpf_get_smp_processor_id, bpf_perf_event_output},
    macros::{classifier, map, perf_event, raw_tracepoint, uprobe},
    maps::{Array, PerCpuArray, PerfEventByteArray},
    programs::{PerfEventContext, ProbeContext, RawTracePointContext, TcContext},
};
use probe_ebpf::{pipe, unshared_stack};
use records::{
    CALLED_WORDS, Called, FOREIGN, FOREIGN_PACKET, Interrupting, Numbered, TAIL_LENS, Tailed,
};

probe_ebpf::program!("Dual MIT/GPL");

/// The next number for each numbered kind.
#[map]
static NEXT: PerCpuArray<u64> = PerCpuArray::with_max_entries(3, 0);

fn next(kind: u32) -> u64 {
    let Some(next) = NEXT.get_ptr_mut(kind) else { return 0 };
    // SAFETY: the map value is this CPU's.
    let number = unsafe { *next };
    // SAFETY: as above.
    unsafe { *next = number + 1 };
    number
}

fn cpu() -> u64 {
    // SAFETY: the helper has no preconditions.
    u64::from(unsafe { bpf_get_smp_processor_id() })
}

fn numbered<C: EbpfContext>(ctx: &C) {
    let record = Numbered::new(next(0), cpu());
    // A failure is tallied.
    let _ = pipe::emit(ctx, &record);
}

/// Emits the next [`Numbered`].
#[classifier]
pub fn emit_numbered(ctx: TcContext) -> i32 {
    numbered(&ctx);
    0
}

/// Does the same, for a test run on a CPU other than the caller's.
#[raw_tracepoint]
pub fn emit_numbered_raw(ctx: RawTracePointContext) -> u32 {
    numbered(&ctx);
    0
}

/// Emits the next [`Tailed`].
#[classifier]
pub fn emit_tailed(ctx: TcContext) -> i32 {
    let Ok(mut record) = pipe::reserve::<Tailed>() else { return 0 };
    let number = next(1);
    record.number = number;
    let tail = &mut record.tail()[..TAIL_LENS as usize];
    for byte in tail.iter_mut() {
        *byte = number as u8;
    }
    // A failure is tallied.
    let _ = record.commit_with_tail(&ctx, (number % TAIL_LENS) as usize);
    0
}

/// Drops a reservation, then commits another one with a tail that is too long.
#[classifier]
pub fn emit_nothing(ctx: TcContext) -> i32 {
    drop(pipe::reserve::<Tailed>());
    if let Ok(record) = pipe::reserve::<Tailed>() {
        let _ = record.commit_with_tail(&ctx, pipe::Reservation::<Tailed>::MAX_TAIL + 1);
    }
    0
}

/// The perf event array of a program that does not use `probe_ebpf`.
#[map]
static FOREIGN_EVENTS: PerfEventByteArray = PerfEventByteArray::new(0);

/// Outputs [`FOREIGN`] without the pipe: alone, then with the first bytes of the packet.
#[classifier]
pub fn output_foreign(ctx: TcContext) -> i32 {
    let data = FOREIGN;
    for packet in [0, FOREIGN_PACKET] {
        let flags = BPF_F_CURRENT_CPU | packet << 32;
        let map = (&raw const FOREIGN_EVENTS).cast_mut().cast();
        let bytes = (&raw const data).cast_mut().cast();
        // SAFETY: the map is valid, and `bytes` is as long as its type.
        unsafe {
            bpf_perf_event_output(ctx.as_ptr(), map, flags, bytes, size_of_val(&data) as u64)
        };
    }
    0
}

/// Emits the next [`Interrupting`].
#[perf_event]
pub fn emit_interrupting(ctx: PerfEventContext) -> u32 {
    let record = Interrupting(Numbered::new(next(2), cpu()));
    // A failure is tallied.
    let _ = pipe::emit(&ctx, &record);
    0
}

/// Emits a [`Called`] with the thread and the number of a call. It takes its time between the
/// reservation and the commit, so that it can be preempted there.
#[uprobe]
pub fn emit_called(ctx: ProbeContext) -> u32 {
    unshared_stack();
    let (Some(thread), Some(number)) = (ctx.arg(0), ctx.arg(1)) else { return 0 };
    let Ok(mut record) = pipe::reserve::<Called>() else { return 0 };
    record.thread = thread;
    record.number = number;
    for _ in 0..SLOWLY {
        for at in 0..CALLED_WORDS {
            let word: *mut u64 = &raw mut record.fill[at];
            // SAFETY: it is a word of the record. A volatile write keeps the compiler from merging the rounds.
            unsafe { word.write_volatile(Called::word(thread, number, at)) };
        }
    }
    // A failure is tallied.
    let _ = record.commit(&ctx);
    0
}

/// The number of times that a [`Called`] is filled in.
const SLOWLY: u32 = 512;

/// The number of runs of [`keep_stack`], the number of runs whose stack was changed, and a word to
/// spend time with.
#[map]
static STACKS: Array<u64> = Array::with_max_entries(3, 0);

/// Writes to its stack, takes its time, and checks that the stack is unchanged. If it is not, the kernel
/// lets programs that preempt each other share a stack.
#[uprobe]
pub fn keep_stack(ctx: ProbeContext) -> u32 {
    unshared_stack();
    let (Some(thread), Some(number)) = (ctx.arg::<u64>(0), ctx.arg::<u64>(1)) else { return 0 };
    let mark = thread << 32 | number;
    let mut stack = [0u64; CALLED_WORDS];
    for word in &mut stack {
        // SAFETY: it is a word of the array. A volatile write happens whatever the compiler knows about it.
        unsafe { (&raw mut *word).write_volatile(mark) };
    }
    let Some(slowly) = STACKS.get_ptr_mut(2) else { return 0 };
    for round in 0..SLOWLY * 16 {
        // SAFETY: nothing depends on the value of this word.
        unsafe { slowly.write_volatile(u64::from(round)) };
    }
    let mut changed = 0;
    for word in &stack {
        // SAFETY: as above, for reading.
        changed |= unsafe { (&raw const *word).read_volatile() } ^ mark;
    }
    let changed = u64::from(changed != 0);
    for (at, count) in [(0, 1), (1, changed)] {
        if let Some(counter) = STACKS.get_ptr_mut(at) {
            // SAFETY: the counter is in the map's value, and is only added to.
            unsafe { probe_ebpf::atomic::add(counter, count) };
        }
    }
    0
}
