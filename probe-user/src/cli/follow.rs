//! A trace whose events go to an output, until something ends it.

use super::args::{Flight, Target};
use super::ending::Ending;
use super::flight::{Told, Triggers};
use super::output::Output;
use super::print::written;
use super::{ledger, patterns, privileges, symbols};
use anyhow::Result;
use probe_user::trace::{Account, Probe, Symbols, TraceError, Tracer, TracerBuilder};
use std::process::ExitCode;
use std::time::Duration;

/// Of whom, and until when.
pub(crate) struct Extent<'a> {
    pub(crate) target: &'a Target,
    pub(crate) duration: Option<Duration>,
    /// Whether every privilege is given up.
    pub(crate) is_sealed: bool,
    /// Who asks for events, where they are kept.
    pub(crate) flight: Option<&'a Flight>,
}

/// Traces what `attach` attaches, and gives everything to the output, which is opened as soon as it is known
/// what it will get.
pub(crate) fn follow<O: Output>(
    extent: &Extent<'_>,
    attach: impl FnOnce(TracerBuilder) -> Result<Tracer, TraceError>,
    open: impl FnOnce(Vec<Probe>, Symbols) -> Result<O>,
) -> Result<ExitCode> {
    let &Extent { target, duration, is_sealed, flight } = extent;
    let ending = Ending::prepare(target)?;
    let mut tracer = attach(ending.narrow(target))?;
    patterns::tell(tracer.left_out());
    let triggers = flight.map(|flight| Triggers::prepare(flight, ending.narrow(target)));
    let triggers = triggers.transpose()?;
    // It needs other privileges than the trace does, and keeps them to itself.
    let symbols = symbols::of(tracer.probes(), is_sealed)?;
    let mut output = open(tracer.probes().to_vec(), symbols)?;
    privileges::give_up(&tracer, target, is_sealed)?;
    ending.watch(target)?;
    let trigger = tracer.pipe().trigger();
    let watch = triggers.zip(trigger).map(|(triggers, trigger)| triggers.watch(trigger));
    let watch = watch.transpose()?;
    let started = output.start();
    let begun = ending.begin(duration.filter(|_| started.is_ok()))?;
    if started.is_ok() {
        tracer.run(begun.stop(), &mut Told(&mut output))?;
    }
    drop(watch);
    let probes = tracer.probes().to_vec();
    let account = Account::from(&tracer.close(&mut Told(&mut output))?);
    let finished = started.and_then(|()| output.finish(&account));
    ledger::tell(&output.told(), &probes, &account);
    let code = begun.exit_code()?;
    written(finished, O::WHAT)?;
    Ok(code)
}
