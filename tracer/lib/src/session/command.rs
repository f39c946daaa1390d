//! A command that is traced from its first instruction.

use crate::binary;
use crate::error::TraceError;
use crate::kernel::capabilities::Capabilities;
use crate::object::namespaces;
use probe_sys::escape::Escaped;
use probe_sys::process::{HeldChild, Identity, User};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A child process that waits to execute its command until the probes are attached.
///
/// Its standard output goes to this process's standard error, which leaves the standard output to
/// the events.
#[derive(Debug)]
pub struct TracedCommand {
    child: HeldChild,
    /// The program as errors show it.
    program: OsString,
    /// The file that the child will execute.
    file: PathBuf,
    user: Option<OsString>,
}

impl TracedCommand {
    /// Forks a child for `command`: a program and its arguments.
    ///
    /// With a user, the program has the ids of the user and of all the user's groups, and no privileges of this process. In
    /// its environment, `HOME`, `SHELL`, `USER` and `LOGNAME` are the user's, and the rest is that of this process.
    ///
    /// # Errors
    ///
    /// If `command` is empty, or the child cannot be forked, or would be in another PID namespace; and for a user, without
    /// `CAP_SETUID` and `CAP_SETGID`.
    pub fn hold(command: &[OsString], user: Option<&User>) -> Result<Self, TraceError> {
        let program = command.first().ok_or(TraceError::NoCommand)?;
        namespaces::check_for_children()?;
        let name = user.map(|user| user.name.clone());
        let failed = |program: &OsStr, source| failed_to_run(program, name.as_deref(), source);
        let identity = user.map(identity_of).transpose().map_err(|error| failed(program, error))?;
        let output = io::stderr().as_fd().try_clone_to_owned();
        let output = output.map_err(|error| failed(program, error))?;
        // Otherwise the child would try each folder in `PATH`, and its failed calls would be traced.
        let path = match program.as_bytes().contains(&b'/') {
            true => program.clone(),
            false => match binary::program(program) {
                Some(found) => found.into(),
                None => return Err(failed(program, Errno::NOENT.into())),
            },
        };
        // The child would report the same, but only when everything is attached and the output has begun.
        can_run(Path::new(&path)).map_err(|error| failed(program, error))?;
        // A user may not be able to execute what is found here, and something else of that name.
        let shown = if user.is_some() { &path } else { program };
        let mut child = Command::new(&path);
        child.arg0(program).args(&command[1..]).stdout(Stdio::from(output));
        if let Some(User { name, home, shell, .. }) = user {
            child.env("HOME", home).env("SHELL", shell).env("USER", name).env("LOGNAME", name);
        }
        let child = HeldChild::spawn_as(child, identity).map_err(|error| failed(shown, error))?;
        Ok(Self { child, program: shown.clone(), file: path.into(), user: name })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
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
        let Self { child, program, user, .. } = self;
        child.release().map_err(|source| failed_to_run(&program, user.as_deref(), source))
    }
}

/// Checks that a file can be executed.
fn can_run(file: &Path) -> io::Result<()> {
    access(file, Access::EXEC_OK)?;
    if file.is_dir() { Err(Errno::ACCESS.into()) } else { Ok(()) }
}

/// What the command runs as. An error here is easier to understand than one of the child.
fn identity_of(user: &User) -> io::Result<Identity> {
    let needed = Capabilities::SETUID | Capabilities::SETGID;
    if !Capabilities::effective()?.contains(needed) {
        return Err(io::Error::other(format!("this requires {needed}, or root")));
    }
    user.identity()
}

fn failed_to_run(program: &OsStr, user: Option<&OsStr>, source: io::Error) -> TraceError {
    let escaped = |text: &OsStr| Escaped(text.as_bytes()).to_string();
    TraceError::Command { command: escaped(program), user: user.map(escaped), source }
}
