//! Giving up the privileges that a trace needs no more.

use super::args::Target;
use anyhow::Result;
use probe_user::trace::{Capabilities, Tracer, privileges};
use std::io::{self, Write};

/// Keeps of the privileges what a trace that runs can still need. Threads that are started later
/// have no more.
pub(crate) fn give_up(tracer: &Tracer, target: &Target, is_sealed: bool) -> Result<()> {
    let kept = if is_sealed {
        privileges::drop_all(tracer)
    } else {
        // SIGTERM is passed on to the command, which may have become somebody else's.
        let also = if target.command.is_empty() { Capabilities::NONE } else { Capabilities::KILL };
        privileges::keep_for_hotplug(tracer, also)
    };
    let kept = kept.map_err(|error| anyhow::anyhow!("cannot give up privileges: {error}"))?;
    log::debug!("privileges kept: {kept}");
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
