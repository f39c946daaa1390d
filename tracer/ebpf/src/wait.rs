//! Hits that wait for a page of the process's memory.
//!
//! A string that the kernel or a program is about to read may be in a page that is not there yet: it was never touched, or
//! it has been paged out. Programs cannot fault a page in. The kernel does so a moment later, in the same thread, and then
//! runs the program [`page_fault`], which reads the string and sends the hit, with the time of its entry.
//!
//! If the call is over, or it has taken too long, the hit is sent as it is: by the next hit of the probe in the thread, by
//! [`page_fault`] when the thread was outside the kernel, is in another call, or has executed another program, or by
//! [`end_wait`], which user space runs.
//!
//! A call is known by the registers with which the process entered the kernel ([`call`]). A program's function has no such
//! call. So hits of one wait only for strings in the program's own file ([`fetch::wait_in_image`]), which stays mapped.
//!
//! A waiting hit is kept in a place of its thread. A program that works on a place holds it: the program that keeps the hit, the one
//! that reads it again, or the one that ends its wait. Others leave it alone. So a hit is sent once, and no part of it is
//! replaced while it is copied.
//!
//! # Why blocks stay whole
//!
//! A hit that ends its wait goes into a reservation as any other does, from a program that may run between two
//! instructions of the others on its CPU.
//!
//! - **Slots.** The program claims a slot, so it never writes where another one does. What it finds in `fill` stays the same
//!   as long as it holds the slot, since only the holder writes that; so the global functions, which read it again, find
//!   the same record.
//! - **Length.** Copied parts end inside the reservation (asserted in `parts.rs`). The last one may cover the frame behind
//!   the tail, so the frame's length is set after they were copied. The header's length and the span that is added to the
//!   block are computed from one value, which [`hit::send`] reads once.
//! - **Stacks.** Kernels from 6.13 on may run a program on one stack for each CPU. Both programs here have stacks of their
//!   own ([`unshared_stack`]).
//! - **Dropped reservations.** A hit that goes on waiting leaves its bytes behind the block's end, where they mean nothing.

use super::fetch::{self, ACCEPTED, UNDECIDED, again};
use super::parts::{self, ANY, HEADER, PARTS, Part, Parts};
use super::{count, filter, hit, sampling};
use aya_ebpf::{
    EbpfContext, Global,
    bindings::{BPF_NOEXIST, bpf_perf_event_data},
    helpers::{bpf_get_current_pid_tgid, bpf_get_current_task, generated::bpf_probe_read_kernel},
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
    programs::RawTracePointContext,
};
use core::{ffi::c_void, mem::offset_of};
use probe_common::{Record, RecordHeader, RecordKind};
use probe_ebpf::{Reservation, atomic, pipe, unshared_stack};
use probe_tracer_common::call::PART;
use probe_tracer_common::specialized::NOTHING;
use probe_tracer_common::trace::ProbeHit;
use probe_tracer_common::wait::{IS_UNDECIDED, Layout, PLACES, Waits, key};

/// 1: some of the probes read the process's memory. User space sets this before it loads the programs, so that the
/// verifier removes the branches that are not taken.
#[unsafe(no_mangle)]
static HITS_WAIT: Global<u8> = Global::new(0);

/// Where a task and its memory have what the functions below read.
#[unsafe(no_mangle)]
static LAYOUT: Global<Layout> =
    Global::new(Layout { memory: 0, stack: 0, stack_size: 0, auxiliary: 0, end_data: 0 });

/// User space sets the number of parts.
///
/// A program must not interrupt another one that holds a lock of this map. One of a kprobe may interrupt one of a uprobe
/// (6.0+), but then the kernel refuses what the former asks for (5.11+), and its hit does not wait. The programs that
/// remove hits interrupt none: a page fault is resolved, and user space runs [`end_wait`], while interrupts are enabled.
/// Some kernels from 5.11 on still refuse a change, as the lock is given back before the mark that it is taken.
#[map]
static WAITING: HashMap<u64, Part> = HashMap::with_max_entries(1, 0);

