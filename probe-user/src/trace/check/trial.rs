//! Trying every feature, by the code that the tracer itself runs.

use super::conditions;
use super::{Feature, Finding};
use crate::cpus;
use crate::error::OpenError;
use crate::evpipe::EvPipe;
use crate::options::Options;
use crate::sys::bpf::load::{Purpose, load_empty};
use crate::sys::bpf::multi::{Places, link_kprobe_multi};
use crate::sys::memory::page_size;
use crate::sys::perf_event::{PerfEvent, WakeAt};
use crate::trace::attach::{Attacher, Link};
use crate::trace::binary::Binary;
use crate::trace::capabilities::Capabilities;
use crate::trace::error::TraceError;
use crate::trace::features::{self, is_refusal};
use crate::trace::kernel_types::KernelTypes;
use crate::trace::object::{Config, Object, Side};
use crate::trace::probe::Probe;
use crate::trace::spec::ProbeSpec;
use crate::trace::tracefs::Tracefs;
use std::os::fd::AsFd;

const KPROBES: &str = "a kernel with CONFIG_KPROBES, CONFIG_KPROBE_EVENTS and CONFIG_PERF_EVENTS";
const UPROBES: &str = "a kernel with CONFIG_UPROBE_EVENTS and CONFIG_PERF_EVENTS";
const WITHOUT_KPROBES: &str = "nothing; tracepoint:, rawtp: and uprobe: work without";
const TRACEFS: &str = "CAP_DAC_READ_SEARCH, or a tracefs for a group of this user's: mount -o \
                       remount,mode=750,gid=GROUP /sys/kernel/tracing";

pub(super) fn all(options: &Options) -> Vec<Finding> {
    let held = Capabilities::effective().unwrap_or(Capabilities::NONE);
    let mut trial = Trial { held, object: None, refusal: String::new() };
    let programs = trial.programs();
    let mut findings = vec![conditions::capabilities(held), conditions::lockdown(), programs];
    findings.push(trial.perf_events());
    findings.extend(trial.pipe(options));
    findings.extend([
        trial.kprobes(),
        trial.attach_cookies(),
        trial.kprobe_multi(),
        trial.tracefs(),
        trial.tracepoints(),
        trial.raw_tracepoints(),
        trial.uprobes(),
        conditions::btf(),
        conditions::cpu_hotplug(),
    ]);
    findings
}

struct Trial {
    held: Capabilities,
    /// The tracer's object, if the kernel takes it.
    object: Option<Object>,
    /// What to change if it does not.
    refusal: String,
}

impl Trial {
    /// What to change where the kernel does not permit something.
    fn permission(&self) -> String {
        match self.held.missing_to_trace() {
            Capabilities::NONE => conditions::paranoia(self.held),
            missing => conditions::lacking(missing),
        }
    }

    /// What cannot be tried without programs.
    fn untried(&self, feature: Feature) -> Finding {
        Finding::no(feature, "not tried, since programs do not load", &*self.refusal)
    }

    fn programs(&mut self) -> Finding {
        // Should a program be hit, this process has nothing to tell.
        let config = Config { only_pid: std::process::id(), ..Config::default() };
        let loaded = Object::load(&config, &[]).and_then(|mut object| {
            object.program_of(Side::Kernel, "raw_tracepoint_by_number", 0)?;
            Ok(object)
        });
        match loaded {
            Ok(object) => {
                self.object = Some(object);
                Finding::yes(Feature::Programs, "the object that `probe` is built with")
            }
            Err(error) => {
                self.refusal = match self.held.missing_to_trace() {
                    Capabilities::NONE => error.to_string(),
                    missing => conditions::lacking(missing),
                };
                Finding::no(Feature::Programs, "nothing", &*self.refusal)
            }
        }
    }

