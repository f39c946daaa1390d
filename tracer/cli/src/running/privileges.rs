//! Giving up privileges that are no longer needed. Threads started later have no others.

use crate::args::Seal;
use crate::output::directory::Directory;
use crate::output::print::report;
use anyhow::Result;
use probe_perf::Sampler;
use probe_tracer::privileges::{self, Armed, Confinement};
use probe_tracer::{Capabilities, SymbolAccess, Tracer};
use rustix::process::geteuid;
use std::io;
use std::os::fd::AsFd;

/// Whether a command runs that SIGTERM is passed on to, perhaps as another user by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    ACommand,
    NoCommand,
}

impl Running {
    pub(crate) fn of(command: &[impl Sized]) -> Self {
        if command.is_empty() { Self::NoCommand } else { Self::ACommand }
    }

    fn needs(self) -> Capabilities {
        match self {
            Self::ACommand => Capabilities::KILL,
            Self::NoCommand => Capabilities::NONE,
        }
    }

    fn confinement(self) -> Confinement<'static> {
        Confinement::default().signals(self == Self::ACommand)
    }
}

impl Seal {
    /// What names may be looked up with.
    pub(crate) fn symbol_access(self) -> SymbolAccess {
        if self.is_sealed { SymbolAccess::Kernel } else { SymbolAccess::Processes }
    }

    /// What is kept for a command. Without a seal, it may become any user. With one, it is root's if this process was.
    fn for_command(self, running: Running, has_left_root: bool) -> Capabilities {
        if self.is_sealed && !has_left_root { Capabilities::NONE } else { running.needs() }
    }

    /// Reports what the seal does not cover.
    fn report(self, kept: Capabilities, why: &str) {
        if self.is_sealed && !kept.is_empty() {
            report(format_args!("sealed except for {kept}, which {why}"));
        }
    }
}

/// Keeps only the privileges that a trace may need.
pub(crate) fn give_up(tracer: &Tracer, seal: Seal, running: Running) -> Result<()> {
    if seal.is_sealed {
        return give_up_but_to_finish(tracer, seal, running);
    }
    let also = seal.for_command(running, leave_root()?);
    logged(privileges::keep_for_hotplug(tracer, also))?;
    confine(running.confinement())
}

/// Keeps only the privileges that reading the result takes.
pub(crate) fn give_up_but_to_finish(
    armed: &impl Armed,
    seal: Seal,
    running: Running,
) -> Result<()> {
    let also = seal.for_command(running, leave_root()?);
    let kept = logged(privileges::keep_to_finish(armed, also))?;
    seal.report(
        kept.without(also),
        "this kernel requires for reading the final counts (before 5.19, with the sysctl \
         kernel.unprivileged_bpf_disabled)",
    );
    confine(running.confinement())
}

/// Keeps only the privileges that sampling, and creating files in a directory, may need.
pub(crate) fn give_up_but_for_samples(
    sampler: &Sampler,
    directory: Option<&Directory>,
    seal: Seal,
    running: Running,
) -> Result<()> {
    // What is created in a directory has to belong to the user of `probe`.
    let has_left_root = directory.is_none() && leave_root()?;
    let own = seal.for_command(running, has_left_root);
    let of_samples = Capabilities::PERFMON | Capabilities::IPC_LOCK | Capabilities::SYS_ADMIN;
    let of_files = match directory {
        None => Capabilities::NONE,
        Some(directory) => logged(privileges::keep_for_files(directory, own | of_samples))?
            .of(Capabilities::DAC_OVERRIDE),
    };
    let kept = own | of_files;
    if seal.is_sealed {
        logged(privileges::keep_only(kept))?;
        seal.report(of_files, "creating files in this directory requires");
    } else {
        logged(privileges::keep_for_samples(sampler, kept))?;
    }
    confine(running.confinement().files_in(directory.map(AsFd::as_fd)))
}

/// Keeps only the privileges that reading the names and types of probes takes.
pub(crate) fn give_up_but_to_look() -> Result<()> {
    // Mounting takes a privilege that reading does not take. Whatever needs tracefs reports its absence.
    let _ = probe_perf::tracefs::root();
    // So does starting another process. Whatever needs it reports its absence.
    let _ = probe_tracer::start_symbol_reader();
    let also = Capabilities::SYSLOG | Capabilities::CHECKPOINT_RESTORE;
    logged(privileges::keep_to_read(also))?;
    confine(Confinement::default().reads_all_files())
}

/// Keeps no privileges.
pub(crate) fn give_up_all() -> Result<()> {
    leave_root()?;
    logged(privileges::keep_only(Capabilities::NONE))?;
    confine(Confinement::default())
}

/// Denies the process what it does not do from now on.
fn confine(confinement: Confinement<'_>) -> Result<()> {
    let confined = confinement.begin().map_err(refused)?;
    log::debug!("confined by: {confined}");
    Ok(())
}

/// Leaves root's identity. Returns whether it was root's until now.
fn leave_root() -> Result<bool> {
    privileges::leave_root().map_err(refused)
}

fn logged(kept: io::Result<Capabilities>) -> Result<Capabilities> {
    let kept = kept.map_err(refused)?;
    log::debug!("privileges kept: {kept}, as user {}", geteuid().as_raw());
    Ok(kept)
}

fn refused(error: io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot give up privileges: {error}")
}