/// The places that are held.
#[map]
static WAITING_HELD: HashMap<u64, u8> = HashMap::with_max_entries(1, 0);

#[map]
static WAITS: Array<Waits> = Array::with_max_entries(1, 0);

/// Hits that remained undecided; user space sets the number of entries.
#[map]
static UNDECIDED_HITS: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// The hit waits.
pub(crate) const KEPT: u32 = 0;
/// The hit does not wait, and is to be sent.
pub(crate) use probe_tracer_common::specialized::SEND;
/// The hit does not wait, and nothing is to be sent.
pub(crate) const DROP: u32 = 2;

/// A place for a hit of a thread.
#[derive(Clone, Copy)]
struct Place {
    thread: u32,
    number: u32,
}

impl Place {
    #[inline(always)]
    fn of_current_thread(number: u32) -> Self {
        Self { thread: bpf_get_current_pid_tgid() as u32, number }
    }

    #[inline(always)]
    fn key(self, part: usize) -> u64 {
        key(self.thread, self.number, part as u32)
    }

    /// Returns `false` if somebody else holds the place.
    #[inline(always)]
    fn hold(self) -> bool {
        WAITING_HELD.insert(self.key(0), 0, BPF_NOEXIST.into()).is_ok()
    }

    #[inline(always)]
    fn release(self) {
        // If holding the place succeeded, so does releasing it.
        let _ = WAITING_HELD.remove(self.key(0));
    }
}

impl Parts for Place {
    #[inline(always)]
    fn insert(&self, n: usize, part: &Part, flags: u64) -> bool {
        WAITING.insert(self.key(n), part, flags).is_ok()
    }

    #[inline(always)]
    fn get(&self, n: usize) -> Option<*const Part> {
        WAITING.get_ptr(self.key(n))
    }

    #[inline(always)]
    fn remove(&self, n: usize) -> bool {
        WAITING.remove(self.key(n)).is_ok()
    }
}

/// Makes the hit that is reserved at `depth` wait, if it has a reason to. `said` is what the predicate says. Returns
/// what to do with the hit.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn settle(probe: u32, depth: u32, said: u32) -> u32 {
    let is_undecided = said == UNDECIDED;
    if HITS_WAIT.load() == 0 {
        fetch::clear_faulted(probe, depth);
        return unless(is_undecided, probe);
    }
    if is_in_process(probe) {
        fetch::wait_in_image(probe, depth);
    }
    if fetch::fields_to_read(probe, depth) == 0 {
        fetch::clear_faulted(probe, depth);
        return unless(is_undecided, probe);
    }
    for number in 0..PLACES {
        let kept = keep(depth, number, is_undecided.into());
        if kept == KEPT {
            return KEPT;
        }
        if kept == REFUSED {
            break;
        }
    }
    fetch::clear_faulted(probe, depth);
    unless(is_undecided, probe)
}

/// What to do with a hit that does not wait. One that is undecided remains so.
#[inline(always)]
fn unless(is_undecided: bool, probe: u32) -> u32 {
    if is_undecided {
        remain_undecided(probe);
        return DROP;
    }
    SEND
}

/// Ends the wait of the probe's earlier hit in the current thread: if the probe is hit once more, that call is over.
#[inline(always)]
pub(crate) fn end_earlier(ctx: *mut c_void, probe: u32) {
    if HITS_WAIT.load() == 0 || !has_waits() {
        return;
    }
    let number = earlier(probe);
    if number < PLACES {
        send(ctx, give_up(bpf_get_current_pid_tgid() as u32, number));
    }
}

/// The place of the current thread that has a hit of this probe, unless that is a function of a program; [`PLACES`] if there
/// is none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn earlier(probe: u32) -> u32 {
    let Some(table) = fetch::table(probe) else { return PLACES };
    if table.is_in_process != 0 || table.waiting_fields == 0 {
        return PLACES;
    }
    for number in 0..PLACES {
        let place = Place::of_current_thread(number);
        // Only this thread puts hits into its places; a sweep may empty them at any time.
        if place.get(0).is_some_and(|kept| probe_of(kept) == probe) {
            return number;
        }
    }
    PLACES
}

