//! A trace: probes attached, and the pipe that their hits come through.

use super::attach::{Attacher, EXEC, Link};
use super::error::TraceError;
use super::features;
use super::ledger::Ledger;
use super::object::{Config, Object};
use super::privileges;
use super::spec::ProbeSpec;
use super::tracefs::Tracefs;
use crate::consumer::Consumer;
use crate::error::{PollError, TallyError};
use crate::evpipe::EvPipe;
use crate::evqueue::EvQueue;
use crate::options::Options;
use crate::stop::Stop;
use crate::sys::epoll::Epoll;
use crate::sys::perf_event::{PerfEvent, WakeAt};
use aya::maps::{Array, Map};
use aya_log::EbpfLogger;
use probe_common::Record;
use probe_common::trace::KprobeHit;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::JoinHandle;

/// Who is traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Everybody but this process.
    #[default]
    Everybody,
    /// One process, all of its threads.
    Process(u32),
    /// One process and whatever it forks from now on.
    Descendants(u32),
}

/// Sets a trace up.
#[derive(Clone, Debug, Default)]
pub struct TracerBuilder {
    specs: Vec<ProbeSpec>,
    scope: Scope,
    options: Options,
    log_level: Option<log::Level>,
}

impl TracerBuilder {
    /// Adds a probe. Its hits carry its number: the first one's is 0.
    #[must_use]
    pub fn probe(mut self, spec: ProbeSpec) -> Self {
        self.specs.push(spec);
        self
    }

    /// Who is traced; everybody, by default.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// How the pipe is opened.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Gives what the eBPF programs log, down to this level, to the `log` crate. Off by default:
    /// the verifier drops the code.
    #[must_use]
    pub fn log_level(mut self, level: log::Level) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Loads the programs, opens the pipe, and attaches the probes.
    ///
    /// # Errors
    ///
    /// If any of that cannot be done; nothing stays attached, then.
    pub fn attach(self) -> Result<Tracer, TraceError> {
        if self.specs.is_empty() {
            return Err(TraceError::NoProbe);
        }
        features::check_capabilities()?;
        let mut config = Config {
            tracer_pid: std::process::id(),
            log_level: self.log_level.map_or(0, |level| level as u8),
            ..Config::default()
        };
        match self.scope {
            Scope::Everybody => {}
            Scope::Process(pid) => config.only_pid = existing(pid)?,
            Scope::Descendants(pid) => config.root_pid = existing(pid)?,
        }
        let tracefs = self.find_exec(&mut config)?;
        let mut object = Object::load(&config)?;
        let logger = self.log_level.map(|_| LogReader::start(&mut object)).transpose()?;
        let pipe = EvPipe::from_object(&mut object.ebpf, &self.options)?;
        let links = self.attach_all(&mut object, tracefs)?;
        Ok(Tracer { links, pipe, object, logger })
    }

    /// Looks up what the program for executions has to know, if there is a probe for them.
    fn find_exec(&self, config: &mut Config) -> Result<Option<Tracefs>, TraceError> {
        let is_exec = |spec: &ProbeSpec| spec.tracepoint() == Some(EXEC);
        let Some(number) = self.specs.iter().position(is_exec) else { return Ok(None) };
        let (tracefs, spec) = (Tracefs::open()?, &self.specs[number]);
        config.exec_probe = number as u32;
        config.exec_old_pid_at = tracefs.field_offset(spec, "old_pid")?;
        config.exec_filename_at = tracefs.field_offset(spec, "filename")?;
        Ok(Some(tracefs))
    }

    fn attach_all(
        &self,
        object: &mut Object,
        tracefs: Option<Tracefs>,
    ) -> Result<Vec<Link>, TraceError> {
        let mut attacher = Attacher::new(object, tracefs);
        attacher.check(&self.specs)?;
        let mut links = Vec::new();
        if matches!(self.scope, Scope::Descendants(_)) {
            // First, so that nobody is born unseen.
            links.extend(attacher.follow()?);
        }
        for (number, spec) in self.specs.iter().enumerate() {
            links.push(attacher.attach(spec, number as u32)?);
        }
        Ok(links)
    }
}

