//! `probe list`, `probe info` and `probe check`.

use crate::args::{Check, Info, List, default_ring_bytes};
use crate::output::print::{print_as, report};
use crate::running::privileges;
use anyhow::Result;
use probe_tracer::check::Report;
use probe_user::Options;
use std::process::ExitCode;

pub(crate) fn list(args: &List) -> Result<ExitCode> {
    privileges::give_up_but_to_look()?;
    let listing = probe_tracer::list(&args.pattern)?;
    let lines: String = listing.probes.iter().map(|probe| format!("{probe}\n")).collect();
    print_as(args.json, &listing, lines)?;
    if !args.json {
        listing.notes.iter().for_each(report);
        if listing.probes.is_empty() {
            report(format!("nothing that can be probed matches {}", args.pattern));
        }
    }
    Ok(if listing.probes.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

pub(crate) fn info(args: &Info) -> Result<ExitCode> {
    privileges::give_up_but_to_look()?;
    let mut info = probe_tracer::Info::of(&args.probe)?;
    if !args.members {
        info = info.without_members();
    }
    print_as(args.json, &info, &info)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn check(args: &Check) -> Result<ExitCode> {
    let report = Report::take(&Options::new().bytes_per_cpu(default_ring_bytes()));
    print_as(args.json, &report, &report)?;
    Ok(if report.can_trace_kprobes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
