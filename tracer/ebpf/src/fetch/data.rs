//! Reading strings and arrays.
//!
//! That happens in steps, each of which leaves its results in the frame's [`Span`]. The verifier follows each path through
//! a step once for every path that leads there, unless it knows the same about all of them, and what it reads from
//! memory is unknown to it. So no number is carried from one step to the next, and each step looks its field up again.

use core::ffi::c_void;
use core::hint::black_box;

use super::{Fetch, is_user, read};
use crate::hit::{LAST_DATA, LAST_SHORT, LONGEST_TAIL};
use aya_ebpf::helpers::generated::{bpf_probe_read_kernel_str, bpf_probe_read_user_str};
use probe_tracer_common::fetch::{FIELDS, FetchField, LONGEST, SHORT, TRUNCATED, base, flag, kind};

/// What the steps know about the string or array that is being read.
#[repr(C)]
pub(crate) struct Span {
    address: u64,
    /// How long the value is, or [`UNBOUNDED`].
    bound: u64,
    /// How many of the value's first bytes are not read.
    skipped: u64,
    /// How many bytes should be read, and how many may be.
    wanted: u64,
    size: u64,
    /// How many bytes were read, without a string's terminating zero, or a negative number.
    read: i64,
}

/// A length that is longer than any value.
const LONG: u64 = 1 << 32;

/// Stands for the length of a value whose length is not known.
const UNBOUNDED: u64 = u64::MAX;

/// Reads or writes a member of the span in memory.
macro_rules! span {
    ($fetch:ident.$member:ident) => {
        // SAFETY: the frame is ours.
        unsafe { (&raw const $fetch.frame.span.$member).read_volatile() }
    };
    ($fetch:ident.$member:ident = $value:expr) => {{
        let value = $value;
        // SAFETY: the frame is ours.
        unsafe { (&raw mut $fetch.frame.span.$member).write_volatile(value) }
    }};
}

impl<'h> Fetch<'h> {
    /// Reads the string or array of a field, which is at an address.
    #[inline(always)]
    pub(super) fn data(&mut self, at: usize, address: u64) {
        span!(self.address = address);
        if !self.find_extent(at) {
            if !self.waits_for_extent(at) {
                // What is behind an address of unknown extent cannot be read later, either.
                self.set_word(at, 0);
            }
            return self.fault(at);
        }
        self.skip_zero(at);
        self.limit(at);
        self.store(at);
        self.conclude(at);
    }

