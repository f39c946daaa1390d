//! Hits of probes: reserved, filled in according to the probe's table, and sent.

use super::{count, counter, fetch, filter, sampling, stack, task, wait};
use aya_ebpf::EbpfContext;
use probe_ebpf::{Reservation, pipe};
use probe_tracer_common::counter::Counted;
use probe_tracer_common::fetch::{DATA, FIELDS, FetchTable, LONGEST, SHORT, base, moment};
use probe_tracer_common::trace::ProbeHit;

/// Arguments, return value and context, indexed by [`base`]. The length is a power of two, so that a mask bounds an
/// index.
pub(crate) type Registers = [u64; 32];

const _: () = assert!(base::CONTEXT < 32 && base::COUNTERS_END <= base::FIELD && base::FIELD < 32);

/// The last offset at which strings and arrays of maximum length may begin.
pub(crate) const LAST_DATA: usize = 8 * FIELDS + size_of::<Counted>() + DATA;

/// The longest tail that a hit has. A string of maximum length ends with a zero that is not sent.
pub(crate) const LONGEST_TAIL: usize = LAST_DATA + LONGEST + 8;

/// The last offset at which strings and arrays of at most [`SHORT`] bytes may begin.
pub(crate) const LAST_SHORT: usize = LONGEST_TAIL - SHORT - 8;

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

/// Reports or counts a hit of a probe. `fill` fills in at least the registers that the probe's table uses.
#[inline(always)]
pub(crate) fn report<C: EbpfContext>(
    ctx: &C,
    probe: u32,
    fill: impl FnOnce(&mut Registers, &FetchTable),
) -> u32 {
    if !filter::current_is_traced() {
        return 0;
    }
    let counts = count::is_wanted();
    if counts && fetch::table(probe).is_some_and(|table| table.check_count == 0) {
        count::hit(probe);
        return 0;
    }
    let Some(hit) = begin(ctx, probe, fill) else {
        if counts {
            count::unjudged(probe);
        }
        return 0;
    };
    let said = fetch::follow_table(probe, hit.depth(), moment::EARLY);
    if said == fetch::REJECTED {
        return 0;
    }
    let is_accepted = said == fetch::ACCEPTED;
    if counts && is_accepted {
        count::hit(probe);
        return 0;
    }
    // Whether an undecided hit is one of the sample is decided when it is accepted.
    if is_accepted && !sampling::is_reported(probe) {
        return 0;
    }
    if !counts {
        stack::read(ctx, probe, &hit);
    }
    let mut next = wait::SEND;
    if hit.faults != 0 || !is_accepted {
        next = wait::begin(probe, hit.depth(), said);
        if next >= wait::OVER {
            wait::end_over(ctx.as_ptr(), next - wait::OVER);
            next = wait::begin(probe, hit.depth(), said | wait::NO_OTHER);
        }
    }
    if next == wait::SEND {
        send(ctx, hit);
    }
    0
}

/// Reserves a record for a hit of a probe. `fill` fills in the registers.
#[inline(always)]
pub(crate) fn begin<C: EbpfContext>(
    ctx: &C,
    probe: u32,
    fill: impl FnOnce(&mut Registers, &FetchTable),
) -> Option<Reservation<ProbeHit>> {
    let table = fetch::table(probe)?;
    let mut hit = pipe::reserve::<ProbeHit>().ok()?;
    task::fill_in(&mut hit.task);
    hit.probe = probe;
    hit.faults = 0;
    let frame = frame(&mut hit);
    fill(&mut frame.registers, table);
    frame.registers[base::CONTEXT as usize] = ctx.as_ptr() as u64;
    frame.len = 8 * usize::from(table.field_count) + counter::room();
    Some(hit)
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
