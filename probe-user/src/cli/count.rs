//! `probe count`.

use super::aggregate::{self, not_followed};
use super::args::{Count, CountFormat};
use super::print::written;
use super::progress;
use anyhow::Result;
use probe_user::trace::{Counter, Counts, TracerBuilder};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

pub(crate) fn run(args: &Count) -> Result<ExitCode> {
    let attach = |builder: TracerBuilder| builder.count_with(progress::bar());
    aggregate::run(&args.probes, attach, Counter::left_out, |counter| {
        let counts = counter.close()?;
        written(print(&counts, args.format), "counts")?;
        summarize(&counts);
        Ok(())
    })
}

/// A probe that was hit, with its members in the order in which they are written.
#[derive(Serialize)]
struct Line<'p> {
    r#type: &'static str,
    provider: &'static str,
    probe: &'p str,
    count: u64,
}

/// Prints what was hit, the most often hit first.
fn print(counts: &Counts, format: CountFormat) -> io::Result<()> {
    let mut hit: Vec<_> = counts.probes.iter().filter(|(_, count)| count.hits > 0).collect();
    hit.sort_by(|(a, a_count), (b, b_count)| {
        b_count.hits.cmp(&a_count.hits).then_with(|| a.spec().name().cmp(b.spec().name()))
    });
    let mut writer = BufWriter::new(io::stdout());
    if matches!(format, CountFormat::Table) {
        writeln!(writer, "{:>12} {:<10} PROBE", "COUNT", "TYPE")?;
    }
    for (probe, count) in hit {
        let (provider, name) = (probe.spec().provider().name(), probe.spec().name());
        match format {
            CountFormat::Table => writeln!(writer, "{:>12} {provider:<10} {name}", count.hits)?,
            CountFormat::Jsonl => {
                let line = Line { r#type: "count", provider, probe: name, count: count.hits };
                let line = serde_json::to_string(&line)?;
                writeln!(writer, "{line}")?;
            }
        }
    }
    writer.flush()
}

/// Says how many there were in all, on standard error.
fn summarize(counts: &Counts) {
    let sum = |of: fn(&probe_user::common::count::Count) -> u64| {
        counts.probes.iter().map(|(_, count)| of(count)).sum::<u64>()
    };
    let (hits, unjudged) = (sum(|count| count.hits), sum(|count| count.unjudged));
    let hit = counts.probes.iter().filter(|(_, count)| count.hits > 0).count();
    let mut text = format!("probe: {hits} hits of {hit} of {} probes", counts.probes.len());
    if unjudged > 0 {
        text += &format!("; of {unjudged} more it is not known whether the condition holds");
    }
    text += &not_followed(counts.not_followed);
    // Nobody may be there to read it, which is no reason to fail.
    let _ = writeln!(io::stderr(), "{text}");
}