/// The probe of a waiting hit, given its first part.
#[inline(always)]
fn probe_of(kept: *const Part) -> u32 {
    let number = kept.cast::<u8>().wrapping_add(HEADER + offset_of!(ProbeHit, probe));
    // SAFETY: the first part has the header and the hit.
    unsafe { number.cast::<u32>().read_volatile() & !IS_UNDECIDED }
}

/// Whether a probe is a function of a program or a library.
#[inline(always)]
fn is_in_process(probe: u32) -> bool {
    fetch::table(probe).is_some_and(|table| table.is_in_process != 0)
}

/// The context of a program of any type.
struct Context(*mut c_void);

impl EbpfContext for Context {
    fn as_ptr(&self) -> *mut c_void {
        self.0
    }
}

/// Sends the hit that is reserved at a depth, if there is one. The functions below leave this to the program: a global
/// function cannot have the context, and to send a hit in one place only costs the verifier less.
#[inline(never)]
fn send(ctx: *mut c_void, depth: u32) -> u32 {
    if depth == NOTHING {
        return 0;
    }
    // SAFETY: the functions below leave only reservations of hits.
    if let Some(hit) = unsafe { pipe::left::<ProbeHit>(depth) } {
        hit::send(&Context(ctx), hit);
    }
    0
}

/// The place is not free.
const TAKEN: u32 = 1;
/// The map is full.
const REFUSED: u32 = 2;

/// Keeps the hit that is reserved at `depth` in a place of the current thread. Returns [`KEPT`], [`TAKEN`] or [`REFUSED`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn keep(depth: u32, number: u32, is_undecided: u32) -> u32 {
    let place = Place::of_current_thread(number);
    if place.get(0).is_some() || !place.hold() {
        return TAKEN;
    }
    let kept = if place.get(0).is_some() {
        TAKEN
    } else if store(place, depth, is_undecided != 0) {
        // Before the place is released, and thus before the hit can end its wait.
        add_wait(|waits| &raw mut waits.begun);
        KEPT
    } else {
        REFUSED
    };
    place.release();
    kept
}

/// A word of the kernel's memory; 0 if it cannot be read.
#[inline(always)]
fn word(from: u64) -> u64 {
    let mut word = 0_u64;
    // SAFETY: there is room for a word. If the helper fails, it writes zeros.
    let _ = unsafe { bpf_probe_read_kernel((&raw mut word).cast(), 8, from as *const c_void) };
    word
}

/// A pointer that the current task has at an offset.
#[inline(always)]
fn of_task(offset: u32) -> u64 {
    // SAFETY: the helper has no preconditions.
    word(unsafe { bpf_get_current_task() }.wrapping_add(offset.into()))
}

/// A number of the current task's memory: another one after it has executed a program. 0 if that is not known.
#[inline(always)]
pub(crate) fn memory() -> u32 {
    match LAYOUT.load().memory {
        0 => 0,
        // The structure is aligned to a cache line.
        offset => (of_task(offset) >> 6) as u32,
    }
}

/// The addresses at which the current task has mapped the program's own file: from the page with the program headers, which is
/// the first one, to the end of the data.
#[inline(always)]
pub(crate) fn image() -> (u64, u64) {
    let layout = LAYOUT.load();
    let memory = of_task(layout.memory);
    let auxiliary = memory.wrapping_add(layout.auxiliary.into());
    let end = word(memory.wrapping_add(layout.end_data.into()));
    for entry in 0..AUXILIARY {
        let at = auxiliary.wrapping_add(16 * entry);
        if word(at) == AT_PHDR {
            return (word(at.wrapping_add(8)) & !0xfff, end);
        }
    }
    (end, end)
}

