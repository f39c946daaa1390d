//! The numbers that a field can have, and how the program compares them.
//!
//! A comparison whose result does not depend on the field is refused, because its author believes that the field has
//! another type.

use super::reach;
use super::shape::Shape;
use crate::spec::{Comparison, FieldPath, FieldType, Operator};
use probe_tracer_common::fetch::{FetchField, flag, kind, operator};

/// The largest errno that an error pointer encodes (`MAX_ERRNO` in `include/linux/err.h`).
const MAX_ERRNO: i32 = 4095;

/// The numbers that a field can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    Unsigned {
        bits: u32,
    },
    Signed {
        bits: u32,
    },
    /// A signed number of `bits` bits, extended to an unsigned one of 64 bits.
    Widened {
        bits: u32,
    },
    /// A register of which only the bits are known, not whether they are a signed number.
    Unknown,
    /// A pointer, or a negative errno.
    PointerOrError,
}

/// What a check compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) field: FetchField,
    /// The operator before targets are swapped.
    pub(super) operator: u8,
    pub(super) value: u64,
}

impl Domain {
    /// The numbers of a field that is read like this, as the type in the spec, if any.
    pub(super) fn of(field: &FetchField, shape: &Shape, ty: Option<FieldType>) -> Self {
        let bits = reach::width(field);
        match (shape, ty, field.flags & flag::SIGNED != 0) {
            (Shape::PointerOrError, ..) => Self::PointerOrError,
            // Without a type in the spec, only values of unknown types have this shape.
            (Shape::Hex, None, _) => Self::Unknown,
            (_, Some(FieldType::Unsigned(_) | FieldType::Hex(_)), true) => Self::Widened { bits },
            (_, _, true) => Self::Signed { bits },
            (_, _, false) => Self::Unsigned { bits },
        }
    }

    /// The number of the field that has the bits of a constant: `1 << 31` is a negative `int`.
    pub(super) fn with_bits(self, constant: i128) -> i128 {
        match self {
            Self::Signed { bits } if (1 << (bits - 1)..1 << bits).contains(&constant) => {
                constant - (1 << bits)
            }
            _ => constant,
        }
    }

    /// The check for a comparison of the field with a number. The error says what to write instead.
    pub(super) fn compare(
        self,
        field: FetchField,
        comparison: &Comparison,
        value: i128,
    ) -> Result<Compared, String> {
        let has_bits = comparison.operator == Operator::HasBits;
        if self == Self::Unknown && !has_bits && depends_on_sign(comparison.operator, value) {
            return Err(unknown_sign(comparison, value));
        }
        // Bits are those of the field, not of its value.
        let (least, most) = match (self.range(), self) {
            ((least, _), Self::Signed { bits }) if has_bits => (least, (1 << bits) - 1),
            ((_, most), Self::PointerOrError) if has_bits => (0, most),
            (range, _) => range,
        };
        if value < least || value > most {
            let (kind, instead) = (self.name(), self.instead(comparison, value));
            return Err(format!(
                "{value} is out of range: the field is {kind}, from {least} to {most}{instead}"
            ));
        }
        if let Self::Widened { bits } = self
            && !has_bits
            && extended(value, bits) != value
            && matches!(comparison.operator, Operator::Equal | Operator::NotEqual)
        {
            return Err(format!(
                "{value} is out of range: the field is signed with {bits} bits, extended to 64: write {:#x}, or {}:x{bits}",
                extended(value, bits),
                comparison.path
            ));
        }
        let never = match comparison.operator {
            Operator::Less => value == least,
            Operator::Greater => value == most,
            Operator::HasBits => value == 0,
            _ => false,
        };
        if never {
            let beyond = if comparison.operator == Operator::Less { value - 1 } else { value + 1 };
            let (kind, instead) = (self.name(), self.instead(comparison, beyond));
            return Err(match has_bits {
                true => "this is never true: 0 has no bits".to_owned(),
                false => format!(
                    "this is never true: the field is {kind}, from {least} to {most}{instead}"
                ),
            });
        }
        let operator = self.operator(comparison.operator);
        Ok(match self {
            // In the order of addresses, errors come last, so that this number is added to both sides.
            Self::PointerOrError if !has_bits => {
                debug_assert_eq!((field.kind, field.steps), (kind::VALUE, 0));
                let mut field = field;
                field.offsets[0] += MAX_ERRNO;
                Compared { field, operator, value: (value + i128::from(MAX_ERRNO)) as u64 }
            }
            // Two's complement, like the value in its word.
            _ => Compared { field, operator, value: value as u64 },
        })
    }

    /// The operator of a check of two fields, before targets are swapped.
    pub(super) fn compare_with(
        self,
        other: Self,
        operator: Operator,
        paths: [&FieldPath; 2],
    ) -> Result<u8, String> {
        use Operator::{Equal, HasBits, NotEqual};
        if operator == HasBits {
            return Ok(operator::HAS);
        }
        let is_equality = matches!(operator, Equal | NotEqual);
        // Both are words with the bits of the values.
        let are_signed = self.is_below_2_63() && other.is_below_2_63();
        let are_unsigned = self.is_unsigned(is_equality) && other.is_unsigned(is_equality);
        if are_unsigned {
            return Ok(Self::Unsigned { bits: 64 }.operator(operator));
        }
        if are_signed {
            return Ok(Self::Signed { bits: 64 }.operator(operator));
        }
        let [one, two] = paths;
        Err(format!(
            "{one} is {}, and {two} is {}: write a type behind the paths, as in {one}:s64 {operator} {two}:s64",
            self.name_of_pair(),
            other.name_of_pair()
        ))
    }

