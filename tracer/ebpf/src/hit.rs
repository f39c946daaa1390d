//! Hits of probes: reserved, filled in according to the probe's table, and sent.

use super::{count, counter, fetch, filter, sampling, stack, task, wait};
use aya_ebpf::EbpfContext;
use core::ffi::c_void;
use core::hint::black_box;
use core::mem::offset_of;
use probe_ebpf::{Reservation, pipe};
use probe_tracer_common::counter::Counted;
use probe_tracer_common::fetch::{FetchTable, base, moment};
use probe_tracer_common::specialized::{
    FRAME_ADDRESS, FRAME_LEN, FRAME_REGISTERS, REGISTERS, TAIL,
};
pub(crate) use probe_tracer_common::specialized::{LAST_DATA, LAST_SHORT, LONGEST_TAIL};
use probe_tracer_common::trace::ProbeHit;

/// Arguments, return value and context, indexed by [`base`]. The length is a power of two, so that a mask bounds an
/// index.
pub(crate) type Registers = [u64; REGISTERS];

const _: () = assert!(
    base::COUNTERS_END <= base::FIELD
        && (base::FIELD as usize) < REGISTERS
        && REGISTERS.is_power_of_two()
);

/// The tail of a hit that is being built, followed by working memory that is not sent.
#[repr(C)]
pub(crate) struct Frame {
    /// A word for each field, then the counters at a call's entry, then strings and arrays.
    pub(crate) tail: [u8; LONGEST_TAIL],
    pub(crate) registers: Registers,
    /// How many bytes of the tail are used.
    pub(crate) len: usize,
    /// The address of the field that is being read.
    pub(crate) address: u64,
    /// The string or array that is being read.
    pub(crate) span: fetch::Span,
    /// The counters at the call's return.
    pub(crate) returned: Counted,
}

const _: () = assert!(
    TAIL + offset_of!(Frame, registers) == FRAME_REGISTERS
        && TAIL + offset_of!(Frame, len) == FRAME_LEN
        && TAIL + offset_of!(Frame, address) == FRAME_ADDRESS
);

const _: () = assert!(size_of::<Frame>() <= Reservation::<ProbeHit>::MAX_TAIL);

/// The memory behind a hit.
#[inline(always)]
pub(crate) fn frame(hit: &mut Reservation<ProbeHit>) -> &mut Frame {
    // SAFETY: the tail is 8-aligned and as long as a frame (it is asserted above), and a frame is
    // valid whatever bytes it holds.
    unsafe { &mut *hit.tail().as_mut_ptr().cast::<Frame>() }
}

/// A hit and the memory behind it, for a global function.
///
/// # Safety
///
/// As for [`pipe::reserved`].
#[inline(always)]
pub(crate) unsafe fn reserved<'r>(depth: u32) -> Option<(&'r mut ProbeHit, &'r mut Frame)> {
    // SAFETY: the caller's promise.
    let (hit, tail) = unsafe { pipe::reserved::<ProbeHit>(depth) }?;
    // SAFETY: as in frame().
    Some((hit, unsafe { &mut *tail.as_mut_ptr().cast::<Frame>() }))
}

/// What a program gets from its hook.
pub(crate) trait Hook {
    /// Fills in at least the registers that the probe's table uses.
    fn fill_in(ctx: *mut c_void, registers: &mut Registers, table: &FetchTable);

    /// The address that was hit, and what leads to the caller of the function that was entered: on x86-64 the stack pointer, on
    /// arm64 the return address itself. 0 if the hook does not know them.
    #[inline(always)]
    fn address_and_link(_ctx: *mut c_void) -> (u64, u64) {
        (0, 0)
    }
}

