//! Stacks: the functions that led to a hit. Reading one takes the program's context, so stacks
//! are read apart from the other fields, once it is certain that the hit is reported.

use super::fetch::Fetch;
use super::hit::LAST_SHORT;
use aya_ebpf::{
    EbpfContext, Global, bindings::BPF_F_USER_STACK, helpers::generated::bpf_get_stack,
};
use core::ffi::c_void;
use probe_ebpf::Reservation;
use probe_tracer_common::fetch::{FIELDS, SHORT, kind};
use probe_tracer_common::trace::ProbeHit;

/// 1: some of the probes read stacks. User space sets this before it loads the programs, so that the verifier
/// removes the branches that are not taken.
#[unsafe(no_mangle)]
static READ_STACKS: Global<u8> = Global::new(0);

/// The most stacks of a hit: the kernel's and the process's.
const STACKS: usize = 2;

/// Reads the stacks that a probe's table asks for into its hit.
#[inline(always)]
pub(crate) fn read<C: EbpfContext>(ctx: &C, probe: u32, hit: &Reservation<ProbeHit>) {
    if READ_STACKS.load() != 0 {
        read_all(ctx.as_ptr(), probe, hit.depth());
    }
}

/// A function of its own, in which no number has to be spilled to the stack: old verifiers forget its bounds there.
#[inline(never)]
fn read_all(ctx: *mut c_void, probe: u32, depth: u32) -> u32 {
    let Some(mut fetch) = Fetch::of(probe, depth) else { return 0 };
    let count = usize::from(fetch.table.stack_count);
    let first = usize::from(fetch.table.field_count).wrapping_sub(count);
    for n in 0..STACKS {
        let at = first.wrapping_add(n);
        if n >= count || at >= FIELDS {
            break;
        }
        read_one(ctx, &mut fetch, at);
    }
    0
}

#[inline(always)]
fn read_one(ctx: *mut c_void, fetch: &mut Fetch<'_>, at: usize) {
    fetch.set_word(at, 0);
    // SAFETY: the frame is ours.
    let begin = unsafe { (&raw const fetch.frame.len).read_volatile() };
    if begin > LAST_SHORT {
        return fetch.fault(at);
    }
    let is_user = fetch.table.fields[at].kind == kind::USER_STACK;
    let flags = if is_user { BPF_F_USER_STACK.into() } else { 0 };
    // SAFETY: SHORT bytes of the tail are behind it.
    let to = unsafe { fetch.frame.tail.as_mut_ptr().add(begin) };
    // SAFETY: as above.
    let len = unsafe { bpf_get_stack(ctx, to.cast(), SHORT as u32, flags) };
    if len < 0 || len > SHORT as i64 {
        return fetch.fault(at);
    }
    fetch.set_word(at, begin as u64 | (len as u64) << 32);
    // SAFETY: the frame is ours.
    unsafe { (&raw mut fetch.frame.len).write_volatile(begin + len as usize) };
}