    /// Whether all its numbers are signed ones of 64 bits.
    fn is_below_2_63(self) -> bool {
        matches!(self, Self::Signed { .. } | Self::Unsigned { bits: ..64 })
    }

    /// Whether its words are its numbers, or tell at least whether two numbers are equal.
    fn is_unsigned(self, is_equality: bool) -> bool {
        match self {
            Self::Unsigned { .. } | Self::Widened { .. } => true,
            Self::Signed { .. } => false,
            Self::Unknown | Self::PointerOrError => is_equality,
        }
    }

    fn name_of_pair(self) -> String {
        match self {
            Self::Unknown => "of an unknown type".to_owned(),
            other => other.name(),
        }
    }

    /// The least and the greatest number.
    fn range(self) -> (i128, i128) {
        match self {
            Self::Unsigned { bits } => (0, (1 << bits) - 1),
            Self::Signed { bits } => (-1 << (bits - 1), (1 << (bits - 1)) - 1),
            Self::Widened { .. } | Self::Unknown => (0, u64::MAX.into()),
            Self::PointerOrError => {
                (-i128::from(MAX_ERRNO), i128::from(u64::MAX) - i128::from(MAX_ERRNO))
            }
        }
    }

    fn operator(self, operator: Operator) -> u8 {
        use Operator::{
            Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Like, NotEqual, NotLike,
        };
        let is_signed = matches!(self, Self::Signed { .. });
        let less = if is_signed { operator::LESS } else { operator::BELOW };
        let greater = if is_signed { operator::GREATER } else { operator::ABOVE };
        match operator {
            // Numbers have no patterns, which is refused before.
            Equal | NotEqual | Like | NotLike => operator::EQUAL,
            Operator::HasBits => operator::HAS,
            Operator::NotZero => operator::ABOVE,
            Less => less,
            GreaterOrEqual => less | operator::NOT,
            Greater => greater,
            LessOrEqual => greater | operator::NOT,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Unsigned { bits } => format!("unsigned with {bits} bits"),
            Self::Signed { bits } => format!("signed with {bits} bits"),
            Self::Widened { .. } | Self::Unknown => "unsigned with 64 bits".to_owned(),
            Self::PointerOrError => "a pointer or a negative errno".to_owned(),
        }
    }

    /// What to write instead, if the field were of the other sign, so that it could be this number. The end of a message.
    fn instead(self, comparison: &Comparison, value: i128) -> String {
        let fits = |bits: u32| matches!(bits, 8 | 16 | 32 | 64) && value >= -1 << (bits - 1);
        let path = &comparison.path;
        let Comparison { operator, value: literal, .. } = comparison;
        match self {
            Self::Unsigned { bits } if value < 0 && fits(bits) => {
                format!("; write {path}:s{bits} {operator} {literal} to compare a signed number")
            }
            Self::Widened { .. } if value < 0 && fits(64) => {
                format!("; write {path}:s64 {operator} {literal} to compare a signed number")
            }
            Self::Signed { bits } if value > 0 && value < 1 << bits && fits(bits) => match operator
            {
                Operator::Equal | Operator::NotEqual => {
                    format!("; write {path} {operator} {}", extended(value, bits) as i64)
                }
                _ => format!(
                    "; write {path}:u{bits} {operator} {literal} to compare an unsigned number"
                ),
            },
            Self::PointerOrError if value > 0 && value <= u64::MAX.into() => {
                format!("; write {path} {operator} {}", value as u64 as i64)
            }
            _ => String::new(),
        }
    }
}

/// The low bits of a number as a signed one, as they are in a word of 64 bits.
fn extended(value: i128, bits: u32) -> i128 {
    let unused = 64 - bits;
    (((value as i64) << unused >> unused) as u64).into()
}

/// Whether a comparison has another result for the same bits as a signed number: -1 of an `int` is greater than any small
/// number if it is taken for unsigned.
fn depends_on_sign(operator: Operator, value: i128) -> bool {
    match operator {
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            true
        }
        _ => value < 0,
    }
}

fn unknown_sign(comparison: &Comparison, value: i128) -> String {
    let (path, operator) = (&comparison.path, comparison.operator);
    let others = match value {
        0.. => format!(", {path}:s64 for a long, or {path}:u64 for a size or an address"),
        _ => format!(", or {path}:s64 for a long"),
    };
    format!(
        "the type of {path} is not known, so it may be signed or not: write {path}:s32 {operator} {value} for an int\
         {others}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_field_has_the_highest_bit_of_a_constant() {
        let int = Domain::Signed { bits: 32 };
        let constants = [1 << 31, 1 << 31 | 1, 5, -5, 1 << 32];
        let expected = [-(1 << 31), 1 - (1 << 31), 5, -5, 1 << 32];
        assert_eq!(constants.map(|one| int.with_bits(one)), expected);
        assert_eq!(Domain::Unsigned { bits: 32 }.with_bits(1 << 31), 1 << 31);
    }
}
