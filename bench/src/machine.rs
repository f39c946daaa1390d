//! The machine and the date of a run, and the memory of a process.

use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::time::SystemTime;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    /// Number of online CPUs.
    pub(crate) cpus: usize,
    pub(crate) date: String,
}

/// For example `2026-11-22, kernel 6.18.44, 2 x Intel(R) Xeon(R) Processor`.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, cpu, cpus, date } = self;
        write!(f, "{date}, kernel {kernel}, {cpus} x {cpu}")
    }
}

impl Machine {
    pub(crate) fn read() -> Result<Self> {
        let info = fs::read_to_string("/proc/cpuinfo")?;
        let model = info.lines().find_map(|line| line.strip_prefix("model name"));
        let cpu = model.map_or("unknown", |model| model.trim_start_matches([' ', '\t', ':']));
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Ok(Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: cpu.to_owned(),
            cpus: probe_user::cpus::online()?.len(),
            date: now.chars().take_while(|&c| c != 'T').collect(),
        })
    }
}

/// Peak resident memory in KiB, `VmHWM`, from the text of `/proc/PID/status`. An exited process has none. Unlike
/// `ru_maxrss`, it does not start at the parent's value.
pub(crate) fn peak_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_read_until_the_exit() {
        assert_eq!(peak_kib("Name:\tx\nVmHWM:\t   23504 kB\nVmRSS:\t 1 kB\n"), Some(23504));
        assert_eq!(peak_kib("Name:\tx\nState:\tZ (zombie)\n"), None);
    }
}
