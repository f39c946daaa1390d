//! `probe check`.

use super::args::Check;
use super::print::print;
use super::ring;
use anyhow::Result;
use probe_user::Options;
use probe_user::trace::check::Report;
use std::process::ExitCode;

pub(crate) fn run(args: &Check) -> Result<ExitCode> {
    let report = Report::take(&Options::new().bytes_per_cpu(ring::bytes()));
    let text = match args.json {
        true => serde_json::to_string(&report)? + "\n",
        false => report.to_string(),
    };
    print(&text)?;
    Ok(if report.can_trace_kprobes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
