//! Field values, formatted for people.

use crate::resolve::event::Value;
use crate::resolve::names::errno;
use crate::resolve::shape::Shape;
use probe_sys::escape::Quoted;
use std::fmt;
use std::time::Duration;

/// A value, as a table shows it.
pub(super) struct Shown<'v>(pub(super) &'v Shape, pub(super) Value<'v>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (_, Value::Fault) => f.write_str("<fault>"),
            (_, Value::Null) => f.write_str("NULL"),
            (_, Value::Stack(addresses)) => write!(f, "{} functions", addresses.iter().len()),
            (shape, Value::Bytes(bytes)) => data(f, shape, bytes, false),
            (shape, Value::Truncated(bytes)) => {
                data(f, shape, bytes, true)?;
                f.write_str("...")
            }
            (shape, Value::Integer(value)) => integer(f, shape, value),
        }
    }
}

/// How many bytes of a buffer that is not text are shown.
const BINARY: usize = 32;

/// Writes a string, bytes or a list, which may be incomplete.
fn data(f: &mut fmt::Formatter<'_>, shape: &Shape, bytes: &[u8], is_cut: bool) -> fmt::Result {
    match shape {
        Shape::Bytes => write!(f, "{}", Hex(bytes)),
        Shape::Buffer if !is_text(bytes, is_cut) => {
            let shown = bytes.get(..BINARY).unwrap_or(bytes);
            let mark = if shown.len() < bytes.len() && !is_cut { "..." } else { "" };
            write!(f, "{}{mark}", Hex(shown))
        }
        Shape::List { size, of } => {
            f.write_str("[")?;
            for (n, element) in elements(bytes, *size).enumerate() {
                f.write_str(if n == 0 { "" } else { ", " })?;
                integer(f, of, extended(element, *size, of))?;
            }
            f.write_str("]")
        }
        Shape::Bits => {
            let bits: Vec<u32> = bits(bytes).collect();
            let ranges = bits.chunk_by(|one, next| one + 1 == *next).map(|range| match range {
                [first, .., last] => format!("{first}-{last}"),
                [one] => one.to_string(),
                [] => String::new(),
            });
            let list = ranges.collect::<Vec<_>>().join(",");
            f.write_str(if list.is_empty() { "none" } else { &list })
        }
        _ => write!(f, "{}", Quoted(bytes)),
    }
}

/// Whether a buffer is shown as text: UTF-8 without control characters, except those of text files and terminals.
/// The last character of the beginning of a longer text may be incomplete.
pub(super) fn is_text(bytes: &[u8], is_cut: bool) -> bool {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if is_cut && error.error_len().is_none() => {
            str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or("")
        }
        Err(_) => return false,
    };
    text.chars().all(|char| !char.is_control() || matches!(char, '\x07'..='\r' | '\x1b'))
}

/// The elements of a list, as unsigned integers.
pub(super) fn elements(bytes: &[u8], size: u8) -> impl Iterator<Item = u64> {
    let size = usize::from(size).clamp(1, 8);
    bytes.chunks_exact(size).map(move |element| {
        let mut word = [0; 8];
        let at = if cfg!(target_endian = "little") { 0 } else { 8 - size };
        word[at..at + size].copy_from_slice(element);
        u64::from_ne_bytes(word)
    })
}

/// An element of a list as it would be in a word of its own: signed ones are sign-extended.
pub(super) fn extended(element: u64, size: u8, of: &Shape) -> u64 {
    let is_signed = match of {
        Shape::Signed | Shape::Char | Shape::Result => true,
        Shape::Enum(enumeration) => enumeration.is_signed,
        _ => false,
    };
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    if is_signed { ((element << unused).cast_signed() >> unused).cast_unsigned() } else { element }
}

/// The numbers of the bits that are set in a mask of words.
pub(super) fn bits(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let words = elements(bytes, 8).enumerate();
    words.flat_map(|(n, word)| {
        (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| 64 * n as u32 + bit)
    })
}

fn integer(f: &mut fmt::Formatter<'_>, shape: &Shape, value: u64) -> fmt::Result {
    match shape {
        Shape::Signed => write!(f, "{}", value as i64),
        Shape::Result => match error_of(value) {
            Some(error) => write!(f, "{} {error}", value as i64),
            None => write!(f, "{}", value as i64),
        },
        Shape::Bool if value <= 1 => write!(f, "{}", value == 1),
        Shape::Char => match u8::try_from(value & 0xff) {
            Ok(byte) if byte.is_ascii_graphic() || byte == b' ' => {
                write!(f, "'{}'", char::from(byte))
            }
            _ => write!(f, "{}", value as i64),
        },
        Shape::Duration => write!(f, "{}", Nanoseconds(value)),
        Shape::PointerOrError if shape.error(value).is_some() => integer(f, &Shape::Result, value),
        Shape::Pointer | Shape::PointerOrError | Shape::Symbol if value == 0 => f.write_str("NULL"),
        Shape::Hex | Shape::Pointer | Shape::PointerOrError | Shape::Symbol => {
            write!(f, "{value:#x}")
        }
        Shape::Enum(enumeration) => match enumeration.name(value) {
            Some(name) => f.write_str(name),
            None if enumeration.is_signed => write!(f, "{}", value as i64),
            None => write!(f, "{value}"),
        },
        _ => write!(f, "{value}"),
    }
}

