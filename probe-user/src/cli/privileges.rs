//! Giving up the privileges that a trace needs no more.

use super::args::Target;
use anyhow::Result;
use probe_user::perf::Sampler;
use probe_user::trace::{Capabilities, Tracer, privileges};
use std::io::{self, Write};
use std::path::Path;

/// Keeps of the privileges what a trace that runs can still need. Threads that are started later
/// have no more.
pub(crate) fn give_up(tracer: &Tracer, target: &Target, is_sealed: bool) -> Result<()> {
    let kept = if is_sealed {
        privileges::drop_all(tracer)
    } else {
        privileges::keep_for_hotplug(tracer, of_command(!target.command.is_empty()))
    };
    let kept = told(kept)?;
    if is_sealed && !kept.is_empty() {
        // Nobody may be there to read it.
        let _ = writeln!(
            io::stderr(),
            "probe: sealed but for {kept}, which this kernel asks for to read the last line's \
             counts (before 5.19, with the sysctl kernel.unprivileged_bpf_disabled)"
        );
    }
    Ok(())
}

/// The same of what samples can still need.
pub(crate) fn give_up_but_for_samples(sampler: &Sampler, has_command: bool) -> Result<()> {
    told(privileges::keep_for_samples(sampler, of_command(has_command))).map(drop)
}

/// The same, and what it takes to create files in a directory.
pub(crate) fn give_up_but_for_files(
    sampler: &Sampler,
    dir: &Path,
    has_command: bool,
) -> Result<()> {
    let own = of_command(has_command);
    let of_samples = Capabilities::PERFMON | Capabilities::IPC_LOCK | Capabilities::SYS_ADMIN;
    let kept = told(privileges::keep_for_files(dir, own | of_samples))?;
    let of_files = kept.of(Capabilities::DAC_OVERRIDE);
    told(privileges::keep_for_samples(sampler, own | of_files)).map(drop)
}

/// SIGTERM is passed on to the command, which may have become somebody else's.
fn of_command(has_command: bool) -> Capabilities {
    if has_command { Capabilities::KILL } else { Capabilities::NONE }
}

fn told(kept: io::Result<Capabilities>) -> Result<Capabilities> {
    let kept = kept.map_err(|error| anyhow::anyhow!("cannot give up privileges: {error}"))?;
    log::debug!("privileges kept: {kept}");
    Ok(kept)
}
