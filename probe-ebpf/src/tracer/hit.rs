//! Hits of probes: begun, filled in by the probe's table, and sent.

use super::{count, counter, fetch, filter, sampling, stack, task};
use aya_ebpf::EbpfContext;
use probe_common::counter::Counted;
use probe_common::fetch::{DATA, FIELDS, FetchTable, LONGEST, base, moment};
use probe_common::trace::ProbeHit;
use probe_ebpf::{Reservation, pipe};

/// Arguments, return value and context, by [`base`]; a power of two of them, so that a mask bounds an
/// index.
pub(crate) type Registers = [u64; 32];

const _: () = assert!(base::CONTEXT < 32 && base::COUNTERS_END <= 32);

/// Where strings and arrays may begin, at most.
pub(crate) const LAST_DATA: usize = 8 * FIELDS + size_of::<Counted>() + DATA;

/// The longest tail that a hit has.
pub(crate) const LONGEST_TAIL: usize = LAST_DATA + LONGEST;

/// The tail of a hit that is being built, and behind it what is not sent.
#[repr(C)]
pub(crate) struct Frame {
    /// A word for each field, then the counters of a call, then strings and arrays.
    pub(crate) tail: [u8; LONGEST_TAIL],
    pub(crate) registers: Registers,
    /// How much of the tail is used.
    pub(crate) len: usize,
    /// Where the field is that is being read.
    pub(crate) address: u64,
    /// The counters where a call returns.
    pub(crate) returned: Counted,
}

const _: () = assert!(size_of::<Frame>() <= Reservation::<ProbeHit>::MAX_TAIL);

/// What is behind a hit.
#[inline(always)]
pub(crate) fn frame(hit: &mut Reservation<ProbeHit>) -> &mut Frame {
    // SAFETY: the tail is 8-aligned and as long as a frame (it is asserted above), and a frame is
    // valid whatever bytes it holds.
    unsafe { &mut *hit.tail().as_mut_ptr().cast::<Frame>() }
}

/// Reports or counts a hit of a probe, whose registers `fill` fills in: those that its table needs, at least.
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
    if fetch::follow_table(probe, hit.depth(), moment::EARLY) != 0 {
        if counts {
            count::hit(probe);
        } else if sampling::is_told(probe) {
            stack::read(ctx, probe, &hit);
            send(ctx, hit);
        }
    }
    0
}

/// Begins a hit of a probe, whose registers `fill` fills in.
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

/// Sends a hit, with as much of its tail as is used.
#[inline(always)]
pub(crate) fn send<C: EbpfContext>(ctx: &C, mut hit: Reservation<ProbeHit>) {
    let len = frame(&mut hit).len;
    // A failure is in the tally.
    let _ = hit.commit_with_tail(ctx, len);
}
