//! Fields and predicates as text that parses back to the same. The output is printable ASCII.

use super::field::{FieldBase, FieldPath, FieldSpec, FieldType, Length, PathStep};
use super::predicate::{Comparison, Operand, Operator, Predicate};
use std::fmt::{self, Display, Formatter};

impl Display for FieldSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        let Some(Length { path, ty }) = &self.length else {
            return typed(f, &self.path, self.ty);
        };
        match self.ty {
            Some(FieldType::Bytes(_)) => write!(f, "{}:bytes[", self.path)?,
            ty => {
                typed(f, &self.path, ty)?;
                f.write_str("[")?;
            }
        }
        typed(f, path, *ty)?;
        f.write_str("]")
    }
}

fn typed(f: &mut Formatter<'_>, path: &FieldPath, ty: Option<FieldType>) -> fmt::Result {
    match ty {
        Some(ty) => write!(f, "{path}:{ty}"),
        None => write!(f, "{path}"),
    }
}

impl Display for FieldBase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(number) => write!(f, "arg{number}"),
            Self::Position(number) => write!(f, "$arg{}", u16::from(*number) + 1),
            Self::Return => f.write_str("retval"),
            Self::Name(name) => f.write_str(name),
            Self::Builtin(builtin) => write!(f, "${builtin}"),
        }
    }
}

impl Display for FieldPath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.base.fmt(f)?;
        for (step, _) in &self.steps {
            match step {
                PathStep::Member(member) => write!(f, ".{member}")?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl Display for FieldType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(bits) => write!(f, "u{bits}"),
            Self::Signed(bits) => write!(f, "s{bits}"),
            Self::Hex(bits) => write!(f, "x{bits}"),
            Self::Str => f.write_str("str"),
            Self::Ustr => f.write_str("ustr"),
            Self::Symbol => f.write_str("sym"),
            Self::Bytes(length) => write!(f, "bytes[{length}]"),
        }
    }
}

impl Display for Predicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare(comparison) => write!(f, "{comparison}"),
            Self::Not(inner) => match &**inner {
                Self::Compare(Comparison { operator: Operator::NotZero, .. }) | Self::Not(_) => {
                    write!(f, "!{inner}")
                }
                _ => write!(f, "!({inner})"),
            },
            Self::All(terms) => joined(f, terms, " && "),
            Self::Any(terms) => joined(f, terms, " || "),
        }
    }
}

fn joined(f: &mut Formatter<'_>, terms: &[Predicate], by: &str) -> fmt::Result {
    for (number, term) in terms.iter().enumerate() {
        if number > 0 {
            f.write_str(by)?;
        }
        match term {
            Predicate::All(_) | Predicate::Any(_) => write!(f, "({term})")?,
            Predicate::Compare(_) | Predicate::Not(_) => write!(f, "{term}")?,
        }
    }
    Ok(())
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        typed(f, &self.path, self.ty)?;
        match self.operator {
            Operator::NotZero => Ok(()),
            operator => write!(f, " {operator} {}", self.value),
        }
    }
}

impl Display for Operator {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::HasBits => "&",
            Self::Like => "~",
            Self::NotLike => "!~",
            Self::NotZero => "",
        })
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Name(name) => f.write_str(name),
            Self::Field(path, ty) => typed(f, path, *ty),
            Self::Text(text) => {
                f.write_str("\"")?;
                for byte in text {
                    match byte {
                        b'"' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                        b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                        _ => write!(f, "\\x{byte:02x}")?,
                    }
                }
                f.write_str("\"")
            }
        }
    }
}
