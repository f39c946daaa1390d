//! `cargo xtask bench tracer`: the tracer `probe` beside its peers, on this machine's kernel.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use super::build;
use crate::run::build_probe;
use crate::workspace::environment;
use crate::{apt, say};

/// The first of the options that says so.
pub(super) const NAME: &str = "tracer";

/// The peers, by Debian's names.
const PEERS: [&str; 3] = ["bpftrace", "linux-perf", "bpfcc-tools"];

/// The command that measures.
pub(super) fn command(options: &[OsString]) -> Result<Command> {
    for peer in PEERS {
        if let Err(error) = apt::install(&[peer]) {
            // It may be there all the same; if it is not, the benchmark names it.
            say::line(format_args!("{peer} is not installed: {error:#}"));
        }
    }
    let probe = build_probe()?;
    let mut command = Command::new(build(&[])?);
    command.env_clear().envs(environment());
    command.args(options).arg("--probe").arg(probe);
    Ok(command)
}