/// The entry of an auxiliary vector that has the address of the program headers (`linux/auxvec.h`). It is among the first.
const AT_PHDR: u64 = 3;
const AUXILIARY: u64 = 12;

/// How many words of registers the kernel keeps at the end of its stack, at least. Some kernels keep more, or have something
/// behind them; then as many of the first registers are left out.
const SAVED_REGISTERS: u64 = if cfg!(bpf_target_arch = "aarch64") { 40 } else { 21 };

/// A number of the call in which the current task is, and of its memory: of the registers with which it entered the kernel. 0
/// in a thread that never was outside the kernel, such as one of io_uring.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn call() -> u32 {
    let layout = LAYOUT.load();
    let end = of_task(layout.stack).wrapping_add(layout.stack_size.into());
    let (mut number, mut any) = (u64::from(memory()), 0);
    for n in 1..=SAVED_REGISTERS {
        let register = word(end.wrapping_sub(8 * n));
        any |= register;
        number = (number ^ register).wrapping_mul(ODD).rotate_left(29);
    }
    if any == 0 { 0 } else { (number >> 32) as u32 | 1 }
}

/// A factor that spreads the bits of a word.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number that stays the same as long as a hit of this probe in the current task may wait; 0 if it may not.
#[inline(always)]
fn circumstances(probe: u32) -> u32 {
    if is_in_process(probe) { memory() } else { call() }
}

/// Stores the hit that is reserved at `depth` in a place that is held. Returns `false` if there is no room.
#[inline(always)]
fn store(place: Place, depth: u32, is_undecided: bool) -> bool {
    // SAFETY: the caller of the global functions holds the reservation.
    let Some(record) = (unsafe { pipe::reserved_header(depth) }) else { return false };
    // SAFETY: as above.
    let Some((hit, frame)) = (unsafe { hit::reserved(depth) }) else { return false };
    // SAFETY: the frame is ours.
    let len = size_of::<ProbeHit>() + unsafe { (&raw const frame.len).read_volatile() };
    let probe = hit.probe;
    let circumstances = circumstances(probe);
    if circumstances == 0 {
        return false;
    }
    // SAFETY: the header is the reservation's.
    unsafe { (*record).len = len as u32 };
    // All waiting records are hits, so the kind's place has room for something else.
    // SAFETY: as above.
    unsafe { (*record).kind = RecordKind(circumstances) };
    if is_undecided {
        hit.probe = probe | IS_UNDECIDED;
    }
    let all = HEADER + len;
    let is_stored = all <= PARTS * PART
        && parts::keep_rest(&place, record, all)
        && place.insert(0, parts::part(record, 0), ANY);
    hit.probe = probe;
    // SAFETY: the header is the reservation's.
    unsafe { (*record).kind = ProbeHit::KIND };
    if !is_stored {
        remove(place);
    }
    is_stored
}

/// Removes what is in a place that is held. Returns `false` if the kernel refuses that now: the hit is still there.
#[inline(always)]
fn remove(place: Place) -> bool {
    remove_parts(place.thread, place.number) != 0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn remove_parts(thread: u32, number: u32) -> u32 {
    let place = Place { thread, number };
    // First, so that no hit lacks a part.
    if place.get(0).is_some() && !place.remove(0) {
        return 0;
    }
    for n in 1..PARTS {
        if place.get(n).is_none() {
            break;
        }
        // A part that remains makes room for the next hit of this place.
        place.remove(n);
    }
    1
}

/// Copies the hit in a place that is held to the reservation at `depth`. Returns whether there is one, and whether it is
/// undecided: [`ACCEPTED`] or [`UNDECIDED`], or 0; and with [`IS_OVER`] if its call is not the current one, or its memory not
/// the current task's.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn restore(thread: u32, number: u32, depth: u32) -> u32 {
    let place = Place { thread, number };
    let Some(kept) = place.get(0) else { return 0 };
    // SAFETY: the caller holds the reservation.
    let Some(record) = (unsafe { pipe::reserved_header(depth) }) else { return 0 };
    // SAFETY: the value has the size of a part, and there is room for a whole one.
    unsafe { parts::copy(record, kept, 0, PART) };
    // SAFETY: the header is the reservation's.
    let RecordHeader { kind, len, .. } = unsafe { record.read() };
    let (then, len) = (kind.0, len as usize);
    // SAFETY: as above.
    unsafe { (*record).kind = ProbeHit::KIND };
    if !parts::restore_rest(&place, record, HEADER + len, false) {
        return 0;
    }
    // SAFETY: as above.
    let Some((hit, frame)) = (unsafe { hit::reserved(depth) }) else { return 0 };
    // SAFETY: the frame is ours.
    unsafe { (&raw mut frame.len).write_volatile(len.wrapping_sub(size_of::<ProbeHit>())) };
    let probe = hit.probe;
    hit.probe = probe & !IS_UNDECIDED;
    let was = if probe & IS_UNDECIDED == 0 { ACCEPTED } else { UNDECIDED };
    if then == circumstances(hit.probe) { was } else { was | IS_OVER }
}

