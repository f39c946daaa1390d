//! Which hits are told, as a person writes it: `/count > 4096 && comm == "dd"/`.

use super::field::{At, FieldPath, FieldType};

/// A condition on a hit, decided in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Predicate {
    /// One comparison.
    Compare(Comparison),
    /// `!A`.
    Not(Box<Predicate>),
    /// `A && B`: both, or all.
    All(Vec<Predicate>),
    /// `A || B`: one at least.
    Any(Vec<Predicate>),
}

/// A field, compared with something that does not change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Comparison {
    /// The field.
    pub path: FieldPath,
    /// How it is taken, as in a field of the probe.
    pub ty: Option<FieldType>,
    /// How it is compared. A path alone is `!= 0`.
    pub operator: Operator,
    /// With what.
    pub value: Literal,
    /// Where that stands.
    pub value_at: At,
}

/// How things are compared.
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
    /// `&`: they have a bit in common.
    HasBits,
}

/// Something that does not change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Literal {
    /// `4096`, `-1`, `0xff`, `0o644`, `'a'`: between `i64::MIN` and `u64::MAX`.
    Integer(i128),
    /// `"dd"`.
    Text(Vec<u8>),
    /// The name of an enumerator: `TCP_ESTABLISHED`.
    Name(String),
}