fn existing(pid: u32) -> Result<u32, TraceError> {
    if pid != 0 && Path::new(&format!("/proc/{pid}")).exists() {
        Ok(pid)
    } else {
        Err(TraceError::NoProcess { pid })
    }
}

/// Attached probes, and the pipe that their hits come through. To drop it detaches them.
#[derive(Debug)]
pub struct Tracer {
    // Dropped first: no program emits into a pipe that is gone.
    links: Vec<Link>,
    pipe: EvPipe,
    object: Object,
    logger: Option<LogReader>,
}

impl Tracer {
    /// Sets a trace up.
    pub fn builder() -> TracerBuilder {
        TracerBuilder::default()
    }

    /// The pipe, to poll it or put it into another loop.
    pub fn pipe(&mut self) -> &mut EvPipe {
        &mut self.pipe
    }

    /// Gives events to `consumer` until `stop` is stopped or `consumer` breaks.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to wait.
    pub fn run<C: Consumer>(&mut self, stop: &Stop, consumer: &mut C) -> Result<(), PollError> {
        self.pipe.run(stop, consumer)
    }

    /// Whether the calling thread may make the calls of a trace that is attached: to have blocks
    /// sent, and to read what was counted.
    pub(super) fn may_finish(&self) -> bool {
        let read = match self.pipe.tally() {
            Some(tally) => tally.of(KprobeHit::KIND).map(drop),
            None => Ok(()),
        };
        !matches!(read, Err(TallyError::Read { source }) if is_refusal(&source))
            && !matches!(self.object.flush(self.any_cpu()), Err(error) if is_refusal(&error))
    }

    /// Whether the calling thread may open the event of another CPU.
    pub(super) fn may_open_events(&self) -> bool {
        let event = PerfEvent::bpf_output(self.any_cpu(), WakeAt::Events(1));
        !matches!(event, Err(error) if is_refusal(&error))
    }

    fn any_cpu(&self) -> u32 {
        self.pipe.queues().first().map_or(0, EvQueue::cpu)
    }

    /// Detaches the probes, gives `consumer` what is left, and tells what became of every record.
    ///
    /// # Errors
    ///
    /// If the eBPF side's count cannot be read.
    pub fn close<C: Consumer>(self, consumer: &mut C) -> Result<Ledger, TraceError> {
        let Self { links, mut pipe, object, logger } = self;
        drop(links);
        let _ = pipe.drain_all(consumer);
        drop(logger);
        let records = pipe.close(consumer).ledger?;
        Ok(Ledger { records, not_followed: not_followed(&object)? })
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn not_followed(object: &Object) -> Result<u64, TraceError> {
    match object.ebpf.map("NOT_FOLLOWED") {
        Some(map @ Map::Array(_)) => {
            let counter: Array<_, u64> = map.try_into().map_err(TraceError::load)?;
            counter.get(&0, 0).map_err(TraceError::load)
        }
        _ => Ok(0),
    }
}

/// Gives the log of the eBPF programs to the `log` crate, from a thread of its own.
#[derive(Debug)]
struct LogReader {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl LogReader {
    fn start(object: &mut Object) -> Result<Self, TraceError> {
        let mut logger = EbpfLogger::init(&mut object.ebpf).map_err(TraceError::load)?;
        let stop = Stop::new().map_err(TraceError::load)?;
        let epoll = Epoll::new().map_err(TraceError::load)?;
        epoll.add(logger.as_fd()).map_err(TraceError::load)?;
        epoll.add(stop.as_fd()).map_err(TraceError::load)?;
        let stopped = stop.clone();
        let read = move || {
            // Its map is mapped: to read it, and to wait, takes no privilege.
            if let Err(error) = privileges::drop_in_thread() {
                log::warn!("the log's reader keeps its privileges: {error}");
            }
            while !stopped.is_stopped() && epoll.wait(None).is_ok() {
                logger.flush();
            }
            logger.flush();
        };
        let thread = std::thread::Builder::new().name("bpf-log".into()).spawn(read);
        Ok(Self { stop, thread: Some(thread.map_err(TraceError::load)?) })
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // It has told its panic already.
            let _ = thread.join();
        }
    }
}
