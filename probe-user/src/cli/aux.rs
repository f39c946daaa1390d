//! `probe sample --aux`: what the hardware traces, as it is.

use super::args::Sample;
use super::aux_files::{Output, Snapshot, Snapshots, name};
use super::aux_records::Records;
use super::ending::Ending;
use super::file;
use super::print::print;
use super::privileges;
use super::sample::{on_exec, scope};
use anyhow::{Result, anyhow, bail};
use probe_user::Escaped;
use probe_user::perf::{AuxFlags, AuxMode, AuxTrace, AuxTraces};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long data may wait that wakes nobody. Some is written only when one asks.
const LOOK: Duration = Duration::from_millis(20);

/// So many records of tasks are written before traces are looked at again.
const AT_ONCE: usize = 1 << 14;

pub(super) fn run(args: &Sample, dir: &Path, ending: Ending) -> Result<ExitCode> {
    let events = args.events();
    let [event] = events.as_slice() else {
        bail!("--aux is of one event, and {} are named", events.len());
    };
    let command = ending.command().map(|command| command.pid());
    let (area, flags) = (&args.aux, on_exec(args, command));
    let mode = if area.snapshot { AuxMode::Snapshot(area.size) } else { AuxMode::Full(area.size) };
    let scope = scope(args, command);
    let mut traces = AuxTraces::open(event, &scope, mode, flags)?;
    let mut tasks = Records::sampler(scope, flags)?;
    file::create_dir(dir)?;
    let mut records = Records::create(dir)?;
    let begins_itself = !flags.is_empty();
    let mut written = if area.snapshot {
        Written::Snapshots(Snapshots::prepare(dir)?)
    } else {
        let outputs = traces.traces().iter().map(|trace| Output::create(dir, &name(trace)));
        Written::Pieces(outputs.collect::<Result<_>>()?)
    };
    match area.snapshot {
        true => privileges::give_up_but_for_files(&tasks, dir, command.is_some())?,
        false => privileges::give_up_but_for_samples(&tasks, command.is_some())?,
    }
    let begun = ending.begin(args.duration)?;
    if !begins_itself {
        tasks.enable()?;
        traces.enable()?;
    }
    while !begun.stop().is_stopped() {
        ask(&mut traces)?;
        written.look(&mut traces, &mut records, area.size)?;
        records.take(&mut tasks, AT_ONCE)?;
        let besides = [Some(begun.stop().as_fd()), written.asked()];
        let besides: Vec<_> = besides.into_iter().flatten().collect();
        if !traces.wait(&besides, LOOK)? {
            break;
        }
    }
    written.end(&mut traces, &mut records)?;
    tasks.disable()?;
    records.take(&mut tasks, usize::MAX)?;
    let code = begun.exit_code()?;
    print(&written.table())?;
    // Nobody may be there to read it, which is no reason to fail.
    let _ = writeln!(io::stderr(), "probe: {}", written.summary(dir));
    Ok(code)
}

/// Has those write what they have that write it only when they are read.
fn ask(traces: &mut AuxTraces) -> Result<()> {
    for trace in traces.traces() {
        trace.count().map_err(|error| failed("read", trace, &error))?;
    }
    Ok(())
}

/// What has been written, and of what.
enum Written<'d> {
    /// All data, in a file for each trace.
    Pieces(Vec<Output>),
    /// The newest data, whenever somebody asked.
    Snapshots(Snapshots<'d>),
}

impl Written<'_> {
    /// Writes what there is to be written while the traces go on: at most so many bytes of each.
    fn look(&mut self, traces: &mut AuxTraces, records: &mut Records, most: usize) -> Result<()> {
        match self {
            Self::Pieces(outputs) => {
                for (output, trace) in outputs.iter_mut().zip(traces.traces()) {
                    output.take(trace, records, most as u64)?;
                    if output.pieces > 0 {
                        // The kernel has switched it off if there was no room.
                        trace.enable().map_err(|error| failed("switch on", trace, &error))?;
                    }
                }
            }
            Self::Snapshots(snapshots) => {
                traces.traces().iter_mut().for_each(|trace| trace.look(|it| records.write(it)));
                if snapshots.is_asked() {
                    snapshots.take(traces, records)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the traces, and writes all that is left.
    fn end(&mut self, traces: &mut AuxTraces, records: &mut Records) -> Result<()> {
        traces.disable()?;
        match self {
            Self::Pieces(outputs) => {
                for (output, trace) in outputs.iter_mut().zip(traces.traces()) {
                    output.take(trace, records, u64::MAX)?;
                    output.skipped = trace.skipped() + trace.untold();
                    output.lost = trace.lost_records();
                }
            }
            Self::Snapshots(snapshots) => snapshots.take(traces, records)?,
        }
        Ok(())
    }

    /// What tells that a snapshot is wanted.
    fn asked(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Pieces(_) => None,
            Self::Snapshots(snapshots) => Some(snapshots.asked()),
        }
    }

    /// A line for each file.
    fn table(&self) -> String {
        match self {
            Self::Pieces(outputs) => {
                let heading = format!(
                    "{:>14} {:>8} {:>10} {:>6} {:>9} {:>8} {:>8} FILE\n",
                    "BYTES", "PIECES", "SKIPPED", "LOST", "TRUNCATED", "PARTIAL", "COLLIDED"
                );
                heading + &outputs.iter().map(Output::line).collect::<String>()
            }
            Self::Snapshots(snapshots) => {
                let heading = format!(
                    "{:>14} {:>14} {:>6} {:>9} {:>8} {:>8} FILE\n",
                    "BYTES", "FROM", "LOST", "TRUNCATED", "PARTIAL", "COLLIDED"
                );
                heading + &snapshots.files.iter().map(Snapshot::line).collect::<String>()
            }
        }
    }

    /// What all files have.
    fn summary(&self, dir: &Path) -> String {
        let dir = Escaped(dir.as_os_str().as_bytes());
        match self {
            Self::Pieces(outputs) => {
                let sum = |of: fn(&Output) -> u64| outputs.iter().map(of).sum::<u64>();
                format!(
                    "{} bytes in {} files in {dir}, {} skipped, {} records lost, {} pieces truncated",
                    sum(|one| one.bytes),
                    outputs.len(),
                    sum(|one| one.skipped),
                    sum(|one| one.lost),
                    sum(|one| one.truncated),
                )
            }
            Self::Snapshots(Snapshots { files, count, .. }) => {
                let sum = |of: fn(&Snapshot) -> u64| files.iter().map(of).sum::<u64>();
                let snapshots = if *count == 1 { "snapshot" } else { "snapshots" };
                format!(
                    "{} bytes in {count} {snapshots} in {dir}, {} records lost, {} pieces truncated",
                    sum(|one| one.bytes as u64),
                    sum(|one| one.lost),
                    sum(|one| one.flags.contains(AuxFlags::TRUNCATED).into()),
                )
            }
        }
    }
}

fn failed(what: &str, trace: &AuxTrace, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot {what} the event of {}: {error}", name(trace))
}