/// A bit of [`restore`]'s result.
const IS_OVER: u32 = 1 << 8;

/// Runs when a page fault of the current thread was resolved: its waiting hits may have what they wait for.
#[unsafe(no_mangle)]
#[unsafe(link_section = "perf_event")]
extern "C" fn page_fault(ctx: *mut c_void) -> u32 {
    unshared_stack();
    if !filter::is_open() || !has_waits() {
        return 0;
    }
    let was_in_process = u32::from(is_of_process(ctx.cast()));
    for number in 0..PLACES {
        let place = Place::of_current_thread(number);
        if place.get(0).is_some() {
            send(ctx, go_on(place.thread, number, was_in_process));
        }
    }
    0
}

/// Ends the wait of a hit, given the thread and the place. User space runs this.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
extern "C" fn end_wait(ctx: *mut c_void) -> u32 {
    unshared_stack();
    let arguments = RawTracePointContext::new(ctx);
    let (thread, number): (u64, u64) = (arguments.arg(0), arguments.arg(1));
    send(ctx, give_up(thread as u32, number as u32));
    0
}

/// Reads a waiting hit of the current thread again. If the thread was outside the kernel, no call of the kernel that it
/// has made is still going on. Returns the depth of the hit if it is to be sent, and otherwise [`NOTHING`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn go_on(thread: u32, number: u32, was_in_process: u32) -> u32 {
    let place = Place { thread, number };
    if !place.hold() {
        return NOTHING;
    }
    let depth = match taken_from(place) {
        Some((hit, was, is_over)) => read_again(place, hit, was, was_in_process != 0, is_over),
        None => NOTHING,
    };
    place.release();
    depth
}

/// Ends the wait of a hit as it is. Returns the depth of the hit if it is to be sent, and otherwise [`NOTHING`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn give_up(thread: u32, number: u32) -> u32 {
    let place = Place { thread, number };
    if !place.hold() {
        return NOTHING;
    }
    let depth = match taken_from(place) {
        Some((hit, was, _)) => {
            let said = fetch::give_fields_up(hit.probe, hit.depth());
            end(place, hit, was, said)
        }
        None => NOTHING,
    };
    place.release();
    depth
}

/// The hit in a place that is held, in a reservation, whether it was undecided, and whether the current task can no longer
/// read what it waits for.
#[inline(always)]
fn taken_from(place: Place) -> Option<(Reservation<ProbeHit>, u32, bool)> {
    // Before a slot is reserved: another program may have ended this wait.
    let kept = place.get(0)?;
    let Ok(hit) = pipe::reserve::<ProbeHit>() else {
        // Where hits are reported, the pipe's tally has counted this one as lost.
        let probe = probe_of(kept);
        if remove(place) {
            add_wait(|waits| &raw mut waits.ended);
            if count::is_wanted() {
                count::unjudged(probe);
            }
        }
        return None;
    };
    match restore(place.thread, place.number, hit.depth()) {
        0 => None,
        was => Some((hit, was & !IS_OVER, was & IS_OVER != 0)),
    }
}

