//! Stacks and their hit counts: as a table, as folded lines and as a picture.

use super::flame;
use crate::symbolize::stack::{EntryKind, Stack, StackEntry};
use std::io::{self, Write};

/// How stacks are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackFormat {
    /// A line for each function of a stack, the innermost first.
    #[default]
    Table,
    /// A line for each stack: its entries from the task on, separated by `;`, and its number of hits. Programs
    /// that draw flame graphs read this format.
    Folded,
    /// A flame graph: a picture in which a function is as wide as its share of the hits, and lies above its
    /// caller.
    Svg,
}

impl StackFormat {
    /// Writes stacks with their hit counts, in this order. `title` names what was counted.
    ///
    /// # Errors
    ///
    /// Returns errors of `out`.
    pub fn write(
        self,
        stacks: &[(Stack, u64)],
        title: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Self::Table => stacks.iter().try_for_each(|(stack, hits)| table(out, stack, *hits)),
            Self::Folded => stacks.iter().try_for_each(|(stack, hits)| folded(out, stack, *hits)),
            Self::Svg => flame::write(stacks, title, out),
        }
    }
}

fn table(out: &mut dyn Write, stack: &Stack, hits: u64) -> io::Result<()> {
    let mut shown = hits.to_string();
    for entry in stack.entries().iter().rev() {
        let name = &entry.name;
        match entry.kind {
            EntryKind::Event | EntryKind::Task => writeln!(out, "{shown:>12} {name}")?,
            _ => writeln!(out, "{shown:>12}   {name}")?,
        }
        shown.clear();
    }
    writeln!(out)
}

fn folded(out: &mut dyn Write, stack: &Stack, hits: u64) -> io::Result<()> {
    let name = |entry: &StackEntry| entry.name.replace(';', ":");
    let names: Vec<_> = stack.entries().iter().map(name).collect();
    writeln!(out, "{} {hits}", names.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::stack::tests::example;

    fn written(format: StackFormat) -> String {
        let stacks = [example("cat", &["entry", "read"], 12), example("a;b", &["entry"], 3)];
        let mut out = Vec::new();
        format.write(&stacks, "vfs_read", &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_folded_line_is_a_stack() {
        assert_eq!(written(StackFormat::Folded), "cat;entry;read 12\na:b;entry 3\n");
    }

    #[test]
    fn the_innermost_function_comes_first() {
        let expected = "          12   read\n               entry\n             cat\n
           3   entry\n             a;b\n\n";
        assert_eq!(written(StackFormat::Table), expected);
    }
}
