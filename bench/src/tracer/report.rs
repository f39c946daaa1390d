//! The results of a run, shown as text tables or JSON.

use super::goal::{self, Comparison};
use super::round::{Enough, Plan};
use super::row::{Figure, Row};
use super::tool::Tool;
use crate::machine::Machine;
use crate::report::table::{Column, show, table};
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    machine: Machine,
    rounds: usize,
    /// Writes by dd in a flood.
    writes: u64,
    versions: BTreeMap<String, String>,
    rows: Vec<Row>,
    comparisons: Vec<Comparison>,
    /// The ring size with which `probe` loses nothing, if its default loses some.
    enough: Option<Enough>,
    /// Tracers that do not work here, with the reason.
    missing: BTreeMap<String, String>,
    /// Measurements that failed, with the error.
    pub(super) failures: Vec<String>,
}

impl Report {
    /// Measures the tracers that work here.
    pub(super) fn new(plan: &Plan) -> Result<Self> {
        let (mut versions, mut missing) = (BTreeMap::new(), BTreeMap::new());
        let mut tools = Vec::new();
        for tool in Tool::ALL {
            match plan.try_out(tool) {
                Ok(version) => {
                    versions.insert(tool.to_string(), version);
                    tools.push(tool);
                }
                Err(error) => {
                    missing.insert(tool.to_string(), format!("{error:#}"));
                }
            }
        }
        let outcomes = plan.run(&tools)?;
        let rows = outcomes.iter().map(Row::new).collect::<Vec<_>>();
        Ok(Self {
            machine: Machine::read()?,
            rounds: plan.rounds,
            writes: plan.writes,
            versions,
            comparisons: goal::compare(&rows),
            rows,
            enough: plan.enough(&outcomes)?,
            missing,
            failures: outcomes.into_iter().flat_map(|one| one.failures).collect(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, medians of {} rounds\n", self.machine, self.rounds)?;
        figures(self, f)?;
        if let Some(Enough { bytes, floods }) = self.enough {
            writeln!(
                f,
                "\nprobe loses nothing with -B {bytes}: {floods} of {floods} floods were complete"
            )?;
        }
        for (tool, reason) in &self.missing {
            writeln!(f, "not measured: {tool}: {reason}")?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        Ok(())
    }
}

fn figures(report: &Report, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (tool, version) in &report.versions {
        writeln!(f, "{tool}: {version}")?;
    }
    writeln!(f, "\nA flood of {} writes; times in ms.\n", report.writes)?;
    writeln!(f, "{}\n", table(&report.rows, &FLOODS))?;
    writeln!(f, "From start to first event, from SIGINT to the end, in ms; memory, in KiB.\n")?;
    writeln!(f, "{}\n", table(&report.rows, &ATTACHED))?;
    writeln!(
        f,
        "The eBPF program: run time for each hit, in ns, in a flood, at a steady rate, in a flood \
         that is counted, in one where a kprobe reads what a pointer leads to, and of an empty \
         program; losses as the tracer reports them; machine code, in bytes.\n"
    )?;
    writeln!(f, "{}\n", table(&report.rows, &PROGRAMS))?;
    writeln!(f, "Ours / theirs, and the goal.\n\n{}", table(&report.comparisons, &COMPARISONS))
}

const FLOODS: [Column<Row>; 12] = [
    ("tracer", |row| row.tool.to_string()),
    ("untraced", |row| millis(row.untraced_s)),
    ("traced", |row| millis(row.traced_s)),
    ("range", |row| range(row.traced_s)),
    ("slowdown", |row| millis(row.slowdown_s)),
    ("in CPU time", |row| millis(row.slowdown_cpu_s)),
    ("until exit", |row| millis(row.wall_s)),
    ("until text", |row| millis(row.text_s)),
    ("tracer's CPU", |row| millis(row.cpu_s)),
    ("printed", |row| row.printed.to_string()),
    ("missing", |row| row.missing.to_string()),
    ("complete", |row| format!("{}/{}", row.whole, row.floods)),
];

const ATTACHED: [Column<Row>; 7] = [
    ("tracer", |row| row.tool.to_string()),
    ("first event", |row| millis(row.first_s)),
    ("range", |row| range(row.first_s)),
    ("stop, busy", |row| millis(row.stop_s)),
    ("stop, idle", |row| millis(row.idle_stop_s)),
    ("resident, flood", |row| show(row.flood_kib, |kib| format!("{:.0}", kib.median))),
    ("resident, idle", |row| show(row.idle_kib, |kib| format!("{:.0}", kib.median))),
];

const PROGRAMS: [Column<Row>; 10] = [
    ("tracer", |row| row.tool.to_string()),
    ("flood", |row| nanos(row.hit_ns)),
    ("range", |row| show(row.hit_ns, |ns| format!("{:.0}-{:.0}", ns.least, ns.most))),
    ("lost", |row| show(row.hit_losses, |losses| losses.to_string())),
    ("steady", |row| nanos(row.paced_ns)),
    ("lost", |row| show(row.paced_losses, |losses| losses.to_string())),
    ("counting", |row| nanos(row.count_ns)),
    ("kprobe", |row| nanos(row.dereference_ns)),
    ("empty", |row| nanos(row.nothing_ns)),
    ("machine code", |row| show(row.code_bytes, |bytes| format!("{:.0}", bytes.median))),
];

const COMPARISONS: [Column<Comparison>; 6] = [
    ("what", |one| one.what.to_owned()),
    ("ours", |one| one.ours.to_string()),
    ("theirs", |one| one.theirs.to_string()),
    ("ratio", |one| format!("{:.3}", one.ratio)),
    ("goal", |one| show(one.goal, |goal| format!("{goal:.3}"))),
    ("", |one| if one.falls_short() { "missed" } else { "" }.to_owned()),
];

fn millis(seconds: Option<Figure>) -> String {
    show(seconds, |seconds| format!("{:.0}", seconds.median * 1e3))
}

fn nanos(figure: Option<Figure>) -> String {
    show(figure, |ns| format!("{:.0}", ns.median))
}

/// The range, in milliseconds.
fn range(seconds: Option<Figure>) -> String {
    show(seconds, |seconds| format!("{:.0}-{:.0}", seconds.least * 1e3, seconds.most * 1e3))
}
