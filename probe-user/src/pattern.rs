//! Patterns of names.

use glob::Pattern;

/// A pattern of names: `tcp_*`, `[ab]?`, `[!0-9]`.
#[derive(Clone, Debug)]
pub(crate) struct Glob(Pattern);

/// Why a text is no pattern.
#[derive(Clone, Debug)]
pub(crate) struct BadPattern {
    pub(crate) pattern: String,
    pub(crate) what: &'static str,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Result<Self, BadPattern> {
        // In paths, two stars are something else than one; in names they are not.
        let mut single = String::with_capacity(pattern.len());
        for char in pattern.chars() {
            if char != '*' || !single.ends_with('*') {
                single.push(char);
            }
        }
        let bad = |what| BadPattern { pattern: pattern.to_owned(), what };
        Pattern::new(&single).map(Self).map_err(|error| bad(error.msg))
    }

    /// The pattern that everything matches.
    #[cfg(feature = "trace")]
    pub(crate) fn any() -> Self {
        Self(Pattern::new("*").unwrap_or_default())
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
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
