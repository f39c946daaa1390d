//! Flame graphs.

use crate::trace::ways::{Step, StepKind, Way};
use std::collections::BTreeMap;
use std::io::{self, Write};
use svg::Document;
use svg::node::element::{Group, Rectangle, Text, Title};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
/// Above the topmost row, and below the lowest, in pixels.
const HEAD: f64 = 40.0;
const FOOT: f64 = 10.0;
const MARGIN: f64 = 10.0;
/// The width of all hits.
const BARS: f64 = WIDTH - 2.0 * MARGIN;
/// The width of a letter.
const LETTER: f64 = 6.6;
/// What is narrower than this is not drawn.
const NARROWEST: f64 = 0.2;

/// A step that hits went through, and those that came next.
#[derive(Debug, Default)]
struct Node<'w> {
    hits: u64,
    next: BTreeMap<(&'w str, StepKind), Node<'w>>,
}

impl<'w> Node<'w> {
    fn add(&mut self, steps: &'w [Step], hits: u64) {
        self.hits += hits;
        if let [step, rest @ ..] = steps {
            self.next.entry((&step.name, step.kind)).or_default().add(rest, hits);
        }
    }

    fn depth(&self) -> usize {
        1 + self.next.values().map(Node::depth).max().unwrap_or(0)
    }
}

/// Writes the picture.
pub(super) fn write(ways: &[(Way, u64)], title: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut root = Node::default();
    for (way, hits) in ways {
        root.add(way.steps(), *hits);
    }
    let height = HEAD + ROW * root.depth() as f64 + FOOT;
    let heading = format!("{title}: {} hits", root.hits);
    let mut picture = Drawing { root: root.hits.max(1), height, document: document(height) };
    picture.text(WIDTH / 2.0 - LETTER * heading.chars().count() as f64 / 2.0, 24.0, &heading);
    picture.row(&root, "all", None, MARGIN, 0);
    svg::write(out, &picture.document)
}

fn document(height: f64) -> Document {
    let background =
        Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff");
    Document::new()
        .set("viewBox", (0, 0, WIDTH, height))
        .set("width", WIDTH)
        .set("height", height)
        .set("font-family", "monospace")
        .set("font-size", 11)
        .add(background)
}

struct Drawing {
    /// All hits.
    root: u64,
    height: f64,
    document: Document,
}

impl Drawing {
    /// Draws a step at so many pixels from the left, and above it those that came next.
    fn row(
        &mut self,
        node: &Node<'_>,
        name: &str,
        kind: Option<StepKind>,
        left: f64,
        depth: usize,
    ) {
        let share = self.share(node);
        let width = share * BARS;
        if width < NARROWEST {
            return;
        }
        let top = self.height - FOOT - ROW * (depth + 1) as f64;
        let title = format!("{name}: {} hits, {:.1} %", node.hits, 100.0 * share);
        let bar = Rectangle::new()
            .set("x", round(left))
            .set("y", round(top))
            .set("width", round(width))
            .set("height", ROW - 1.0)
            .set("rx", 1)
            .set("fill", color(kind));
        let mut group = Group::new().add(Title::new(title)).add(bar);
        let letters = ((width - 4.0) / LETTER).max(0.0) as usize;
        if letters >= 3 {
            group = group.add(text(left + 3.0, top + ROW - 5.0, &cut(name, letters)));
        }
        self.add(group);
        let mut left = left;
        for ((name, kind), next) in &node.next {
            self.row(next, name, Some(*kind), left, depth + 1);
            left += self.share(next) * BARS;
        }
    }

    /// Of all hits.
    fn share(&self, node: &Node<'_>) -> f64 {
        node.hits as f64 / self.root as f64
    }

    fn text(&mut self, left: f64, bottom: f64, content: &str) {
        self.add(text(left, bottom, content));
    }

    fn add(&mut self, node: impl svg::node::Node) {
        svg::node::Node::append(&mut self.document, node);
    }
}

fn text(left: f64, bottom: f64, content: &str) -> Text {
    Text::new(content).set("x", round(left)).set("y", round(bottom))
}

/// As many characters as there is room for.
fn cut(name: &str, letters: usize) -> String {
    match name.chars().count() {
        count if count <= letters => name.to_owned(),
        _ => name.chars().take(letters - 2).chain("..".chars()).collect(),
    }
}

fn color(kind: Option<StepKind>) -> &'static str {
    match kind {
        None => "#d9d9d9",
        Some(StepKind::Task) => "#c6dbef",
        Some(StepKind::User) => "#fdbe6f",
        Some(StepKind::Kernel) => "#f4864b",
    }
}

fn round(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ways::tests::example;

    #[test]
    fn every_step_is_as_wide_as_its_hits() {
        let ways = [example("cat", &["entry", "<read>"], 30), example("cat", &["entry"], 10)];
        let mut out = Vec::new();
        write(&ways, "vfs_read", &mut out).unwrap();
        let picture = String::from_utf8(out).unwrap();
        for title in [
            "all: 40 hits, 100.0 %",
            "cat: 40 hits, 100.0 %",
            "entry: 40 hits, 100.0 %",
            "&lt;read&gt;: 30 hits, 75.0 %",
        ] {
            assert_eq!(picture.matches(title).count(), 1, "{title}: {picture}");
        }
        // Three as wide as all, and one with three quarters of that; the background is of no width.
        assert_eq!(picture.matches("width=\"1180\"").count(), 3, "{picture}");
        assert_eq!(picture.matches("width=\"885\"").count(), 1, "{picture}");
        assert!(!picture.contains("<read>"));
    }

    #[test]
    fn without_hits_there_is_a_picture_too() {
        let mut out = Vec::new();
        write(&[], "vfs_read", &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("vfs_read: 0 hits"));
    }
}