/// Reports or counts a hit of a probe.
#[inline(always)]
pub(crate) fn report<H: Hook, C: EbpfContext>(ctx: &C, probe: u32) -> u32 {
    if !filter::current_is_traced() {
        return 0;
    }
    let sieved = sieve(ctx.as_ptr(), probe);
    if sieved == fetch::REJECTED {
        return 0;
    }
    wait::end_earlier(ctx.as_ptr(), probe);
    let counts = count::is_wanted();
    if counts && sieved == fetch::ACCEPTED {
        count::hit(probe);
        return 0;
    }
    let Some(mut hit) = begin(probe) else {
        if counts {
            count::unjudged(probe);
        }
        return 0;
    };
    let said = read_into::<H, C>(ctx, &mut hit, sieved);
    if said == fetch::REJECTED {
        return 0;
    }
    let is_final = said == fetch::FINAL;
    let is_accepted = is_final || said == fetch::ACCEPTED;
    if counts && is_accepted {
        count::hit(probe);
        return 0;
    }
    // Whether an undecided hit is one of the sample is decided when it is accepted.
    if is_accepted && !sampling::is_reported(probe) {
        return 0;
    }
    if !counts {
        stack::read::<H, C>(ctx, probe, &hit);
    }
    let mut next = wait::SEND;
    if !is_final && (hit.faults != 0 || !is_accepted) {
        next = wait::settle(probe, hit.depth(), said);
    }
    if next == wait::SEND {
        send(ctx, hit);
    }
    0
}

/// Reserves a record for a hit of a probe.
#[inline(always)]
pub(crate) fn begin(probe: u32) -> Option<Reservation<ProbeHit>> {
    let mut hit = pipe::reserve::<ProbeHit>().ok()?;
    task::fill_in(&mut hit.task);
    hit.probe = probe;
    hit.faults = 0;
    Some(hit)
}

/// Reads what is read at the hook into a hit that [`begin`] has reserved. `sieved` is what [`sieve`] said. Returns what
/// the predicate says.
#[inline(always)]
pub(crate) fn read_into<H: Hook, C: EbpfContext>(
    ctx: &C,
    hit: &mut Reservation<ProbeHit>,
    sieved: u32,
) -> u32 {
    let (probe, depth) = (hit.probe, hit.depth());
    read_fields::<H>(ctx.as_ptr(), &raw mut **hit, depth, probe, sieved)
}

// In a program that is loaded for one probe, user space replaces the bodies of the next two functions with instructions
// compiled from the probe's table. The arguments and the result are hidden from the compiler, which would draw conclusions
// from the bodies that stand here.

/// What is known about a hit before anything is reserved: that the predicate rejects it, that it accepts it, or that
/// it is undecided.
#[inline(never)]
pub(crate) fn sieve(ctx: *mut c_void, probe: u32) -> u32 {
    let _ = black_box(ctx);
    let Some(table) = fetch::table(probe) else { return fetch::REJECTED };
    black_box(if table.early_checks == 0 { fetch::ACCEPTED } else { fetch::UNDECIDED })
}

/// Reads the fields of a hit, the first moment's, and returns what the predicate says. It is not asked if `sieved` says
/// that it accepts the hit.
#[inline(never)]
fn read_fields<H: Hook>(
    ctx: *mut c_void,
    hit: *mut ProbeHit,
    depth: u32,
    probe: u32,
    sieved: u32,
) -> u32 {
    let hit = black_box(hit);
    if black_box(sieved) > fetch::UNDECIDED {
        // Never taken. It keeps this function in the object for the code that replaces its body.
        return fetch::judge(probe, depth, moment::EARLY);
    }
    let Some(table) = fetch::table(probe) else { return fetch::REJECTED };
    // SAFETY: the hit is reserved, and its tail is a frame, as in frame().
    let frame = unsafe { &mut *hit.wrapping_add(1).cast::<Frame>() };
    H::fill_in(ctx, &mut frame.registers, table);
    frame.registers[base::CONTEXT as usize] = ctx as u64;
    frame.len = 8 * usize::from(table.field_count) + counter::room();
    black_box(fetch::follow_table(probe, depth, moment::EARLY))
}

/// Sends a hit, with the part of its tail that is used.
#[inline(always)]
pub(crate) fn send<C: EbpfContext>(ctx: &C, mut hit: Reservation<ProbeHit>) {
    // Once, so that the header and the block are about the same length.
    // SAFETY: the frame is ours.
    let len = unsafe { (&raw const frame(&mut hit).len).read_volatile() };
    // The tally counts a failure.
    let _ = hit.commit_with_tail(ctx, len);
}
