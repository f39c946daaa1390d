//! What the fields of a probe's events are: names, and how values are shown.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A field that events of a probe have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// What it is called.
    pub name: String,
    /// What its value is.
    pub shape: Shape,
}

/// What a value is, and so how it is shown. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Shape {
    /// An unsigned integer.
    Unsigned,
    /// A signed integer, its sign spread to 64 bits.
    Signed,
    /// An integer that is shown in hexadecimal.
    Hex,
    /// `_Bool`.
    Bool,
    /// `char`.
    Char,
    /// A time, in nanoseconds.
    Duration,
    /// An address. 0 is `NULL`.
    Pointer,
    /// An address in the kernel, shown as its symbol.
    Symbol,
    /// A value of an enumeration; one that has no name is shown as a number.
    Enum(Arc<Enumeration>),
    /// A string, whatever bytes it is made of.
    Text,
    /// Bytes.
    Bytes,
    /// Addresses of the kernel's functions, from the one that was hit on.
    KernelStack,
    /// The same of the process's functions.
    UserStack,
    /// What a system call or the like returns: a negative errno is shown with its name.
    Result,
}

impl Shape {
    /// What it is called, where traces are described to programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Signed => "signed",
            Self::Hex => "hex",
            Self::Bool => "bool",
            Self::Char => "char",
            Self::Pointer => "pointer",
            Self::Symbol => "symbol",
            Self::Enum(_) => "enum",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Result => "result",
            Self::Duration => "duration",
            Self::KernelStack => "kernel_stack",
            Self::UserStack => "user_stack",
        }
    }
}

/// The names of an enumeration's values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Enumeration {
    /// Whether values are signed.
    pub is_signed: bool,
    /// Values, in order, each with the first name that it has.
    pub names: Vec<(u64, String)>,
}

impl Enumeration {
    /// The name of a value.
    pub fn name(&self, value: u64) -> Option<&str> {
        let at = self.names.binary_search_by_key(&value, |(value, _)| *value).ok()?;
        Some(&self.names[at].1)
    }
}
