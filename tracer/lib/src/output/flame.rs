//! Flame graphs.

use crate::symbolize::stack::{EntryKind, Stack, StackEntry};
use probe_sys::escape::Escaped;
use probe_sys::hint::counted;
use std::collections::BTreeMap;
use std::io::{self, Write};
use svg::Document;
use svg::node::Node as _;
use svg::node::element::{Group, Rectangle, Text, Title};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
/// The space above the topmost row and below the lowest one, in pixels.
const HEAD: f64 = 40.0;
const FOOT: f64 = 10.0;
const MARGIN: f64 = 10.0;
/// The width of all hits, in pixels.
const BARS: f64 = WIDTH - 2.0 * MARGIN;
/// The width of a letter, in pixels.
const LETTER: f64 = 6.6;
/// Entries narrower than this many pixels are not drawn.
const NARROWEST: f64 = 0.2;

/// The largest number of rows. Stacks of the kernel have far fewer, but those in a file may have any number.
const DEEPEST: usize = 1024;

/// A stack entry and the entries that it called.
#[derive(Debug, Default)]
struct Node<'w> {
    hits: u64,
    next: BTreeMap<(&'w str, EntryKind), Node<'w>>,
}

impl<'w> Node<'w> {
    fn add(&mut self, entries: &'w [StackEntry], hits: u64) {
        self.hits += hits;
        if let [entry, rest @ ..] = entries {
            self.next.entry((&*entry.name, entry.kind)).or_default().add(rest, hits);
        }
    }

    fn depth(&self) -> usize {
        1 + self.next.values().map(Node::depth).max().unwrap_or(0)
    }
}

/// Writes the flame graph as SVG.
pub(super) fn write(stacks: &[(Stack, u64)], title: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut root = Node::default();
    for (stack, hits) in stacks {
        let entries = stack.entries();
        root.add(&entries[..entries.len().min(DEEPEST)], *hits);
    }
    let height = HEAD + ROW * root.depth() as f64 + FOOT;
    let heading = format!("{title}: {}", counted(root.hits, "hit"));
    let mut picture = Drawing { root: root.hits.max(1), height, document: document(WIDTH, height) };
    let left = WIDTH / 2.0 - LETTER * heading.chars().count() as f64 / 2.0;
    picture.document.append(text(left, 24.0, &heading));
    picture.row(&root, "all", None, MARGIN, 0);
    svg::write(out, &picture.document)
}

/// An empty picture.
pub(super) fn document(width: f64, height: f64) -> Document {
    let background =
        Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff");
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("font-family", "monospace")
        .set("font-size", 11)
        .add(background)
}

struct Drawing {
    /// The number of all hits.
    root: u64,
    height: f64,
    document: Document,
}

impl Drawing {
    /// Draws an entry `left` pixels from the left, and the entries that it called above it.
    fn row(
        &mut self,
        node: &Node<'_>,
        name: &str,
        kind: Option<EntryKind>,
        left: f64,
        depth: usize,
    ) {
        let share = self.share(node);
        let width = share * BARS;
        if width < NARROWEST {
            return;
        }
        let top = self.height - FOOT - ROW * (depth + 1) as f64;
        let hits = counted(node.hits, "hit");
        let title = format!("{name}: {hits}, {:.1} %", 100.0 * share);
        let bar = bar(left, top, width, ROW - 1.0, color(kind)).set("rx", 1);
        let mut group =
            Group::new().add(Title::new(Escaped(title.as_bytes()).to_string())).add(bar);
        let letters = ((width - 4.0) / LETTER).max(0.0) as usize;
        if letters >= 3 {
            group = group.add(text(left + 3.0, top + ROW - 5.0, &cut(name, letters)));
        }
        self.document.append(group);
        let mut left = left;
        for ((name, kind), next) in &node.next {
            self.row(next, name, Some(*kind), left, depth + 1);
            left += self.share(next) * BARS;
        }
    }

    /// The entry's share of all hits.
    fn share(&self, node: &Node<'_>) -> f64 {
        node.hits as f64 / self.root as f64
    }
}

pub(super) fn bar(left: f64, top: f64, width: f64, height: f64, color: &str) -> Rectangle {
    Rectangle::new()
        .set("x", round(left))
        .set("y", round(top))
        .set("width", round(width))
        .set("height", height)
        .set("fill", color)
}

/// A line of text. XML does not allow every character, not even as an entity.
pub(super) fn text(left: f64, bottom: f64, content: &str) -> Text {
    Text::new(Escaped(content.as_bytes()).to_string()).set("x", round(left)).set("y", round(bottom))
}

/// The name, cut to at most this many characters.
fn cut(name: &str, letters: usize) -> String {
    match name.chars().count() {
        count if count <= letters => name.to_owned(),
        _ => name.chars().take(letters - 2).chain("..".chars()).collect(),
    }
}

fn color(kind: Option<EntryKind>) -> &'static str {
    match kind {
        None => "#d9d9d9",
        Some(EntryKind::Event) => "#d9f0d3",
        Some(EntryKind::Task) => "#c6dbef",
        Some(EntryKind::User) => "#fdbe6f",
        Some(EntryKind::Kernel) => "#f4864b",
    }
}

fn round(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::stack::tests::example;

    #[test]
    fn every_bar_is_as_wide_as_its_hits() {
        let stacks = [example("cat", &["entry", "<read>"], 30), example("cat", &["entry"], 10)];
        let mut out = Vec::new();
        write(&stacks, "vfs_read", &mut out).unwrap();
        let picture = String::from_utf8(out).unwrap();
        for title in [
            "all: 40 hits, 100.0 %",
            "cat: 40 hits, 100.0 %",
            "entry: 40 hits, 100.0 %",
            "&lt;read&gt;: 30 hits, 75.0 %",
        ] {
            assert_eq!(picture.matches(title).count(), 1, "{title}: {picture}");
        }
        // Three bars are as wide as all hits, and one is three quarters of that; the background's width is in
        // percent.
        assert_eq!(picture.matches("width=\"1180\"").count(), 3, "{picture}");
        assert_eq!(picture.matches("width=\"885\"").count(), 1, "{picture}");
        assert!(!picture.contains("<read>"));
    }

    #[test]
    fn a_stack_of_any_depth_is_drawn() {
        let functions = vec!["f"; 1 << 20];
        let mut out = Vec::new();
        write(&[example("cat", &functions, 1)], "vfs_read", &mut out).unwrap();
        let picture = String::from_utf8(out).unwrap();
        assert_eq!(picture.matches("f: 1 hit,").count(), DEEPEST - 1);
    }

    #[test]
    fn a_flame_graph_without_hits_is_valid() {
        let mut out = Vec::new();
        write(&[], "vfs_read", &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("vfs_read: 0 hits"));
    }
}
