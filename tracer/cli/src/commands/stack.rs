//! `probe stack`.

use crate::args::Stack;
use crate::output::progress;
use crate::output::stacks::{Stacks, titled};
use crate::running::follow::{Extent, follow};
use anyhow::Result;
use probe_tracer::TracerBuilder;
use std::process::ExitCode;

pub(crate) fn run(args: &Stack) -> Result<ExitCode> {
    let probes = &args.probes;
    let extent = Extent {
        target: &probes.target,
        duration: probes.duration,
        seal: probes.seal,
        requires_complete: false,
        flight: None,
        to_stdout: true,
        is_silent: true,
    };
    let attach = |builder: TracerBuilder| {
        let builder = stacks(builder.options(args.ring.options()), args);
        probes.choose(builder)?.attach_with(progress::bar())
    };
    follow(&extent, attach, |attached, symbols| {
        let title = titled(probes.probes.iter());
        Ok(Stacks::new(attached, symbols, args.format, title))
    })
}

/// Selects the requested stacks; by default, the kernel's.
fn stacks(builder: TracerBuilder, args: &Stack) -> TracerBuilder {
    let builder = builder.stacks_only();
    let builder = if args.user_stack { builder.user_stacks() } else { builder };
    if args.kernel_stack || !args.user_stack { builder.kernel_stacks() } else { builder }
}
