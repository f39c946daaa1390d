//! Comparing strings with patterns and with each other.
//!
//! The loops are in global functions, and each is short: the verifier walks through every round of a loop, on every
//! path that leads there. Old verifiers give up on a long loop.

use super::{DIFFERS, Fetch, HOLDS, UNKNOWN};
use crate::hit::{Frame, LAST_SHORT, LONGEST_TAIL};
use aya_ebpf::Global;
use core::hint::black_box;
use probe_tracer_common::fetch::{LONGEST, Pattern, TEXT_LEN, TEXTS, TRUNCATED};

/// 1: some predicates compare strings with patterns or with each other. User space sets this before it loads the
/// programs, so that the verifier skips what nobody calls.
#[unsafe(no_mangle)]
static COMPARE_STRINGS: Global<u8> = Global::new(0);

/// How many positions or bytes one function looks at.
const WINDOW: u32 = TEXT_LEN as u32;

/// The most windows in a string.
const WINDOWS: u32 = (LONGEST as u32).div_ceil(WINDOW) + 1;

/// A string in the tail of a hit.
#[derive(Clone, Copy)]
struct Text {
    at: u32,
    len: u32,
    is_cut: bool,
}

impl Text {
    /// The string that a word describes.
    #[inline(always)]
    fn of(word: u64) -> Option<Self> {
        let len = ((word & !TRUNCATED) >> 32) as u32;
        let text = Self { at: word as u32, len, is_cut: word & TRUNCATED != 0 };
        (text.at <= LAST_SHORT as u32 && text.len <= LONGEST as u32).then_some(text)
    }
}

/// Whether the string that a word describes matches a pattern.
#[inline(always)]
pub(super) fn is_like(fetch: &Fetch, probe: u32, depth: u32, word: u64, pattern: u64) -> u32 {
    let Some(text) = Text::of(word) else { return DIFFERS };
    let Pattern { text: number, begin, end, between, is_whole } = Pattern::of(pattern);
    let (begin, end, between) = (u32::from(begin), u32::from(end), u32::from(between));
    let least = begin + end + between;
    let is_short = text.len < least;
    if !text.is_cut && (is_short || is_whole != 0 && text.len != least) {
        return DIFFERS;
    }
    let from = u32::from(number) * TEXT_LEN as u32;
    if has(probe, depth, text.at, from, if begin < text.len { begin } else { text.len }) == 0 {
        return DIFFERS;
    }
    let unless_cut = if text.is_cut { UNKNOWN } else { DIFFERS };
    if is_short || text.is_cut && (end != 0 || is_whole != 0) {
        return unless_cut;
    }
    let last = text.at + text.len - end;
    if has(probe, depth, last, from + begin, end) == 0 {
        return DIFFERS;
    }
    let mut next = from + begin + end;
    let mut first = text.at + begin;
    let mut left = between;
    // Where each part is found first, there is most room for the others.
    for _ in 0..Pattern::PARTS {
        if left == 0 {
            break;
        }
        let len = u32::from(fetch.text_byte(next));
        // A global function has at most five arguments.
        let found = find(probe, depth, (next + 1) << 8 | len, first, last.wrapping_sub(len));
        if found == 0 {
            return unless_cut;
        }
        first = found.wrapping_add(len);
        next = next.wrapping_add(1 + len);
        left = left.wrapping_sub(len);
    }
    HOLDS
}

/// The first offset of the tail, between two offsets, at which bytes of the texts begin. Their index in the texts and their
/// length are in one number. 0, where no string is, if they are not there.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find(probe: u32, depth: u32, text: u32, first: u32, last: u32) -> u32 {
    if COMPARE_STRINGS.load() == 0 {
        return 0;
    }
    for window in 0..WINDOWS {
        let at = first.wrapping_add(window * WINDOW);
        if at > last {
            break;
        }
        let found = find_in_window(probe, depth, text, at, last);
        if found != 0 {
            return found;
        }
    }
    0
}

/// The same for the first offsets only.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_in_window(probe: u32, depth: u32, text: u32, first: u32, last: u32) -> u32 {
    if COMPARE_STRINGS.load() == 0 {
        return 0;
    }
    for n in 0..WINDOW {
        let at = first.wrapping_add(n);
        if at > last {
            break;
        }
        if has(probe, depth, at, text >> 8, text & 0xff) != 0 {
            return at;
        }
    }
    0
}

