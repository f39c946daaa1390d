//! Counted stacks.

use super::{Output, stdout};
use probe_sys::hint::counted;
use probe_tracer::output::StackFormat;
use probe_tracer::{Account, Probe, StackCounts, Symbols};
use probe_user::common::RawRecord;
use probe_user::{Consumer, CpuChange, Malformed};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

/// The probed names, as a title.
pub(crate) fn titled(specs: impl Iterator<Item: ToString>) -> String {
    specs.map(|spec| spec.to_string()).collect::<Vec<_>>().join(" ")
}

/// Counts stacks and prints them at the end.
pub(crate) struct Stacks {
    counts: StackCounts,
    format: StackFormat,
    title: String,
}

impl Stacks {
    pub(crate) fn new(
        probes: Vec<Probe>,
        symbols: Symbols,
        format: StackFormat,
        title: String,
    ) -> Self {
        Self { counts: StackCounts::new(probes, symbols), format, title }
    }

    /// Limits the number of hits that are counted.
    pub(crate) fn limit(self, hits: Option<u64>) -> Self {
        Self { counts: self.counts.limit(hits), ..self }
    }

    pub(crate) fn print(&mut self) -> io::Result<()> {
        let mut writer = BufWriter::new(stdout());
        self.format.write(&self.counts.stacks(), &self.title, &mut writer)?;
        writer.flush()
    }
}

impl Consumer for Stacks {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.counts.record(cpu, record)
    }

    fn accepts(&mut self) -> ControlFlow<()> {
        self.counts.accepts()
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.counts.caught_up()
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.counts.malformed(malformed)
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        self.counts.cpu_changed(change);
    }
}

impl Output for Stacks {
    const WHAT: &str = "stacks";

    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &Account) -> io::Result<()> {
        self.print()
    }

    fn amount(&self) -> String {
        counted(self.counts.hits(), "hit")
    }
}
