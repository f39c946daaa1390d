//! `cargo xtask vm`: any command in any of the kernels.

use std::ffi::OsString;
use std::iter::once;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cache::Cache;
use crate::host::{CONSOLE_LINES, Host};
use crate::kernel::Series;
use crate::machine::{End, Options, Sinks};
use crate::workspace::Workspace;
use crate::{module, splat};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// 5.10, 6.1, 6.12 or 7.3
    #[arg(long)]
    kernel: Series,
    #[arg(long, default_value_t = 4)]
    cpus: u32,
    #[arg(long, default_value = "1G")]
    memory: String,
    /// Seconds that the command may take
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Emulate, with a nanosecond of the machine's time for each instruction; tests that want an exact time
    /// are told so
    #[arg(long)]
    icount: bool,
    /// Build the kernel module of the tests, and tell the command where it is
    #[arg(long)]
    module: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let cache = Cache::open()?;
        let host = Host::set_up(&cache)?;
        let kernel = host.kernel(&cache, self.kernel)?;
        let options = Options {
            cpus: self.cpus,
            memory: self.memory,
            icount: self.icount,
            limit: self.timeout.map(Duration::from_secs),
            folder: std::env::current_dir()?,
            passes_signals: true,
        };
        let mut command = self.command;
        let mut variables = Vec::<OsString>::new();
        if self.icount {
            variables.push("PROBE_EXACT_TIME=1".into());
        }
        if self.module {
            let folder = Workspace::load()?.target().join("xtask");
            let Some(module) = module::build(&cache, &kernel, &folder)? else {
                bail!("this machine builds no modules for kernel {}", kernel.series);
            };
            variables.push(module::variable(&module));
        }
        if !variables.is_empty() {
            command.splice(..0, once("env".into()).chain(variables));
        }
        finish(host.run(&kernel, &options, &command, || Ok(Sinks::own()))?, options.limit)
    }
}

/// The exit status that a command in a machine gives xtask.
pub(crate) fn finish(end: End, limit: Option<Duration>) -> Result<ExitCode> {
    match end {
        End::Exit(status) => Ok(ExitCode::from(status)),
        End::Signalled(signal) => Ok(ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))),
        End::TimedOut => {
            bail!("the command ran longer than {} s", limit.unwrap_or_default().as_secs())
        }
        End::Died { console } => {
            bail!(
                "the machine went off while the command ran; its console:\n{}",
                splat::excerpt(&console, CONSOLE_LINES)
            )
        }
    }
}
