//! Follows a probe's fetch table: reads its fields, and decides whether the hit is told.
//!
//! For a call that is done in two goes, by [`moment`]: when it is entered, and when it returns.
//!
//! What is done for each field, and for each comparison, are global functions (`BTF_FUNC_GLOBAL`, 5.6+):
//! the verifier looks at them once, and not once for each field of each way through the fields before.
//! They are given numbers, and find the tables and the hit by them.

use super::hit::{Frame, LAST_DATA};
use aya_ebpf::{
    cty::c_void,
    helpers::{
        bpf_get_current_task, bpf_get_current_uid_gid, bpf_get_smp_processor_id,
        generated::{
            bpf_probe_read_kernel, bpf_probe_read_kernel_str, bpf_probe_read_user,
            bpf_probe_read_user_str,
        },
    },
    macros::map,
    maps::Array,
};
use probe_common::counter;
use probe_common::fetch::{
    CHECKS, Check, FIELDS, FetchField, FetchTable, LONGEST, STEPS, TEXT_LEN, TEXTS, base, flag,
    kind, moment, operator, verdict,
};
use probe_common::trace::ProbeHit;
use probe_ebpf::pipe;

/// A table for each probe: user space says how many there are.
#[map]
static PROBES: Array<FetchTable> = Array::with_max_entries(1, 0);

/// The table of a probe.
#[inline(always)]
pub(crate) fn table(probe: u32) -> Option<&'static FetchTable> {
    PROBES.get(probe)
}

/// Reads the fields of a moment into the hit that is reserved at `depth`. 0 if the predicate rejects it,
/// as early as that is known.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn follow_table(probe: u32, depth: u32, moment: u32) -> u32 {
    let Some(table) = PROBES.get(probe) else { return 0 };
    let late = u32::from(table.late_fields);
    let fields = if moment == moment::LATE { late } else { !late };
    let taken = fields & u32::from(table.taken_fields);
    if taken != 0 {
        let Some(mut fetch) = Fetch::by(table, depth) else { return 0 };
        fetch.take(taken);
    }
    let read = fields & !taken;
    for at in 0..FIELDS as u32 {
        if at >= u32::from(table.integer_count) {
            break;
        }
        if read >> at & 1 != 0 {
            fetch_field(probe, depth, at);
        }
    }
    let checks_text = table.checks_text >> (moment & 1) & 1 != 0;
    if !checks_text && !accepts(table, probe, depth, moment) {
        return 0;
    }
    for at in 0..FIELDS as u32 {
        if at + u32::from(table.stack_count) >= u32::from(table.field_count) {
            break;
        }
        if at >= u32::from(table.integer_count) && fields >> at & 1 != 0 {
            fetch_field(probe, depth, at);
        }
    }
    u32::from(!checks_text || accepts(table, probe, depth, moment))
}

/// Whether that part of the predicate holds that is decided at this moment.
#[inline(always)]
fn accepts(table: &FetchTable, probe: u32, depth: u32, moment: u32) -> bool {
    let early = u32::from(table.early_checks);
    let (first, end) =
        if moment == moment::LATE { (early, u32::from(table.check_count)) } else { (0, early) };
    if first == end {
        return true;
    }
    let mut next = first;
    for at in 0..CHECKS as u32 {
        if next == at {
            next = next_check(probe, depth, at);
        }
    }
    next == u32::from(verdict::ACCEPT)
}

/// Reads one field.
#[unsafe(no_mangle)]
extern "C" fn fetch_field(probe: u32, depth: u32, at: u32) -> u32 {
    let Some(mut fetch) = Fetch::of(probe, depth) else { return 0 };
    let at = at as usize;
    if at >= FIELDS {
        return 0;
    }
    fetch.set_word(at, 0);
    if at < usize::from(fetch.table.integer_count) {
        fetch.integer(at);
    } else {
        fetch.data(at);
    }
    0
}

/// Makes one comparison: which one is next, or the verdict.
#[unsafe(no_mangle)]
extern "C" fn next_check(probe: u32, depth: u32, at: u32) -> u32 {
    let reject = verdict::REJECT.into();
    let Some(fetch) = Fetch::of(probe, depth) else { return reject };
    let Some(check) = fetch.table.checks.get(at as usize) else { return reject };
    u32::from(if fetch.holds(check) { check.on_true } else { check.on_false })
}

pub(super) struct Fetch<'h> {
    pub(super) table: &'h FetchTable,
    hit: &'h mut ProbeHit,
    pub(super) frame: &'h mut Frame,
}

