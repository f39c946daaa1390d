//! `probe count` and `probe latency`: hits and calls are aggregated in the kernel until the trace ends.

use crate::args::{Aggregate, Count, CountFormat, Latency};
use crate::output::ledger::{dropped, follow_returns, not_counted, report_left_out, skipped};
use crate::output::print::{report, written};
use crate::output::{progress, stdout};
use crate::running::ending::{Ending, Watched};
use crate::running::privileges::{self, Running};
use anyhow::Result;
use probe_sys::escape::Escaped;
use probe_sys::hint::counted;
use probe_tracer::output::{Beside, LatencyFormat, json_line, labels};
use probe_tracer::privileges::Armed;
use probe_tracer::{
    Counts, Detaching, HitCounter, Latencies, LeftOut, Probe, Stopwatch, TraceError, TracerBuilder,
};
use serde::Serialize;
use std::cmp::Reverse;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Attaches the probes, waits for the end, and then calls `finish` to print the result.
fn run<A: Armed>(
    args: &Aggregate,
    attach: impl FnOnce(TracerBuilder) -> Result<A, TraceError>,
    left_out: impl FnOnce(&A) -> &[LeftOut],
    finish: impl FnOnce(A) -> Result<Detaching>,
) -> Result<ExitCode> {
    let ending = Ending::prepare(&args.target)?;
    let attached = attach(args.choose(ending.narrow(&args.target))?)?;
    report_left_out(left_out(&attached));
    let watched = Watched::open(&args.target)?;
    privileges::give_up_but_to_finish(&attached, args.seal, Running::of(&args.target.command))?;
    ending.watch(watched)?;
    ending.watch_output()?;
    let begun = ending.begin(args.duration)?;
    begun.announce();
    begun.stop().wait()?;
    // The probes are detached last: they count nothing any more, and it may take long.
    let _detaching = finish(attached)?;
    begun.exit_code(false)
}

/// The number of tasks that could not be followed, as the end of a sentence.
fn not_followed(tasks: u64) -> String {
    match tasks {
        0 => String::new(),
        _ => format!("; {} not followed (no room)", counted(tasks, "task")),
    }
}

/// Reports the hits that the kernel did not pass on.
fn report_skipped<'p>(hits: Option<u64>, probes: impl IntoIterator<Item = &'p Probe> + Clone) {
    dropped(probes.clone()).into_iter().for_each(report);
    let returns = follow_returns(probes);
    match hits {
        None => report(not_counted(returns)),
        hits => skipped(hits, returns).into_iter().for_each(report),
    }
}

pub(crate) fn count(args: &Count) -> Result<ExitCode> {
    let attach = |builder: TracerBuilder| builder.count_with(progress::bar());
    run(&args.probes, attach, HitCounter::left_out, |counter| {
        let (counts, detaching) = counter.finish()?;
        let printed = print_counts(&counts, args.format);
        summarize_counts(&counts);
        written(printed, "counts").map(|()| detaching)
    })
}

/// A probe that was hit; its members are in the order of the output.
#[derive(Serialize)]
struct Line<'p> {
    r#type: &'static str,
    provider: &'static str,
    probe: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'p str>,
    count: u64,
}

/// Prints the probes that were hit, the most frequent first.
fn print_counts(counts: &Counts, format: CountFormat) -> io::Result<()> {
    let labels = labels(counts.probes.iter().map(|(probe, _)| probe), Beside::Type);
    let hit = counts.probes.iter().zip(&labels);
    let mut hit: Vec<_> = hit
        .filter(|((_, count), _)| count.hits > 0)
        .map(|((probe, count), label)| (count.hits, label, probe.spec()))
        .collect();
    hit.sort_by_key(|&(hits, label, _)| (Reverse(hits), label));
    let mut writer = BufWriter::new(stdout());
    if matches!(format, CountFormat::Table) {
        writeln!(writer, "{:>12} {:<10} PROBE", "COUNT", "TYPE")?;
    }
    for (count, label, spec) in hit {
        let (provider, site) = (spec.provider().name(), spec.site());
        match format {
            CountFormat::Table => {
                let label = Escaped(label.as_bytes());
                writeln!(writer, "{count:>12} {provider:<10} {label}")?;
            }
            CountFormat::Jsonl => {
                let spec = (*label != site).then_some(&**label);
                let line = Line { r#type: "count", provider, probe: &site, spec, count };
                writer.write_all(json_line(&line).as_bytes())?;
            }
        }
    }
    writer.flush()
}

/// Prints the totals on standard error.
fn summarize_counts(counts: &Counts) {
    let sum = |of: fn(&probe_tracer_common::count::Count) -> u64| {
        counts.probes.iter().map(|(_, count)| of(count)).sum::<u64>()
    };
    let (hits, unjudged) = (sum(|count| count.hits), sum(|count| count.unjudged));
    let hit = counts.probes.iter().filter(|(_, count)| count.hits > 0).count();
    let probes = counted(counts.probes.len() as u64, "probe");
    let mut text = format!("{} of {hit} of {probes}", counted(hits, "hit"));
    if unjudged > 0 {
        text += &format!("; the predicate could not be evaluated for {unjudged} more");
    }
    text += &not_followed(counts.not_followed);
    report_skipped(counts.skipped, counts.probes.iter().map(|(probe, _)| probe));
    report(text);
}

pub(crate) fn latency(args: &Latency) -> Result<ExitCode> {
    let attach = |builder: TracerBuilder| builder.time_with(progress::bar());
    run(&args.probes, attach, Stopwatch::left_out, |stopwatch| {
        let (latencies, detaching) = stopwatch.finish()?;
        let printed = print_latencies(&latencies, args.format);
        summarize_latencies(&latencies);
        written(printed, "latencies").map(|()| detaching)
    })
}

fn print_latencies(latencies: &Latencies, format: LatencyFormat) -> io::Result<()> {
    let mut writer = BufWriter::new(stdout());
    latencies.write(format, &mut writer)?;
    writer.flush()
}

/// Prints the number of calls, and what was not timed, on standard error.
fn summarize_latencies(latencies: &Latencies) {
    let probes = &latencies.probes;
    let timed = probes.iter().map(|(_, latency)| latency.histogram.calls());
    let called = timed.clone().filter(|calls| *calls > 0).count();
    let (timed, untimed) =
        (timed.sum::<u64>(), probes.iter().map(|(_, latency)| latency.untimed).sum::<u64>());
    let probes_in_all = counted(probes.len() as u64, "probe");
    let mut text = format!("{} at {called} of {probes_in_all}", counted(timed, "call"));
    if untimed > 0 {
        text += &format!(
            "; {untimed} more not timed because programs interrupted each other, or the predicate could not be decided"
        );
    }
    text += &not_followed(latencies.not_followed);
    report_skipped(latencies.skipped, probes.iter().map(|(probe, _)| probe));
    for (probe, latency) in probes.iter().filter(|(_, latency)| !latency.missed.is_nothing()) {
        text += &format!(
            "\nprobe: {}: {}",
            Escaped(probe.spec().to_string().as_bytes()),
            latency.missed
        );
    }
    report(text);
}
