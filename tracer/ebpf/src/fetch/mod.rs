//! Follows a probe's fetch table: reads its fields, and decides whether to report the hit.
//!
//! For a call, that happens in two steps ([`moment`]): at the entry and at the return.
//!
//! The work for each field and for each comparison is in global functions (`BTF_FUNC_GLOBAL`, 5.6+). The verifier
//! checks those once, instead of once for each field on each path through the fields before it. Their
//! arguments are numbers, by which they find the table and the hit.

mod data;
mod text;

pub(crate) use data::Span;

use super::hit::{self, Frame, LAST_SHORT};
use super::wait;
use aya_ebpf::{
    Global,
    cty::c_void,
    helpers::{
        bpf_get_current_task, bpf_get_current_uid_gid, bpf_get_smp_processor_id,
        generated::{bpf_probe_read_kernel, bpf_probe_read_user},
    },
    macros::map,
    maps::Array,
};
use probe_tracer_common::counter;
use probe_tracer_common::fetch::{
    CHECKS, Check, FIELDS, FetchField, FetchTable, Literal, NULL, STEPS, TEXTS, TRUNCATED, base,
    flag, kind, moment, operator, verdict,
};
use probe_tracer_common::trace::ProbeHit;

/// A table for each probe; user space sets the number of entries.
#[map]
static PROBES: Array<FetchTable> = Array::with_max_entries(1, 0);

/// The most fields, the most pointers on the way to a field, and the most comparisons that any probe has. User space sets them
/// before it loads the programs, so that the verifier looks at no more of each than that.
#[unsafe(no_mangle)]
static MOST_FIELDS: Global<u8> = Global::new(0);
#[unsafe(no_mangle)]
static MOST_STEPS: Global<u8> = Global::new(0);
#[unsafe(no_mangle)]
static MOST_CHECKS: Global<u8> = Global::new(0);

/// The table of a probe.
#[inline(always)]
pub(crate) fn table(probe: u32) -> Option<&'static FetchTable> {
    PROBES.get(probe)
}

pub(crate) use probe_tracer_common::specialized::{ACCEPTED, FINAL, REJECTED, UNDECIDED};

/// What a comparison says of a hit.
pub(super) const DIFFERS: u32 = 0;
pub(super) const HOLDS: u32 = 1;
/// It depends on the end of a string that was not read to its end.
pub(super) const UNKNOWN: u32 = 2;

/// How to read the faulted fields of a hit again.
pub(crate) mod again {
    /// Read them. Those that fault once more keep the address to go on from.
    pub(crate) const FOR_NOW: u32 = 0;
    /// Read them for the last time.
    pub(crate) const FOR_GOOD: u32 = 1;
}

/// Reads the fields of a moment into the hit that is reserved at `depth`. Returns [`REJECTED`] as soon as the predicate
/// rejects the hit, and otherwise what it says.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn follow_table(probe: u32, depth: u32, moment: u32) -> u32 {
    let Some(table) = PROBES.get(probe) else { return REJECTED };
    let late = table.late_fields;
    let fields = if moment == moment::LATE { late } else { !late };
    let taken = fields & table.taken_fields;
    if taken != 0 {
        // SAFETY: the caller holds the reservation.
        let Some((_, frame)) = (unsafe { hit::reserved(depth) }) else { return REJECTED };
        take_fields(table, frame, taken);
    }
    let integers = first_fields(table.integer_count);
    let read = fields & !taken & integers;
    if read != 0 {
        fetch_fields(probe, depth, read, 0);
    }
    let checks_text = table.checks_text >> (moment & 1) & 1 != 0;
    let mut said = ACCEPTED;
    if !checks_text {
        said = judge_by(table, probe, depth, moment);
        if said == REJECTED {
            return REJECTED;
        }
    }
    let but_stacks = first_fields(table.field_count.wrapping_sub(table.stack_count));
    let data = fields & !integers & but_stacks;
    if data != 0 {
        fetch_fields(probe, depth, data, 0);
    }
    if checks_text { judge_by(table, probe, depth, moment) } else { said }
}

/// Reads the fields that faulted at the entry and may be readable by now, as `how` says ([`again`]), in the hit that is
/// reserved at `depth`. Returns what the predicate says then. It says the same as before if it was decided: a decision
/// never depends on such a field.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn read_again(probe: u32, depth: u32, how: u32) -> u32 {
    let faulted = fields_to_read(probe, depth);
    fetch_fields(probe, depth, faulted, 1);
    let said = judge(probe, depth, moment::EARLY);
    if how != again::FOR_NOW {
        clear_faulted(probe, depth);
    }
    said
}

