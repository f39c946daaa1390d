//! Patterns of names.

use glob::Pattern;

/// A pattern of names: `tcp_*`, `[ab]?`, `[!0-9]`.
#[derive(Clone, Debug)]
pub struct Glob(Pattern);

/// Why a text is not a pattern.
#[derive(Clone, Debug)]
pub struct BadPattern {
    /// The text.
    pub pattern: String,
    /// The error in it.
    pub what: &'static str,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// If the text is not a pattern, for example because a bracket is not closed.
    pub fn new(pattern: &str) -> Result<Self, BadPattern> {
        // In paths, two stars differ from one; in names, they do not.
        let mut single = String::with_capacity(pattern.len());
        for char in pattern.chars() {
            if char != '*' || !single.ends_with('*') {
                single.push(char);
            }
        }
        let bad = |what| BadPattern { pattern: pattern.to_owned(), what };
        Pattern::new(&single).map(Self).map_err(|error| bad(error.msg))
    }

    /// The pattern that matches every name.
    pub fn any() -> Self {
        Self(Pattern::new("*").unwrap_or_default())
    }

    /// Whether the pattern matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.matches(name)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, is_match) in [
            ("tcp_*", "tcp_", true),
            ("tcp_*", "tcp_v4_rcv", true),
            ("tcp_*", "mptcp_x", false),
            ("*", "anything.isra.0", true),
            ("a**b***", "a.b/c", true),
            ("v*s_*re*a*d*x", "vfs_x_readv_ex", true),
            ("v*s_*re*a*d*x", "vfs_x_readv_e", false),
            ("vfs_?ead", "vfs_read", true),
            ("vfs_?ead", "vfs_ead", false),
            ("[ab]c", "bc", true),
            ("[!ab]c", "bc", false),
            ("x[0-9]", "x7", true),
            ("sched:*", "sched:sched_switch", true),
            ("s*:*_switch", "sched:sched_switch", true),
            ("s*:*_switch", "signal:signal_generate", false),
        ] {
            assert_eq!(Glob::new(pattern).unwrap().matches(name), is_match, "{pattern} {name}");
        }
    }
}
