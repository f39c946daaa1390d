//! The ways that led to hits, for people, for programs, and as a picture.

use super::flame;
use crate::trace::ways::{Step, StepKind, Way};
use std::io::{self, Write};

/// How ways are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackFormat {
    /// Each way with a line for each function, the innermost first.
    #[default]
    Table,
    /// A line for each way: its steps from the task on, with `;` between them, and how often it was taken.
    /// Programs that draw flame graphs read that.
    Folded,
    /// A flame graph: a picture in which each function has the width of the hits that it led to, above the
    /// one that called it.
    Svg,
}

impl StackFormat {
    /// Writes ways with how often each was taken, in this order. `title`: what was counted.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(self, ways: &[(Way, u64)], title: &str, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Table => ways.iter().try_for_each(|(way, hits)| table(out, way, *hits)),
            Self::Folded => ways.iter().try_for_each(|(way, hits)| folded(out, way, *hits)),
            Self::Svg => flame::write(ways, title, out),
        }
    }
}

fn table(out: &mut dyn Write, way: &Way, hits: u64) -> io::Result<()> {
    let mut shown = hits.to_string();
    for step in way.steps().iter().rev() {
        let name = &step.name;
        match step.kind {
            StepKind::Task => writeln!(out, "{shown:>12} {name}\n")?,
            _ => writeln!(out, "{shown:>12}   {name}")?,
        }
        shown.clear();
    }
    Ok(())
}

fn folded(out: &mut dyn Write, way: &Way, hits: u64) -> io::Result<()> {
    let name = |step: &Step| step.name.replace(';', ":");
    let names: Vec<_> = way.steps().iter().map(name).collect();
    writeln!(out, "{} {hits}", names.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ways::tests::example;

    fn written(format: StackFormat) -> String {
        let ways = [example("cat", &["entry", "read"], 12), example("a;b", &["entry"], 3)];
        let mut out = Vec::new();
        format.write(&ways, "vfs_read", &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_is_a_way() {
        assert_eq!(written(StackFormat::Folded), "cat;entry;read 12\na:b;entry 3\n");
    }

    #[test]
    fn the_innermost_function_comes_first() {
        let expected = "          12   read\n               entry\n             cat\n
           3   entry\n             a;b\n\n";
        assert_eq!(written(StackFormat::Table), expected);
    }
}
