//! How the values of fields are written, for people.

use crate::escape::Escaped;
use crate::trace::event::Value;
use crate::trace::shape::Shape;
use nix::errno::Errno;
use std::fmt;
use std::time::Duration;

/// A value, as a table shows it.
pub(super) struct Shown<'v>(pub(super) &'v Shape, pub(super) Value<'v>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (_, Value::Fault) => f.write_str("<fault>"),
            (Shape::Bytes, Value::Bytes(bytes)) => Hex(bytes).fmt(f),
            (_, Value::Stack(addresses)) => write!(f, "{} functions", addresses.iter().len()),
            (_, Value::Bytes(text)) => write!(f, "\"{}\"", Escaped(text)),
            (shape, Value::Integer(value)) => integer(f, shape, value),
        }
    }
}

fn integer(f: &mut fmt::Formatter<'_>, shape: &Shape, value: u64) -> fmt::Result {
    match shape {
        Shape::Signed => write!(f, "{}", value as i64),
        Shape::Result => match error_of(value) {
            Some(error) => write!(f, "{} {error:?}", value as i64),
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
        Shape::Pointer | Shape::Symbol if value == 0 => f.write_str("NULL"),
        Shape::Hex | Shape::Pointer | Shape::Symbol => write!(f, "{value:#x}"),
        Shape::Enum(enumeration) => match enumeration.name(value) {
            Some(name) => f.write_str(name),
            None if enumeration.is_signed => write!(f, "{}", value as i64),
            None => write!(f, "{value}"),
        },
        _ => write!(f, "{value}"),
    }
}

/// A time in nanoseconds, in its unit: `730ns`, `12.3µs`, `1.234ms`, `61.002s`.
pub(super) struct Nanoseconds(pub(super) u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0 {
            0..1_000 => 0,
            1_000..1_000_000 => 1,
            _ => 3,
        };
        write!(f, "{:.digits$?}", Duration::from_nanos(self.0))
    }
}

/// The error that a negative result stands for. Its name is how it is shown for debugging.
pub(super) fn error_of(result: u64) -> Option<Errno> {
    let errno = i32::try_from((result as i64).checked_neg()?).ok().filter(|errno| *errno > 0)?;
    Some(Errno::from_raw(errno)).filter(|errno| *errno != Errno::UnknownErrno)
}

/// Bytes as two hexadecimal digits each.
pub(super) struct Hex<'b>(pub(super) &'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::shape::Enumeration;
    use std::sync::Arc;

    #[test]
    fn values_are_shown_as_what_they_are() {
        let states = Arc::new(Enumeration {
            is_signed: true,
            names: vec![(1, "TCP_ESTABLISHED".into()), (u64::MAX, "TCP_NONE".into())],
        });
        let minus = |value: i64| Value::Integer(value as u64);
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
            (Shape::Enum(states.clone()), Value::Integer(1), "TCP_ESTABLISHED"),
            (Shape::Enum(states.clone()), minus(-1), "TCP_NONE"),
            (Shape::Enum(states), minus(-2), "-2"),
            (Shape::Result, minus(-2), "-2 ENOENT"),
            (Shape::Result, minus(-512), "-512"),
            (Shape::Result, Value::Integer(3), "3"),
            (Shape::Result, minus(i64::MIN), "-9223372036854775808"),
            (Shape::Text, Value::Bytes(b"a \"\x1b"), r#""a "\u{1b}""#),
            (Shape::Bytes, Value::Bytes(b"\x00\xff"), "00ff"),
            (Shape::Text, Value::Fault, "<fault>"),
        ] {
            assert_eq!(Shown(&shape, value).to_string(), shown);
        }
    }
}
