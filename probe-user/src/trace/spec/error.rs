//! What is wrong with a spec, and where.

use std::fmt::{self, Write};

/// A spec that is not one, or that names what there is not. Shown in three lines: what is wrong, the
/// spec, and a mark below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    spec: String,
    at: usize,
    what: String,
}

impl SpecError {
    /// `at` is in bytes from the start of the spec.
    pub(crate) fn new(spec: &str, at: usize, what: impl Into<String>) -> Self {
        Self { spec: spec.to_owned(), at: spec.floor_char_boundary(at), what: what.into() }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.spec.split_at(self.at);
        let before = Plain(before).to_string();
        let blank = " ".repeat(before.len());
        write!(f, "{}\n  {before}{}\n  {blank}^", Plain(&self.what), Plain(after))
    }
}

impl std::error::Error for SpecError {}

/// Text in ASCII, each character of which takes one column; all else is shown as an escape.
struct Plain<'t>(&'t str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                ' '..='~' => f.write_char(char)?,
                _ => write!(f, "{}", char.escape_default())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::SpecError;

    #[test]
    fn the_mark_stands_below_the_place_whatever_comes_before() {
        for (at, shown) in [
            (0, "no\n  a\\u{e4}\\tb\n  ^"),
            (1, "no\n  a\\u{e4}\\tb\n   ^"),
            // Within a character: where it begins.
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
