//! What machines need of this one: packages, virtme-ng, kernels, and whether KVM works.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cache::Cache;
use crate::kernel::{Kernel, Series};
use crate::machine::{Attempt, End, Machine, Options, Sinks};
use crate::{apt, kvm, python, say, splat};

/// What virtme-ng needs besides itself.
const PACKAGES: [&str; 5] = ["qemu-system-x86", "busybox-static", "kmod", "udev", "zstd"];

/// Time until user space: an idle machine takes 7 to 15 s, one with too much to do took 70 s.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
const BOOT_ATTEMPTS: u32 = 2;
/// Lines of the console that an error shows.
pub(crate) const CONSOLE_LINES: usize = 25;

pub(crate) struct Host {
    virtme_run: PathBuf,
    kvm: OnceLock<bool>,
}

impl Host {
    pub(crate) fn set_up(cache: &Cache) -> Result<Self> {
        apt::install(&PACKAGES)?;
        let virtme_run = python::ensure_virtme_run(cache)?;
        Ok(Self { virtme_run, kvm: OnceLock::new() })
    }

    /// A kernel that is ready to boot, with KVM or without.
    pub(crate) fn kernel(&self, cache: &Cache, series: Series) -> Result<Kernel> {
        let kernel = Kernel::ensure(cache, series)?;
        if self.kvm.get().is_none() {
            let usable = kvm::usable(cache, |limit| self.boots_with_kvm(&kernel, limit))?;
            self.kvm.get_or_init(|| usable);
        }
        Ok(kernel)
    }

    /// Runs a command as root under this kernel. `sinks` is asked once an attempt.
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
            match machine.watch(BOOT_LIMIT, options.limit)? {
                Attempt::End(end) => return Ok(end),
                Attempt::NoBoot { console: last } => console = last,
            }
            // That other kernels boot under KVM does not mean that this one does.
            use_kvm = false;
            if attempt < BOOT_ATTEMPTS {
                say::line(format_args!("kernel {} did not boot, again", kernel.series));
            }
        }
        bail!(
            "kernel {} did not reach user space, {BOOT_ATTEMPTS} times; its console:\n{}",
            kernel.release,
            splat::excerpt(&console, CONSOLE_LINES)
        );
    }

    fn boots_with_kvm(&self, kernel: &Kernel, limit: Duration) -> Result<bool> {
        let options = Options {
            cpus: 2,
            memory: "1G".to_owned(),
            icount: false,
            limit: Some(limit),
            folder: PathBuf::from("/"),
            passes_signals: false,
        };
        let sinks = Sinks { out: Box::new(io::sink()), err: Box::new(io::sink()) };
        let command = ["true".into()];
        let virtme_run = &self.virtme_run;
        let mut machine = Machine::start(virtme_run, kernel, &options, &command, true, sinks)?;
        match machine.watch(limit, Some(limit))? {
            Attempt::End(End::Signalled(signal)) => bail!("ended by signal {signal}"),
            Attempt::End(end) => Ok(end == End::Exit(0)),
            Attempt::NoBoot { .. } => Ok(false),
        }
    }
}
