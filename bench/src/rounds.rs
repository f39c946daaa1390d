//! Running a plan: every case in turn, then all of them again.

use crate::measure::{Case, Outcome};
use crate::plan::Plan;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::{Child, Command, Stdio};

/// What each case came to, round by round.
pub(crate) type Outcomes = Vec<(Case, Vec<Result<Outcome>>)>;

pub(crate) fn run(plan: &Plan) -> Result<Outcomes> {
    let unmeasured = |turn: &Vec<Case>| turn.iter().map(|case| (*case, Vec::new())).collect();
    let mut turns: Vec<Outcomes> = plan.turns.iter().map(unmeasured).collect();
    let style = ProgressStyle::with_template("{elapsed} [{wide_bar}] {pos}/{len} {msg}")?;
    let bar = ProgressBar::new((turns.len() * plan.rounds as usize) as u64).with_style(style);
    for _ in 0..plan.rounds {
        for turn in &mut turns {
            let names: Vec<_> = turn.iter().map(|(case, _)| case.contender.to_string()).collect();
            bar.set_message(names.join(", "));
            let started: Vec<_> = turn.iter().map(|(case, _)| start(case)).collect();
            for ((_, outcomes), started) in turn.iter_mut().zip(started) {
                outcomes.push(started.and_then(finish));
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(turns.into_iter().flatten().collect())
}

/// Measures in a process of its own, so that no contender inherits another's memory.
fn start(case: &Case) -> Result<Child> {
    let load = case.load.to_possible_value().context("no load is skipped")?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["measure", "--contender", &case.contender.to_string(), "--load", load.get_name()])
        .args(["--producers", &case.producers.to_string(), "--rate", &case.rate.to_string()])
        .args(["--payload", &case.payload.to_string(), "--millis", &case.millis.to_string()])
        .args(["--ring-kib", &case.ring_kib.to_string()]);
    if let Some(phase) = case.phase {
        command.args(["--phase", &phase.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command.spawn()?)
}

fn finish(measurement: Child) -> Result<Outcome> {
    let output = measurement.wait_with_output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
