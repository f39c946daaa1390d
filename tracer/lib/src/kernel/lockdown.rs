//! The kernel's lockdown, which can forbid even root to read the kernel's memory.

use std::fs;

/// What to change if lockdown forbids tracing.
pub(crate) const CHANGE: &str = "boot with lockdown=integrity, or without Secure Boot's lockdown";

/// The level: `none`, `integrity` or `confidentiality`. `None` if it is not known.
pub(crate) fn level() -> Option<String> {
    // "none [integrity] confidentiality"
    let levels = fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    let (_, rest) = levels.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Whether this level forbids kprobes, perf events, tracefs, and reading the kernel's memory.
pub(crate) fn forbids_tracing(level: Option<&str>) -> bool {
    level == Some("confidentiality")
}

/// The cause of an error if it is lockdown, as the end of a message.
pub(crate) fn hint(level: Option<&str>) -> Option<String> {
    forbids_tracing(level)
        .then(|| format!(". The kernel is locked down (confidentiality): {CHANGE}"))
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn only_confidentiality_forbids_tracing() {
        for level in [None, Some("none"), Some("integrity")] {
            assert_eq!(hint(level), None);
        }
        assert!(hint(Some("confidentiality")).unwrap().contains("lockdown=integrity"));
    }
}
