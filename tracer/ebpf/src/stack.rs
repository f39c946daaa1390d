//! Stacks: the functions that led to a hit. Reading one takes the program's context, so stacks
//! are read apart from the other fields, once it is certain that the hit is reported.

use super::fetch::Fetch;
use super::hit::{Hook, LAST_SHORT};
use aya_ebpf::{
    EbpfContext, Global,
    bindings::BPF_F_USER_STACK,
    helpers::{bpf_probe_read_kernel, bpf_probe_read_user, generated::bpf_get_stack},
};
use core::ffi::c_void;
use probe_ebpf::Reservation;
use probe_tracer_common::fetch::{FIELDS, SHORT, flag, kind};
use probe_tracer_common::trace::ProbeHit;

/// 1: some of the probes read stacks. User space sets this before it loads the programs, so that the verifier
/// removes the branches that are not taken.
#[unsafe(no_mangle)]
static READ_STACKS: Global<u8> = Global::new(0);

/// 1: some of these stacks [lack a caller](flag::CALLER).
#[unsafe(no_mangle)]
static READ_CALLERS: Global<u8> = Global::new(0);

/// The most stacks of a hit: the kernel's and the process's.
const STACKS: usize = 2;

/// Reads the stacks that a probe's table asks for into its hit.
#[inline(always)]
pub(crate) fn read<H: Hook, C: EbpfContext>(ctx: &C, probe: u32, hit: &Reservation<ProbeHit>) {
    if READ_STACKS.load() != 0 {
        let mut hook = (0, 0);
        if READ_CALLERS.load() != 0 {
            hook = H::address_and_link(ctx.as_ptr());
        }
        read_all(ctx.as_ptr(), probe, hit.depth(), hook.0, hook.1);
    }
}

/// A function of its own, in which no number has to be spilled to the stack: old verifiers forget its bounds there.
#[inline(never)]
fn read_all(ctx: *mut c_void, probe: u32, depth: u32, address: u64, link: u64) -> u32 {
    let Some(mut fetch) = Fetch::of(probe, depth) else { return 0 };
    let count = usize::from(fetch.table.stack_count);
    let first = usize::from(fetch.table.field_count).wrapping_sub(count);
    for n in 0..STACKS {
        let at = first.wrapping_add(n);
        if n >= count || at >= FIELDS {
            break;
        }
        read_one(ctx, &mut fetch, at, address, link);
    }
    0
}

#[inline(always)]
fn read_one(ctx: *mut c_void, fetch: &mut Fetch<'_>, at: usize, address: u64, link: u64) {
    fetch.set_word(at, 0);
    // SAFETY: the frame is ours.
    let begin = unsafe { (&raw const fetch.frame.len).read_volatile() };
    if begin > LAST_SHORT {
        return fetch.fault(at);
    }
    let field = &fetch.table.fields[at];
    let is_user = field.kind == kind::USER_STACK;
    let lacks_caller = READ_CALLERS.load() != 0 && field.flags & flag::CALLER != 0;
    let caller = if lacks_caller { return_address(link, is_user) } else { 0 };
    let flags = if is_user { BPF_F_USER_STACK.into() } else { 0 };
    // SAFETY: SHORT bytes of the tail are behind it.
    let to = unsafe { fetch.frame.tail.as_mut_ptr().add(begin) };
    if caller == 0 {
        // SAFETY: as above.
        let len = unsafe { bpf_get_stack(ctx, to.cast(), SHORT as u32, flags) };
        return keep(fetch, at, begin, len);
    }
    // SAFETY: as above.
    let rest = unsafe { to.add(2 * ADDRESS) };
    // SAFETY: as above.
    let len = unsafe { bpf_get_stack(ctx, rest.cast(), (SHORT - 2 * ADDRESS) as u32, flags) };
    if len < ADDRESS as i64 {
        return keep(fetch, at, begin, len);
    }
    // SAFETY: as above.
    let innermost = unsafe { rest.cast::<u64>().read_unaligned() };
    // Some kernels leave out the function itself at the probes of many functions.
    if innermost == address {
        // SAFETY: as above.
        unsafe { to.cast::<[u64; 3]>().write_unaligned([0, address, caller]) };
        keep(fetch, at, begin + ADDRESS, len + ADDRESS as i64);
    } else {
        // SAFETY: as above.
        unsafe { to.cast::<[u64; 2]>().write_unaligned([address, caller]) };
        keep(fetch, at, begin, len + 2 * ADDRESS as i64);
    }
}

/// Sets a field to a stack of `len` bytes at the end of the tail. A negative length is an error.
#[inline(always)]
fn keep(fetch: &mut Fetch<'_>, at: usize, begin: usize, len: i64) {
    if len < 0 || len > SHORT as i64 {
        return fetch.fault(at);
    }
    fetch.set_word(at, begin as u64 | (len as u64) << 32);
    // SAFETY: the frame is ours.
    unsafe { (&raw mut fetch.frame.len).write_volatile(begin + len as usize) };
}

/// The return address of a function that was entered, or 0 if there is none.
#[inline(always)]
fn return_address(link: u64, is_user: bool) -> u64 {
    let address = if cfg!(bpf_target_arch = "aarch64") {
        link
    } else if is_user {
        // SAFETY: the helper checks the address that is read.
        unsafe { bpf_probe_read_user(link as *const u64) }.unwrap_or(0)
    } else {
        // SAFETY: as above.
        unsafe { bpf_probe_read_kernel(link as *const u64) }.unwrap_or(0)
    };
    // The kernel has the upper half of the addresses.
    if is_user == (address as i64 >= 0) { address } else { 0 }
}

/// The size of an address in a stack, in bytes.
const ADDRESS: usize = 8;