/// Gives up the fields that faulted at the entry and might have been readable later, in the hit that is reserved at
/// `depth`. Returns what the predicate says, as before.
#[inline(always)]
pub(crate) fn give_fields_up(probe: u32, depth: u32) -> u32 {
    let said = judge(probe, depth, moment::EARLY);
    clear_faulted(probe, depth);
    said
}

/// A bit for each field that has faulted and is worth another read, in the hit that is reserved at `depth`.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn fields_to_read(probe: u32, depth: u32) -> u32 {
    let Some(fetch) = Fetch::of(probe, depth) else { return 0 };
    let faulted = fetch.hit.faults & fetch.table.waiting_fields;
    let mut fields = 0;
    for at in 0..FIELDS {
        if at >= usize::from(MOST_FIELDS.load()) {
            break;
        }
        if faulted >> at & 1 != 0 && fetch.waits(at) {
            fields |= 1 << at;
        }
    }
    fields
}

/// Lets only those fields of the hit that is reserved at `depth` wait that are in the program's own file. What else its
/// function points at may be mapped later, or anew, while the hit waits.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn wait_in_image(probe: u32, depth: u32) -> u32 {
    let Some(mut fetch) = Fetch::of(probe, depth) else { return 0 };
    let (start, end) = wait::image();
    let faulted = fetch.hit.faults & fetch.table.waiting_fields;
    for at in 0..FIELDS {
        let rest = faulted >> at;
        if rest == 0 || at >= usize::from(MOST_FIELDS.load()) {
            break;
        }
        // The word of a null pointer says that it is one.
        if rest & 1 == 0 || !fetch.waits(at) {
            continue;
        }
        let field = &fetch.table.fields[at];
        // SAFETY: the word is the frame's.
        let address = unsafe { fetch.word(at).read_volatile() };
        // Behind a pointer may be anything.
        let is_direct = field.resume == field.steps.wrapping_add(1);
        if !is_direct || address < start || address >= end {
            fetch.set_word(at, 0);
        }
    }
    0
}

/// Clears the words of faulted fields, which have addresses while they wait.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn clear_faulted(probe: u32, depth: u32) -> u32 {
    let Some(mut fetch) = Fetch::of(probe, depth) else { return 0 };
    let faulted = fetch.hit.faults & fetch.table.waiting_fields;
    for at in 0..FIELDS {
        let rest = faulted >> at;
        if rest == 0 || at >= usize::from(MOST_FIELDS.load()) {
            break;
        }
        if rest & 1 != 0 && fetch.waits(at) {
            fetch.set_word(at, 0);
        }
    }
    0
}

/// What the part of the predicate says that can be decided at this moment. The interpreter has it inlined: functions
/// can be called eight deep.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn judge(probe: u32, depth: u32, moment: u32) -> u32 {
    match PROBES.get(probe) {
        Some(table) => judge_by(table, probe, depth, moment),
        None => REJECTED,
    }
}

#[inline(always)]
fn judge_by(table: &FetchTable, probe: u32, depth: u32, moment: u32) -> u32 {
    let early = u32::from(table.early_checks);
    let (first, end) =
        if moment == moment::LATE { (early, u32::from(table.check_count)) } else { (0, early) };
    if first == end {
        return ACCEPTED;
    }
    let best = follow_checks(probe, depth, first, FOR);
    if best & GUESSED == 0 || best & INDEX != ACCEPT {
        return if best & INDEX == ACCEPT { ACCEPTED } else { REJECTED };
    }
    let worst = follow_checks(probe, depth, first, AGAINST);
    if worst & INDEX == ACCEPT { ACCEPTED } else { UNDECIDED }
}

/// Makes comparisons up to a verdict. Of one that cannot be made yet, `guess` says whether it is taken to speak [for](FOR) the
/// hit or [against](AGAINST) it. Returns the verdict, and [`GUESSED`] if there was such a comparison.
#[inline(always)]
fn follow_checks(probe: u32, depth: u32, first: u32, guess: u32) -> u32 {
    let (mut next, mut guessed) = (first, 0);
    for count in 0..CHECKS {
        if next >= CHECKS as u32 || count >= usize::from(MOST_CHECKS.load()) {
            break;
        }
        let found = next_check(probe, depth, next | guess);
        guessed |= found & GUESSED;
        next = found & INDEX;
    }
    next | guessed
}

