//! The report for people.

use super::Report;
use crate::escape::Escaped;
use std::fmt;

/// Columns, with what to change below what is missing, and the verdict last.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.findings.iter().map(|found| found.feature.name());
        let width = names.map(str::len).max().unwrap_or_default();
        writeln!(f, "{:<width$}      USES", "FEATURE")?;
        for found in &self.findings {
            let available = if found.available { "yes" } else { "no" };
            let uses = Escaped(found.uses.as_bytes());
            writeln!(f, "{:<width$} {available:<4} {uses}", found.feature.name())?;
            if let Some(change) = &found.change {
                writeln!(f, "{:<width$}      → {}", "", Escaped(change.as_bytes()))?;
            }
        }
        let verdict = match self.can_trace_kprobes() {
            true => "functions can be traced",
            false => "functions cannot be traced, see above",
        };
        writeln!(f, "kernel {}: {verdict}", Escaped(self.kernel.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Feature, Finding, Report};

    #[test]
    fn columns_are_aligned_and_a_line_each() {
        let findings = vec![
            Finding::yes(Feature::ExactLoss, "a"),
            Finding::no(Feature::Btf, "b\x1b[2J", "c\nd"),
        ];
        let report = Report { kernel: "6.12\u{9b}".into(), findings };
        assert_eq!(
            report.to_string().lines().collect::<Vec<_>>(),
            [
                "FEATURE         USES",
                "exact_loss yes  a",
                "btf        no   b\\u{1b}[2J",
                "                → c\\nd",
                "kernel 6.12\\u{9b}: functions cannot be traced, see above",
            ]
        );
    }
}
