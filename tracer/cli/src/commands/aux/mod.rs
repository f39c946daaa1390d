//! `probe sample --aux`: raw hardware traces.

mod files;
mod records;

use crate::args::Sample;
use crate::output::directory::{Directory, Sharing};
use crate::output::print::{print, report};
use crate::running::ending::Ending;
use crate::running::privileges::{self, Running};
use anyhow::{Result, anyhow, bail};
use files::{Output, Snapshot, Snapshots, name};
use probe_perf::{AuxFlags, AuxMode, AuxTrace, AuxTraces, Sampler};
use probe_sys::escape::Escaped;
use probe_sys::hint::counted;
use records::Records;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How often to look for data that causes no wakeup. Some PMUs write their data only when their event is read.
const LOOK: Duration = Duration::from_millis(20);

/// How many records of tasks to write before looking at the traces again.
const AT_ONCE: usize = 1 << 14;

pub(crate) fn run(args: &Sample, dir: &Path, ending: Ending) -> Result<ExitCode> {
    let events = args.events();
    let [event] = events.as_slice() else {
        bail!("--aux takes one event, but {} are given", events.len());
    };
    let command = ending.command().map(|command| command.pid());
    let (area, flags) = (&args.aux, args.on_exec(command));
    let mode = if area.snapshot { AuxMode::Snapshot(area.size) } else { AuxMode::Full(area.size) };
    let target = args.target(command);
    let mut traces = AuxTraces::open(event, &target, mode, flags)?;
    let mut tasks = Records::sampler(target, flags)?;
    let events = tasks.ids().len();
    let directory = Arc::new(Directory::create(dir, Sharing::forced(args.force))?);
    let mut records = Records::create(&directory)?;
    let begins_itself = !flags.is_empty();
    let mut written = if area.snapshot {
        Written::Snapshots(Snapshots::prepare(directory.clone())?)
    } else {
        let outputs = traces.traces().iter().map(|trace| Output::create(&directory, &name(trace)));
        let mut outputs = outputs.collect::<Result<Vec<_>>>()?;
        Output::named_by_a_process(&mut outputs);
        Written::Pieces(outputs)
    };
    privileges::give_up_but_for_samples(
        &tasks,
        written.directory(),
        args.seal,
        Running::of(&args.command),
    )?;
    if !begins_itself {
        tasks.enable()?;
        traces.enable()?;
    }
    let begun = ending.begin(args.duration)?;
    begun.announce();
    while !begun.stop().is_stopped() {
        read_events(&mut traces)?;
        written.look(&mut traces, &mut records)?;
        records.take(&mut tasks, AT_ONCE)?;
        let besides = [Some(begun.stop().as_fd()), written.requests()];
        let besides: Vec<_> = besides.into_iter().flatten().collect();
        if !traces.wait(&besides, LOOK)? {
            begun.target_exited()?;
            break;
        }
    }
    written.end(&mut traces, &mut records)?;
    tasks.disable()?;
    records.take(&mut tasks, usize::MAX)?;
    report_missing(&tasks)?;
    if tasks.ids().len() > events {
        log::warn!(
            "CPUs that came online have no trace from then on, because --aux does not follow them"
        );
    }
    let summary = written.summary(dir);
    // Before the command, which may go on for long.
    print(&written.finish()?)?;
    report(summary);
    begun.exit_code(false)
}

/// Reports the records of tasks that are not in their file. The kernel describes a loss in a later record, if there is one.
fn report_missing(tasks: &Sampler) -> Result<()> {
    match tasks.counts()?.lost {
        0 => {}
        1 => log::warn!("1 record of tasks and mappings was lost"),
        lost => log::warn!("{lost} records of tasks and mappings were lost"),
    }
    for (cpu, error) in tasks.uncovered() {
        log::warn!("CPU {cpu} went online but is not observed: {error}");
    }
    if let Some(error) = tasks.hotplug_error() {
        log::warn!("CPUs that went online are not observed: {error}");
    }
    Ok(())
}

/// Makes PMUs write their data that do so only when their event is read.
fn read_events(traces: &mut AuxTraces) -> Result<()> {
    for trace in traces.traces() {
        trace.count().map_err(|error| failed("read", trace, &error))?;
    }
    Ok(())
}

