//! Tries every feature with the tracer's own code.

use super::{Feature, Outcome, no, yes};
use crate::binary::Binary;
use crate::error::{TraceError, for_tracefs};
use crate::hook::Host;
use crate::hook::architecture::Architecture;
use crate::hook::attach::{Attacher, Link};
use crate::kernel::btf::Btf;
use crate::kernel::capabilities::{Capabilities, FOR_UPROBES};
use crate::kernel::confinement::{Confined, Confinement};
use crate::kernel::features::{self, is_refusal};
use crate::kernel::{lockdown, symbols};
use crate::object::{Config, Object, Side};
use crate::resolve::probe::Probe;
use crate::spec::ProbeSpec;
use crate::tracefs::Tracefs;
use probe_sys::bpf::load::{Purpose, load_empty};
use probe_sys::bpf::multi::{FunctionList, link_kprobe_multi};
use probe_sys::cpus;
use probe_sys::hotplug::CpuWatch;
use probe_sys::memory::page_size;
use probe_sys::perf_event::{PerfEvent, WakeAt};
use probe_user::{EvPipe, OpenError, Options};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

const KPROBES: &str = "a kernel with CONFIG_KPROBES, CONFIG_KPROBE_EVENTS and CONFIG_PERF_EVENTS";
const UPROBES: &str = "a kernel with CONFIG_UPROBE_EVENTS and CONFIG_PERF_EVENTS";
const WITHOUT_KPROBES: &str = "nothing; tracepoint:, rawtp: and uprobe: do not need them";

pub(super) fn all(options: &Options) -> [(Feature, Outcome); 19] {
    let held = Capabilities::effective().unwrap_or(Capabilities::NONE);
    let mut trial =
        Trial { architecture: Architecture::HERE, held, object: None, refusal: String::new() };
    let programs = trial.programs();
    let [locked_memory, adaptive_wakeup, exact_loss] = trial.pipe(options);
    [
        (Feature::Capabilities, capabilities(held)),
        (Feature::Lockdown, lockdown()),
        (Feature::Programs, programs),
        (Feature::PerfEvents, trial.perf_events()),
        (Feature::LockedMemory, locked_memory),
        (Feature::AdaptiveWakeup, adaptive_wakeup),
        (Feature::ExactLoss, exact_loss),
        (Feature::Kprobes, trial.kprobes()),
        (Feature::AttachCookies, trial.attach_cookies()),
        (Feature::KprobeMulti, trial.kprobe_multi()),
        (Feature::Fentry, trial.fentry()),
        (Feature::Tracefs, trial.tracefs()),
        (Feature::Tracepoints, trial.tracepoints()),
        (Feature::RawTracepoints, trial.raw_tracepoints()),
        (Feature::Uprobes, trial.uprobes()),
        (Feature::Btf, btf()),
        (Feature::KernelSymbols, kernel_symbols()),
        (Feature::CpuHotplug, cpu_hotplug()),
        (Feature::Confinement, confinement()),
    ]
}

struct Trial {
    architecture: Architecture,
    held: Capabilities,
    /// The tracer's object, if it loads.
    object: Option<Object>,
    /// What to change if it does not load.
    refusal: String,
}

impl Trial {
    /// What to change when the kernel denies permission.
    fn permission(&self) -> String {
        match self.held.missing_to_trace() {
            Capabilities::NONE => paranoia(self.held),
            missing => lacking(missing),
        }
    }

    /// The outcome for a feature that cannot be tried without programs.
    fn untried(&self) -> Outcome {
        no("not tried, because programs do not load", &*self.refusal)
    }

    fn programs(&mut self) -> Outcome {
        // If a program is hit, it ignores all processes but this one, which does not hit it.
        let config = Config { only_pid: std::process::id(), ..Config::default() };
        let loaded = Object::load(&config, &[]).and_then(|mut object| {
            object.program_of(Side::Kernel, "raw_tracepoint_by_number", 0)?;
            Ok(object)
        });
        match loaded {
            Ok(object) => {
                self.object = Some(object);
                yes("the object that `probe` is built with")
            }
            Err(error) => {
                self.refusal = match self.held.missing_to_trace() {
                    Capabilities::NONE => error.to_string(),
                    missing => lacking(missing),
                };
                no("nothing", &*self.refusal)
            }
        }
    }

    fn perf_events(&self) -> Outcome {
        let cpu = cpus::online().ok().and_then(|cpus| cpus.first().copied()).unwrap_or_default();
        match PerfEvent::bpf_output(cpu, WakeAt::Events(1)) {
            Ok(_) => yes(paranoid_level()),
            Err(error) if is_refusal(&error) => no(paranoid_level(), paranoia(self.held)),
            Err(error) => {
                let change = "a kernel with CONFIG_PERF_EVENTS and CONFIG_BPF_EVENTS";
                no(format!("nothing ({error})"), change)
            }
        }
    }

