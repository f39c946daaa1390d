//! The last lines of a trace.

use probe_user::Escaped;
use probe_user::trace::{Account, Probe};
use std::io::{self, Write};

/// Says what happened, on standard error: `what`, and what became of every record.
pub(crate) fn tell(what: &str, probes: &[Probe], ledger: &Account) {
    let mut said = format!("probe: {what}\n");
    for (probe, missed) in probes.iter().zip(&ledger.missed) {
        if !missed.is_nothing() {
            said += &format!("probe: {}: {missed}\n", Escaped(probe.spec().name().as_bytes()));
        }
    }
    // Nobody may be there to read it, which is no reason to fail.
    let _ = writeln!(io::stderr(), "{said}ledger: {ledger}");
}

/// How many events there were.
pub(crate) fn events(count: u64) -> String {
    format!("{count} {}", if count == 1 { "event" } else { "events" })
}
