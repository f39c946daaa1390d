//! What became of every record, once a trace has ended.

use probe_common::tally::{FailureClass, KindTally};
use std::fmt;

/// What became of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// What the eBPF side counted.
    pub tally: KindTally,
    /// Records that came out of the rings.
    pub received: u64,
    /// How often malformed bytes were skipped.
    pub malformed: u64,
    /// Processes and threads that should have been followed, and for which there was no room.
    pub not_followed: u64,
}

impl Ledger {
    /// Whether every record that was attempted was received.
    pub fn is_complete(&self) -> bool {
        self.tally.attempted == self.received && self.malformed == 0 && self.not_followed == 0
    }
}

/// `attempted 12 = received 10 + lost 2 (ring full 2)`
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempted = self.tally.attempted;
        let failed = self.tally.failed();
        write!(f, "attempted {attempted} = received {} + lost {failed}", self.received)?;
        let mut classes =
            FailureClass::ALL.into_iter().filter(|&class| self.tally.failed_for(class) > 0);
        if let Some(first) = classes.next() {
            write!(f, " ({} {}", first.name(), self.tally.failed_for(first))?;
            for class in classes {
                write!(f, ", {} {}", class.name(), self.tally.failed_for(class))?;
            }
            write!(f, ")")?;
        }
        let unread = self.tally.sent().wrapping_sub(self.received);
        if unread > 0 {
            write!(f, " + unread {unread}")?;
        }
        if self.malformed > 0 {
            write!(f, "; malformed bytes skipped {} times", self.malformed)?;
        }
        if self.not_followed > 0 {
            write!(f, "; {} tasks not followed, for want of room", self.not_followed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_missing_and_why() {
        let mut tally = KindTally { attempted: 10, ..KindTally::default() };
        let mut ledger = Ledger { tally, received: 10, malformed: 0, not_followed: 0 };
        assert_eq!(ledger.to_string(), "attempted 10 = received 10 + lost 0");
        assert!(ledger.is_complete());
        tally.attempted = 13;
        tally.failed[FailureClass::NoSpace as usize] = 2;
        tally.failed[FailureClass::Nested as usize] = 1;
        ledger.tally = tally;
        ledger.received = 9;
        assert_eq!(
            ledger.to_string(),
            "attempted 13 = received 9 + lost 3 (ring full 2, nested too deep 1) + unread 1"
        );
        assert!(!ledger.is_complete());
    }
}
