//! Why a trace ends, and what the process exits with.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// A shell's convention for a command that a signal ended.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_passed_on() {
        for (raw, code) in [(0, 0u8), (7 << 8, 7), (libc::SIGKILL, 137)] {
            assert_eq!(code_of(ExitStatus::from_raw(raw)), ExitCode::from(code));
        }
    }
}
