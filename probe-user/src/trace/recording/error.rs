//! What can be wrong with a recording.

use super::format::VERSION;
use std::io;

/// Why a recording cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// It does not begin as a recording does.
    #[error("it is no recording: one is made by `probe record`")]
    NotARecording,
    /// It is of another version of the format.
    #[error(
        "it has version {found} of the format, and this program reads version {VERSION}: replay it with \
         the program that made it"
    )]
    Version {
        /// The version that it has.
        found: u32,
    },
    /// It ends too early. What comes before that is whole.
    #[error("it is cut off at byte {at}: what was recorded later, and the ledger, are missing")]
    Cut {
        /// Where it ends, in bytes.
        at: u64,
    },
    /// There is something in it that cannot be. What comes before that is whole.
    #[error("it is malformed at byte {at}: {what}")]
    Malformed {
        /// Where, in bytes.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// The system does not let it be read.
    #[error("cannot read on at byte {at}: {source}")]
    Read {
        /// Where, in bytes.
        at: u64,
        /// Why.
        source: io::Error,
    },
}
