//! Traces whose events go to an output, until they end.

use crate::args::{Choice, Flight, Seal, TargetArgs};
use crate::output::Output;
use crate::output::ledger::{report_ledger, report_left_out, report_not_shown};
use crate::output::print::{is_closed, written};
use crate::running::ending::{Ending, Watched};
use crate::running::flight::{Reported, Triggers};
use crate::running::privileges::{self, Running};
use anyhow::Result;
use probe_tracer::{Account, Probe, Shape, Symbols, TraceError, Tracer, TracerBuilder, Verdict};
use std::process::ExitCode;
use std::time::Duration;

/// The target and the limits of a trace.
pub(crate) struct Extent<'a> {
    pub(crate) target: &'a TargetArgs,
    pub(crate) duration: Option<Duration>,
    pub(crate) seal: Seal,
    /// Whether the exit status says if events are missing.
    pub(crate) requires_complete: bool,
    /// The flight recorder's triggers, if events are kept for dumps.
    pub(crate) flight: Option<(&'a Flight, &'a Choice)>,
    /// Whether the output is standard output: then the trace ends when nobody reads it any more.
    pub(crate) to_stdout: bool,
    /// Whether nothing is printed before the end.
    pub(crate) is_silent: bool,
}

/// Traces the probes that `attach` attaches, and passes everything to the output. The output is opened as soon
/// as the probes are known.
pub(crate) fn follow<O: Output>(
    extent: &Extent<'_>,
    attach: impl FnOnce(TracerBuilder) -> Result<Tracer, TraceError>,
    open: impl FnOnce(Vec<Probe>, Symbols) -> Result<O>,
) -> Result<ExitCode> {
    let &Extent { target, duration, seal, flight, to_stdout, is_silent, .. } = extent;
    let ending = Ending::prepare(target)?;
    let mut tracer = attach(ending.narrow(target).held())?;
    report_left_out(tracer.left_out());
    report_not_shown(tracer.probes());
    let triggers =
        flight.map(|(flight, choice)| Triggers::prepare(flight, choice, ending.narrow(target)));
    let triggers = triggers.transpose()?;
    // The thread for symbols needs other privileges than the trace, and keeps them to itself.
    let processes = target.processes(ending.command());
    let symbols = symbols_of(tracer.probes(), seal, &processes)?;
    let symbols = symbols.interrupted_by(ending.interrupted());
    symbols.leave_out_readers(&tracer)?;
    tracer.begin()?;
    let watched = Watched::open(target)?;
    let mut output = open(tracer.probes().to_vec(), symbols)?;
    privileges::give_up(&tracer, seal, Running::of(&target.command))?;
    ending.watch(watched)?;
    if to_stdout {
        ending.watch_output()?;
    }
    let trigger = tracer.pipe().trigger();
    let watch = triggers.zip(trigger).map(|(triggers, trigger)| triggers.watch(trigger));
    let watch = watch.transpose()?;
    let started = output.start();
    if started.is_err() {
        // The command, which is still held, never runs.
        let is_cut = extent.requires_complete && is_closed(&started);
        written(started, O::WHAT)?;
        return Ok(if is_cut { ExitCode::from(4) } else { ExitCode::SUCCESS });
    }
    let begun = ending.begin(duration)?;
    if is_silent {
        begun.announce();
    }
    tracer.run(begun.stop(), &mut Reported(&mut output))?;
    drop(watch);
    let probes = tracer.probes().to_vec();
    // The probes are detached last: they emit nothing any more, and it may take long.
    let (ledger, _detaching) = tracer.finish(&mut Reported(&mut output))?;
    let account = Account::from(&ledger);
    // Its limit is reached, or nobody reads it any more.
    let is_enough = output.accepts().is_break();
    let finished = output.finish(&account);
    report_ledger(&output.amount(), &probes, &account);
    let code = begun.exit_code(is_enough)?;
    let is_cut = is_closed(&finished);
    written(finished, O::WHAT)?;
    Ok(match account.verdict {
        _ if !extent.requires_complete => code,
        _ if is_cut => ExitCode::from(4),
        Verdict::Complete => code,
        Verdict::ExceptSkipped => ExitCode::from(3),
        _ => ExitCode::from(4),
    })
}

/// The symbols that events of these probes need, in these processes.
fn symbols_of(probes: &[Probe], seal: Seal, processes: &probe_perf::Target) -> Result<Symbols> {
    let (mut of_kernel, mut of_processes) = (false, false);
    for field in probes.iter().flat_map(Probe::fields) {
        of_kernel |= field.shape == Shape::KernelStack || field.is_symbol();
        of_processes |= field.shape == Shape::UserStack;
    }
    Ok(match (of_processes, of_kernel) {
        (true, _) => Symbols::start_for(seal.symbol_access(), processes)?,
        (false, true) => Symbols::start()?,
        (false, false) => Symbols::none(),
    })
}
