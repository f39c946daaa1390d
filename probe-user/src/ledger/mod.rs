//! Accounting: what the eBPF side, the kernel and the consumer count, and whether these counts agree.

pub(crate) mod accounting;
pub(crate) mod accounts;
pub(crate) mod balance;
pub(crate) mod failures;
pub(crate) mod handed_over;
pub(crate) mod meter;
pub(crate) mod tally;

pub use balance::{Discrepancy, Ledger, LedgerCpu, LedgerEntry};
pub use handed_over::HandedOver;
pub use meter::{Meter, Rates};
pub use tally::{CpuOutputs, CpuTally, Tally};
