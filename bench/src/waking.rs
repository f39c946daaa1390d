//! `cargo xtask bench waking`: the pipe's wakeups, which it chooses by the rate, against one for each record.

use crate::contender::Contender;
use crate::machine::Machine;
use crate::measure::{Case, Load, Outcome, median};
use crate::plan::{self, PAYLOAD};
use crate::report::table::{Column, show, table};
use anyhow::Result;
use clap::value_parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// Records in a second.
const RATES: [u32; 6] = [10, 100, 1_000, 5_000, 20_000, 100_000];

/// Enough records for a 99th percentile, as far as time permits.
fn millis(rate: u32) -> u64 {
    (1_000_000 / u64::from(rate)).clamp(2_000, 20_000)
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often to repeat each measurement
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the figures to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    machine: Machine,
    rounds: u32,
    rows: Vec<Row>,
}

/// The medians at a rate.
#[derive(Debug, Serialize)]
struct Row {
    rate: u32,
    /// Whether the intervals are random (a Poisson process) instead of equal.
    random: bool,
    each: Figures,
    adaptive: Figures,
}

#[derive(Debug, Serialize)]
struct Figures {
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    /// 0.5 is half of one CPU.
    consumer_cpu: Option<f64>,
    /// In all rounds.
    lost: u64,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let loads = [false, true].into_iter().flat_map(|random| RATES.map(|rate| (rate, random)));
        let style = ProgressStyle::with_template("{elapsed} [{wide_bar}] {pos}/{len} {msg}")?;
        let steps = 2 * RATES.len() as u64 * u64::from(self.rounds);
        let bar = ProgressBar::new(steps).with_style(style);
        let mut rows = Vec::new();
        for (rate, random) in loads {
            let (mut each, mut adaptive) = (Vec::new(), Vec::new());
            bar.set_message(format!("{rate} records a second"));
            for _ in 0..self.rounds {
                each.push(plan::measure(&case(Contender::EvpipeEach, rate, random))?);
                adaptive.push(plan::measure(&case(Contender::EvpipeAdaptive, rate, random))?);
                bar.inc(1);
            }
            let (each, adaptive) = (Figures::of(&each), Figures::of(&adaptive));
            rows.push(Row { rate, random, each, adaptive });
        }
        bar.finish_and_clear();
        let report = Report { machine: Machine::read()?, rounds: self.rounds, rows };
        crate::publish(&report, self.json.as_deref())
    }
}

fn case(contender: Contender, rate: u32, random: bool) -> Case {
    Case {
        contender,
        load: Load::Paced,
        producers: 1,
        payload: PAYLOAD,
        rate,
        random,
        phase: None,
        millis: millis(rate),
        ring_kib: 8192,
    }
}

impl Figures {
    fn of(outcomes: &[Outcome]) -> Self {
        let of = |figure: fn(&Outcome) -> Option<f64>| {
            median(outcomes.iter().filter_map(figure).collect())
        };
        Self {
            p50_us: of(|one| Some(one.latency_ns?.p50 as f64 / 1e3)),
            p99_us: of(|one| Some(one.latency_ns?.p99 as f64 / 1e3)),
            consumer_cpu: of(|one| one.consumer_cpu),
            lost: outcomes.iter().filter_map(|one| one.lost).sum(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, medians of {} rounds\n", self.machine, self.rounds)?;
        writeln!(
            f,
            "One producer, {PAYLOAD}-byte payloads, a consumer on another CPU. Latency in µs, and the \
             consumer's CPU time, with a wakeup for each record and by default.\n"
        )?;
        writeln!(f, "{}", table(&self.rows, &COLUMNS))
    }
}

const COLUMNS: [Column<Row>; 11] = [
    ("records/s", |row| row.rate.to_string()),
    ("intervals", |row| if row.random { "random" } else { "equal" }.to_owned()),
    ("each: p50", |row| show(row.each.p50_us, micros)),
    ("default: p50", |row| show(row.adaptive.p50_us, micros)),
    ("ratio", |row| ratio(row.adaptive.p50_us, row.each.p50_us)),
    ("each: p99", |row| show(row.each.p99_us, micros)),
    ("default: p99", |row| show(row.adaptive.p99_us, micros)),
    ("ratio", |row| ratio(row.adaptive.p99_us, row.each.p99_us)),
    ("each: CPU", |row| show(row.each.consumer_cpu, percent)),
    ("default: CPU", |row| show(row.adaptive.consumer_cpu, percent)),
    ("lost", |row| (row.each.lost + row.adaptive.lost).to_string()),
];

fn micros(micros: f64) -> String {
    format!("{micros:.1}")
}

fn percent(cpus: f64) -> String {
    format!("{:.2} %", cpus * 100.0)
}

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> String {
    show(ours.zip(theirs), |(ours, theirs)| format!("{:.2}", ours / theirs))
}