    fn perf_events(&self) -> Finding {
        let feature = Feature::PerfEvents;
        let cpu = cpus::online().ok().and_then(|cpus| cpus.first().copied()).unwrap_or_default();
        match PerfEvent::bpf_output(cpu, WakeAt::Events(1)) {
            Ok(_) => Finding::yes(feature, conditions::paranoid_level()),
            Err(error) if is_refusal(&error) => {
                Finding::no(feature, conditions::paranoid_level(), conditions::paranoia(self.held))
            }
            Err(error) => {
                let change = "a kernel with CONFIG_PERF_EVENTS and CONFIG_BPF_EVENTS";
                Finding::no(feature, format!("nothing ({error})"), change)
            }
        }
    }

    /// Opens the pipe: with rings as they are wanted, and else with the smallest, to learn the rest.
    fn pipe(&mut self, options: &Options) -> [Finding; 3] {
        let features = [Feature::LockedMemory, Feature::AdaptiveWakeup, Feature::ExactLoss];
        let Some(object) = &mut self.object else {
            return features.map(|feature| self.untried(feature));
        };
        let limits = conditions::memory_limits(self.held);
        let (memory, pipe) = match open(object, options) {
            Ok(pipe) => {
                let uses = format!("{} KiB of ring for each CPU; {limits}", options.bytes() >> 10);
                (Finding::yes(Feature::LockedMemory, uses), pipe)
            }
            Err(error) => {
                let memory = no_memory(&error, &limits, options);
                let smallest = options.clone().bytes_per_cpu(page_size());
                match open(object, &smallest) {
                    Ok(pipe) => (memory, pipe),
                    Err(error) => {
                        let change = error.to_string();
                        let none = |feature| Finding::no(feature, "no pipe opens", &*change);
                        return [memory, none(features[1]), none(features[2])];
                    }
                }
            }
        };
        [memory, adaptive_wakeup(&pipe), exact_loss(&pipe)]
    }

    fn kprobes(&mut self) -> Finding {
        if features::kprobe_pmu().is_none() {
            return Finding::no(Feature::Kprobes, WITHOUT_KPROBES, KPROBES);
        }
        let uses = match features::has_cookies() {
            true => "one program for all kprobes, by attach cookie",
            false => "a program for each, since there are no cookies before 5.15",
        };
        // Every kernel has this function, and nobody calls it meanwhile.
        self.attach(Feature::Kprobes, "kprobe:kernel_restart", uses)
    }

    fn tracepoints(&mut self) -> Finding {
        let spec = "tracepoint:sched:sched_process_exit";
        self.attach(Feature::Tracepoints, spec, "a perf event for each")
    }

    fn raw_tracepoints(&mut self) -> Finding {
        let spec = "rawtp:sched_process_exit";
        self.attach(Feature::RawTracepoints, spec, "a program for each")
    }

    fn uprobes(&mut self) -> Finding {
        if features::uprobe_pmu().is_none() {
            return Finding::no(Feature::Uprobes, "nothing", UPROBES);
        }
        // What this process ran first, and does not run again: whether it is stripped or not.
        let spec = "uprobe:/proc/self/exe:_start";
        self.attach_as(Feature::Uprobes, spec, "a perf event for each", |attacher, spec| {
            let failed = |source| TraceError::Binary { spec: spec.clone(), source };
            let binary = Binary::open("/proc/self/exe").map_err(failed)?;
            let entry = binary.entry().map_err(failed)?;
            attacher.uprobe_at(&spec, binary.path(), entry, 0).map(|link| vec![link])
        })
    }

    /// Attaches a probe as a trace would, and detaches it.
    fn attach(&mut self, feature: Feature, spec: &str, uses: &str) -> Finding {
        self.attach_as(feature, spec, uses, |attacher, spec| {
            attacher.attach(&Probe::new(spec, Vec::new()), 0)
        })
    }

