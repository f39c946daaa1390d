//! `probe count`.

use super::args::{Count, CountFormat};
use super::ending::{self, Command};
use super::exit::code_of;
use super::patterns;
use super::print::written;
use anyhow::Result;
use probe_user::Stop;
use probe_user::trace::{Counter, Counts, TraceError, TracedCommand, Tracer};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

pub(crate) fn run(args: &Count) -> Result<ExitCode> {
    let stop = Stop::new()?;
    // From here on a signal stops the count, in whatever state it is.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    let command = args.target.hold()?;
    let counter = attach(args, command.as_ref())?;
    patterns::tell(counter.left_out());
    if let Some(pid) = args.target.pid {
        ending::with_process(pid, stop.clone())?;
    }
    let command = command.map(|command| Command::start(command, stop.clone())).transpose()?;
    ending::with_signals(signals, stop.clone(), command.as_ref().map(Command::pid));
    if let Some(duration) = args.duration {
        ending::after(duration, stop.clone())?;
    }
    stop.wait()?;
    let counts = counter.close()?;
    written(print(&counts, args.format), "counts")?;
    summarize(&counts);
    let status = command.map(Command::wait).transpose()?;
    Ok(status.map_or(ExitCode::SUCCESS, code_of))
}

fn attach(args: &Count, command: Option<&TracedCommand>) -> Result<Counter, TraceError> {
    let builder = args.target.narrow(Tracer::builder(), command);
    let builder = args.probes.iter().cloned().fold(builder, |builder, spec| builder.probe(spec));
    patterns::choose(builder, &args.choice)?.count_with(|_| {})
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
    if counts.not_followed > 0 {
        text += &format!("; {} tasks not followed, for want of room", counts.not_followed);
    }
    // Nobody may be there to read it, which is no reason to fail.
    let _ = writeln!(io::stderr(), "{text}");
}