impl Fetch<'_> {
    /// The table of a probe, and the hit that is reserved at `depth`.
    #[inline(always)]
    pub(super) fn of(probe: u32, depth: u32) -> Option<Self> {
        Self::by(PROBES.get(probe)?, depth)
    }

    /// The same, where the table is known.
    #[inline(always)]
    fn by(table: &'static FetchTable, depth: u32) -> Option<Self> {
        // SAFETY: who calls the functions above holds it.
        let (hit, tail) = unsafe { pipe::reserved::<ProbeHit>(depth) }?;
        // SAFETY: as in hit::frame().
        let frame = unsafe { &mut *tail.as_mut_ptr().cast::<Frame>() };
        Some(Self { table, hit, frame })
    }

    /// Takes those integers that are in registers, a bit each.
    #[inline(always)]
    fn take(&mut self, fields: u32) {
        for at in 0..FIELDS {
            if at >= usize::from(self.table.integer_count) {
                break;
            }
            if fields >> at & 1 != 0 {
                let field = &self.table.fields[at];
                let register = self.frame.registers[usize::from(field.base) & 31];
                self.set_word(at, cut(field, add(register, field.offsets[0])));
            }
        }
    }

    #[inline(always)]
    fn integer(&mut self, at: usize) {
        let field = &self.table.fields[at];
        let Some(address) = self.locate(field) else { return self.fault(at) };
        if field.kind == kind::INTEGER {
            let size = if field.size > 8 { 8 } else { field.size };
            let user = is_user(field, usize::from(field.steps));
            // SAFETY: a word has 8 bytes.
            if !unsafe { read(self.word(at).cast(), size, address, user) } {
                return self.fault(at);
            }
        } else {
            self.set_word(at, address);
        }
        // SAFETY: the word is the frame's.
        let word = unsafe { self.word(at).read_volatile() };
        self.set_word(at, cut(field, word));
    }

    #[inline(always)]
    fn data(&mut self, at: usize) {
        let field = &self.table.fields[at];
        let Some(address) = self.locate(field).and_then(|at| self.follow_loc(field, at)) else {
            return self.fault(at);
        };
        // Now that it is used: old verifiers forget the bounds of what is kept on the stack.
        // SAFETY: the frame is ours.
        let begin = unsafe { (&raw const self.frame.len).read_volatile() };
        if begin > LAST_DATA {
            return self.fault(at);
        }
        // SAFETY: LONGEST bytes of the tail are behind it.
        let to = unsafe { self.frame.tail.as_mut_ptr().add(begin) };
        let longest = LONGEST as u16;
        let size = if field.size > longest { longest } else { field.size };
        let user = is_user(field, usize::from(field.steps));
        let len = if field.kind == kind::BYTES {
            // SAFETY: as above.
            let is_read = unsafe { read(to.cast(), size, address, user) };
            if is_read { i64::from(size) } else { -1 }
        } else {
            // SAFETY: as above. Without its terminating zero.
            unsafe { read_str(to.cast(), size, address, user) - 1 }
        };
        if len < 0 || len > LONGEST as i64 {
            return self.fault(at);
        }
        let len = len as u64;
        self.set_word(at, begin as u64 | len << 32);
        // SAFETY: the frame is ours.
        unsafe { (&raw mut self.frame.len).write_volatile(begin + len as usize) };
    }

    /// Finds where a field is, pointer by pointer. `None` if one of them cannot be read, or it is a count that is
    /// not known.
    #[inline(always)]
    fn locate(&mut self, field: &FetchField) -> Option<u64> {
        let begin = self.base(field.base);
        let is_count = field.base >= base::COUNTER && field.base < base::COUNTERS_END;
        if is_count && begin == counter::UNKNOWN {
            return None;
        }
        let mut address = add(begin, field.offsets[0]);
        for step in 0..STEPS {
            if step >= usize::from(field.steps) {
                break;
            }
            address = add(self.pointer(address, 8, is_user(field, step))?, field.offsets[step + 1]);
        }
        Some(address)
    }

    /// Reads a pointer, or what is as long.
    #[inline(always)]
    fn pointer(&mut self, from: u64, size: u16, user: bool) -> Option<u64> {
        let to = &raw mut self.frame.address;
        // SAFETY: an address has 8 bytes.
        if !unsafe { read(to.cast(), size, from, user) } {
            return None;
        }
        // SAFETY: the frame is ours.
        Some(unsafe { to.read_volatile() })
    }

    /// From the word that tells where a tracepoint's string is to the string.
    #[inline(always)]
    fn follow_loc(&mut self, field: &FetchField, address: u64) -> Option<u64> {
        let from = match field.kind {
            kind::DATA_LOC => self.frame.registers[base::CONTEXT as usize],
            kind::REL_LOC => address + 4,
            _ => return Some(address),
        };
        // Of its 4 bytes, those of the offset.
        Some(from + (self.pointer(address, 4, false)? & 0xffff))
    }

    #[inline(always)]
    fn base(&mut self, base: u8) -> u64 {
        match base {
            // SAFETY: the helpers have no preconditions.
            base::TASK => unsafe { bpf_get_current_task() },
            base::PID => self.hit.task.pid.into(),
            base::TID => self.hit.task.tid.into(),
            base::UID => bpf_get_current_uid_gid() & 0xffff_ffff,
            // SAFETY: as above.
            base::CPU => unsafe { bpf_get_smp_processor_id() }.into(),
            // It is a pointer for the verifier, which does not add what it does not know to it, until it has
            // been in memory.
            base::COMM => self.remember((&raw const self.hit.task.comm) as u64),
            register => self.frame.registers[usize::from(register) & 31],
        }
    }

    #[inline(always)]
    fn holds(&self, check: &Check) -> bool {
        let at = usize::from(check.field);
        if at >= FIELDS || self.hit.faults >> at & 1 != 0 {
            return false;
        }
        // SAFETY: the word is the frame's.
        let word = unsafe { self.word(at).read_volatile() };
        match check.operator {
            operator::EQUAL => word == check.value,
            operator::LESS => (word as i64) < check.value as i64,
            operator::BELOW => word < check.value,
            operator::GREATER => word as i64 > check.value as i64,
            operator::ABOVE => word > check.value,
            operator::HAS => word & check.value != 0,
            operator::TEXT => self.is_text(word, check.value as usize),
            _ => false,
        }
    }

    /// Whether the string of a word is a text of the predicate, to its end.
    #[inline(always)]
    fn is_text(&self, word: u64, text: usize) -> bool {
        let (begin, len) = ((word & 0xffff_ffff) as usize, (word >> 32) as usize);
        if begin > LAST_DATA || len > TEXT_LEN || text >= TEXTS {
            return false;
        }
        let text = &self.table.texts[text];
        for (at, &expected) in text.iter().enumerate() {
            if at >= len {
                // It may go on.
                return expected == 0;
            }
            if self.frame.tail[begin + at] != expected {
                return false;
            }
        }
        true
    }

    #[inline(always)]
    pub(super) fn fault(&mut self, at: usize) {
        let faults = &raw mut self.hit.faults;
        // SAFETY: the hit is ours.
        let others = unsafe { faults.read_volatile() };
        // SAFETY: as above.
        unsafe { faults.write_volatile(others | 1 << at) };
    }

    #[inline(always)]
    fn word(&self, at: usize) -> *mut u64 {
        // SAFETY: the words of FIELDS fields are in the tail; `at` is less.
        unsafe { self.frame.tail.as_ptr().cast_mut().cast::<u64>().add(at) }
    }

    #[inline(always)]
    pub(super) fn set_word(&mut self, at: usize, value: u64) {
        // SAFETY: the word is the frame's.
        unsafe { self.word(at).write_volatile(value) };
    }

    /// A number, of which nothing but that is known any more.
    #[inline(always)]
    fn remember(&mut self, address: u64) -> u64 {
        let to = &raw mut self.frame.address;
        // SAFETY: the frame is ours.
        unsafe { to.write_volatile(address) };
        // SAFETY: as above.
        unsafe { to.read_volatile() }
    }
}

