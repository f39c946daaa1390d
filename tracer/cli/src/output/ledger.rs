//! What a trace reports on standard error when it begins, and when it ends.

use super::print::{report, report_as_is};
use probe_sys::escape::Escaped;
use probe_sys::hint::counted;
use probe_tracer::output::{Beside, labels};
use probe_tracer::{Account, LeftOut, NotShown, Probe, Provider};

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
        1 => "; another probe leaves out fields, too (see `probe info`)".to_owned(),
        others => format!("; {others} other probes leave out fields, too (see `probe info`)"),
    };
    report(format_args!("{name}: not shown: {fields}{others}"));
}

/// Prints `what` and the ledger on standard error.
pub(crate) fn report_ledger(what: &str, probes: &[Probe], account: &Account) {
    let (mut lines, returns) = (String::new(), follow_returns(probes));
    if account.skipped.is_none() {
        lines += &format!("probe: {}\n", not_counted(returns));
    }
    if let Some(text) = dropped(probes) {
        lines += &format!("probe: {text}\n");
    }
    lines += &format!("probe: {what}\n");
    let labels = labels(probes.iter(), Beside::Nothing);
    for (label, missed) in labels.iter().zip(&account.missed) {
        if !missed.is_nothing() {
            lines += &format!("probe: {}: {missed}\n", Escaped(label.as_bytes()));
        }
    }
    if let Some(text) = skipped(account.skipped, returns) {
        lines += &format!("probe: {text}\n");
    }
    report_as_is(&format!("{lines}ledger: {account}\n"));
}

/// Whether the kernel follows calls to their return for any of these probes.
pub(crate) fn follow_returns<'p>(probes: impl IntoIterator<Item = &'p Probe>) -> bool {
    let follows = |probe: &Probe| probe.is_call() || probe.spec().provider() == Provider::Kretprobe;
    probes.into_iter().any(follows)
}

/// A note about returns that no kernel counts, if any of these probes may miss them.
pub(crate) fn dropped<'p>(probes: impl IntoIterator<Item = &'p Probe>) -> Option<&'static str> {
    let is_return = |probe: &Probe| probe.spec().provider() == Provider::Uretprobe;
    probes.into_iter().any(is_return).then_some(
        "returns from calls nested more than 64 deep in a thread are missing, and the kernel does not count them",
    )
}

/// What cannot be said about hits before kernel 6.7.
pub(crate) fn not_counted(follow_returns: bool) -> String {
    let returns = match follow_returns {
        true => ", and returns while too many calls were under way",
        false => "",
    };
    format!(
        "hits while another eBPF program ran on the CPU{returns} are missing, and this kernel does not count them (6.7 does)"
    )
}

/// The hits that the kernel did not pass on, if any are known.
pub(crate) fn skipped(hits: Option<u64>, follow_returns: bool) -> Option<String> {
    let hits = counted(hits.filter(|hits| *hits > 0)?, "hit");
    let returns = if follow_returns { ", or too many calls were under way" } else { "" };
    Some(format!(
        "{hits} not passed on by the kernel, because another eBPF program was running{returns}"
    ))
}
