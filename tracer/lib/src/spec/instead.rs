//! What a user may mean by a name that cannot be probed.

use probe_sys::escape::Escaped;
use std::fmt;

/// Alternatives to a function that does not exist or cannot be probed. They print as the end of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instead {
    /// Probes: a system call, tracepoints, a function of the C library.
    pub probes: Vec<String>,
    /// A program, which may be a command to trace.
    pub program: Option<String>,
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted: Vec<_> = self.probes.iter().map(|probe| format!("`{probe}`")).collect();
        match quoted.as_slice() {
            [] => {}
            [one] => write!(f, "; did you mean {one}?")?,
            [others @ .., last] => {
                write!(f, "; did you mean {} or {last}?", others.join(", "))?;
            }
        }
        match &self.program {
            Some(program) => {
                let program = Escaped(program.as_bytes());
                let (mark, start) = if quoted.is_empty() { (";", "if") } else { ("", "If") };
                write!(f, "{mark} {start} {program} is the command to trace, write -- before it")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_is_named() {
        let shown = |probes: &[&str], program: Option<&str>| {
            let probes = probes.iter().map(|&one| one.to_owned()).collect();
            Instead { probes, program: program.map(str::to_owned) }.to_string()
        };
        assert_eq!(shown(&[], None), "");
        assert_eq!(shown(&["a", "b", "c"], None), "; did you mean `a`, `b` or `c`?");
        let command = shown(&["ksyscall:kill"], Some("kill"));
        assert!(command.starts_with("; did you mean `ksyscall:kill`? If kill is the command"));
        assert!(shown(&[], Some("sh")).starts_with("; if sh is the command"));
    }
}
