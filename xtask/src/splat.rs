//! What the kernel's log must not have after a test.

/// Beginnings of reports that something is wrong in the kernel.
const SIGNS: [&str; 11] = [
    "WARNING:",
    "BUG:",
    "Oops:",
    "KASAN:",
    "UBSAN:",
    "general protection fault",
    "Kernel panic",
    "possible circular locking dependency",
    "suspicious RCU usage",
    "detected stall",
    "self-detected stall",
];

/// Lines of a kernel log that begin a report.
pub(crate) fn find(log: &str) -> Vec<&str> {
    log.lines().filter(|line| is_sign(line)).collect()
}

/// The log from its first report on, or its last lines if it has none.
pub(crate) fn excerpt(log: &str, lines: usize) -> &str {
    let Some(first) = log.lines().find(|line| is_sign(line)) else {
        return crate::process::tail(log, lines);
    };
    let start = first.as_ptr() as usize - log.as_ptr() as usize;
    let rest = &log[start..];
    let end = rest.match_indices('\n').nth(lines.saturating_sub(1)).map_or(rest.len(), |at| at.0);
    rest[..end].trim_end()
}

fn is_sign(line: &str) -> bool {
    // The command line is in the log too, with whatever words it has.
    !line.contains("ommand line:") && SIGNS.iter().any(|sign| line.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "[    0.1] Linux version 6.12\n\
        [    9.1] ------------[ cut here ]------------\n\
        [    9.2] WARNING: CPU: 1 PID: 7 at kernel/x.c:1 f+0x1/0x2\n\
        [    9.3] Modules linked in:\n\
        [    9.4] rcu: INFO: rcu_preempt self-detected stall on CPU\n";

    #[test]
    fn reports_are_found() {
        assert_eq!(find(LOG).len(), 2);
        assert!(find("[ 0.1] Spectre V2 : Mitigation\n[ 0.2] debug: on\n").is_empty());
        assert!(find("[ 0.0] Kernel command line: x=BUG:\n").is_empty());
    }

    #[test]
    fn excerpt_begins_with_the_first_report() {
        assert!(excerpt(LOG, 2).starts_with("[    9.2] WARNING:"));
        assert_eq!(excerpt(LOG, 2).lines().count(), 2);
        assert_eq!(excerpt("a\nb\nc\n", 2), "b\nc");
    }
}
