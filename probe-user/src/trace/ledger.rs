//! What became of every hit, once a trace has ended.

use std::fmt;

/// What became of every hit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// What became of every record.
    pub records: crate::Ledger,
    /// Processes and threads that should have been followed, and for which there was no room.
    pub not_followed: u64,
}

impl Ledger {
    /// Whether it is known what became of every hit.
    pub fn is_complete(&self) -> bool {
        self.records.is_complete() && self.not_followed == 0
    }
}

/// `attempted 12 = handled 10 + lost 2 (ring full 2); complete`
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.not_followed > 0 {
            write!(f, "{} tasks not followed, for want of room; ", self.not_followed)?;
        }
        self.records.fmt(f)
    }
}
