//! Giving up privileges that a trace no longer needs.

use crate::args::TargetArgs;
use crate::output::directory::Directory;
use crate::output::print::report;
use anyhow::Result;
use probe_perf::Sampler;
use probe_tracer::{Capabilities, Tracer, privileges};
use std::io;

/// Keeps only the privileges that a running trace may still need. Threads started later have no others.
pub(crate) fn give_up(tracer: &Tracer, target: &TargetArgs, is_sealed: bool) -> Result<()> {
    let kept = if is_sealed {
        privileges::drop_all(tracer)
    } else {
        privileges::keep_for_hotplug(tracer, of_command(!target.command.is_empty()))
    };
    let kept = logged(kept)?;
    if is_sealed && !kept.is_empty() {
        report(format_args!(
            "sealed except for {kept}, which this kernel requires for reading the final counts \
             (before 5.19, with the sysctl kernel.unprivileged_bpf_disabled)"
        ));
    }
    Ok(())
}

/// Keeps only the privileges that sampling, and creating files in a directory, may still need.
pub(crate) fn give_up_but_for_samples(
    sampler: &Sampler,
    directory: Option<&Directory>,
    has_command: bool,
) -> Result<()> {
    let own = of_command(has_command);
    let Some(directory) = directory else {
        return logged(privileges::keep_for_samples(sampler, own)).map(drop);
    };
    let of_samples = Capabilities::PERFMON | Capabilities::IPC_LOCK | Capabilities::SYS_ADMIN;
    let kept = logged(privileges::keep_for_files(directory, own | of_samples))?;
    let of_files = kept.of(Capabilities::DAC_OVERRIDE);
    logged(privileges::keep_for_samples(sampler, own | of_files)).map(drop)
}

/// SIGTERM is passed on to the command, which may run as another user by then.
fn of_command(has_command: bool) -> Capabilities {
    if has_command { Capabilities::KILL } else { Capabilities::NONE }
}

fn logged(kept: io::Result<Capabilities>) -> Result<Capabilities> {
    let kept = kept.map_err(|error| anyhow::anyhow!("cannot give up privileges: {error}"))?;
    log::debug!("privileges kept: {kept}");
    Ok(kept)
}