const ACCEPT: u32 = verdict::ACCEPT as u32;

/// What a number beside the index of a check, or a verdict, says.
const INDEX: u32 = 0xff;
const FOR: u32 = 0;
const AGAINST: u32 = 1 << 8;
const GUESSED: u32 = 1 << 9;

/// A bit for each of the first fields.
#[inline(always)]
fn first_fields(count: u8) -> u32 {
    (1_u64 << (count & 63)).wrapping_sub(1) as u32
}

/// Copies integers that are in registers. The set has a bit for each.
#[inline(never)]
fn take_fields(table: &FetchTable, frame: &mut Frame, fields: u32) -> u32 {
    for at in 0..FIELDS {
        let rest = fields >> at;
        if rest == 0 || at >= usize::from(MOST_FIELDS.load()) {
            break;
        }
        if rest & 1 != 0 {
            let field = &table.fields[at];
            let register = frame.registers[usize::from(field.base) & 31];
            let word = cut(field, add(register, field.offsets[0]));
            let to = frame.tail.as_mut_ptr().cast::<u64>().wrapping_add(at);
            // SAFETY: the tail begins with the words of FIELDS fields, and is 8-aligned.
            unsafe { to.write_volatile(word) };
        }
    }
    0
}

/// Reads the fields of a set, which has a bit for each. Integers come first, as the lengths of strings must.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fetch_fields(probe: u32, depth: u32, fields: u32, again: u32) -> u32 {
    for at in 0..FIELDS as u32 {
        let rest = fields >> at;
        if rest == 0 || at >= u32::from(MOST_FIELDS.load()) {
            break;
        }
        if rest & 1 != 0 {
            fetch_field(probe, depth, at, again);
        }
    }
    0
}

/// Reads one field: from the start, or with `again` from the address where it faulted.
#[unsafe(no_mangle)]
extern "C" fn fetch_field(probe: u32, depth: u32, at: u32, again: u32) -> u32 {
    let Some(mut fetch) = Fetch::of(probe, depth) else { return 0 };
    let at = at as usize;
    if at >= FIELDS {
        return 0;
    }
    if again != 0 {
        fetch.unfault(at);
    } else {
        fetch.set_word(at, 0);
    }
    if find_address(probe, depth, at as u32, again) == 0 {
        fetch.fault(at);
        return 0;
    }
    // SAFETY: the frame is ours.
    let address = unsafe { (&raw const fetch.frame.address).read_volatile() };
    if at < usize::from(fetch.table.integer_count) {
        fetch.integer(at, address);
    } else if address == 0 {
        fetch.set_word(at, NULL);
        fetch.fault(at);
    } else {
        fetch.data(at, address);
    }
    0
}

/// Leaves the address of a field in the frame. Returns 0 if it cannot be found. This is a function of its own because the
/// verifier would otherwise check what follows for each way that leads to an address.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_address(probe: u32, depth: u32, at: u32, again: u32) -> u32 {
    let Some(mut fetch) = Fetch::of(probe, depth) else { return 0 };
    let at = at as usize;
    if at >= FIELDS {
        return 0;
    }
    let Some(address) = fetch.locate(at, again != 0) else { return 0 };
    let _ = fetch.remember(address);
    1
}

