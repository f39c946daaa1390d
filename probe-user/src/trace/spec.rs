//! What to probe, as a person writes it.

use crate::escape::Escaped;
use std::fmt;
use std::str::FromStr;

/// A sort of hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// The entry of a kernel function.
    Kprobe,
    /// A tracepoint, named `category:name`.
    Tracepoint,
    /// A tracepoint without the kernel's formatting of its fields.
    RawTracepoint,
}

impl Provider {
    /// The name that a spec starts with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Tracepoint => "tracepoint",
            Self::RawTracepoint => "rawtp",
        }
    }
}

/// One probe: `[kprobe:]FUNCTION`, `tracepoint:CATEGORY:NAME` or `rawtp:NAME`.
///
/// ```
/// use probe_user::trace::{ProbeSpec, Provider};
///
/// let spec: ProbeSpec = "do_sys_openat2".parse()?;
/// assert_eq!(spec.provider(), Provider::Kprobe);
/// assert_eq!(spec.name(), "do_sys_openat2");
/// # Ok::<(), probe_user::trace::SpecError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeSpec {
    provider: Provider,
    name: String,
}

impl ProbeSpec {
    /// The sort of hook.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// What it hooks: for a tracepoint, `category:name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A tracepoint's category and name.
    pub(crate) fn tracepoint(&self) -> Option<(&str, &str)> {
        match self.provider {
            Provider::Tracepoint => self.name.split_once(':'),
            _ => None,
        }
    }
}

impl fmt::Display for ProbeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider.name(), self.name)
    }
}

/// A spec that is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    spec: String,
    at: usize,
    what: &'static str,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.spec.split_at(self.at);
        let (before, after) = (Escaped(before.as_bytes()), Escaped(after.as_bytes()));
        write!(f, "in probe `{before}⟨here⟩{after}`: {}", self.what)
    }
}

impl std::error::Error for SpecError {}

impl FromStr for ProbeSpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        let error = |at, what| Err(SpecError { spec: spec.to_owned(), at, what });
        let (provider, name_at) = match spec.split_once(':') {
            None => (Provider::Kprobe, 0),
            Some((prefix, _)) => match prefix {
                "kprobe" | "k" => (Provider::Kprobe, prefix.len() + 1),
                "tracepoint" | "t" => (Provider::Tracepoint, prefix.len() + 1),
                "rawtp" | "rt" => (Provider::RawTracepoint, prefix.len() + 1),
                _ => return error(0, "this provider is not known: kprobe, tracepoint or rawtp"),
            },
        };
        let name = &spec[name_at..];
        if name.is_empty() {
            return error(name_at, "a name has to come here");
        }
        let mut colons = 0;
        for (at, char) in name.char_indices() {
            match char {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '-' => {}
                ':' if provider == Provider::Tracepoint && colons == 0 => {
                    colons += 1;
                    if at == 0 || at + 1 == name.len() {
                        return error(
                            name_at + at,
                            "a tracepoint is written tracepoint:CATEGORY:NAME",
                        );
                    }
                }
                ':' => return error(name_at + at, "there is one colon too many"),
                _ => return error(name_at + at, "no name of the kernel has this character"),
            }
        }
        if provider == Provider::Tracepoint && colons == 0 {
            return error(spec.len(), "a tracepoint is written tracepoint:CATEGORY:NAME");
        }
        Ok(Self { provider, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_as_they_are_shown() {
        for (spec, shown) in [
            ("vfs_read", "kprobe:vfs_read"),
            ("k:vfs_read", "kprobe:vfs_read"),
            ("kprobe:foo.isra.0", "kprobe:foo.isra.0"),
            ("tracepoint:sched:sched_switch", "tracepoint:sched:sched_switch"),
            ("t:sched:sched_switch", "tracepoint:sched:sched_switch"),
            ("rawtp:sys_enter", "rawtp:sys_enter"),
        ] {
            let parsed: ProbeSpec = spec.parse().unwrap();
            assert_eq!(parsed.to_string(), shown);
            assert_eq!(shown.parse::<ProbeSpec>().unwrap(), parsed);
        }
    }

    #[test]
    fn wrong_specs_are_told_where() {
        for (spec, told) in [
            ("", "in probe `⟨here⟩`: a name has to come here"),
            ("kprobe:", "in probe `kprobe:⟨here⟩`: a name has to come here"),
            (
                "kprob:x",
                "in probe `⟨here⟩kprob:x`: this provider is not known: kprobe, tracepoint or rawtp",
            ),
            ("a b", "in probe `a⟨here⟩ b`: no name of the kernel has this character"),
            ("rawtp:a:b", "in probe `rawtp:a⟨here⟩:b`: there is one colon too many"),
            (
                "tracepoint:a",
                "in probe `tracepoint:a⟨here⟩`: a tracepoint is written tracepoint:CATEGORY:NAME",
            ),
            (
                "tracepoint::a",
                "in probe `tracepoint:⟨here⟩:a`: a tracepoint is written tracepoint:CATEGORY:NAME",
            ),
            (
                "a\u{1b}[2J",
                "in probe `a⟨here⟩\\u{1b}[2J`: no name of the kernel has this character",
            ),
            ("ä", "in probe `⟨here⟩ä`: no name of the kernel has this character"),
        ] {
            assert_eq!(spec.parse::<ProbeSpec>().unwrap_err().to_string(), told);
        }
    }
}
