//! What every format has to write.

use super::clock::Stamp;
use super::names::Names;
use crate::consumer::{CpuChange, Dump, Loss, Malformed};
use crate::trace::account::Account;
use crate::trace::event::TraceEvent;
use crate::trace::origin::Origin;
use crate::trace::probe::Probe;
use std::fmt;

/// A way to write a trace: what comes first, what happens, and what comes last. Everything is appended
/// to `out`, whole lines at a time.
pub(super) trait Form: fmt::Debug + Send {
    /// What precedes the events.
    fn start(&mut self, out: &mut Vec<u8>, about: &About<'_>);

    /// An event of a probe, which is `probes[event.probe]`.
    fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &TraceEvent<'_>,
        probe: &Probe,
        stamp: Stamp<'_>,
        names: &mut Names<'_>,
    );

    /// Where records are missing. Nobody knows exactly when they were lost.
    fn lost(&mut self, out: &mut Vec<u8>, loss: &Loss);

    /// Bytes that were skipped.
    fn malformed(&mut self, _out: &mut Vec<u8>, _malformed: &Malformed) {}

    /// A CPU has come or gone.
    fn cpu_changed(&mut self, _out: &mut Vec<u8>, _change: &CpuChange<'_>) {}

    /// A dump of a flight recorder follows.
    fn dump(&mut self, _out: &mut Vec<u8>, _dump: &Dump) {}

    /// What became of everything. `printed`: how many events were written.
    fn end(&mut self, _out: &mut Vec<u8>, _printed: u64, _ledger: &Account) {}
}

/// What is known of a trace before its first event.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'t> {
    pub(super) probes: &'t [Probe],
    pub(super) origin: &'t Origin,
}
