//! What a trace reports on standard error when it begins, and when it ends.

use super::print::report;
use probe_sys::escape::Escaped;
use probe_tracer::output::{Beside, labels};
use probe_tracer::{Account, LeftOut, NotShown, Probe};
use std::io::{self, Write};

/// Reports the matches of patterns that are not probed.
pub(crate) fn report_left_out(left_out: &[LeftOut]) {
    left_out.iter().filter(|pattern| pattern.count() > 0).for_each(report);
}

/// Reports once what the fields of these probes leave out.
pub(crate) fn report_not_shown(probes: &[Probe]) {
    let mut incomplete = probes.iter().filter(|probe| !probe.left_out().is_empty());
    let Some(first) = incomplete.next() else { return };
    let fields: Vec<_> = first.left_out().iter().map(NotShown::to_string).collect();
    let (name, fields) = (Escaped(first.spec().name().as_bytes()), fields.join(", "));
    let others = match incomplete.count() {
        0 => String::new(),
        others => format!("; {others} other probes leave out fields, too (see `probe info`)"),
    };
    report(format_args!("{name}: not shown: {fields}{others}"));
}

/// Prints `what` and the ledger on standard error.
pub(crate) fn report_ledger(what: &str, probes: &[Probe], account: &Account) {
    let mut lines = String::new();
    if account.skipped.is_none() {
        lines += &format!("probe: {NOT_COUNTED}\n");
    }
    lines += &format!("probe: {what}\n");
    let labels = labels(probes.iter(), Beside::Nothing);
    for (label, missed) in labels.iter().zip(&account.missed) {
        if !missed.is_nothing() {
            lines += &format!("probe: {}: {missed}\n", Escaped(label.as_bytes()));
        }
    }
    if let Some(text) = skipped(account.skipped) {
        lines += &format!("probe: {text}\n");
    }
    // A failed write to standard error is no reason to fail.
    let _ = writeln!(io::stderr(), "{lines}ledger: {account}");
}

/// What cannot be said about hits before kernel 6.7.
pub(crate) const NOT_COUNTED: &str = "hits while another eBPF program ran on the CPU, and returns while too many calls were under \
                           way, are missing, and this kernel does not count them (6.7 does)";

/// The hits that the kernel did not pass on, if any are known.
pub(crate) fn skipped(hits: Option<u64>) -> Option<String> {
    match hits? {
        0 => None,
        hits => Some(format!(
            "{hits} hit{} not passed on by the kernel: another eBPF program was running, or too many calls were under way",
            if hits == 1 { "" } else { "s" }
        )),
    }
}

/// A number of events, with the noun.
pub(crate) fn events(count: u64) -> String {
    format!("{count} {}", if count == 1 { "event" } else { "events" })
}
