//! The steps of `cargo xtask test` and `cargo xtask check`, and their summary.

pub(crate) mod libtest;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use self::libtest::Counts;
use crate::say;

#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

/// The result of one step.
pub(crate) struct Row {
    name: String,
    counts: Counts,
    time: Duration,
}

impl Row {
    /// Runs a step. An error counts as one failure.
    pub(crate) fn of(name: &str, work: impl FnOnce() -> Result<Counts>) -> Self {
        say::line(format_args!("{name} …"));
        let start = Instant::now();
        let counts = work().unwrap_or_else(|error| {
            say::line(format_args!("{name} failed: {error:#}"));
            Counts::FAILED
        });
        Self { name: name.to_owned(), counts, time: start.elapsed() }
    }
}

impl Report {
    /// Runs a step and adds its row.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Counts>) {
        self.add(Row::of(name, work));
    }

    /// Runs a step that is a single check.
    pub(crate) fn check(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        self.step(name, || work().map(|()| Counts::PASSED));
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    /// Prints the table and the totals on standard output.
    pub(crate) fn finish(self) -> ExitCode {
        let sum = self.sum();
        println!("{}", self.table());
        println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
        if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn sum(&self) -> Counts {
        self.0.iter().map(|row| row.counts).fold(Counts::default(), Counts::plus)
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["kernel or step", "tests", "passed", "failed", "skipped", "time"]);
        for Row { name, counts, time } in &self.0 {
            table.add_row([
                name.clone(),
                (counts.passed + counts.failed + counts.skipped).to_string(),
                counts.passed.to_string(),
                counts.failed.to_string(),
                counts.skipped.to_string(),
                format!("{:.1} s", time.as_secs_f64()),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_summed() {
        let row = |name: &str, passed, failed| Row {
            name: name.to_owned(),
            counts: Counts { passed, failed, skipped: 3 },
            time: Duration::from_millis(1500),
        };
        let report = Report(vec![row("fmt", 1, 0), row("doc", 0, 1), row("6.12", 20, 2)]);
        assert_eq!(report.sum(), Counts { passed: 21, failed: 3, skipped: 9 });
        let table = report.table().to_string();
        for cell in ["fmt", "6.12", "25", "20", "1.5 s"] {
            assert!(table.contains(cell), "{table}");
        }
    }
}
