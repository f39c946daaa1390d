//! A command that is traced from before its first instruction.

use super::error::TraceError;
use crate::escape::Escaped;
use crate::sys::process::HeldChild;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

/// A child process that waits to execute its command until the probes are attached.
///
/// What it writes to its standard output goes to this process' standard error, so that events have
/// the standard output for themselves.
#[derive(Debug)]
pub struct TracedCommand {
    child: HeldChild,
    program: OsString,
}

impl TracedCommand {
    /// Forks a child for `command`: a program and its arguments.
    ///
    /// # Errors
    ///
    /// If there is no program, or the child cannot be forked.
    pub fn hold(command: &[OsString]) -> Result<Self, TraceError> {
        let program = command.first().ok_or(TraceError::NoProbe)?;
        let failed = |source| failed_to_run(program, source);
        let output = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let mut child = Command::new(program);
        child.args(&command[1..]).stdout(Stdio::from(output));
        let child = HeldChild::spawn(child).map_err(failed)?;
        Ok(Self { child, program: program.clone() })
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets it execute its program.
    ///
    /// # Errors
    ///
    /// If it cannot: there is no such file, or it is not executable.
    pub fn release(self) -> Result<Child, TraceError> {
        let Self { child, program } = self;
        child.release().map_err(|source| failed_to_run(&program, source))
    }
}

fn failed_to_run(program: &OsStr, source: std::io::Error) -> TraceError {
    TraceError::Command { command: Escaped(program.as_bytes()).to_string(), source }
}
