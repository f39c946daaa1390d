//! Running a plan: every case in turn, then all of them again.

use crate::measure::{Case, Outcome};
use crate::plan::Plan;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::{Command, Stdio};

/// What each case came to, round by round.
pub(crate) type Outcomes = Vec<(Case, Vec<Result<Outcome>>)>;

pub(crate) fn run(plan: &Plan) -> Result<Outcomes> {
    let mut outcomes: Outcomes = plan.cases.iter().map(|case| (*case, Vec::new())).collect();
    let style = ProgressStyle::with_template("{elapsed} [{wide_bar}] {pos}/{len} {msg}")?;
    let bar = ProgressBar::new((outcomes.len() * plan.rounds as usize) as u64).with_style(style);
    for _ in 0..plan.rounds {
        for (case, outcomes) in &mut outcomes {
            bar.set_message(case.contender.to_string());
            outcomes.push(measure(case));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(outcomes)
}

/// Measures in a process of its own, so that no contender inherits another's memory.
fn measure(case: &Case) -> Result<Outcome> {
    let own = std::env::current_exe()?;
    let load = case.load.to_possible_value().context("no load is skipped")?;
    let output = Command::new(own)
        .args(["measure", "--contender", &case.contender.to_string(), "--load", load.get_name()])
        .args(["--producers", &case.producers.to_string(), "--rate", &case.rate.to_string()])
        .args(["--payload", &case.payload.to_string(), "--millis", &case.millis.to_string()])
        .args(["--ring-kib", &case.ring_kib.to_string()])
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
