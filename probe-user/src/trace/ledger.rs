//! What became of every hit, once a trace has ended.

use super::account::Account;
use super::missed::Missed;
use std::fmt;

/// What became of every hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// What became of every record.
    pub records: crate::Ledger,
    /// Events that came too late for their place in the order of time, and were given all the same. 0
    /// where that order was not asked for.
    pub late: u64,
    /// Processes and threads that should have been followed, and for which there was no room.
    pub not_followed: u64,
    /// Of each probe, in the order of their numbers, hits that there is no record of.
    pub missed: Vec<Missed>,
}

impl Ledger {
    /// Whether it is known what became of every hit.
    pub fn is_complete(&self) -> bool {
        self.records.is_complete() && self.not_followed == 0
    }
}

/// As [`Account`] is shown.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Account::from(self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn it_says_more_than_that_of_the_pipe_where_there_is_more_to_say() {
        let said =
            |late, not_followed| Ledger { late, not_followed, ..Ledger::default() }.to_string();
        let nothing = "attempted 0 = handled 0 + lost 0; complete";
        assert_eq!(said(0, 0), nothing);
        assert_eq!(said(1, 0), format!("{nothing}; 1 event out of order"));
        assert_eq!(said(7, 0), format!("{nothing}; 7 events out of order"));
        assert_eq!(said(0, 2), format!("2 tasks not followed, for want of room; {nothing}"));
    }
}
