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
        self.comparisons().iter().any(|one| matches!(one.value, Operand::Name(_)))
    }

    /// What to know if a string looks like a pattern, or like another pattern, than it is.
    pub(crate) fn literal_pattern(&self) -> Option<String> {
        self.comparisons().into_iter().find_map(|one| {
            if let (Operator::Like | Operator::NotLike, Operand::Text(text)) =
                (one.operator, &one.value)
            {
                return text.contains(&b'[').then(|| {
                    format!(
                        "in {one}, the [ is an ordinary character; only * and ? stand for others"
                    )
                });
            }
            let operator = match one.operator {
                Operator::Equal => Operator::Like,
                Operator::NotEqual => Operator::NotLike,
                _ => return None,
            };
            let Operand::Text(text) = &one.value else { return None };
            let like = Comparison { operator, ..one.clone() };
            text.contains(&b'*').then(|| {
                format!("in {one}, the * is an ordinary character; for a pattern, write {like}")
            })
        })
    }

    /// What to know if the result of a system call is compared with -1, as in C.
    pub(crate) fn with_result_of_c(&self) -> Option<String> {
        let compares = |one: &&Comparison| {
            let is_result = ["retval", "ret"].contains(&&*one.path.base.to_string());
            let is_equal = matches!(one.operator, Operator::Equal | Operator::NotEqual);
            is_result && is_equal && one.value == Operand::Integer(-1)
        };
        let one = self.comparisons().into_iter().find(compares)?;
        Some(format!(
            "in {one}, -1 is the error EPERM alone; a call that fails returns any negative errno: {} < 0",
            one.path
        ))
    }

    /// The comparisons in the predicate.
    pub(crate) fn comparisons(&self) -> Vec<&Comparison> {
        match self {
            Self::Compare(comparison) => vec![comparison],
            Self::Not(inner) => inner.comparisons(),
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().flat_map(Self::comparisons).collect()
            }
        }
    }
}

/// A comparison of a field with a constant or with another field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Comparison {
    /// The field.
    pub path: FieldPath,
    /// The explicit type, as in a field of the probe.
    pub ty: Option<FieldType>,
    /// The operator.
    pub operator: Operator,
    /// What the field is compared with.
    pub value: Operand,
    /// The position of that.
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
    /// `~`: the string matches a pattern, in which `*` stands for any bytes and `?` for one byte.
    Like,
    /// `!~`: the string does not match it.
    NotLike,
    /// None, for a path alone: the field can be read, and is not 0.
    NotZero,
}

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operand {
    /// `4096`, `-1`, `0xff`, `0o644`, `'a'`: from `i64::MIN` to `u64::MAX`.
    Integer(i128),
    /// `"dd"`.
    Text(Vec<u8>),
    /// The name of a constant, or of several with all their bits: `TCP_ESTABLISHED`, `-ENOENT`, `O_CREAT|O_EXCL`. If no
    /// constant of the field has this name, the name of another field.
    Name(String),
    /// Another field, with its explicit type, in a form that no constant has: `args->len`, `$pid`, `arg1:u32`.
    Field(FieldPath, Option<FieldType>),
}
