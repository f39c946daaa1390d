//! Who is traced, and what of all that patterns match.

use super::value;
use clap::ValueHint;
use probe_user::trace::{ProbeSpec, Scope, TraceError, TracedCommand, TracerBuilder};
use std::ffi::OsString;
use std::path::PathBuf;

/// Who is traced.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Target {
    /// Trace this process alone, and end with it
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["command", "all"])]
    pub(crate) pid: Option<u32>,

    /// Trace what the process of --pid forks from now on, too; the end of that process is still the end
    #[arg(long, requires = "pid")]
    pub(crate) children: bool,

    /// Trace a cgroup alone, and those in it: a directory like /sys/fs/cgroup/user.slice
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) cgroup: Option<PathBuf>,

    /// Trace this thread alone
    #[arg(short, long, value_name = "TID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tid: Option<u32>,

    /// Trace threads of this name alone (up to 15 bytes)
    #[arg(short = 'n', long, value_name = "NAME", value_parser = value::comm)]
    pub(crate) comm: Option<String>,

    /// Trace this user alone: a number or a name
    #[arg(short, long, value_name = "USER", value_parser = value::user)]
    pub(crate) uid: Option<u32>,

    /// Trace everybody, not the command and its descendants alone
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Trace this command and its descendants, from before its first instruction until it exits,
    /// and exit with its status. Its standard output goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl Target {
    /// The command, if there is one, held until the probes are attached.
    pub(crate) fn hold(&self) -> Result<Option<TracedCommand>, TraceError> {
        match self.command.as_slice() {
            [] => Ok(None),
            command => TracedCommand::hold(command).map(Some),
        }
    }

    /// Traces nobody else. The command is held.
    pub(crate) fn narrow(
        &self,
        builder: TracerBuilder,
        command: Option<&TracedCommand>,
    ) -> TracerBuilder {
        let scope = match (self.pid, command) {
            (Some(pid), _) if self.children => Scope::Descendants(pid),
            (Some(pid), _) => Scope::Process(pid),
            (None, Some(command)) if !self.all => Scope::Descendants(command.pid()),
            _ => Scope::Everybody,
        };
        let mut builder = builder.scope(scope);
        if let Some(cgroup) = &self.cgroup {
            builder = builder.cgroup(cgroup);
        }
        if let Some(tid) = self.tid {
            builder = builder.thread(tid);
        }
        if let Some(comm) = &self.comm {
            builder = builder.named(comm);
        }
        if let Some(uid) = self.uid {
            builder = builder.user(uid);
        }
        builder
    }
}

/// Which of a pattern's matches are probed.
#[derive(Debug, clap::Args)]
pub(crate) struct Choice {
    /// Leave out what matches, of all that patterns match
    #[arg(short = 'x', long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,

    /// Probe more than 10,000 functions, 1,000 where each is attached by itself, or 500 where each takes a program
    #[arg(long)]
    pub(crate) force: bool,
}

impl Choice {
    /// Has what is meant of them probed.
    pub(crate) fn probe(
        &self,
        probes: &[ProbeSpec],
        builder: TracerBuilder,
    ) -> Result<TracerBuilder, TraceError> {
        let builder = probes.iter().cloned().fold(builder, TracerBuilder::probe).force(self.force);
        self.exclude.iter().try_fold(builder, |builder, glob| builder.exclude(glob))
    }
}
