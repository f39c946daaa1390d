//! `probe replay`.

use super::trace::shown;
use crate::args::{Replay, ReplayFormat};
use crate::output::ledger::report_ledger;
use crate::output::print::{report, written};
use crate::output::stacks::{Stacks, titled};
use crate::output::{Output, stdout};
use crate::running::flight::Reported;
use crate::running::privileges;
use anyhow::{Result, anyhow, bail, ensure};
use probe_tracer::output::{Format, Printer, StackFormat, Time, load_time_zone};
use probe_tracer::recording::{Recording, RecordingError};
use probe_tracer::{Account, Probe, Shape};
use rustix::fs::{FileType, fstat};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(args: &Replay) -> Result<ExitCode> {
    let (file, is_stream) = open(&args.file)?;
    if args.time == Time::Local {
        load_time_zone();
    }
    privileges::give_up_all()?;
    let recording = match Recording::open(file) {
        Ok(recording) => recording,
        Err(error) => bail!("{}: {error}", args.file.display()),
    };
    match args.format {
        ReplayFormat::Events(format) => events(recording, args, format, is_stream),
        ReplayFormat::Stacks(format) => stacks(recording, args, format, is_stream),
    }
}

type Input = Recording<Box<dyn Read>>;

/// The file that stands for standard input.
const STDIN: &str = "-";

/// Opens a recording. Returns also whether it may still be written while it is read.
fn open(path: &Path) -> Result<(Box<dyn Read>, bool)> {
    let is_stream = |file: BorrowedFd<'_>| {
        !fstat(file).is_ok_and(|file| FileType::from_raw_mode(file.st_mode).is_file())
    };
    if path == Path::new(STDIN) {
        let input = io::stdin();
        return Ok((Box::new(input.lock()), is_stream(input.as_fd())));
    }
    let file =
        File::open(path).map_err(|error| anyhow!("cannot open {}: {error}", path.display()))?;
    let is_stream = is_stream(file.as_fd());
    Ok((Box::new(BufReader::new(file)), is_stream))
}

fn events(
    mut recording: Input,
    args: &Replay,
    format: Format,
    is_stream: bool,
) -> Result<ExitCode> {
    let is_ordered = args.is_ordered(format, is_stream);
    recording = recording.live(is_stream && !is_ordered);
    let probes = recording.probes().to_vec();
    let mut printer = Printer::new(stdout(), format, shown(probes.clone(), args.raw_values))
        .origin(recording.origin().clone())
        .clock_changes(recording.clock_changes())
        .time(args.time)
        .symbols(recording.symbols())
        .limit(args.max_events);
    written(printer.start(), "events")?;
    let replayed = match is_ordered {
        true => recording.replay_by_time(&mut Reported(&mut printer)),
        false => recording.replay(&mut Reported(&mut printer)),
    };
    if is_stream && is_enough(&replayed) {
        return enough(&printer.amount(), printer.cut_off());
    }
    let end = replayed.and_then(|_| recording.close());
    let finished = match &end {
        Ok(ledger) => printer.finish(ledger.clone()),
        Err(_) => printer.cut_off(),
    };
    finish(args, &printer.amount(), &probes, end, finished)
}

fn stacks(
    mut recording: Input,
    args: &Replay,
    format: StackFormat,
    is_stream: bool,
) -> Result<ExitCode> {
    let probes = recording.probes().to_vec();
    let mut shapes = probes.iter().flat_map(Probe::fields).map(|field| &field.shape);
    ensure!(
        shapes.any(|shape| matches!(shape, Shape::KernelStack | Shape::UserStack)),
        "{} has no stacks; record it with -K or -U",
        args.file.display()
    );
    let title = titled(probes.iter().map(Probe::spec));
    let mut stacks =
        Stacks::new(probes.clone(), recording.symbols(), format, title).limit(args.max_events);
    let replayed = recording.replay(&mut Reported(&mut stacks));
    if is_stream && is_enough(&replayed) {
        return enough(&stacks.amount(), stacks.print());
    }
    let end = replayed.and_then(|_| recording.close());
    let printed = stacks.print();
    finish(args, &stacks.amount(), &probes, end, printed)
}

/// Whether nothing more is wanted. The rest of a stream is not read then, not even for its ledger: it may still be written, by
/// a trace that ends when nobody reads it any more.
fn is_enough(replayed: &Result<ControlFlow<()>, RecordingError>) -> bool {
    matches!(replayed, Ok(ControlFlow::Break(())))
}

/// Reports what was replayed of a recording that was not read to its end.
fn enough(what: &str, printed: io::Result<()>) -> Result<ExitCode> {
    report(format_args!("{what}; the rest of the recording was not read"));
    written(printed, "events")?;
    Ok(ExitCode::SUCCESS)
}

/// Reports what was replayed, and how it ended.
fn finish(
    args: &Replay,
    what: &str,
    probes: &[Probe],
    end: Result<Account, RecordingError>,
    printed: io::Result<()>,
) -> Result<ExitCode> {
    match end {
        Ok(account) => {
            report_ledger(what, probes, &account);
            written(printed, "events")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            written(printed, "events")?;
            bail!("{}: {error} ({what} printed)", args.file.display())
        }
    }
}
