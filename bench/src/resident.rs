//! How much memory a process had resident at most.

/// `VmHWM`, in KiB, of what `/proc/PID/status` says; a process that has ended has none any more. Unlike
/// `ru_maxrss`, it does not begin with what the parent had.
pub(crate) fn peak_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_until_the_end() {
        assert_eq!(peak_kib("Name:\tx\nVmHWM:\t   23504 kB\nVmRSS:\t 1 kB\n"), Some(23504));
        assert_eq!(peak_kib("Name:\tx\nState:\tZ (zombie)\n"), None);
    }
}
