//! The summary at the end of `cargo xtask test`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use crate::libtest::Counts;
use crate::say;

#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

/// How one step went.
pub(crate) struct Row {
    name: String,
    counts: Counts,
    time: Duration,
}

impl Row {
    /// Does a step; one that cannot be done has failed.
    pub(crate) fn of(name: &str, work: impl FnOnce() -> Result<Counts>) -> Self {
        say::line(format_args!("{name} …"));
        let start = Instant::now();
        let counts = work().unwrap_or_else(|error| {
            say::line(format_args!("{name} failed: {error:#}"));
            Counts { passed: 0, failed: 1 }
        });
        Self { name: name.to_owned(), counts, time: start.elapsed() }
    }
}

impl Report {
    /// Does a step and notes how it went.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Counts>) {
        self.add(Row::of(name, work));
    }

    /// A step that is one check.
    pub(crate) fn check(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        self.step(name, || work().map(|()| Counts { passed: 1, failed: 0 }));
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    /// Prints the table and the sum, on standard output.
    pub(crate) fn finish(self) -> ExitCode {
        let sum = self.sum();
        println!("{}\n{} passed, {} failed", self.table(), sum.passed, sum.failed);
        if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn sum(&self) -> Counts {
        self.0.iter().map(|row| row.counts).fold(Counts::default(), Counts::plus)
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["kernel or step", "tests", "passed", "failed", "time"]);
        for Row { name, counts, time } in &self.0 {
            table.add_row([
                name.clone(),
                (counts.passed + counts.failed).to_string(),
                counts.passed.to_string(),
                counts.failed.to_string(),
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
            counts: Counts { passed, failed },
            time: Duration::from_millis(1500),
        };
        let report = Report(vec![row("fmt", 1, 0), row("doc", 0, 1), row("6.12", 20, 2)]);
        assert_eq!(report.sum(), Counts { passed: 21, failed: 3 });
        let table = report.table().to_string();
        for cell in ["fmt", "6.12", "22", "20", "1.5 s"] {
            assert!(table.contains(cell), "{table}");
        }
    }
}
