//! The programs of all contenders. They emit the same record through the pipe, through a perf event
//! array as other users write to it, and through a BPF ring buffer.

#![no_std]
#![no_main]

mod packed;
#[path = "../../src/payload.rs"]
mod payload;

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_F_CURRENT_CPU, BPF_RB_NO_WAKEUP},
    btf_maps,
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_perf_event_output},
    macros::{btf_map, classifier, map, raw_tracepoint},
    maps::{PerCpuArray, PerfEventByteArray, RingBuf, ring_buf::RingBufBytes},
    programs::{RawTracePointContext, TcContext},
};
use core::mem::MaybeUninit;
use payload::{BURST, Payload};
use probe_common::{Record, RecordHeader};
use probe_ebpf::pipe;

probe_ebpf::program!("Dual MIT/GPL");

/// The perf event array of the peers.
#[map]
static PEER_EVENTS: PerfEventByteArray = PerfEventByteArray::new(0);

/// User space sets its size.
#[map]
static PEER_RING: RingBuf = RingBuf::with_byte_size(1 << 24, 0);

/// One ring per CPU. User space creates the rings and sets the array's size.
#[btf_map]
static PEER_RINGS: btf_maps::ArrayOfMaps<RingOfCpu, 1> = btf_maps::ArrayOfMaps::new();

type RingOfCpu = btf_maps::RingBuf<u8, { 1 << 12 }>;

/// Scratch memory for records that do not fit on the stack.
#[map]
static PEER_SCRATCH: PerCpuArray<Framed<512>> = PerCpuArray::with_max_entries(1, 0);

/// A record as peers write it: the pipe's header, then the payload.
#[repr(C)]
struct Framed<const WORDS: usize> {
    header: RecordHeader,
    payload: Payload<WORDS>,
}

impl<const WORDS: usize> Framed<WORDS> {
    #[inline(always)]
    fn fill(&mut self, time: u64) {
        let len = size_of::<Payload<WORDS>>() as u32;
        self.header = RecordHeader { kind: Payload::<WORDS>::KIND, len, time };
        fill(&mut self.payload);
    }
}

/// Writes every word.
#[inline(always)]
fn fill<const WORDS: usize>(payload: &mut Payload<WORDS>) {
    let mut at = 0;
    while at < WORDS {
        payload.words[at] = at as u64;
        at += 1;
    }
}

fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn emit<const WORDS: usize>(ctx: &TcContext) {
    let Ok(mut record) = pipe::reserve::<Payload<WORDS>>() else { return };
    fill(&mut record);
    // The tally counts failures.
    let _ = record.commit(ctx);
}

#[inline(always)]
fn output<const WORDS: usize>(ctx: &TcContext, record: *mut Framed<WORDS>) {
    // SAFETY: the map is valid, and `record` is as long as its type. User space counts what
    // arrives.
    unsafe {
        bpf_perf_event_output(
            ctx.as_ptr(),
            (&raw const PEER_EVENTS).cast_mut().cast(),
            BPF_F_CURRENT_CPU,
            record.cast(),
            size_of::<Framed<WORDS>>() as u64,
        )
    };
}

#[inline(always)]
fn output_from_stack<const WORDS: usize>(ctx: &TcContext) {
    let mut record = MaybeUninit::<Framed<WORDS>>::uninit();
    // SAFETY: integers, all of which fill() writes.
    unsafe { record.assume_init_mut() }.fill(now());
    output(ctx, record.as_mut_ptr());
}

#[inline(always)]
fn output_from_scratch<const WORDS: usize>(ctx: &TcContext) {
    if let Some(record) = write_to_scratch::<WORDS>() {
        output(ctx, record);
    }
}

/// Writes a record and its time to scratch memory.
#[inline(always)]
fn write_to_scratch<const WORDS: usize>() -> Option<*mut Framed<WORDS>> {
    let record: *mut Framed<WORDS> = PEER_SCRATCH.get_ptr_mut(0)?.cast();
    // SAFETY: the scratch memory belongs to this CPU, and the record fits.
    unsafe { &mut *record }.fill(now());
    Some(record)
}

/// Calls `time` once the record has its space in the ring.
#[inline(always)]
fn submit<const WORDS: usize>(time: impl FnOnce() -> u64, flags: u64) {
    let Some(entry) = PEER_RING.reserve_bytes(size_of::<Framed<WORDS>>(), 0) else { return };
    submit_entry::<WORDS>(entry, time, flags);
}

