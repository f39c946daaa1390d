//! `probe replay`.

use super::args::{Replay, ReplayFormat};
use super::ledger;
use super::output::Output;
use super::print::written;
use super::stack::{Ways, titled};
use anyhow::{Result, anyhow, bail, ensure};
use probe_user::trace::output::{Format, Printer, StackFormat};
use probe_user::trace::recording::{Recording, RecordingError};
use probe_user::trace::{Account, Probe, Shape};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(args: &Replay) -> Result<ExitCode> {
    let recording = match Recording::open(open(&args.file)?) {
        Ok(recording) => recording,
        Err(error) => bail!("{}: {error}", args.file.display()),
    };
    let format = match args.format {
        ReplayFormat::Table => Format::Table,
        ReplayFormat::Jsonl => Format::Jsonl,
        ReplayFormat::Perfetto => Format::Perfetto,
        ReplayFormat::Folded => return stacks(recording, args, StackFormat::Folded),
        ReplayFormat::Svg => return stacks(recording, args, StackFormat::Svg),
    };
    events(recording, args, format)
}

type Input = Recording<Box<dyn Read>>;

fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file =
        File::open(path).map_err(|error| anyhow!("cannot open {}: {error}", path.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

fn events(mut recording: Input, args: &Replay, format: Format) -> Result<ExitCode> {
    let probes = recording.probes().to_vec();
    let mut printer = Printer::new(io::stdout(), format, probes.clone())
        .origin(recording.origin().clone())
        .time(args.time.into())
        .symbols(recording.symbols())
        .limit(args.max_events);
    written(printer.start(), "events")?;
    let replayed = match args.is_ordered() {
        true => recording.replay_by_time(&mut printer),
        false => recording.replay(&mut printer),
    };
    let end = replayed.and_then(|_| recording.close());
    let finished = match &end {
        Ok(ledger) => printer.finish(ledger.clone()),
        Err(_) => printer.cut_off(),
    };
    tell(args, &printer.told(), &probes, end, finished)
}

fn stacks(mut recording: Input, args: &Replay, format: StackFormat) -> Result<ExitCode> {
    let probes = recording.probes().to_vec();
    let mut shapes = probes.iter().flat_map(Probe::fields).map(|field| &field.shape);
    ensure!(
        shapes.any(|shape| matches!(shape, Shape::KernelStack | Shape::UserStack)),
        "{} has no stacks: record them with -K, or -U",
        args.file.display()
    );
    let title = titled(probes.iter().map(Probe::spec));
    let mut ways =
        Ways::new(probes.clone(), recording.symbols(), format, title).limit(args.max_events);
    let end = recording.replay(&mut ways).and_then(|_| recording.close());
    let printed = ways.print();
    tell(args, &ways.told(), &probes, end, printed)
}

/// Says what was replayed, and how it ended.
fn tell(
    args: &Replay,
    what: &str,
    probes: &[Probe],
    end: Result<Account, RecordingError>,
    printed: io::Result<()>,
) -> Result<ExitCode> {
    match end {
        Ok(account) => {
            ledger::tell(what, probes, &account);
            written(printed, "events")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            written(printed, "events")?;
            bail!("{}: {error} ({what} are printed)", args.file.display())
        }
    }
}
