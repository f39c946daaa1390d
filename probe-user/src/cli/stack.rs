//! `probe stack`.

use super::args::Stack;
use super::follow::{Extent, follow};
use super::output::Output;
use super::progress;
use anyhow::Result;
use probe_user::common::RawRecord;
use probe_user::trace::output::StackFormat;
use probe_user::trace::{Account, Probe, StackCounts, Symbols, TracerBuilder};
use probe_user::{Consumer, Loss, Malformed};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

pub(crate) fn run(args: &Stack) -> Result<ExitCode> {
    let probes = &args.probes;
    let extent = Extent {
        target: &probes.target,
        duration: probes.duration,
        is_sealed: false,
        flight: None,
    };
    let attach = |builder: TracerBuilder| {
        let builder = stacks(builder.options(args.ring.options()), args);
        probes.choose(builder)?.attach_with(progress::bar())
    };
    follow(&extent, attach, |attached, symbols| {
        let title = titled(probes.probes.iter());
        Ok(Ways::new(attached, symbols, args.format.into(), title))
    })
}

/// Has the stacks told that were asked for: by default, the kernel's.
fn stacks(builder: TracerBuilder, args: &Stack) -> TracerBuilder {
    let builder = builder.stacks_only();
    let builder = if args.user_stack { builder.user_stacks() } else { builder };
    if args.kernel_stack || !args.user_stack { builder.kernel_stacks() } else { builder }
}

/// What was probed, as a title.
pub(crate) fn titled(specs: impl Iterator<Item: ToString>) -> String {
    specs.map(|spec| spec.to_string()).collect::<Vec<_>>().join(" ")
}

/// Counts stacks, to print them at the end.
pub(crate) struct Ways {
    counts: StackCounts,
    format: StackFormat,
    title: String,
}

impl Ways {
    pub(crate) fn new(
        probes: Vec<Probe>,
        symbols: Symbols,
        format: StackFormat,
        title: String,
    ) -> Self {
        Self { counts: StackCounts::new(probes, symbols), format, title }
    }

    /// Counts no more hits than so many.
    pub(crate) fn limit(self, hits: Option<u64>) -> Self {
        Self { counts: self.counts.limit(hits), ..self }
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        let mut writer = BufWriter::new(io::stdout());
        self.format.write(&self.counts.ways(), &self.title, &mut writer)?;
        writer.flush()
    }
}

impl Consumer for Ways {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.counts.record(cpu, record)
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.counts.lost(loss)
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.counts.malformed(malformed)
    }
}

impl Output for Ways {
    const WHAT: &str = "stacks";

    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &Account) -> io::Result<()> {
        self.print()
    }

    fn told(&self) -> String {
        format!("{} hits", self.counts.hits())
    }
}
