//! eBPF programs of the test suite: generators that `BPF_PROG_TEST_RUN` drives at full speed, on
//! any kernel, without a probe.

#![no_std]
#![no_main]

#[path = "../../suite/records.rs"]
mod records;

use aya_ebpf::{
    EbpfContext,
    helpers::bpf_get_smp_processor_id,
    macros::{classifier, map, perf_event, raw_tracepoint, uprobe},
    maps::{Array, PerCpuArray},
    programs::{PerfEventContext, ProbeContext, RawTracePointContext, TcContext},
};
use probe_ebpf::{pipe, unshared_stack};
use records::{CALLED_WORDS, Called, Interrupting, Numbered, Odd, TAIL_LENS, Tailed};

probe_ebpf::program!("Dual MIT/GPL");

/// The next number, for each of the kinds that are numbered.
#[map]
static NEXT: PerCpuArray<u64> = PerCpuArray::with_max_entries(4, 0);

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
    // A failure is in the tally.
    let _ = pipe::emit(ctx, &record);
}

/// Emits the next [`Numbered`].
#[classifier]
pub fn emit_numbered(ctx: TcContext) -> i32 {
    numbered(&ctx);
    0
}

/// The same, for a test run on a CPU that is not the caller's.
#[raw_tracepoint]
pub fn emit_numbered_raw(ctx: RawTracePointContext) -> u32 {
    numbered(&ctx);
    0
}

fn numbered_alone<C: EbpfContext>(ctx: &C) {
    let record = Numbered::new(next(0), cpu());
    // A failure is in the tally.
    let _ = pipe::emit_alone(ctx, &record);
}

/// Emits the next [`Numbered`], alone.
#[classifier]
pub fn emit_alone(ctx: TcContext) -> i32 {
    numbered_alone(&ctx);
    0
}

/// The same, for a test run on a CPU that is not the caller's.
#[raw_tracepoint]
pub fn emit_alone_raw(ctx: RawTracePointContext) -> u32 {
    numbered_alone(&ctx);
    0
}

/// Emits the next [`Numbered`] and packs it, or alone, by turns of three and two.
#[classifier]
pub fn emit_mixed(ctx: TcContext) -> i32 {
    let record = Numbered::new(next(0), cpu());
    // A failure is in the tally.
    let _ = match record.number % 5 {
        0..3 => pipe::emit(&ctx, &record),
        _ => pipe::emit_alone(&ctx, &record),
    };
    0
}

/// Emits the next [`Odd`], alone.
#[classifier]
pub fn emit_odd(ctx: TcContext) -> i32 {
    // A failure is in the tally.
    let _ = pipe::emit_alone(&ctx, &Odd::new(next(3)));
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
    // A failure is in the tally.
    let _ = record.commit_with_tail(&ctx, (number % TAIL_LENS) as usize);
    0
}

/// Takes a reservation and gives it back, then one more tail than there can be.
#[classifier]
pub fn emit_nothing(ctx: TcContext) -> i32 {
    drop(pipe::reserve::<Tailed>());
    if let Ok(record) = pipe::reserve::<Tailed>() {
        let _ = record.commit_with_tail(&ctx, pipe::Reservation::<Tailed>::MAX_TAIL + 1);
    }
    0
}

/// Emits the next [`Interrupting`].
#[perf_event]
pub fn emit_interrupting(ctx: PerfEventContext) -> u32 {
    let record = Interrupting(Numbered::new(next(2), cpu()));
    // A failure is in the tally.
    let _ = pipe::emit(&ctx, &record);
    0
}

/// Emits the next [`Interrupting`], alone.
#[perf_event]
pub fn emit_interrupting_alone(ctx: PerfEventContext) -> u32 {
    let record = Interrupting(Numbered::new(next(2), cpu()));
    // A failure is in the tally.
    let _ = pipe::emit_alone(&ctx, &record);
    0
}

/// Emits a [`Called`] for a call with a thread and a number, and is in no hurry between the
/// reservation and the commit: it can be preempted there.
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
            // SAFETY: it is a word of the record. The compiler writes each as often as it is told.
            unsafe { word.write_volatile(Called::word(thread, number, at)) };
        }
    }
    // A failure is in the tally.
    let _ = record.commit(&ctx);
    0
}

/// How often a [`Called`] is filled in.
const SLOWLY: u32 = 512;

/// How often [`keep_stack`] ran, how often its stack was not what it had left there, and a word to
/// pass the time with.
#[map]
static STACKS: Array<u64> = Array::with_max_entries(3, 0);

/// Writes on its stack, takes its time, and looks whether all is there still: if not, the kernel has
/// programs that preempt each other share a stack.
#[uprobe]
pub fn keep_stack(ctx: ProbeContext) -> u32 {
    unshared_stack();
    let (Some(thread), Some(number)) = (ctx.arg::<u64>(0), ctx.arg::<u64>(1)) else { return 0 };
    let mark = thread << 32 | number;
    let mut stack = [0u64; CALLED_WORDS];
    for word in &mut stack {
        // SAFETY: it is a word of the array. The compiler writes it, whatever it knows of it.
        unsafe { (&raw mut *word).write_volatile(mark) };
    }
    let Some(slowly) = STACKS.get_ptr_mut(2) else { return 0 };
    for round in 0..SLOWLY * 16 {
        // SAFETY: nobody cares what is there.
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
            // SAFETY: the counter is the map's value, and only added to.
            unsafe { probe_ebpf::atomic::add(counter, count) };
        }
    }
    0
}
