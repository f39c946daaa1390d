//! The names and shapes of the fields of a probe's events.

use super::names::ValueNames;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A field of a probe's events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// The field's name.
    pub name: String,
    /// The shape of its value.
    pub shape: Shape,
    /// What the numbers of an integer or the bytes mean, if that is known.
    pub names: Option<Arc<ValueNames>>,
}

impl Field {
    /// Whether its values are addresses of kernel functions, which are shown as symbols.
    pub fn is_symbol(&self) -> bool {
        self.shape == Shape::Symbol || self.names.as_deref() == Some(&ValueNames::Function)
    }

    /// The field with numbers instead of their names.
    #[must_use]
    pub(crate) fn raw(mut self) -> Self {
        self.names = None;
        self.shape = self.shape.raw();
        self
    }
}

/// How a value is interpreted and shown. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Shape {
    /// An unsigned integer.
    Unsigned,
    /// A signed integer, sign-extended to 64 bits.
    Signed,
    /// An integer, shown in hexadecimal.
    Hex,
    /// `_Bool`.
    Bool,
    /// `char`.
    Char,
    /// A duration, in nanoseconds.
    Duration,
    /// An address. 0 is `NULL`.
    Pointer,
    /// The pointer that a kernel function returns. In the kernel, the last 4,095 addresses stand for errors (`ERR_PTR`
    /// in `include/linux/err.h`), shown as a negative errno with its name.
    PointerOrError,
    /// A kernel address, shown as its symbol.
    Symbol,
    /// A value of an enumeration. A value without a name is shown as a number.
    Enum(Arc<Enumeration>),
    /// A string of arbitrary bytes.
    Text,
    /// Bytes.
    Bytes,
    /// Bytes that may be text: text if they are, otherwise bytes.
    Buffer,
    /// A list of elements of `size` bytes each: 1, 2, 4 or 8.
    List {
        /// The size of an element.
        size: u8,
        /// The shape of an element, which is an integer.
        of: Box<Shape>,
    },
    /// A bit mask, shown as the list of the bits that are set: for a cpumask, its CPUs.
    Bits,
    /// A kernel stack, from the function of the hook outwards.
    KernelStack,
    /// A user stack, innermost frame first.
    UserStack,
    /// The result of a function or system call. A negative errno is shown with its name.
    Result,
}

impl Shape {
    /// The shape of the same number without a name.
    fn raw(self) -> Self {
        match self {
            Self::Enum(names) if names.is_signed => Self::Signed,
            Self::Enum(_) => Self::Unsigned,
            Self::Symbol => Self::Hex,
            Self::PointerOrError => Self::Pointer,
            Self::Result => Self::Signed,
            Self::List { size, of } => Self::List { size, of: Box::new(of.raw()) },
            shape => shape,
        }
    }

    /// The negative number of the error that a value stands for, if it does.
    pub(crate) fn error(&self, value: u64) -> Option<i64> {
        let value = value.cast_signed();
        match self {
            Self::Result => Some(value).filter(|value| *value < 0),
            Self::PointerOrError => Some(value).filter(|value| (-4095..0).contains(value)),
            _ => None,
        }
    }

    /// The shape's name in machine-readable output.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Signed => "signed",
            Self::Hex => "hex",
            Self::Bool => "bool",
            Self::Char => "char",
            Self::Pointer => "pointer",
            Self::PointerOrError => "pointer_or_error",
            Self::Symbol => "symbol",
            Self::Enum(_) => "enum",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Buffer => "buffer",
            Self::List { .. } => "list",
            Self::Bits => "bits",
            Self::Result => "result",
            Self::Duration => "duration",
            Self::KernelStack => "kernel_stack",
            Self::UserStack => "user_stack",
        }
    }
}

/// The enumerators of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Enumeration {
    /// Whether the values are signed.
    pub is_signed: bool,
    /// The values, sorted, each with its first name.
    pub names: Vec<(u64, String)>,
}

impl Enumeration {
    /// The name of a value, if it has one.
    pub fn name(&self, value: u64) -> Option<&str> {
        let at = self.names.binary_search_by_key(&value, |(value, _)| *value).ok()?;
        Some(&self.names[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_values_are_numbers() {
        let list = |of| Shape::List { size: 4, of: Box::new(of) };
        for (shape, raw) in [
            (Shape::Result, Shape::Signed),
            (Shape::PointerOrError, Shape::Pointer),
            (list(Shape::Symbol), list(Shape::Hex)),
            (Shape::Text, Shape::Text),
        ] {
            let field = Field { name: "f".to_owned(), shape, names: None };
            assert_eq!(field.raw().shape, raw);
        }
    }
}