/// Whether the tail has, at an offset, `len` bytes of the texts from an index on.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn has(probe: u32, depth: u32, offset: u32, from: u32, len: u32) -> u32 {
    if COMPARE_STRINGS.load() == 0 {
        return 0;
    }
    let Some(fetch) = Fetch::of(probe, depth) else { return 0 };
    let Some(bytes) = fetch.window(offset) else { return 0 };
    for n in 0..WINDOW {
        let n = opaque(n);
        if n >= len {
            break;
        }
        let expected = fetch.text_byte(from.wrapping_add(n));
        if expected != 0 && bytes[index(n)] != expected {
            return 0;
        }
    }
    1
}

const _: () = assert!((TEXTS * TEXT_LEN).is_power_of_two());

/// Whether two words describe the same string.
#[inline(always)]
pub(super) fn are_same(probe: u32, depth: u32, one: u64, other: u64) -> u32 {
    let (Some(one), Some(other)) = (Text::of(one), Text::of(other)) else { return DIFFERS };
    let (short, long) = if one.len < other.len { (one, other) } else { (other, one) };
    let is_as_long = short.len == long.len;
    let may_be = if short.is_cut { !is_as_long || long.is_cut } else { is_as_long && !long.is_cut };
    if !may_be || same(probe, depth, one.at, other.at, short.len) == 0 {
        return DIFFERS;
    }
    if short.is_cut { UNKNOWN } else { HOLDS }
}

/// Whether the `len` bytes at two offsets of the tail are the same.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn same(probe: u32, depth: u32, one: u32, other: u32, len: u32) -> u32 {
    if COMPARE_STRINGS.load() == 0 {
        return 0;
    }
    for window in 0..WINDOWS {
        let done = window * WINDOW;
        if done >= len {
            break;
        }
        let (one, other) = (one.wrapping_add(done), other.wrapping_add(done));
        if same_in_window(probe, depth, one, other, len - done) == 0 {
            return 0;
        }
    }
    1
}

/// The same for the first bytes only.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn same_in_window(probe: u32, depth: u32, one: u32, other: u32, len: u32) -> u32 {
    if COMPARE_STRINGS.load() == 0 {
        return 0;
    }
    let Some(fetch) = Fetch::of(probe, depth) else { return 0 };
    let (Some(one), Some(other)) = (fetch.window(one), fetch.window(other)) else { return 0 };
    for n in 0..WINDOW {
        let n = opaque(n);
        if n >= len {
            break;
        }
        let n = index(n);
        if one[n] != other[n] {
            return 0;
        }
    }
    1
}

/// The same number, of which the compiler knows nothing. It would count to the end of a loop otherwise instead of from the
/// beginning, and old verifiers do not see that such a loop ends.
#[inline(always)]
fn opaque(n: u32) -> u32 {
    black_box(n)
}

/// An index into a window. The verifier knows the bounds of a number that was just masked, wherever it comes from.
#[inline(always)]
fn index(n: u32) -> usize {
    n as usize & (WINDOW as usize - 1)
}

impl Fetch<'_> {
    /// A byte of the texts, which follow each other.
    #[inline(always)]
    fn text_byte(&self, at: u32) -> u8 {
        self.table.texts.as_flattened()[at as usize & (TEXTS * TEXT_LEN - 1)]
    }

    /// The bytes of the tail from an offset on. The last of them may be behind the tail.
    #[inline(always)]
    fn window(&self, offset: u32) -> Option<&[u8; WINDOW as usize]> {
        // For the verifier, which remembers the bounds of a number that comes from memory.
        let offset = black_box(offset) as usize;
        if offset >= LONGEST_TAIL {
            return None;
        }
        let frame = (&raw const *self.frame).cast::<u8>();
        // SAFETY: the frame has that many bytes behind each byte of its tail (asserted below), and all are valid.
        Some(unsafe { &*frame.wrapping_add(offset).cast() })
    }
}

const _: () = assert!(size_of::<Frame>() >= LONGEST_TAIL + WINDOW as usize);
