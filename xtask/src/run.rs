//! `cargo xtask run`: runs `probe` on this machine or in a VM.

use std::ffi::OsString;
use std::fs;
use std::io::BufReader;
use std::iter::once;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::Message;

use crate::vm::kernel::{SERIES, Series};
use crate::workspace::{Workspace, cargo_quiet, environment};
use crate::{ebpf, say, vm};

/// Why tests are skipped unless [`may_trace`].
pub(crate) const TRACING_REQUIRES: &str = "tracing requires root, or CAP_BPF and CAP_PERFMON";

const KPROBES: &str = "/sys/bus/event_source/devices/kprobe/type";
/// Linux 6.12.
const DEFAULT_KERNEL: Series = SERIES[2];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run in a VM even if this machine can run `probe`
    #[arg(long, conflicts_with = "host")]
    vm: bool,
    /// Run on this machine even if it seems unable to
    #[arg(long)]
    host: bool,
    /// Kernel of the VM: 5.10, 6.1, 6.12 or 7.3; implies --vm
    #[arg(long, conflicts_with = "host")]
    kernel: Option<Series>,
    /// Arguments of `probe`
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Where `probe` runs, and the reason.
enum Location {
    Here(&'static str),
    Vm(&'static str),
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let workspace = Workspace::load()?;
        ebpf::refresh(&workspace)?;
        let probe = build_probe()?;
        match self.location() {
            Location::Here(why) => {
                say::line(format_args!("running on this machine ({why})"));
                let mut command = Command::new(&probe);
                command.args(self.args).env_clear().envs(environment());
                // The process becomes `probe`: its signals, output and exit status are its own.
                Err(command.exec()).with_context(|| format!("cannot run {}", probe.display()))
            }
            Location::Vm(why) => {
                let kernel = self.kernel.unwrap_or(DEFAULT_KERNEL);
                say::line(format_args!("running in a VM with kernel {kernel} ({why})"));
                let command = once(probe.into_os_string()).chain(self.args).collect();
                vm::Args::new(kernel, command).run()
            }
        }
    }

    fn location(&self) -> Location {
        if self.host {
            Location::Here("as requested")
        } else if self.vm || self.kernel.is_some() {
            Location::Vm("as requested")
        } else if !may_trace() {
            Location::Vm("tracing here requires root, or CAP_BPF and CAP_PERFMON")
        } else if !has_kprobes() {
            Location::Vm("this kernel has no kprobes")
        } else {
            Location::Here("it has kprobes, and this user may trace")
        }
    }
}

/// Whether this process may load and attach programs.
pub(crate) fn may_trace() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| is_capable(&status))
}

/// Whether this machine's kernel can probe functions.
pub(crate) fn has_kprobes() -> bool {
    Path::new(KPROBES).exists()
}

fn is_capable(status: &str) -> bool {
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    const BPF: u32 = 39;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default();
    let has = |capability: u32| effective & (1 << capability) != 0;
    has(SYS_ADMIN) || (has(PERFMON) && has(BPF))
}

/// Builds `probe` and returns its path.
pub(crate) fn build_probe() -> Result<PathBuf> {
    let mut command = cargo_quiet("build");
    command.args(["--release", "--package", "probe-cli", "--bin", "probe"]);
    executables(&mut command)?.pop().map(|built| built.path).context("cargo did not build `probe`")
}

/// An executable that cargo built.
pub(crate) struct Executable {
    /// The folder of its package.
    pub(crate) package: PathBuf,
    pub(crate) target: String,
    pub(crate) is_test: bool,
    pub(crate) path: PathBuf,
}

/// Runs a cargo build command and lists the executables that it built.
pub(crate) fn executables(command: &mut Command) -> Result<Vec<Executable>> {
    command.arg("--message-format=json-render-diagnostics");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo")?;
    let messages = child.stdout.take().context("cargo has a standard output")?;
    let mut built = Vec::new();
    for message in Message::parse_stream(BufReader::new(messages)) {
        if let Message::CompilerArtifact(artifact) =
            message.context("cannot read cargo's messages")?
            && let Some(path) = artifact.executable
        {
            // Unit tests too: their target is a library or a binary.
            let is_test = artifact.profile.test;
            let package =
                artifact.manifest_path.parent().context("a manifest has a folder")?.into();
            let target = artifact.target.name;
            built.push(Executable { package, target, is_test, path: path.into() });
        }
    }
    if !child.wait()?.success() {
        bail!("cargo build failed");
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_status() {
        assert!(is_capable("Name:\tx\nCapEff:\t000001fffeffffff\n"));
        assert!(is_capable("CapEff:\t000000c000000000\n")); // BPF and PERFMON
        assert!(!is_capable("CapEff:\t0000004000000000\n")); // PERFMON alone
        assert!(!is_capable("CapEff:\t0000000000000000\n"));
        assert!(!is_capable(""));
    }
}
