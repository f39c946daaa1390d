//! Why types of the kernel cannot be read.

use std::io;

/// Why BTF was not understood. Places are in bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BtfError {
    /// It could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It is no BTF, or that of a machine with another order of bytes.
    #[error("this is no BTF of this machine: it begins with {magic:#06x}")]
    Magic {
        /// What it begins with.
        magic: u16,
    },
    /// It is of a version that is not known.
    #[error("version {version} of BTF is not known")]
    Version {
        /// Which.
        version: u8,
    },
    /// A part of it is outside of the file, or ends in the middle of something.
    #[error("the BTF's {part} at {at} goes past its end")]
    Overlong {
        /// What.
        part: &'static str,
        /// Where it begins.
        at: usize,
    },
    /// Strings do not end.
    #[error("the BTF's last string has no end")]
    Strings,
    /// A type is of a kind that is not known, and so are all that follow it.
    #[error("the BTF has a type of kind {kind}, which is not known, at {at}")]
    Kind {
        /// Which.
        kind: u32,
        /// Where the type begins.
        at: usize,
    },
    /// It has more types or strings than can be counted.
    #[error("the BTF has too many types or strings")]
    TooMuch,
}