    /// Opens the pipe with the requested rings or, if that fails, with the smallest ones, to check the
    /// other features. Returns the outcomes for the memory of rings, adaptive wakeup and exact losses.
    fn pipe(&mut self, options: &Options) -> [Outcome; 3] {
        let Some(object) = &mut self.object else { return [(); 3].map(|()| self.untried()) };
        let limits = memory_limits(self.held);
        let ring = format!("{} KiB of ring for each CPU", options.bytes() >> 10);
        let (memory, pipe) = match open(object, options) {
            Ok(pipe) => {
                let (each, cpus) = (pipe.bytes_per_cpu() >> 10, pipe.queues().len());
                (yes(format!("{ring}, {} KiB in all; {limits}", each * cpus)), Ok(pipe))
            }
            Err(error) => {
                let smallest = options.clone().bytes_per_cpu(page_size());
                (no_memory(&error, &format!("{ring}; {limits}")), open(object, &smallest))
            }
        };
        match pipe {
            Ok(pipe) => [memory, adaptive_wakeup(&pipe), exact_loss(&pipe)],
            Err(error) => {
                let none = no("nothing: the pipe does not open", error.to_string());
                [memory, none.clone(), none]
            }
        }
    }

    /// Why functions cannot be traced on this architecture, if they cannot.
    fn unsupported(&self, spec: &str) -> Option<Outcome> {
        let spec = spec.parse().ok()?;
        let error = self.architecture.check(&spec).err()?;
        Some(no(format!("nothing ({error})"), "a machine with x86-64"))
    }

    fn kprobes(&mut self) -> Outcome {
        if let Some(unsupported) = self.unsupported("kprobe:kernel_restart") {
            return unsupported;
        }
        if features::kprobe_pmu().is_none() {
            return no(WITHOUT_KPROBES, KPROBES);
        }
        let uses = match features::has_cookies() {
            true => "one program for all kprobes, by attach cookie",
            false => "a program for each, because attach cookies require 5.15",
        };
        if let Some(off) = features::kprobes_are_off().or_else(features::ftrace_is_off) {
            return no("nothing", off);
        }
        // Every kernel has this function, and it is not called during the check.
        self.attach("kprobe:kernel_restart", uses)
    }

    fn fentry(&mut self) -> Outcome {
        if let Some(off) = features::ftrace_is_off() {
            return no("nothing", off);
        }
        let (uses, change) = self.attach("fentry:kernel_restart", "a trampoline for each function");
        match change {
            None => yes(uses),
            Some(change) if features::kprobe_pmu().is_some() => {
                no("nothing; kprobe: and kretprobe: do not need them", change)
            }
            Some(change) => no(uses, change),
        }
    }

    fn tracepoints(&mut self) -> Outcome {
        self.attach("tracepoint:sched:sched_process_exit", "a perf event for each")
    }

    fn raw_tracepoints(&mut self) -> Outcome {
        self.attach("rawtp:sched_process_exit", "a program for each")
    }

    fn uprobes(&mut self) -> Outcome {
        if features::uprobe_pmu().is_none() {
            return no("nothing", UPROBES);
        }
        if let Some(unsupported) = self.unsupported("uprobe:/proc/self/exe:_start") {
            return unsupported;
        }
        // The entry point: even a stripped program has one, and this process does not run it again.
        let spec = "uprobe:/proc/self/exe:_start";
        self.attach_as(spec, "a perf event for each", |attacher, spec| {
            let failed = |source| TraceError::Binary { spec: spec.clone(), source };
            let binary = Binary::open("/proc/self/exe", &[]).map_err(failed)?;
            let entry = binary.entry().map_err(failed)?;
            attacher.uprobe_at(&spec, &binary, entry, 0).map(|link| vec![link])
        })
    }

    /// Attaches a probe as a trace does, and detaches it.
    fn attach(&mut self, spec: &str, uses: &str) -> Outcome {
        self.attach_as(spec, uses, |attacher, spec| {
            attacher.attach(&Probe::new(spec, Vec::new()), 0)
        })
    }

