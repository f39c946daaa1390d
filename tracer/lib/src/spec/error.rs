//! A mistake in a spec, and its position.

use std::fmt;

/// A spec that is malformed, or that names something that does not exist. Displayed on three lines: the message,
/// the spec, and a caret below the position of the mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    spec: String,
    at: usize,
    what: String,
}

impl SpecError {
    /// `at` is a byte offset into the spec.
    pub(crate) fn new(spec: &str, at: usize, what: impl Into<String>) -> Self {
        Self { spec: spec.to_owned(), at: spec.floor_char_boundary(at), what: what.into() }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.spec.split_at(self.at);
        let [what, before, after] = [&self.what, before, after].map(ascii);
        let blank = " ".repeat(before.len());
        write!(f, "{what}\n  {before}{after}\n  {blank}^")
    }
}

impl std::error::Error for SpecError {}

/// Text as ASCII, one column per character. Everything else is escaped.
fn ascii(text: &str) -> String {
    let mut shown = String::new();
    for char in text.chars() {
        match char {
            ' '..='~' => shown.push(char),
            _ => shown.extend(char.escape_default()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::SpecError;

    #[test]
    fn the_caret_is_below_the_mistake() {
        for (at, shown) in [
            (0, "no\n  a\\u{e4}\\tb\n  ^"),
            (1, "no\n  a\\u{e4}\\tb\n   ^"),
            // Inside a character: the caret moves to its first byte.
            (2, "no\n  a\\u{e4}\\tb\n   ^"),
            (3, "no\n  a\\u{e4}\\tb\n         ^"),
            (4, "no\n  a\\u{e4}\\tb\n           ^"),
            (5, "no\n  a\\u{e4}\\tb\n            ^"),
            (99, "no\n  a\\u{e4}\\tb\n            ^"),
        ] {
            assert_eq!(SpecError::new("aä\tb", at, "no").to_string(), shown);
        }
        let hostile = SpecError::new("\u{1b}[2J\u{202e}", 4, "\u{9b}1m\n").to_string();
        assert_eq!(hostile, "\\u{9b}1m\\n\n  \\u{1b}[2J\\u{202e}\n           ^");
    }

    #[test]
    fn long_specs_are_shown() {
        let spec = "a".repeat(100_000);
        assert!(SpecError::new(&spec, spec.len(), "no").to_string().ends_with(" ^"));
    }
}
