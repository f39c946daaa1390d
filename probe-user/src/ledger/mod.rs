//! Accounting: what the eBPF side, the kernel and the consumer count, and whether these counts agree.

pub(crate) mod accounting;
pub(crate) mod accounts;
pub(crate) mod balance;
pub(crate) mod failures;
pub(crate) mod meter;
pub(crate) mod tally;

pub use balance::{Discrepancy, Ledger, LedgerCpu, LedgerEntry};
pub use meter::{Meter, Rates};
pub use tally::{CpuOutputs, CpuTally, Tally};
