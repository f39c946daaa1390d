//! Stacks: the functions that led to a hit. The kernel gives them to whoever has the program's context, so
//! they are read apart from the other fields, when it is known that the hit is told.

use super::fetch::Fetch;
use super::hit::LAST_DATA;
use aya_ebpf::{
    EbpfContext, Global, bindings::BPF_F_USER_STACK, helpers::generated::bpf_get_stack,
};
use probe_common::fetch::{FIELDS, LONGEST, kind};
use probe_common::trace::ProbeHit;
use probe_ebpf::Reservation;

/// 1: some of the probes read stacks. User space sets it before it loads the programs, so that the verifier drops
/// what is not done.
#[unsafe(no_mangle)]
static READ_STACKS: Global<u8> = Global::new(0);

/// Most stacks of a hit: the kernel's and the process's.
const STACKS: usize = 2;

/// Reads the stacks of a probe's table into its hit.
#[inline(always)]
pub(crate) fn read<C: EbpfContext>(ctx: &C, probe: u32, hit: &Reservation<ProbeHit>) {
    if READ_STACKS.load() == 0 {
        return;
    }
    let Some(mut fetch) = Fetch::of(probe, hit.depth()) else { return };
    let count = usize::from(fetch.table.stack_count);
    let first = usize::from(fetch.table.field_count).wrapping_sub(count);
    for n in 0..STACKS {
        let at = first.wrapping_add(n);
        if n >= count || at >= FIELDS {
            break;
        }
        read_one(ctx, &mut fetch, at);
    }
}

#[inline(always)]
fn read_one<C: EbpfContext>(ctx: &C, fetch: &mut Fetch<'_>, at: usize) {
    fetch.set_word(at, 0);
    // SAFETY: the frame is ours.
    let begin = unsafe { (&raw const fetch.frame.len).read_volatile() };
    if begin > LAST_DATA {
        return fetch.fault(at);
    }
    let is_user = fetch.table.fields[at].kind == kind::USER_STACK;
    let flags = if is_user { BPF_F_USER_STACK.into() } else { 0 };
    // SAFETY: LONGEST bytes of the tail are behind it.
    let to = unsafe { fetch.frame.tail.as_mut_ptr().add(begin) };
    // SAFETY: as above.
    let len = unsafe { bpf_get_stack(ctx.as_ptr(), to.cast(), LONGEST as u32, flags) };
    if len < 0 || len > LONGEST as i64 {
        return fetch.fault(at);
    }
    fetch.set_word(at, begin as u64 | (len as u64) << 32);
    // SAFETY: the frame is ours.
    unsafe { (&raw mut fetch.frame.len).write_volatile(begin + len as usize) };
}
