//! Whether stock kernels boot under this machine's KVM: tried once, then remembered.

use std::fs::{self, OpenOptions};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::{process, say};

const DEVICE: &str = "/dev/kvm";
const QEMU: &str = "qemu-system-x86_64";
/// Where KVM works, a kernel is up in two or three seconds.
const LIMIT: Duration = Duration::from_secs(15);

/// The answer, and what it was found for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    usable: bool,
    host: String,
    qemu: String,
}

/// The remembered answer, or that of `boots`, which is given a time limit.
pub(crate) fn usable(cache: &Cache, boots: impl Fn(Duration) -> Result<bool>) -> Result<bool> {
    if OpenOptions::new().read(true).write(true).open(DEVICE).is_err() {
        return Ok(false);
    }
    let host = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let version = process::read(Command::new(QEMU).arg("--version"))?;
    let qemu = version.lines().next().unwrap_or_default().to_owned();

    let path = cache.path("kvm.toml");
    let known =
        fs::read_to_string(&path).ok().and_then(|text| toml::from_str::<Answer>(&text).ok());
    if let Some(known) = known
        && known.host == host
        && known.qemu == qemu
    {
        return Ok(known.usable);
    }
    say::line(format_args!("trying KVM, {} s at most", LIMIT.as_secs()));
    let usable = boots(LIMIT)?;
    let found = if usable { "KVM works" } else { "no kernel boots under KVM here, emulating" };
    say::line(found);
    let answer = toml::to_string(&Answer { usable, host, qemu })?;
    fs::write(&path, answer).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(usable)
}