/// Makes one comparison, and returns the index of the next one, or the verdict. `at` is the index of the check, and how to guess
/// if it cannot be made yet.
#[unsafe(no_mangle)]
extern "C" fn next_check(probe: u32, depth: u32, at: u32) -> u32 {
    let reject = verdict::REJECT.into();
    let Some(fetch) = Fetch::of(probe, depth) else { return reject };
    let Some(check) = fetch.table.checks.get((at & INDEX) as usize) else { return reject };
    let other = check.other.checked_sub(1);
    let waits = fetch.waits_for(check.field.into())
        || other.is_some_and(|other| fetch.waits_for(other.into()));
    let said = if waits { UNKNOWN } else { fetch.compare(check, probe, depth) };
    match said {
        DIFFERS => check.on_false.into(),
        HOLDS => check.on_true.into(),
        _ => {
            let speaks_against = at & AGAINST != 0;
            let holds = (check.is_negated != 0) == speaks_against;
            GUESSED | u32::from(if holds { check.on_true } else { check.on_false })
        }
    }
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
        let table = PROBES.get(probe)?;
        // SAFETY: the caller of the functions above holds the reservation.
        let (hit, frame) = unsafe { hit::reserved(depth) }?;
        Some(Self { table, hit, frame })
    }

    #[inline(always)]
    fn integer(&mut self, at: usize, address: u64) {
        let field = &self.table.fields[at];
        let mut word = address;
        if field.kind == kind::INTEGER {
            let size = if field.size > 8 { 8 } else { field.size };
            let user = is_user(field, usize::from(field.steps));
            // The bytes beyond the integer.
            let _ = self.remember(0);
            let Some(read) = self.pointer(address, size.into(), user) else {
                return self.fault(at);
            };
            word = read;
        }
        self.set_word(at, cut(field, word));
    }

    /// Finds the address of a field, pointer by pointer. `None` if a pointer cannot be read, or if the field is an
    /// unknown count.
    ///
    /// The field's word gets the address from which all reads are from the process's memory, if there is one; with
    /// `again`, they start there. What comes before may not be what it was: the kernel's memory has changed.
    #[inline(always)]
    fn locate(&mut self, at: usize, again: bool) -> Option<u64> {
        let field = &self.table.fields[at];
        let resume = usize::from(field.resume);
        let mut address;
        if again {
            // SAFETY: the word is the frame's.
            address = unsafe { self.word(at).read_volatile() };
        } else {
            let begin = if field.base == base::FIELD {
                self.word_of(field.from.into())?
            } else {
                self.base(field.base)
            };
            let is_count = field.base >= base::COUNTER && field.base < base::COUNTERS_END;
            if is_count && begin == counter::UNKNOWN {
                return None;
            }
            address = add(begin, field.offsets[0]);
        }
        for step in 0..STEPS {
            if step >= usize::from(MOST_STEPS.load()) || step >= usize::from(field.steps) {
                break;
            }
            if again && step + 1 < resume {
                continue;
            }
            if step + 1 == resume {
                self.wait_for(at, address);
            }
            address = add(self.pointer(address, 8, is_user(field, step))?, field.offsets[step + 1]);
        }
        if usize::from(field.steps) + 1 == resume {
            self.wait_for(at, address);
        }
        Some(address)
    }

    /// Reads a pointer, or another value of its size.
    #[inline(always)]
    fn pointer(&mut self, from: u64, size: u32, user: bool) -> Option<u64> {
        let to = &raw mut self.frame.address;
        // SAFETY: an address has 8 bytes.
        if !unsafe { read(to.cast(), size, from, user) } {
            return None;
        }
        // SAFETY: the frame is ours.
        Some(unsafe { to.read_volatile() })
    }

    /// The word of a field, unless it could not be read.
    #[inline(always)]
    fn word_of(&self, at: usize) -> Option<u64> {
        if at >= FIELDS || self.hit.faults >> at & 1 != 0 {
            return None;
        }
        // SAFETY: the word is the frame's.
        Some(unsafe { self.word(at).read_volatile() })
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
            // The verifier takes it for a pointer, to which it adds no unknown numbers until it has been in
            // memory.
            base::COMM => self.remember((&raw const self.hit.task.comm) as u64),
            register => self.frame.registers[usize::from(register) & 31],
        }
    }

    #[inline(always)]
    fn compare(&self, check: &Check, probe: u32, depth: u32) -> u32 {
        let Some(word) = self.word_of(check.field.into()) else { return DIFFERS };
        let value = if check.other == 0 {
            check.value
        } else {
            let Some(value) = self.word_of(usize::from(check.other) - 1) else { return DIFFERS };
            value
        };
        let is_negated = check.operator & operator::NOT != 0;
        let holds = match check.operator & !operator::NOT {
            operator::EQUAL => word == value,
            operator::LESS => (word as i64) < value as i64,
            operator::BELOW => word < value,
            operator::GREATER => word as i64 > value as i64,
            operator::ABOVE => word > value,
            operator::HAS => word & value != 0,
            operator::TEXT => return self.is_literal(word, Literal::of(value)),
            operator::SAME => return text::are_same(probe, depth, word, value),
            operator::LIKE => return text::is_like(self, probe, depth, word, value),
            _ => false,
        };
        if holds != is_negated { HOLDS } else { DIFFERS }
    }

    /// Whether the string or the bytes that a word describes equal a text of the predicate, to its end.
    #[inline(always)]
    fn is_literal(&self, word: u64, literal: Literal) -> u32 {
        let (begin, len) = ((word & 0xffff_ffff) as usize, ((word & !TRUNCATED) >> 32) as usize);
        let (text, whole) = (usize::from(literal.text), usize::from(literal.len));
        let is_cut = word & TRUNCATED != 0;
        if begin > LAST_SHORT || len > whole || text >= TEXTS || len < whole && !is_cut {
            return DIFFERS;
        }
        for (at, &expected) in self.table.texts[text].iter().enumerate() {
            if at >= len {
                break;
            }
            if self.frame.tail[begin + at] != expected {
                return DIFFERS;
            }
        }
        if is_cut { UNKNOWN } else { HOLDS }
    }

    #[inline(always)]
    pub(super) fn fault(&mut self, at: usize) {
        let faults = &raw mut self.hit.faults;
        // SAFETY: the hit belongs to this program.
        let others = unsafe { faults.read_volatile() };
        // SAFETY: as above.
        unsafe { faults.write_volatile(others | 1 << at) };
    }

    /// Whether a field could not be read, and a predicate waits until it can.
    #[inline(always)]
    pub(super) fn waits_for(&self, at: usize) -> bool {
        let at = at & (FIELDS - 1);
        self.hit.faults & self.table.waiting_fields & 1 << at != 0 && self.waits(at)
    }

    /// Keeps the address from which a field may be read later, should it fault.
    #[inline(always)]
    fn wait_for(&mut self, at: usize, address: u64) {
        self.set_word(at, if address >= LEAST_ADDRESS { address } else { 0 });
    }

    /// Whether the word of a faulted field has an address from which it may be read later.
    #[inline(always)]
    fn waits(&self, at: usize) -> bool {
        // SAFETY: the word is the frame's.
        unsafe { self.word(at).read_volatile() >= LEAST_ADDRESS }
    }

    #[inline(always)]
    fn unfault(&mut self, at: usize) {
        let faults = &raw mut self.hit.faults;
        // SAFETY: the hit belongs to this program.
        let others = unsafe { faults.read_volatile() };
        // SAFETY: as above.
        unsafe { faults.write_volatile(others & !(1 << at)) };
    }

    #[inline(always)]
    fn word(&self, at: usize) -> *mut u64 {
        // SAFETY: the tail begins with the words of FIELDS fields, and `at` is less.
        unsafe { self.frame.tail.as_ptr().cast_mut().cast::<u64>().add(at) }
    }

    #[inline(always)]
    pub(super) fn set_word(&mut self, at: usize, value: u64) {
        // SAFETY: the word is the frame's.
        unsafe { self.word(at).write_volatile(value) };
    }

    /// A number about which the verifier knows nothing more.
    #[inline(always)]
    fn remember(&mut self, address: u64) -> u64 {
        let to = &raw mut self.frame.address;
        // SAFETY: the frame is ours.
        unsafe { to.write_volatile(address) };
        // SAFETY: as above.
        unsafe { to.read_volatile() }
    }
}