    fn attach_as(
        &mut self,
        feature: Feature,
        spec: &str,
        uses: &str,
        attach: impl FnOnce(&mut Attacher<'_>, ProbeSpec) -> Result<Vec<Link>, TraceError>,
    ) -> Finding {
        let Some(object) = &mut self.object else { return self.untried(feature) };
        let attached = spec.parse::<ProbeSpec>().map_err(TraceError::load).and_then(|spec| {
            attach(&mut Attacher::new(object, None, KernelTypes::default()), spec)
        });
        match attached {
            Ok(_) => Finding::yes(feature, uses),
            Err(TraceError::Attach { source, .. }) if is_refusal(&source) => {
                Finding::no(feature, "nothing", self.permission())
            }
            Err(TraceError::Tracefs { .. }) => {
                Finding::no(feature, "nothing, for want of tracefs", TRACEFS)
            }
            Err(error) => Finding::no(feature, "nothing", error.to_string()),
        }
    }

    fn attach_cookies(&self) -> Finding {
        let feature = Feature::AttachCookies;
        if self.object.is_none() {
            return self.untried(feature);
        }
        match features::has_cookies() {
            true => Finding::yes(feature, "one program for all probes of a sort"),
            false => Finding::no(feature, "a program for each probe", "kernel 5.15"),
        }
    }

    fn kprobe_multi(&self) -> Finding {
        let feature = Feature::KprobeMulti;
        let linked = load_empty(Purpose::ManyFunctions).and_then(|program| {
            link_kprobe_multi(program.as_fd(), Places::Names(&[c"kernel_restart"]), &[0], false)
        });
        let uses = "a perf event for each function that a pattern matches";
        match linked {
            Ok(_) => Finding::yes(feature, "one link for all functions that a pattern matches"),
            Err(error) if is_refusal(&error) => Finding::no(feature, uses, self.permission()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Finding::no(feature, uses, "a kernel with CONFIG_FPROBE")
            }
            Err(error) => {
                Finding::no(feature, uses, format!("kernel 5.18, with CONFIG_FPROBE ({error})"))
            }
        }
    }

    fn tracefs(&self) -> Finding {
        match Tracefs::open() {
            Ok(tracefs) => Finding::yes(Feature::Tracefs, tracefs.root().display().to_string()),
            Err(TraceError::Tracefs { source }) => {
                Finding::no(Feature::Tracefs, format!("nothing ({source})"), TRACEFS)
            }
            Err(error) => Finding::no(Feature::Tracefs, "nothing", error.to_string()),
        }
    }
}

fn open(object: &mut Object, options: &Options) -> Result<EvPipe, OpenError> {
    EvPipe::open(object.pipe_parts()?, options)
}

fn no_memory(error: &OpenError, limits: &str, options: &Options) -> Finding {
    let feature = Feature::LockedMemory;
    match error {
        OpenError::Map { source, .. } if is_refusal(source) => Finding::no(
            feature,
            format!("less than {} KiB of ring for each CPU; {limits}", options.bytes() >> 10),
            "fewer bytes (-B), a higher sysctl kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK \
             (ulimit -l), or CAP_IPC_LOCK",
        ),
        error => Finding::no(feature, "nothing", error.to_string()),
    }
}

fn adaptive_wakeup(pipe: &EvPipe) -> Finding {
    match pipe.fallback() {
        None => Finding::yes(Feature::AdaptiveWakeup, "records packed, and woken for when idle"),
        Some(why) => Finding::no(
            Feature::AdaptiveWakeup,
            format!("a watermark and a timer ({why})"),
            "kernel 5.10 (arrays that can be mapped, 5.5; programs run on a chosen CPU, 5.10)",
        ),
    }
}

fn exact_loss(pipe: &EvPipe) -> Finding {
    match pipe.queues().first().and_then(|queue| queue.kernel_lost()) {
        Some(_) => Finding::yes(Feature::ExactLoss, "the kernel's own count (PERF_FORMAT_LOST)"),
        None => {
            let uses = "the eBPF side's tally, and what later records tell";
            Finding::no(Feature::ExactLoss, uses, "kernel 6.0 (PERF_FORMAT_LOST)")
        }
    }
}
