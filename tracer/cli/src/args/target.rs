//! Targets, and the choice among the matches of patterns.

use super::value::{self, PidList};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ValueEnum, ValueHint};
use probe_sys::escape::Escaped;
use probe_tracer::{ProbeSpec, Target, TraceError, TracedCommand, TracerBuilder, User};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The target of a trace.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TargetArgs {
    /// Trace only this process, or up to eight processes, like 17,18; end with the last of them
    #[arg(short, long, value_name = "PID,...", value_parser = value::pids,
        conflicts_with_all = ["command", "all"])]
    pub(crate) pid: Option<PidList>,

    /// Also trace the children that the one process of --pid forks from now on; the trace still ends with that process
    #[arg(long, requires = "pid")]
    pub(crate) children: bool,

    /// Trace only this cgroup (v2) and its descendants, like /sys/fs/cgroup/user.slice
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) cgroup: Option<PathBuf>,

    /// Trace only this thread, and end with it
    #[arg(short, long, value_name = "TID", value_parser = value::thread)]
    pub(crate) tid: Option<u32>,

    /// Trace only threads of this name (up to 15 bytes)
    #[arg(short = 'n', long, value_name = "NAME", value_parser = OsStringValueParser::new().try_map(value::comm))]
    pub(crate) comm: Option<OsString>,

    /// Trace only this user, by number or by name
    #[arg(short, long, value_name = "USER", value_parser = value::uid)]
    pub(crate) uid: Option<u32>,

    /// Trace the whole system, even with a command
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Trace only this command and its descendants, from before its first instruction until it exits,
    /// and exit with its status. Its standard output goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    /// Run the command as this user, by number or by name, with the user's groups and none of your privileges
    #[arg(long, value_name = "USER", value_parser = value::user, requires = "command")]
    pub(crate) user: Option<User>,

    /// What happens to the command if the trace ends before it
    #[arg(long, value_enum, value_name = "ACTION", default_value_t, requires = "command")]
    pub(crate) at_end: AtEnd,
}

/// What happens to a command that still runs when the trace has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AtEnd {
    /// Send it SIGTERM
    #[default]
    Terminate,
    /// Let it run on
    Leave,
    /// Wait for its end, without tracing it any longer
    Wait,
}

impl TargetArgs {
    /// The command, if there is one, stopped until the probes are attached.
    pub(crate) fn hold(&self) -> Result<Option<TracedCommand>, TraceError> {
        match self.command.as_slice() {
            [] => Ok(None),
            command => TracedCommand::hold(command, self.user.as_ref()).map(Some),
        }
    }

    /// The processes to trace, if they are given.
    pub(crate) fn pids(&self) -> &[u32] {
        self.pid.as_ref().map_or(&[], |list| &list.0)
    }

    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.children && self.pids().len() != 1 {
            return Err("--children takes one process: give --pid one PID");
        }
        // The command's own threads do not exist yet.
        if self.tid.is_some() && !self.command.is_empty() && !self.all {
            return Err(
                "--tid selects a thread outside the command: give -a to trace it while the command runs",
            );
        }
        Ok(())
    }

    /// The processes whose stacks the trace can have.
    pub(crate) fn processes(&self, command: Option<&TracedCommand>) -> probe_perf::Target {
        match (self.pids(), command, self.tid) {
            ([], Some(command), None) if !self.all => {
                probe_perf::Target::ProcessAndChildren(command.pid())
            }
            ([], _, Some(tid)) => probe_perf::Target::Thread(tid),
            ([], ..) => probe_perf::Target::System,
            (pids, ..) => probe_perf::Target::ProcessesAndChildren(pids.to_vec()),
        }
    }

    /// Limits the trace to this target. The command is stopped before its first instruction.
    pub(crate) fn narrow(
        &self,
        builder: TracerBuilder,
        command: Option<&TracedCommand>,
    ) -> TracerBuilder {
        let builder = match (self.pids(), command) {
            (&[pid], _) if self.children => builder.target(Target::Descendants(pid)),
            (&[pid], _) => builder.target(Target::Process(pid)),
            ([], Some(command)) if !self.all => builder.command(command),
            ([], _) => builder.target(Target::All),
            (several, _) => builder.target(Target::All).processes(several),
        };
        // Each of these is an iterator of at most one value.
        let builder = self.cgroup.iter().fold(builder, TracerBuilder::cgroup);
        let builder = self.tid.into_iter().fold(builder, TracerBuilder::thread);
        let comm = self.comm.as_deref().map(OsStr::as_bytes);
        if let Some(name) = comm.filter(|name| name.iter().any(|byte| b"*?".contains(byte))) {
            let name = Escaped(name);
            log::warn!(
                "-n selects threads of exactly this name; for a pattern, write 'PROBE/comm ~ \"{name}\"/'"
            );
        }
        let builder = comm.into_iter().fold(builder, TracerBuilder::named);
        self.uid.into_iter().fold(builder, TracerBuilder::user)
    }
}

/// The choice among a pattern's matches.
#[derive(Debug, clap::Args)]
pub(crate) struct Choice {
    /// Leave out whatever also matches this pattern
    #[arg(short = 'x', long, value_name = "GLOB", value_parser = value::glob)]
    pub(crate) exclude: Vec<String>,

    /// Lift the limit of 10,000 functions, of 1,000 if they are attached one by one, or of 500 if each needs a program
    #[arg(long)]
    pub(crate) no_limit: bool,

    /// Probe returns even where this crashes the program: in Go programs, and in setjmp and similar functions
    #[arg(long)]
    pub(crate) unsafe_returns: bool,
}

impl Choice {
    /// Adds the chosen probes to the builder.
    pub(crate) fn probe(
        &self,
        probes: &[ProbeSpec],
        builder: TracerBuilder,
    ) -> Result<TracerBuilder, TraceError> {
        let builder = builder.no_limit(self.no_limit).unsafe_returns(self.unsafe_returns);
        let builder = probes.iter().cloned().fold(builder, TracerBuilder::probe);
        self.exclude.iter().try_fold(builder, |builder, glob| builder.exclude(glob))
    }
}
