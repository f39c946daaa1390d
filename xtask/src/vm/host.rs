//! What virtual machines need on this machine: packages, virtme-ng, kernels, and KVM if it works.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::kernel::{Kernel, Series};
use super::machine::{Attempt, End, Machine, Options, Sinks};
use super::splat;
use crate::say::Step;
use crate::setup::files::{self, digest};
use crate::setup::{Cache, apt};
use crate::{process, say};

/// The Debian packages that virtme-ng needs.
const PACKAGES: [&str; 5] = ["qemu-system-x86", "busybox-static", "kmod", "udev", "zstd"];

/// Versions and hashes of virtme-ng and its dependencies. pip accepts no others.
const REQUIREMENTS: &str = include_str!("../../virtme-ng.txt");

const DEVICE: &str = "/dev/kvm";
const QEMU: &str = "qemu-system-x86_64";
/// Time limit for the trial of KVM. With working KVM, a kernel boots in two or three seconds.
const KVM_LIMIT: Duration = Duration::from_secs(15);

/// Time limit to reach user space. An idle host takes 7 to 15 s; an overloaded one took 70 s.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
const BOOT_ATTEMPTS: u32 = 2;
/// Lines of the console to show in an error.
pub(crate) const CONSOLE_LINES: usize = 25;

pub(crate) struct Host {
    virtme_run: PathBuf,
    kvm: OnceLock<bool>,
}

impl Host {
    pub(crate) fn set_up(cache: &Cache) -> Result<Self> {
        apt::install(&PACKAGES)?;
        let virtme_run = ensure_virtme_run(cache)?;
        Ok(Self { virtme_run, kvm: OnceLock::new() })
    }

    /// Fetches a kernel, and on first use finds out whether KVM works.
    pub(crate) fn kernel(&self, cache: &Cache, series: Series) -> Result<Kernel> {
        let kernel = Kernel::ensure(cache, series)?;
        if self.kvm.get().is_none() {
            let usable = self.kvm_usable(cache, &kernel)?;
            self.kvm.get_or_init(|| usable);
        }
        Ok(kernel)
    }

    /// Runs a command as root on this kernel. `sinks` is called once for each attempt to boot.
    pub(crate) fn run(
        &self,
        kernel: &Kernel,
        options: &Options,
        command: &[OsString],
        sinks: impl Fn() -> Result<Sinks>,
    ) -> Result<End> {
        let mut use_kvm = self.kvm.get().copied().unwrap_or_default();
        let mut console = String::new();
        for attempt in 1..=BOOT_ATTEMPTS {
            let virtme_run = &self.virtme_run;
            let mut machine =
                Machine::start(virtme_run, kernel, options, command, use_kvm, sinks()?)?;
            match machine.watch(BOOT_LIMIT, options)? {
                Attempt::End(end) => return Ok(end),
                Attempt::NoBoot { console: last } => console = last,
            }
            // This kernel may not boot under KVM even though others do.
            use_kvm = false;
            if attempt < BOOT_ATTEMPTS {
                say::line(format_args!("kernel {} did not boot, trying again", kernel.series));
            }
        }
        bail!(
            "kernel {} did not reach user space in {BOOT_ATTEMPTS} attempts; its console:\n{}",
            kernel.release,
            splat::excerpt(&console, CONSOLE_LINES)
        );
    }

    /// Whether stock kernels boot under this machine's KVM. The answer is cached. A refusal holds for a day: the machine may
    /// only have been busy.
    fn kvm_usable(&self, cache: &Cache, kernel: &Kernel) -> Result<bool> {
        if OpenOptions::new().read(true).write(true).open(DEVICE).is_err() {
            return Ok(false);
        }
        let host = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
        let version = process::read(Command::new(QEMU).arg("--version"))?;
        let qemu = version.lines().next().unwrap_or_default().to_owned();

        let path = cache.path("kvm.toml");
        let known = fs::read_to_string(&path).ok().and_then(|text| toml::from_str(&text).ok());
        if let Some(Answer { usable, .. }) =
            known.filter(|known: &Answer| known.host == host && known.qemu == qemu)
            && (usable || is_of_today(&path))
        {
            return Ok(usable);
        }
        say::line(format_args!("trying KVM for at most {} s", KVM_LIMIT.as_secs()));
        let usable = self.boots_with_kvm(kernel)?;
        let found =
            if usable { "KVM works" } else { "kernels do not boot under KVM here; emulating" };
        say::line(found);
        let answer = toml::to_string(&Answer { usable, host, qemu })?;
        files::write(&path, answer)?;
        Ok(usable)
    }