/// Goes on from an address.
#[inline(always)]
fn add(address: u64, offset: i32) -> u64 {
    address.wrapping_add(i64::from(offset) as u64)
}

/// Cuts what is wanted out of a word.
#[inline(always)]
fn cut(field: &FetchField, word: u64) -> u64 {
    let word = word << (field.left & 63);
    let right = field.right & 63;
    let signed = field.flags & flag::SIGNED != 0;
    if signed { (word as i64 >> right) as u64 } else { word >> right }
}

/// Whether the `read`th read of a field is of the process's memory.
#[inline(always)]
fn is_user(field: &FetchField, read: usize) -> bool {
    field.user >> (read & 7) & 1 != 0
}

/// Reads `size` bytes, all of them or none.
///
/// # Safety
///
/// There are as many at `to`.
#[inline(always)]
unsafe fn read(to: *mut c_void, size: u16, from: u64, user: bool) -> bool {
    let (size, from) = (u32::from(size), from as *const c_void);
    let result = if user {
        // SAFETY: the caller's promise; the helper checks the address that is read.
        unsafe { bpf_probe_read_user(to, size, from) }
    } else {
        // SAFETY: as above.
        unsafe { bpf_probe_read_kernel(to, size, from) }
    };
    result == 0
}

/// Reads a string of at most `size` bytes: its length with the terminating zero, or a negative errno.
///
/// # Safety
///
/// There are as many bytes at `to`.
#[inline(always)]
unsafe fn read_str(to: *mut c_void, size: u16, from: u64, user: bool) -> i64 {
    let (size, from) = (u32::from(size), from as *const c_void);
    if user {
        // SAFETY: the caller's promise; the helper checks the address that is read.
        unsafe { bpf_probe_read_user_str(to, size, from) }
    } else {
        // SAFETY: as above.
        unsafe { bpf_probe_read_kernel_str(to, size, from) }
    }
}