    fn attach_as(
        &mut self,
        spec: &str,
        uses: &str,
        attach: impl FnOnce(&mut Attacher<'_>, ProbeSpec) -> Result<Vec<Link>, TraceError>,
    ) -> Outcome {
        let Some(object) = &mut self.object else { return self.untried() };
        let attached = spec
            .parse::<ProbeSpec>()
            .map_err(TraceError::load)
            .and_then(|spec| attach(&mut Attacher::new(object, Host::default()), spec));
        match attached {
            Ok(_) => yes(uses),
            Err(TraceError::Attach { spec, source }) if is_refusal(&source) => {
                match spec.provider().is_in_program() && self.held.may_lack_uprobes() {
                    true => no("nothing", FOR_UPROBES),
                    false => no("nothing", self.permission()),
                }
            }
            Err(TraceError::Tracefs { source }) => {
                no("nothing, without tracefs", for_tracefs(&source))
            }
            Err(error) => no("nothing", error.to_string()),
        }
    }

    fn attach_cookies(&self) -> Outcome {
        if self.object.is_none() {
            return self.untried();
        }
        match features::has_cookies() {
            true => yes("one program for all probes of a type"),
            false => no("a program for each probe", "kernel 5.15"),
        }
    }

    fn kprobe_multi(&self) -> Outcome {
        if let Some(unsupported) = self.unsupported("kprobe:kernel_restart") {
            return unsupported;
        }
        let linked = load_empty(Purpose::ManyFunctions).and_then(|program| {
            link_kprobe_multi(
                program.as_fd(),
                FunctionList::Names(&[c"kernel_restart"]),
                &[0],
                false,
            )
        });
        let uses = "a perf event for each function that a pattern matches";
        match linked {
            Ok(_) => yes("one link for all functions that a pattern matches"),
            Err(error) if is_refusal(&error) => no(uses, self.permission()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                no(uses, "a kernel with CONFIG_FPROBE")
            }
            Err(error) => no(uses, format!("kernel 5.18, with CONFIG_FPROBE ({error})")),
        }
    }

    fn tracefs(&self) -> Outcome {
        match Tracefs::open() {
            Ok(tracefs) => yes(tracefs.root().display().to_string()),
            Err(TraceError::Tracefs { source }) => {
                no(format!("nothing ({source})"), for_tracefs(&source))
            }
            Err(error) => no("nothing", error.to_string()),
        }
    }
}

fn open(object: &mut Object, options: &Options) -> Result<EvPipe, OpenError> {
    EvPipe::open(object.pipe_parts()?, options)
}

/// `ring` is what does not fit.
fn no_memory(error: &OpenError, ring: &str) -> Outcome {
    match error {
        OpenError::Mmap { cause, .. } if is_refusal(cause) => no(
            format!("less than {ring}"),
            "fewer bytes (-B), a higher sysctl kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK \
             (ulimit -l), or CAP_IPC_LOCK",
        ),
        error => no("nothing", error.to_string()),
    }
}

fn adaptive_wakeup(pipe: &EvPipe) -> Outcome {
    match pipe.fallback() {
        None => yes("packed records, and wakeups when idle"),
        Some(why) => no(
            format!("a watermark and a timer ({why})"),
            "kernel 5.10 (arrays that can be mapped, 5.5; programs run on a chosen CPU, 5.10)",
        ),
    }
}

fn exact_loss(pipe: &EvPipe) -> Outcome {
    match pipe.queues().first().and_then(|queue| queue.kernel_lost()) {
        Some(_) => yes("the kernel's own count (PERF_FORMAT_LOST)"),
        None => {
            let uses = "the eBPF side's tally, and what later records report";
            no(uses, "kernel 6.0 (PERF_FORMAT_LOST)")
        }
    }
}

/// The capabilities that affect tracing.
fn capabilities(held: Capabilities) -> Outcome {
    let matter = Capabilities::BPF
        | Capabilities::PERFMON
        | Capabilities::SYS_ADMIN
        | Capabilities::IPC_LOCK
        | Capabilities::DAC_READ_SEARCH;
    let uses = held.of(matter).to_string();
    match held.missing_to_trace() {
        Capabilities::NONE => yes(uses),
        missing => no(uses, lacking(missing)),
    }
}

/// How to get the missing capabilities.
fn lacking(missing: Capabilities) -> String {
    let level = sysctl::<i32>("kernel/perf_event_paranoid").filter(|level| *level > HIGHEST);
    let lower = level.map_or("", |_| ", and sysctl kernel.perf_event_paranoid=2");
    format!("{missing}: run as root, or setcap cap_bpf,cap_perfmon+ep on the binary{lower}")
}

/// What the kernel's lockdown and its security modules forbid.
fn lockdown() -> Outcome {
    let security = |file: &str| fs::read_to_string(Path::new("/sys/kernel/security").join(file));
    let bpf_lsm = match security("lsm") {
        Ok(list) if list.trim().split(',').any(|name| name == "bpf") => {
            "; the bpf LSM is on, whose policies can refuse programs"
        }
        _ => "",
    };
    match lockdown::level() {
        level if lockdown::forbids_tracing(level.as_deref()) => no(
            format!("confidentiality: nothing may read the kernel's memory{bpf_lsm}"),
            lockdown::CHANGE,
        ),
        Some(level) => yes(format!("{level}{bpf_lsm}")),
        None => yes(format!("not known{bpf_lsm}")),
    }
}

/// What this process needs to open perf events.
fn paranoia(held: Capabilities) -> String {
    let level = sysctl("kernel/perf_event_paranoid").unwrap_or(HIGHEST);
    match held.contains(Capabilities::PERFMON) {
        _ if level > HIGHEST => format!(
            "CAP_SYS_ADMIN, or CAP_PERFMON and sysctl kernel.perf_event_paranoid=2: {level} is a patch of \
             distributions, where CAP_PERFMON is not enough"
        ),
        false => "CAP_PERFMON".to_owned(),
        true => {
            "a seccomp profile and a security module that allow perf_event_open: this process has \
                 CAP_PERFMON"
                .to_owned()
        }
    }
}

/// The highest level of `kernel.perf_event_paranoid`, apart from those of distributions.
const HIGHEST: i32 = 2;

/// The setting of `kernel.perf_event_paranoid`, in words.
fn paranoid_level() -> String {
    match sysctl::<i32>("kernel/perf_event_paranoid") {
        Some(level) => format!("kernel.perf_event_paranoid is {level}"),
        None => "kernel.perf_event_paranoid does not exist".to_owned(),
    }
}

/// The limits on the memory of rings, in words.
fn memory_limits(held: Capabilities) -> String {
    let lifted = held.contains(Capabilities::IPC_LOCK);
    let limit = match getrlimit(Resource::Memlock).current {
        Some(bytes) if lifted => format!("{} KiB, which CAP_IPC_LOCK lifts", bytes >> 10),
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => "unlimited".to_owned(),
    };
    let free: u64 = sysctl("kernel/perf_event_mlock_kb").unwrap_or_default();
    format!("kernel.perf_event_mlock_kb is {free} for each CPU, RLIMIT_MEMLOCK {limit}")
}

/// The kernel's types, which every user can read.
fn btf() -> Outcome {
    match Btf::kernel() {
        Ok(_) => yes("names and types of arguments"),
        Err(error) => no(
            "arguments are shown as registers",
            format!("a kernel with CONFIG_DEBUG_INFO_BTF ({error})"),
        ),
    }
}

/// Whether the kernel shows this process where its functions are.
fn kernel_symbols() -> Outcome {
    match symbols::are_hidden() {
        false => yes("names for addresses in the kernel"),
        true => no("numbers, because kernel.kptr_restrict hides addresses", symbols::TO_SEE),
    }
}

/// Whether this process receives the kernel's CPU hotplug events.
fn cpu_hotplug() -> Outcome {
    match CpuWatch::new() {
        Ok(_) => yes("uevents for CPUs that go online or offline"),
        Err(error) => no(
            format!("nothing, so CPUs that come online later are not traced ({error})"),
            "allow the process a NETLINK_KOBJECT_UEVENT socket (CONFIG_NET, seccomp)",
        ),
    }
}

/// What confines `probe` once probes are attached. A thread tries it, and ends.
fn confinement() -> Outcome {
    match thread::spawn(|| Confinement::default().try_in_thread()).join() {
        Ok(Ok(Confined { has_seccomp: true, has_landlock: true })) => {
            yes("seccomp and Landlock, in case probe is compromised")
        }
        Ok(Ok(confined)) => no(
            format!("{confined}, in case probe is compromised"),
            "a kernel (5.13+) with CONFIG_SECCOMP_FILTER and CONFIG_SECURITY_LANDLOCK, and landlock in its lsm= list",
        ),
        Ok(Err(error)) => no(format!("nothing ({error})"), "allow the process seccomp(2)"),
        Err(_) => no("nothing", "report this: the trial panicked"),
    }
}

fn sysctl<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_reported_as_unavailable_on_other_architectures() {
        let (held, refusal) = (Capabilities::NONE, String::new());
        let architecture = Architecture("aarch64");
        let mut trial = Trial { architecture, held, object: None, refusal };
        for outcome in [trial.kprobes(), trial.kprobe_multi(), trial.uprobes()] {
            assert_eq!(outcome.1.as_deref(), Some("a machine with x86-64"));
            assert!(outcome.0.contains("does not know which registers"), "{}", outcome.0);
        }
    }
}
