//! Errors of reading BTF.

use std::io;

/// Why BTF cannot be parsed. Positions are in bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BtfError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    /// The file is not BTF, or has the other byte order.
    #[error("the file is not BTF of this machine: it begins with {magic:#06x}")]
    Magic { magic: u16 },
    #[error("unknown BTF version {version}")]
    Version { version: u8 },
    /// A part extends past the end of the file, or ends in the middle of an item.
    #[error("the BTF ends within its {part} at {at}")]
    Overlong { part: &'static str, at: usize },
    #[error("the BTF's last string is not terminated")]
    Strings,
    /// The length of such a type is unknown, so no type after it can be found.
    #[error("the BTF has a type of unknown kind {kind} at {at}")]
    Kind { kind: u32, at: usize },
    /// The number of types or the length of the strings overflows.
    #[error("the BTF has too many types or strings")]
    TooMuch,
}