    fn boots_with_kvm(&self, kernel: &Kernel) -> Result<bool> {
        let options = Options {
            cpus: 2,
            memory: "1G".to_owned(),
            icount: false,
            limit: Some(KVM_LIMIT),
            folder: PathBuf::from("/"),
            unchanging: Vec::new(),
            passes_signals: false,
        };
        let sinks = Sinks { out: Box::new(io::sink()), err: Box::new(io::sink()) };
        let command = ["true".into()];
        let virtme_run = &self.virtme_run;
        let mut machine = Machine::start(virtme_run, kernel, &options, &command, true, sinks)?;
        match machine.watch(KVM_LIMIT, &options)? {
            Attempt::End(End::Signalled(signal)) => bail!("ended by signal {signal}"),
            Attempt::End(end) => Ok(end == End::Exit(0)),
            Attempt::NoBoot { .. } => Ok(false),
        }
    }
}

/// The path of `virtme-run`, the part of virtme-ng that boots a kernel. `vng` would pass the options through a shell.
fn ensure_virtme_run(cache: &Cache) -> Result<PathBuf> {
    // The environment is of one version of Python.
    let python = process::read(Command::new("python3").arg("--version"))
        .context("virtual machines need Python; install the package python3")?;
    let root = cache.ensure(&format!("virtme-ng/{}", name(&(python + REQUIREMENTS))), |root| {
        // Debian has what makes environments in a package of its own.
        if !has_venv() {
            apt::install(&["python3-venv"])?;
        }
        let step = Step::begin("installing virtme-ng (pip)");
        process::watched(Command::new("python3").args(["-m", "venv"]).arg(root), &step)
            .context("cannot create a Python environment; is python3-venv installed?")?;
        let requirements = root.join("requirements.txt");
        files::write(&requirements, REQUIREMENTS)?;
        let mut pip = Command::new(root.join("bin/pip"));
        pip.args(["install", "--retries", "5", "--no-input", "--only-binary", ":all:"]);
        process::watched(pip.args(["--require-hashes", "--requirement"]).arg(requirements), &step)
    })?;
    Ok(root.join("bin/virtme-run"))
}

/// Whether a file was written less than a day ago.
fn is_of_today(path: &Path) -> bool {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let age = fs::metadata(path).and_then(|file| file.modified()).map(|time| time.elapsed());
    // A time in the future is not an age.
    age.is_ok_and(|age| age.is_ok_and(|age| age < DAY))
}

/// Whether Python can make an environment with pip in it.
fn has_venv() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, venv"]).stdin(Stdio::null());
    python.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The name of the environment, which changes with the requirements.
fn name(requirements: &str) -> String {
    digest(requirements.as_bytes())[..16].to_owned()
}

/// Whether stock kernels boot under KVM, with the host kernel and the qemu that the answer holds for.
#[derive(Serialize, Deserialize)]
struct Answer {
    usable: bool,
    host: String,
    qemu: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn a_refusal_is_of_today_or_tried_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(is_of_today(file.path()));
        let yesterday = SystemTime::now() - Duration::from_secs(25 * 60 * 60);
        file.as_file().set_modified(yesterday).unwrap();
        assert!(!is_of_today(file.path()));
        assert!(!is_of_today(Path::new("/nonexistent")));
    }

    #[test]
    fn every_requirement_is_pinned_by_a_hash() {
        let lines = REQUIREMENTS.lines().filter(|line| !line.starts_with('#'));
        let lines: Vec<_> = lines.collect();
        assert!(lines.iter().any(|line| line.starts_with("virtme-ng==")), "{lines:?}");
        for line in lines {
            let (_, hash) = line.split_once(" --hash=sha256:").unwrap_or_else(|| panic!("{line}"));
            assert!(
                hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{line}"
            );
        }
        assert_ne!(name(REQUIREMENTS), name(""));
    }
}
