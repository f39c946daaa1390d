//! A report for a reader.

use super::figure::Figure;
use super::report::Report;
use super::ring::Enough;
use super::row::Row;
use crate::report::table::new;
use comfy_table::Table;
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, medians of {} rounds\n", self.machine, self.rounds)?;
        figures(self, f)?;
        if let Some(Enough { bytes, floods }) = self.enough {
            writeln!(
                f,
                "\nprobe loses nothing with -B {bytes}: {floods} floods of {floods} were whole"
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
    writeln!(f, "{}\n", floods(&report.rows))?;
    writeln!(f, "From start to first event, from SIGINT to the end, in ms; memory, in KiB.\n")?;
    writeln!(f, "{}\n", lives(&report.rows))?;
    writeln!(f, "Ours / theirs, and what is aimed at.\n\n{}", comparisons(report))
}

fn floods(rows: &[Row]) -> Table {
    let mut table = new(&[
        "tracer",
        "alone",
        "traced",
        "range",
        "slowdown",
        "in CPU time",
        "until exit",
        "until text",
        "tracer's CPU",
        "printed",
        "missing",
        "whole",
    ]);
    for row in rows {
        table.add_row([
            row.tool.to_string(),
            millis(row.alone_s),
            millis(row.traced_s),
            range(row.traced_s),
            millis(row.slowdown_s),
            millis(row.slowdown_cpu_s),
            millis(row.wall_s),
            millis(row.text_s),
            millis(row.cpu_s),
            row.printed.to_string(),
            row.missing.to_string(),
            format!("{}/{}", row.whole, row.floods),
        ]);
    }
    table
}

fn lives(rows: &[Row]) -> Table {
    let mut table = new(&[
        "tracer",
        "first event",
        "range",
        "stop, busy",
        "stop, idle",
        "resident, flood",
        "resident, idle",
    ]);
    for row in rows {
        table.add_row([
            row.tool.to_string(),
            millis(row.first_s),
            range(row.first_s),
            millis(row.stop_s),
            millis(row.idle_stop_s),
            kib(row.flood_kib),
            kib(row.idle_kib),
        ]);
    }
    table
}

fn comparisons(report: &Report) -> Table {
    let mut table = new(&["what", "ours", "theirs", "ratio", "aim", ""]);
    for one in &report.comparisons {
        table.add_row([
            one.what.to_owned(),
            one.ours.to_string(),
            one.theirs.to_string(),
            format!("{:.3}", one.ratio),
            one.aim.map_or("-".to_owned(), |aim| format!("{aim:.3}")),
            if one.falls_short() { "falls short" } else { "" }.to_owned(),
        ]);
    }
    table
}

fn millis(seconds: Option<Figure>) -> String {
    seconds.map_or("-".to_owned(), |seconds| format!("{:.0}", seconds.median * 1e3))
}

/// The least and the most.
fn range(seconds: Option<Figure>) -> String {
    seconds.map_or("-".to_owned(), |seconds| {
        format!("{:.0}-{:.0}", seconds.least * 1e3, seconds.most * 1e3)
    })
}

fn kib(kib: Option<Figure>) -> String {
    kib.map_or("-".to_owned(), |kib| format!("{:.0}", kib.median))
}