#[inline(always)]
fn read_again(
    place: Place,
    hit: Reservation<ProbeHit>,
    was: u32,
    was_in_process: bool,
    is_over: bool,
) -> u32 {
    let (probe, before) = (hit.probe, hit.faults);
    if is_over || was_in_process && !is_in_process(probe) {
        let said = fetch::give_fields_up(probe, hit.depth());
        return end(place, hit, was, said);
    }
    let said = fetch::read_again(probe, hit.depth(), again::FOR_NOW);
    if said != fetch::REJECTED && fetch::fields_to_read(probe, hit.depth()) != 0 {
        // What could be read now might not be there the next time.
        if hit.faults == before || store(place, hit.depth(), was == UNDECIDED) {
            return NOTHING;
        }
    }
    fetch::clear_faulted(probe, hit.depth());
    end(place, hit, was, said)
}

/// Removes a hit that waits no more from its place, and counts it. `said` is what the predicate says now. If the kernel
/// refuses that, the hit waits on, for a sweep at the latest.
#[inline(always)]
fn end(place: Place, hit: Reservation<ProbeHit>, was: u32, said: u32) -> u32 {
    let probe = hit.probe;
    if !remove(place) {
        return NOTHING;
    }
    add_wait(|waits| &raw mut waits.ended);
    if said == UNDECIDED {
        remain_undecided(probe);
    } else if said == ACCEPTED {
        if count::is_wanted() {
            count::hit(probe);
        } else if was == ACCEPTED || sampling::is_reported(probe) {
            return hit.leave();
        }
    }
    NOTHING
}

/// Counts a hit that remained undecided.
#[inline(always)]
pub(crate) fn remain_undecided(probe: u32) {
    if count::is_wanted() {
        return count::unjudged(probe);
    }
    let Some(count) = UNDECIDED_HITS.get_ptr_mut(probe) else { return };
    // SAFETY: the count is this CPU's, and a map value is 8-aligned.
    unsafe { atomic::add(count, 1) };
}

/// Whether any hit waits, in whatever thread. A hit of this thread has been counted by then.
#[inline(always)]
fn has_waits() -> bool {
    let Some(waits) = WAITS.get_ptr(0) else { return false };
    // SAFETY: the value lives as long as the map.
    let begun = unsafe { &raw const (*waits).begun };
    // SAFETY: as above.
    let ended = unsafe { &raw const (*waits).ended };
    // SAFETY: as above.
    let begun = unsafe { begun.read_volatile() };
    // SAFETY: as above.
    begun != unsafe { ended.read_volatile() }
}

#[inline(always)]
fn add_wait(which: impl FnOnce(&mut Waits) -> *mut u64) {
    let Some(waits) = WAITS.get_ptr_mut(0) else { return };
    // SAFETY: the value lives as long as the map; all additions are atomic.
    let counter = which(unsafe { &mut *waits });
    // SAFETY: as above; a map value is 8-aligned.
    unsafe { atomic::add(counter, 1) };
}

/// Whether the page fault was in the process and not in the kernel.
#[inline(always)]
fn is_of_process(ctx: *const bpf_perf_event_data) -> bool {
    #[cfg(bpf_target_arch = "aarch64")]
    // SAFETY: the context is the one that the kernel gave this program.
    let (register, bits) = (unsafe { &raw const (*ctx).regs.pstate }, 0xf);
    #[cfg(not(bpf_target_arch = "aarch64"))]
    // SAFETY: as above.
    let (register, bits) = (unsafe { &raw const (*ctx).regs.cs }, 3);
    // Volatile, because the kernel lets programs read only the whole register.
    // SAFETY: as above.
    let level = unsafe { register.read_volatile() } & bits;
    if cfg!(bpf_target_arch = "aarch64") { level == 0 } else { level != 0 }
}