/// The same for the ring of this CPU.
#[inline(always)]
fn submit_per_cpu<const WORDS: usize>(time: impl FnOnce() -> u64, flags: u64) {
    let Some(ring) = ring_of_this_cpu() else { return };
    let Some(entry) = ring.reserve_bytes(size_of::<Framed<WORDS>>(), 0) else { return };
    submit_entry::<WORDS>(entry, time, flags);
}

#[inline(always)]
fn ring_of_this_cpu() -> Option<&'static RingOfCpu> {
    // SAFETY: the helper has no preconditions.
    PEER_RINGS.get(unsafe { bpf_get_smp_processor_id() })
}

#[inline(always)]
fn submit_entry<const WORDS: usize>(
    mut entry: RingBufBytes<'_>,
    time: impl FnOnce() -> u64,
    flags: u64,
) {
    // SAFETY: the reserved entry is 8-byte aligned and has the requested length.
    unsafe { &mut *entry.as_mut_ptr().cast::<Framed<WORDS>>() }.fill(time());
    entry.submit(flags);
}

/// For each contender, a program that emits one record and one that emits a burst.
macro_rules! contenders {
    ($($words:literal: $($pipe:ident)|+, $($perf:ident)|+ ($output:ident), $($ring:ident)|+, $($nowake:ident)|+;)*) => {$(
        programs!($($pipe)|+, |ctx| emit::<$words>(ctx));
        programs!($($perf)|+, |ctx| $output::<$words>(ctx));
        submitters!(submit, $words, $($ring)|+, 0);
        submitters!(submit, $words, $($nowake)|+, BPF_RB_NO_WAKEUP.into());
    )*};
}

/// Each variant reads the clock where that is cheapest: after reserving space for a single record,
/// before reserving in a burst.
macro_rules! submitters {
    ($submit:ident, $words:literal, $one:ident | $burst:ident, $flags:expr) => {
        programs!($one | $burst, |_ctx| $submit::<$words>(now, $flags), |_ctx| {
            let time = now();
            $submit::<$words>(|| time, $flags)
        });
    };
}

macro_rules! programs {
    ($one:ident | $burst:ident, |$ctx:ident| $emit:expr) => {
        programs!($one | $burst, |$ctx| $emit, |$ctx| $emit);
    };
    ($one:ident | $burst:ident, |$ctx:ident| $emit:expr, |$burst_ctx:ident| $emit_in_burst:expr) => {
        #[classifier]
        pub fn $one(ctx: TcContext) -> i32 {
            let $ctx = &ctx;
            $emit;
            0
        }

        #[classifier]
        pub fn $burst(ctx: TcContext) -> i32 {
            let $burst_ctx = &ctx;
            for _ in 0..BURST {
                $emit_in_burst;
            }
            0
        }
    };
}

contenders! {
    2: pipe_16 | pipe_burst_16, perf_16 | perf_burst_16 (output_from_stack),
        ring_16 | ring_burst_16, nowake_16 | nowake_burst_16;
    8: pipe_64 | pipe_burst_64, perf_64 | perf_burst_64 (output_from_stack),
        ring_64 | ring_burst_64, nowake_64 | nowake_burst_64;
    32: pipe_256 | pipe_burst_256, perf_256 | perf_burst_256 (output_from_stack),
        ring_256 | ring_burst_256, nowake_256 | nowake_burst_256;
    128: pipe_1024 | pipe_burst_1024, perf_1024 | perf_burst_1024 (output_from_scratch),
        ring_1024 | ring_burst_1024, nowake_1024 | nowake_burst_1024;
    512: pipe_4096 | pipe_burst_4096, perf_4096 | perf_burst_4096 (output_from_scratch),
        ring_4096 | ring_burst_4096, nowake_4096 | nowake_burst_4096;
}

// The ring buffer without timestamps.
programs!(untimed_64 | untimed_burst_64, |_ctx| submit::<8>(|| 0, u64::from(BPF_RB_NO_WAKEUP)));

// One ring buffer per CPU.
submitters!(submit_per_cpu, 8, ring_percpu_64 | ring_percpu_burst_64, BPF_RB_NO_WAKEUP.into());

// The same, with the pipe's packing.
programs!(packed_64 | packed_burst_64, |_ctx| packed::append::<8>());

/// Sends the open block of this CPU.
#[raw_tracepoint]
pub fn packed_flush(_ctx: RawTracePointContext) -> i32 {
    packed::flush();
    0
}

// Reads the clock and writes the record, but outputs nothing.
programs!(floor_64 | floor_burst_64, |_ctx| write_to_scratch::<8>());

/// The cost of the loop that runs the other programs.
#[classifier]
pub fn empty(_ctx: TcContext) -> i32 {
    0
}
