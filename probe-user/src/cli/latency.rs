//! `probe latency`.

use super::aggregate::{self, not_followed};
use super::args::{Latency, LatencyFormat};
use super::print::written;
use super::progress;
use anyhow::Result;
use probe_user::trace::{Latencies, Stopwatch, TracerBuilder};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

pub(crate) fn run(args: &Latency) -> Result<ExitCode> {
    let attach = |builder: TracerBuilder| builder.time_with(progress::bar());
    aggregate::run(&args.probes, attach, Stopwatch::left_out, |stopwatch| {
        let latencies = stopwatch.close()?;
        written(print(&latencies, args.format), "latencies")?;
        summarize(&latencies);
        Ok(())
    })
}

fn print(latencies: &Latencies, format: LatencyFormat) -> io::Result<()> {
    let mut writer = BufWriter::new(io::stdout());
    latencies.write(format.into(), &mut writer)?;
    writer.flush()
}

/// Says how many calls there were in all, and which are not told, on standard error.
fn summarize(latencies: &Latencies) {
    let probes = &latencies.probes;
    let timed = probes.iter().map(|(_, latency)| latency.histogram.calls());
    let called = timed.clone().filter(|calls| *calls > 0).count();
    let (timed, untimed) =
        (timed.sum::<u64>(), probes.iter().map(|(_, latency)| latency.untimed).sum::<u64>());
    let mut text = format!("probe: {timed} calls of {called} of {} functions", probes.len());
    if untimed > 0 {
        text += &format!("; {untimed} more not timed, of programs that interrupted each other");
    }
    text += &not_followed(latencies.not_followed);
    for (probe, latency) in probes.iter().filter(|(_, latency)| !latency.missed.is_nothing()) {
        text += &format!("\nprobe: {}: {}", probe.spec(), latency.missed);
    }
    // Nobody may be there to read it, which is no reason to fail.
    let _ = writeln!(io::stderr(), "{text}");
}
