//! A command that is traced from its first instruction.

use crate::binary;
use crate::error::TraceError;
use crate::object::namespaces;
use probe_sys::escape::Escaped;
use probe_sys::process::HeldChild;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A child process that waits to execute its command until the probes are attached.
///
/// Its standard output goes to this process's standard error, which leaves the standard output to
/// the events.
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
    /// If `command` is empty, or the child cannot be forked, or would be in another PID namespace.
    pub fn hold(command: &[OsString]) -> Result<Self, TraceError> {
        let program = command.first().ok_or(TraceError::NoProbe)?;
        namespaces::check_for_children()?;
        let failed = |source| failed_to_run(program, source);
        let output = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        // Otherwise the child would try each folder in `PATH`, and its failed calls would be traced.
        let found = program.to_str().filter(|name| !name.contains('/')).and_then(binary::program);
        let mut child = Command::new(found.as_deref().unwrap_or(program.as_ref()));
        child.arg0(program).args(&command[1..]).stdout(Stdio::from(output));
        let child = HeldChild::spawn(child).map_err(failed)?;
        Ok(Self { child, program: program.clone() })
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets the child execute its program.
    ///
    /// # Errors
    ///
    /// If it cannot be executed: for instance, the file does not exist or is not executable.
    pub fn release(self) -> Result<Child, TraceError> {
        let Self { child, program } = self;
        child.release().map_err(|source| failed_to_run(&program, source))
    }
}

fn failed_to_run(program: &OsStr, source: std::io::Error) -> TraceError {
    TraceError::Command { command: Escaped(program.as_bytes()).to_string(), source }
}