/// The files written so far.
enum Written {
    /// All data, in one file for each trace.
    Pieces(Vec<Output>),
    /// The newest data, at each request.
    Snapshots(Snapshots),
}

impl Written {
    /// Writes what the traces have while they run, of each at most about what its area holds.
    fn look(&mut self, traces: &mut AuxTraces, records: &mut Records) -> Result<()> {
        match self {
            Self::Pieces(outputs) => {
                for (output, trace) in outputs.iter_mut().zip(traces.traces()) {
                    let most = trace.size() as u64;
                    output.take(trace, records, most)?;
                    if output.pieces > 0 {
                        // The kernel disables a trace that has no room left.
                        trace.enable().map_err(|error| failed("switch on", trace, &error))?;
                    }
                }
            }
            Self::Snapshots(snapshots) => {
                traces
                    .traces()
                    .iter_mut()
                    .for_each(|trace| trace.read_records(|it| records.write(it)));
                if snapshots.is_requested() {
                    snapshots.take(traces, records)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the traces and writes the rest.
    fn end(&mut self, traces: &mut AuxTraces, records: &mut Records) -> Result<()> {
        traces.disable()?;
        match self {
            Self::Pieces(outputs) => {
                for (output, trace) in outputs.iter_mut().zip(traces.traces()) {
                    output.take(trace, records, u64::MAX)?;
                    output.skipped = trace.skipped() + trace.undescribed();
                    output.lost = trace.lost_records();
                }
            }
            Self::Snapshots(snapshots) => snapshots.take(traces, records)?,
        }
        Ok(())
    }

    /// The directory to which files still need access.
    fn directory(&self) -> Option<&Directory> {
        match self {
            Self::Pieces(outputs) => outputs.iter().find_map(Output::directory),
            Self::Snapshots(snapshots) => Some(snapshots.directory()),
        }
    }

    /// Readable when a snapshot is requested.
    fn requests(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Pieces(_) => None,
            Self::Snapshots(snapshots) => Some(snapshots.requests()),
        }
    }

    /// Lets the files appear. Returns a line for each.
    fn finish(self) -> Result<String> {
        match self {
            Self::Pieces(outputs) => {
                let heading = format!(
                    "{:>14} {:>8} {:>10} {:>6} {:>9} {:>8} {:>8} FILE\n",
                    "BYTES", "PIECES", "SKIPPED", "LOST", "TRUNCATED", "PARTIAL", "COLLIDED"
                );
                let lines: Result<String> = outputs.into_iter().map(Output::finish).collect();
                Ok(heading + &lines?)
            }
            Self::Snapshots(snapshots) => {
                let heading = format!(
                    "{:>14} {:>14} {:>6} {:>9} {:>8} {:>8} FILE\n",
                    "BYTES", "FROM", "LOST", "TRUNCATED", "PARTIAL", "COLLIDED"
                );
                Ok(heading + &snapshots.files.iter().map(Snapshot::line).collect::<String>())
            }
        }
    }

    /// The totals of all files.
    fn summary(&self, dir: &Path) -> String {
        let dir = Escaped(dir.as_os_str().as_bytes());
        match self {
            Self::Pieces(outputs) => {
                let sum = |of: fn(&Output) -> u64| outputs.iter().map(of).sum::<u64>();
                format!(
                    "{} in {} in {dir}, {} skipped, {} lost, {} truncated",
                    counted(sum(|one| one.bytes), "byte"),
                    counted(outputs.len() as u64, "file"),
                    sum(|one| one.skipped),
                    counted(sum(|one| one.lost), "record"),
                    counted(sum(|one| one.truncated), "piece"),
                )
            }
            Self::Snapshots(Snapshots { files, count, .. }) => {
                let sum = |of: fn(&Snapshot) -> u64| files.iter().map(of).sum::<u64>();
                format!(
                    "{} in {} in {dir}, {} lost, {} truncated",
                    counted(sum(|one| one.bytes as u64), "byte"),
                    counted(*count, "snapshot"),
                    counted(sum(|one| one.lost), "record"),
                    counted(sum(|one| one.flags.contains(AuxFlags::TRUNCATED).into()), "piece"),
                )
            }
        }
    }
}

fn failed(what: &str, trace: &AuxTrace, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot {what} the event of {}: {error}", name(trace))
}