/// A time in nanoseconds, shown in a fitting unit: `730ns`, `12.3µs`, `1.234ms`, `61.002s`.
pub(super) struct Nanoseconds(pub(super) u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0 {
            0..1_000 => 0,
            1_000..1_000_000 => 1,
            _ => 3,
        };
        f.pad(&format!("{:.digits$?}", Duration::from_nanos(self.0)))
    }
}

/// The name of the error that a negative result encodes.
pub(super) fn error_of(result: u64) -> Option<&'static str> {
    errno::name(i32::try_from((result as i64).checked_neg()?).ok()?)
}

/// Bytes as pairs of hexadecimal digits.
pub(super) struct Hex<'b>(pub(super) &'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::shape::Enumeration;
    use std::sync::Arc;

    #[test]
    fn values_are_formatted_by_their_shapes() {
        let states = Arc::new(Enumeration {
            is_signed: true,
            names: vec![(1, "TCP_ESTABLISHED".into()), (u64::MAX, "TCP_NONE".into())],
        });
        let minus = |value: i64| Value::Integer(value as u64);
        let list = |size, of| Shape::List { size, of: Box::new(of) };
        for (shape, value, shown) in [
            (Shape::Unsigned, minus(-1), "18446744073709551615"),
            (Shape::Signed, minus(-100), "-100"),
            (Shape::Hex, Value::Integer(255), "0xff"),
            (Shape::Bool, Value::Integer(1), "true"),
            (Shape::Bool, Value::Integer(2), "2"),
            (Shape::Char, Value::Integer(b'a'.into()), "'a'"),
            (Shape::Char, minus(-1), "-1"),
            (Shape::Char, Value::Integer(27), "27"),
            (Shape::Duration, Value::Integer(0), "0ns"),
            (Shape::Duration, Value::Integer(999), "999ns"),
            (Shape::Duration, Value::Integer(12_345), "12.3µs"),
            (Shape::Duration, Value::Integer(1_234_567), "1.235ms"),
            (Shape::Duration, Value::Integer(61_001_500_000), "61.002s"),
            (Shape::Pointer, Value::Integer(0), "NULL"),
            (Shape::Pointer, Value::Integer(4096), "0x1000"),
            (Shape::PointerOrError, Value::Integer(0), "NULL"),
            (Shape::PointerOrError, Value::Integer(4096), "0x1000"),
            (Shape::PointerOrError, minus(-2), "-2 ENOENT"),
            (Shape::PointerOrError, minus(-4095), "-4095"),
            (Shape::PointerOrError, minus(-4096), "0xfffffffffffff000"),
            (Shape::Enum(states.clone()), Value::Integer(1), "TCP_ESTABLISHED"),
            (Shape::Enum(states.clone()), minus(-1), "TCP_NONE"),
            (Shape::Enum(states), minus(-2), "-2"),
            (Shape::Result, minus(-2), "-2 ENOENT"),
            (Shape::Result, minus(-512), "-512 ERESTARTSYS"),
            (Shape::Result, minus(-4000), "-4000"),
            (Shape::Result, Value::Integer(3), "3"),
            (Shape::Result, minus(i64::MIN), "-9223372036854775808"),
            (Shape::Text, Value::Bytes(b"a \"\x1b"), r#""a \"\u{1b}""#),
            (Shape::Text, Value::Bytes(b"\\xff\xff"), r#""\\xff\xff""#),
            (Shape::Bytes, Value::Bytes(b"\x00\xff"), "00ff"),
            (Shape::Bytes, Value::Truncated(b"\x00\xff"), "00ff..."),
            (Shape::Text, Value::Truncated(b"/a"), "\"/a\"..."),
            (Shape::Buffer, Value::Bytes(b"h\xc3\xa9\t\n"), "\"h\u{e9}\\t\\n\""),
            (Shape::Buffer, Value::Bytes(b"h\xc3"), "68c3"),
            (Shape::Buffer, Value::Truncated(b"h\xc3"), "\"h\\xc3\"..."),
            (Shape::Buffer, Value::Bytes(b"h\0"), "6800"),
            (Shape::Buffer, Value::Bytes(&[1; 32]), &"01".repeat(32)),
            (Shape::Buffer, Value::Bytes(&[1; 33]), &format!("{}...", "01".repeat(32))),
            (Shape::Buffer, Value::Truncated(&[1; 33]), &format!("{}...", "01".repeat(32))),
            (Shape::Buffer, Value::Bytes(b""), "\"\""),
            (list(2, Shape::Signed), Value::Bytes(&[1, 0, 0xff, 0xff]), "[1, -1]"),
            (list(2, Shape::Unsigned), Value::Truncated(&[1, 0, 0xff, 0xff]), "[1, 65535]..."),
            (list(0, Shape::Pointer), Value::Bytes(&[0, 7]), "[NULL, 0x7]"),
            (Shape::Bits, Value::Bytes(&[0b1011_0111, 0, 0, 0, 0, 0, 0, 1]), "0-2,4-5,7,56"),
            (Shape::Bits, Value::Bytes(&[0; 8]), "none"),
            (Shape::Text, Value::Fault, "<fault>"),
            (Shape::Text, Value::Null, "NULL"),
        ] {
            assert_eq!(Shown(&shape, value).to_string(), shown);
        }
    }
}
