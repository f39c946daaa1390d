//! `cargo xtask run`: `probe`, on this machine or in a VM.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::Message;

use crate::cache::Cache;
use crate::host::Host;
use crate::kernel::Series;
use crate::machine::{Options, Sinks};
use crate::vm::finish;
use crate::workspace::{Workspace, cargo, environment};
use crate::{ebpf, say};

const KPROBES: &str = "/sys/bus/event_source/devices/kprobe/type";
const DEFAULT_KERNEL: &str = "6.12";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run in a VM, even if this machine could
    #[arg(long, conflicts_with = "host")]
    vm: bool,
    /// Run on this machine, even if it seems unable to
    #[arg(long)]
    host: bool,
    /// The VM's kernel: 5.10, 6.1, 6.12 or 7.3; implies --vm
    #[arg(long, conflicts_with = "host")]
    kernel: Option<Series>,
    /// Arguments of `probe`
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Where `probe` runs, and why there.
enum Place {
    Here(&'static str),
    Machine(&'static str),
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let workspace = Workspace::load()?;
        ebpf::refresh(&workspace)?;
        let probe = build_probe()?;
        match self.place() {
            Place::Here(why) => {
                say::line(format_args!("running on this machine ({why})"));
                let mut command = Command::new(&probe);
                command.args(self.args).env_clear().envs(environment());
                // The process becomes `probe`: its signals, output and exit status are its own.
                Err(command.exec()).with_context(|| format!("cannot run {}", probe.display()))
            }
            Place::Machine(why) => self.run_in_vm(probe, why),
        }
    }

    fn place(&self) -> Place {
        if self.host {
            Place::Here("as asked")
        } else if self.vm || self.kernel.is_some() {
            Place::Machine("as asked")
        } else if !may_trace() {
            Place::Machine("tracing here takes root, or CAP_BPF and CAP_PERFMON")
        } else if !has_kprobes() {
            Place::Machine("this kernel has no kprobes")
        } else {
            Place::Here("it has kprobes, and this user may trace")
        }
    }

    fn run_in_vm(self, probe: PathBuf, why: &str) -> Result<ExitCode> {
        let cache = Cache::open()?;
        let host = Host::set_up(&cache)?;
        let series = match self.kernel {
            Some(series) => series,
            None => DEFAULT_KERNEL.parse().map_err(anyhow::Error::msg)?,
        };
        let kernel = host.kernel(&cache, series)?;
        say::line(format_args!("running in a VM with kernel {series} ({why})"));
        let options = Options {
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get().min(4) as u32),
            memory: "1G".to_owned(),
            icount: false,
            limit: None,
            folder: std::env::current_dir()?,
            passes_signals: true,
        };
        let mut command = vec![probe.into_os_string()];
        command.extend(self.args);
        finish(host.run(&kernel, &options, &command, || Ok(Sinks::own()))?, None)
    }
}

/// Whether this process may load and attach what it likes.
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

/// Builds the binary, and tells where it is.
pub(crate) fn build_probe() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", "probe-user", "--bin", "probe"]);
    executables(&mut command)?.pop().map(|built| built.path).context("cargo built no `probe`")
}

/// An executable that cargo built.
pub(crate) struct Executable {
    /// The folder of its package.
    pub(crate) package: PathBuf,
    pub(crate) target: String,
    pub(crate) is_test: bool,
    pub(crate) path: PathBuf,
}

/// Runs a cargo command that builds, and lists what it built that can be run.
pub(crate) fn executables(command: &mut Command) -> Result<Vec<Executable>> {
    command.arg("--message-format=json-render-diagnostics");
    if !say::on_terminal() {
        command.arg("--quiet");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo")?;
    let messages = child.stdout.take().context("cargo has a standard output")?;
    let mut built = Vec::new();
    for message in Message::parse_stream(BufReader::new(messages)) {
        if let Message::CompilerArtifact(artifact) = read(message)?
            && let Some(path) = artifact.executable
        {
            // Unit tests, too: the target of those is the library, or a binary.
            let is_test = artifact.profile.test;
            let package =
                artifact.manifest_path.parent().context("a manifest has a folder")?.into();
            let target = artifact.target.name;
            built.push(Executable { package, target, is_test, path: path.into() });
        }
    }
    if !child.wait()?.success() {
        bail!("cargo could not build it");
    }
    Ok(built)
}

fn read(message: io::Result<Message>) -> Result<Message> {
    message.context("cannot read what cargo says")
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
