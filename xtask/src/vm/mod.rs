//! Virtual machines, and `cargo xtask vm`: runs a command on one of the kernels.

mod guest;
pub(crate) mod host;
mod interrupt;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod splat;

use std::ffi::OsString;
use std::iter::once;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use self::host::{CONSOLE_LINES, Host};
use self::kernel::Series;
use self::machine::{End, Options, Sinks};
use crate::setup::cache;
use crate::workspace::Workspace;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel to boot: 5.10, 6.1, 6.12 or 7.3
    #[arg(long)]
    kernel: Series,
    /// CPUs of the VM
    #[arg(long, default_value_t = 4)]
    cpus: u32,
    /// Memory of the VM
    #[arg(long, default_value = "1G")]
    memory: String,
    /// Seconds that the command may take
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Emulate with one nanosecond of guest time per instruction; sets PROBE_EXACT_TIME=1 for tests that measure
    /// exact times
    #[arg(long)]
    icount: bool,
    /// Build the tests' kernel module and pass its path in PROBE_AUX_MODULE
    #[arg(long)]
    module: bool,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Args {
    /// The defaults, with at most as many CPUs as this machine has.
    pub(crate) fn new(kernel: Series, command: Vec<OsString>) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get().min(4) as u32);
        let (memory, timeout) = ("1G".to_owned(), None);
        Self { kernel, cpus, memory, timeout, icount: false, module: false, command }
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        let cache = cache()?;
        let host = Host::set_up(&cache)?;
        let kernel = host.kernel(&cache, self.kernel)?;
        let options = Options {
            cpus: self.cpus,
            memory: self.memory,
            icount: self.icount,
            limit: self.timeout.map(Duration::from_secs),
            folder: std::env::current_dir()?,
            // Programs that are built while the machine runs are those of its user.
            unchanging: Vec::new(),
            passes_signals: true,
        };
        let mut command = self.command;
        let mut variables = Vec::<OsString>::new();
        if self.icount {
            variables.push("PROBE_EXACT_TIME=1".into());
        }
        if self.module {
            let folder = Workspace::load()?.target().join("xtask");
            let Some(module) = kernel.module(&cache, &folder)? else {
                bail!("cannot build modules for kernel {} on this machine", kernel.series);
            };
            variables.push(module);
        }
        if !variables.is_empty() {
            command.splice(..0, once("env".into()).chain(variables));
        }
        match host.run(&kernel, &options, &command, || Ok(Sinks::own()))? {
            End::Exit(status) => Ok(ExitCode::from(status)),
            End::Signalled(signal) => Ok(ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))),
            End::TimedOut => {
                bail!("the command ran longer than {} s", self.timeout.unwrap_or_default())
            }
            End::Died { console } => bail!(
                "the machine shut down while the command ran; its console:\n{}",
                splat::excerpt(&console, CONSOLE_LINES)
            ),
        }
    }
}