/// Where the memory of a process may begin. What is below, a null pointer first of all, is not worth another read.
const LEAST_ADDRESS: u64 = 4096;

/// Continues from an address.
#[inline(always)]
fn add(address: u64, offset: i32) -> u64 {
    address.wrapping_add(i64::from(offset) as u64)
}

/// Extracts the wanted bits of a word.
#[inline(always)]
fn cut(field: &FetchField, word: u64) -> u64 {
    let word = word << (field.left & 63);
    let right = field.right & 63;
    let signed = field.flags & flag::SIGNED != 0;
    if signed { (word as i64 >> right) as u64 } else { word >> right }
}

/// Whether a field's read with this index is from the process's memory.
#[inline(always)]
fn is_user(field: &FetchField, read: usize) -> bool {
    field.user >> (read & 7) & 1 != 0
}

/// Reads `size` bytes, completely or not at all.
///
/// # Safety
///
/// `to` has room for that many bytes.
#[inline(always)]
unsafe fn read(to: *mut c_void, size: u32, from: u64, user: bool) -> bool {
    let from = from as *const c_void;
    let result = if user {
        // SAFETY: the caller's promise; the helper checks the address that is read.
        unsafe { bpf_probe_read_user(to, size, from) }
    } else {
        // SAFETY: as above.
        unsafe { bpf_probe_read_kernel(to, size, from) }
    };
    result == 0
}
