//! Dumps of the flight recorder: what triggers them, and how they are reported.

use crate::args::{Choice, Flight};
use crate::output::print::report;
use anyhow::{Result, anyhow};
use probe_tracer::{TraceError, Tracer, TracerBuilder};
use probe_user::common::RawRecord;
use probe_user::flight::{Dump, Trigger};
use probe_user::{Batch, Consumer, CpuChange, Failure, Loss, Malformed, Options, Stop, Wakeup};
use signal_hook::consts::SIGUSR2;
use signal_hook::iterator::{Handle, Signals};
use std::ops::ControlFlow;
use std::thread;

/// The size of the triggers' ring for each CPU, in bytes. It holds many more hits than arrive during a dump.
const BYTES: usize = 64 << 10;

/// The triggers before the trace begins. From now on, SIGUSR2 does not end the process.
pub(crate) struct Triggers {
    signals: Signals,
    tracer: Option<Tracer>,
}

impl Triggers {
    /// Attaches the triggers' probes, if there are any, with the targets of `builder`.
    pub(crate) fn prepare(args: &Flight, choice: &Choice, builder: TracerBuilder) -> Result<Self> {
        let signals = Signals::new([SIGUSR2])?;
        if args.triggers.is_empty() {
            return Ok(Self { signals, tracer: None });
        }
        let options = Options::new().bytes_per_cpu(BYTES).wakeup(Wakeup::EveryRecord);
        let builder = builder.options(options);
        let tracer = choice.probe(&args.triggers, builder).and_then(TracerBuilder::attach);
        let tracer = tracer.map_err(|error| match error {
            // It has several lines, one of which is the trigger.
            TraceError::Field(_) => error.into(),
            _ => anyhow!("cannot trigger dumps: {error}"),
        })?;
        Ok(Self { signals, tracer: Some(tracer) })
    }

    /// Pulls the trigger at every signal and every hit, until the returned value is dropped.
    pub(crate) fn watch(self, trigger: Trigger) -> Result<Watch> {
        let Self { mut signals, tracer } = self;
        let (handle, stop) = (signals.handle(), Stop::new()?);
        let mut watch = Watch { handle, stop: stop.clone(), threads: Vec::new() };
        let by_signal = trigger.clone();
        watch.threads.push(thread::Builder::new().name("dumps".into()).spawn(move || {
            signals.forever().for_each(|_| by_signal.pull());
        })?);
        if let Some(mut tracer) = tracer {
            let watch_hits = move || {
                if let Err(error) = tracer.run(&stop, &mut Pull(trigger)) {
                    log::warn!("dumps are no longer triggered: {error}");
                }
            };
            watch.threads.push(thread::Builder::new().name("triggers".into()).spawn(watch_hits)?);
        }
        Ok(watch)
    }
}

/// Threads that request dumps. They end when this is dropped.
pub(crate) struct Watch {
    handle: Handle,
    stop: Stop,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
        self.stop.stop();
        for thread in self.threads.drain(..) {
            // A panic has already printed its message.
            let _ = thread.join();
        }
    }
}

/// Pulls the trigger at every hit, even at hits that were lost.
struct Pull(Trigger);

impl Consumer for Pull {
    fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
        self.0.pull();
        ControlFlow::Continue(())
    }

    fn lost(&mut self, _: Loss) -> ControlFlow<()> {
        self.0.pull();
        ControlFlow::Continue(())
    }

    fn failed(&mut self, _: Failure) -> ControlFlow<()> {
        self.0.pull();
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        log::warn!("{malformed}");
        ControlFlow::Continue(())
    }
}

/// Reports each dump on standard error, and passes everything to an output.
pub(crate) struct Reported<'o, O>(pub(crate) &'o mut O);

impl<O: Consumer> Consumer for Reported<'_, O> {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.0.record(cpu, record)
    }

    fn longest(&self) -> usize {
        self.0.longest()
    }

    fn accepts(&mut self) -> ControlFlow<()> {
        self.0.accepts()
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        self.0.batch(cpu, batch)
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.0.lost(loss)
    }

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        self.0.failed(failure)
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.0.malformed(malformed)
    }

    fn rejected(&mut self) -> Option<(u32, u64)> {
        self.0.rejected()
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        self.0.cpu_changed(change);
    }

    fn dump(&mut self, dump: Dump) {
        report(dump);
        self.0.dump(dump);
    }

    fn caught_up(&mut self) -> ControlFlow<()> {
        self.0.caught_up()
    }
}
