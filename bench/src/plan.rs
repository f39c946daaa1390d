//! Which measurements a run makes, and how often; and the run.

use crate::contender::Contender;
use crate::measure::{Case, Load, Outcome};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::{Child, Command, Stdio};

/// The payload length that all contenders support, in bytes.
pub(crate) const PAYLOAD: usize = 64;
const PAYLOADS: [usize; 5] = [16, PAYLOAD, 256, 1024, 4096];
/// Paced rates, in records per second.
pub(crate) const RATES: [u32; 3] = [1, 1_000, 100_000];

pub(crate) struct Plan {
    pub(crate) rounds: u32,
    /// The steps of one round, in order. The cases of a step run at the same time.
    pub(crate) steps: Vec<Vec<Case>>,
    /// Contenders that are not compiled in.
    pub(crate) missing: Vec<Contender>,
}

impl Plan {
    pub(crate) fn new(
        quick: bool,
        rounds: Option<u32>,
        only: &[Contender],
        ring_kib: usize,
    ) -> Self {
        let wanted = Contender::value_variants().iter().copied();
        let wanted = wanted.filter(|one| only.is_empty() || only.contains(one));
        let (contenders, missing): (Vec<_>, Vec<_>) = wanted.partition(|one| one.is_built_in());
        let case = |load, contender, producers, payload, millis| {
            let (rate, random, phase) = (0, false, None);
            Case { contender, load, producers, payload, rate, random, phase, millis, ring_kib }
        };
        let mut steps = Vec::new();
        let payloads = if quick { &[PAYLOAD][..] } else { &PAYLOADS };
        for &payload in payloads {
            for producers in [1, 0] {
                for &contender in &contenders {
                    let wanted = payload == PAYLOAD || contender.profile().takes_every_payload;
                    if wanted && (producers == 1 || contender.delivers()) {
                        let millis = if quick { 250 } else { 400 };
                        for load in [Load::Cost, Load::Saturation] {
                            steps.push(vec![case(load, contender, producers, payload, millis)]);
                        }
                    }
                }
            }
        }
        let drained = contenders.iter().filter(|one| one.delivers() && one.is_consumed_here());
        for &contender in drained {
            steps.push(vec![case(Load::Drain, contender, 1, PAYLOAD, 250)]);
        }
        let timed = || contenders.iter().copied().filter(|one| one.profile().is_timed);
        let paced = |contender, rate, millis| Case {
            rate,
            ..case(Load::Paced, contender, 1, PAYLOAD, millis)
        };
        for rate in &RATES[1..] {
            let millis = if quick { 400 } else { 1_000 };
            steps.extend(timed().map(|contender| vec![paced(contender, *rate, millis)]));
        }
        let millis = if quick { 15_000 } else { 25_000 };
        let idle = |contender| paced(contender, RATES[0], millis);
        let (woken, polling): (Vec<_>, Vec<_>) = timed().partition(|one| one.profile().is_woken);
        steps.extend([woken, polling].map(|group| spread(group.into_iter().map(idle).collect())));
        Self { rounds: rounds.unwrap_or(if quick { 3 } else { 5 }), steps, missing }
    }
}

/// Interleaves contenders at low rates, evenly spaced in time. The time to wake a CPU changes by
/// the minute, so all of them see the same conditions.
fn spread(mut cases: Vec<Case>) -> Vec<Case> {
    let count = cases.len();
    for (at, case) in cases.iter_mut().enumerate() {
        case.phase = Some(1_000 * at as u64 / count as u64);
    }
    cases
}

/// The outcomes of each case, one per round.
pub(crate) type Outcomes = Vec<(Case, Vec<Result<Outcome>>)>;

/// Runs every case of a plan, one step after the other, for several rounds.
pub(crate) fn run(plan: &Plan) -> Result<Outcomes> {
    let unmeasured = |step: &Vec<Case>| step.iter().map(|case| (*case, Vec::new())).collect();
    let mut steps: Vec<Outcomes> = plan.steps.iter().map(unmeasured).collect();
    let style = ProgressStyle::with_template("{elapsed} [{wide_bar}] {pos}/{len} {msg}")?;
    let bar = ProgressBar::new((steps.len() * plan.rounds as usize) as u64).with_style(style);
    for _ in 0..plan.rounds {
        for step in &mut steps {
            let names: Vec<_> = step.iter().map(|(case, _)| case.contender.to_string()).collect();
            bar.set_message(names.join(", "));
            let started: Vec<_> = step.iter().map(|(case, _)| start(case)).collect();
            for ((_, outcomes), started) in step.iter_mut().zip(started) {
                outcomes.push(started.and_then(finish));
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(steps.into_iter().flatten().collect())
}

/// Makes one measurement.
pub(crate) fn measure(case: &Case) -> Result<Outcome> {
    start(case).and_then(finish)
}

/// Starts the measurement in its own process, so that no contender inherits another's memory.
fn start(case: &Case) -> Result<Child> {
    let load = case.load.to_possible_value().context("no load is skipped")?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["measure", "--contender", &case.contender.to_string(), "--load", load.get_name()])
        .args(["--producers", &case.producers.to_string(), "--rate", &case.rate.to_string()])
        .args(["--payload", &case.payload.to_string(), "--millis", &case.millis.to_string()])
        .args(["--ring-kib", &case.ring_kib.to_string()]);
    if case.random {
        command.arg("--random");
    }
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