    #[inline(always)]
    fn field(&self, at: usize) -> &'h FetchField {
        &self.table.fields[black_box(at) & (FIELDS - 1)]
    }

    /// Finds where the value is, and its length in bytes if that is known apart from the value: the least of what the
    /// locating word and other fields say.
    #[inline(always)]
    fn find_extent(&mut self, at: usize) -> bool {
        let field = self.field(at);
        let address = span!(self.address);
        let mut bound = UNBOUNDED;
        let from = match field.kind {
            kind::DATA_LOC | kind::DATA_LOC_BYTES => {
                Some(self.frame.registers[base::CONTEXT as usize])
            }
            kind::REL_LOC | kind::REL_LOC_BYTES => Some(address.wrapping_add(4)),
            _ => None,
        };
        if let Some(from) = from {
            let Some(word) = self.pointer(address, 4, false) else { return false };
            span!(self.address = from.wrapping_add(word & 0xffff));
            bound = word >> 16 & 0xffff;
        }
        if field.length != 0 {
            let Some(length) = self.word_of(usize::from(field.length) - 1) else { return false };
            let is_negative = (length as i64) < 0 && field.flags & flag::UNSIGNED_LENGTH == 0;
            let length = if is_negative { 0 } else { least(length, LONG) };
            bound = least(bound, length);
        }
        if field.room != 0 {
            let Some(room) = self.word_of(usize::from(field.room) - 1) else { return false };
            bound = least(bound, least(room, LONG));
        }
        span!(self.bound = bound);
        true
    }

    /// Whether what says how long a value is may be readable later.
    #[inline(always)]
    fn waits_for_extent(&self, at: usize) -> bool {
        let field = self.field(at);
        [field.length, field.room]
            .into_iter()
            .any(|extent| extent != 0 && self.waits_for(usize::from(extent) - 1))
    }

    /// Skips the zero byte that a string begins with, if it goes on behind it.
    #[inline(always)]
    fn skip_zero(&mut self, at: usize) {
        let field = self.field(at);
        let mut skipped = 0;
        if field.flags & flag::ABSTRACT != 0 {
            let user = is_user(field, usize::from(field.steps));
            let first = self.pointer(span!(self.address), 1, user);
            skipped = u64::from(first.is_some_and(|first| first & 0xff == 0));
        }
        span!(self.skipped = skipped);
    }

    /// Decides how many bytes to read.
    #[inline(always)]
    fn limit(&mut self, at: usize) {
        let field = self.field(at);
        let (bound, skipped) = (span!(self.bound), span!(self.skipped));
        let most = u64::from(field.size).wrapping_sub(skipped);
        let wanted =
            if bound == UNBOUNDED { most } else { bound.wrapping_sub(least(skipped, bound)) };
        span!(self.wanted = wanted);
        let size = least(span!(self.wanted), most);
        span!(self.size = size);
        let size = least(span!(self.size), room(self.end() + skipped as usize));
        span!(self.size = size);
    }

    /// Reads the bytes behind the end of the tail.
    #[inline(always)]
    fn store(&mut self, at: usize) {
        let field = self.field(at);
        let start = self.end() + span!(self.skipped) as usize;
        let (size, room) = (span!(self.size), room(start));
        let mut result = if size == 0 { 0 } else { -1 };
        if size != 0 && room != 0 {
            let user = is_user(field, usize::from(field.steps));
            let from = span!(self.address).wrapping_add(span!(self.skipped));
            // Only right before the use: old verifiers forget the bounds of values that are spilled to the stack.
            let size = least(size, room) as u32;
            // SAFETY: the tail has room for that many bytes.
            let to = unsafe { self.frame.tail.as_mut_ptr().add(start) };
            if is_text(field) {
                // SAFETY: as above.
                let len = unsafe { read_str(to.cast(), size, from, user) };
                // Old kernels do not count the terminating zero of an empty string in user memory.
                result = if len == 0 { 0 } else { len - 1 };
            } else {
                // SAFETY: as above.
                let is_read = unsafe { read(to.cast(), size, from, user) };
                result = if is_read { i64::from(size) } else { -1 };
            }
        }
        span!(self.read = result);
    }

    /// Adds what was read to the tail, and describes it in the field's word.
    #[inline(always)]
    fn conclude(&mut self, at: usize) {
        if span!(self.read) < 0 {
            return self.fault(at);
        }
        let field = self.field(at);
        let (wanted, size) = (span!(self.wanted), span!(self.size));
        let mut is_cut = field.flags & flag::PARTIAL != 0 || size < wanted;
        if is_text(field) {
            is_cut = size == 0 && wanted != 0 || !self.ends_text(at);
            let len = span!(self.read);
            if span!(self.skipped) != 0 && len != 0 && self.put(0, 0) {
                span!(self.read = len + 1);
            }
        }
        let mark = if is_cut { TRUNCATED } else { 0 };
        let len = span!(self.read) as u64;
        if len > LONGEST as u64 {
            return self.fault(at);
        }
        let end = self.end();
        // What is empty is nowhere, not behind the room for strings, where nothing can be compared.
        let begin = if len == 0 { 0 } else { end };
        self.set_word(black_box(at) & (FIELDS - 1), begin as u64 | len << 32 | mark);
        // SAFETY: the frame is ours.
        unsafe { (&raw mut self.frame.len).write_volatile(end + len as usize) };
    }

    /// Completes a string that fills the bytes that were read. The helper has replaced its last byte by a zero. Returns
    /// `false` if the string goes on.
    #[inline(always)]
    fn ends_text(&mut self, at: usize) -> bool {
        let len = span!(self.read) as u64;
        let size = span!(self.size);
        if len + 1 != size {
            return true;
        }
        let field = self.field(at);
        let user = is_user(field, usize::from(field.steps));
        let last = span!(self.address).wrapping_add(span!(self.skipped)).wrapping_add(len);
        let Some(last) = self.pointer(last, 1, user) else { return false };
        if last & 0xff == 0 {
            return true;
        }
        let ends = self.field(at).flags & flag::ARRAY != 0 || span!(self.bound) != UNBOUNDED;
        let behind = span!(self.skipped).wrapping_add(span!(self.read) as u64) as usize;
        let is_whole = ends && span!(self.size) == span!(self.wanted) && behind < LONGEST;
        if !is_whole || !self.put(behind, last as u8) {
            return false;
        }
        span!(self.read = span!(self.read) + 1);
        true
    }

    /// How many bytes of the tail are used.
    #[inline(always)]
    fn end(&self) -> usize {
        // SAFETY: the frame is ours.
        unsafe { (&raw const self.frame.len).read_volatile() }
    }

    /// Writes a byte behind the end of the tail. Returns `false` if there is no room.
    #[inline(always)]
    fn put(&mut self, behind: usize, byte: u8) -> bool {
        let at = self.end() + behind;
        if at >= LONGEST_TAIL {
            return false;
        }
        let to = &raw mut self.frame.tail[at];
        // SAFETY: the tail is the frame's.
        unsafe { to.write_volatile(byte) };
        true
    }
}

/// How many bytes may be read to this offset in a tail, including the zero that ends a string of maximum length.
#[inline(always)]
fn room(start: usize) -> u64 {
    if start <= LAST_DATA {
        LONGEST as u64 + 1
    } else if start <= LAST_SHORT {
        SHORT as u64
    } else {
        0
    }
}

#[inline(always)]
fn least(one: u64, other: u64) -> u64 {
    if one < other { one } else { other }
}

#[inline(always)]
fn is_text(field: &FetchField) -> bool {
    matches!(field.kind, kind::STRING | kind::DATA_LOC | kind::REL_LOC)
}

/// Reads a string of at most `size` bytes. Returns its length with the terminating zero, or a negative errno.
///
/// # Safety
///
/// `to` has room for that many bytes.
#[inline(always)]
unsafe fn read_str(to: *mut c_void, size: u32, from: u64, user: bool) -> i64 {
    let from = from as *const c_void;
    if user {
        // SAFETY: the caller's promise; the helper checks the address that is read.
        unsafe { bpf_probe_read_user_str(to, size, from) }
    } else {
        // SAFETY: as above.
        unsafe { bpf_probe_read_kernel_str(to, size, from) }
    }
}
