//! Conditions for reporting a hit: `/count > 4096 && comm == "dd"/`.

use super::field::{At, FieldPath, FieldType};

/// A condition for reporting a hit, evaluated in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Predicate {
    /// One comparison.
    Compare(Comparison),
    /// `!A`.
    Not(Box<Predicate>),
    /// `A && B`: all of them.
    All(Vec<Predicate>),
    /// `A || B`: at least one of them.
    Any(Vec<Predicate>),
}

impl Predicate {
    /// Whether a field is compared with a constant that has a name.
    pub(crate) fn has_names(&self) -> bool {
        match self {
            Self::Compare(comparison) => matches!(comparison.value, Literal::Name(_)),
            Self::Not(inner) => inner.has_names(),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::has_names),
        }
    }
}

/// A comparison of a field with a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Comparison {
    /// The field.
    pub path: FieldPath,
    /// The explicit type, as in a field of the probe.
    pub ty: Option<FieldType>,
    /// The operator. A path without one means `!= 0`.
    pub operator: Operator,
    /// The constant.
    pub value: Literal,
    /// The position of the constant.
    pub value_at: At,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operator {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `&`: the operands have a bit in common.
    HasBits,
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Literal {
    /// `4096`, `-1`, `0xff`, `0o644`, `'a'`: from `i64::MIN` to `u64::MAX`.
    Integer(i128),
    /// `"dd"`.
    Text(Vec<u8>),
    /// The name of a constant, or of several with all their bits: `TCP_ESTABLISHED`, `-ENOENT`, `O_CREAT|O_EXCL`.
    Name(String),
}
