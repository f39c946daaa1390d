//! Where it was measured, and when.

use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::time::SystemTime;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    /// How many are online.
    pub(crate) cpus: usize,
    pub(crate) date: String,
}

/// `2026-11-22, kernel 6.18.44, 2 x Intel(R) Xeon(R) Processor`
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
