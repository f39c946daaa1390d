//! Checks what this kernel and the process's privileges allow.
//!
//! Nothing is inferred from the kernel's version: each feature is tried as the tracer uses it, and
//! released at once. The exception is tracefs: if it was not mounted, and this process may mount it,
//! it stays mounted.
//!
//! ```no_run
//! use probe_user::Options;
//! use probe_tracer::check::Report;
//!
//! let report = Report::take(&Options::new());
//! for finding in report.findings().iter().filter(|finding| !finding.available) {
//!     println!("{}: {:?}", finding.feature.name(), finding.change);
//! }
//! ```

mod trial;

use probe_sys::escape::Escaped;
use probe_user::Options;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::fmt;

/// A feature that the tracer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// `CAP_BPF` and `CAP_PERFMON`, or capabilities that include them.
    Capabilities,
    /// The kernel's lockdown, and the bpf LSM. Available unless lockdown forbids tracing.
    Lockdown,
    /// Loading the tracer's eBPF programs.
    Programs,
    /// Perf events for eBPF programs to write to.
    PerfEvents,
    /// Memory for the rings.
    LockedMemory,
    /// Probes on kernel functions.
    Kprobes,
    /// Attaching many kernel functions with one link.
    KprobeMulti,
    /// Trampolines at kernel functions.
    Fentry,
    /// Cookies that identify the probe that was hit.
    AttachCookies,
    /// Names, ids and formats of tracepoints.
    Tracefs,
    /// Probes on tracepoints.
    Tracepoints,
    /// Probes on raw tracepoints.
    RawTracepoints,
    /// Probes on functions of programs and libraries.
    Uprobes,
    /// [`Wakeup::Adaptive`](probe_user::Wakeup::Adaptive).
    AdaptiveWakeup,
    /// The kernel's own count of lost records, readable at any time.
    ExactLoss,
    /// The kernel's types.
    Btf,
    /// The addresses of the kernel's functions, which give addresses names.
    KernelSymbols,
    /// Notification when CPUs go online or offline.
    CpuHotplug,
    /// Seccomp and Landlock, which confine `probe` once probes are attached.
    Confinement,
}

impl Feature {
    /// The feature's name, which is its key in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::Lockdown => "lockdown",
            Self::Programs => "programs",
            Self::PerfEvents => "perf_events",
            Self::LockedMemory => "locked_memory",
            Self::Kprobes => "kprobes",
            Self::KprobeMulti => "kprobe_multi",
            Self::Fentry => "fentry",
            Self::AttachCookies => "attach_cookies",
            Self::Tracefs => "tracefs",
            Self::Tracepoints => "tracepoints",
            Self::RawTracepoints => "raw_tracepoints",
            Self::Uprobes => "uprobes",
            Self::AdaptiveWakeup => "adaptive_wakeup",
            Self::ExactLoss => "exact_loss",
            Self::Btf => "btf",
            Self::KernelSymbols => "kernel_symbols",
            Self::CpuHotplug => "cpu_hotplug",
            Self::Confinement => "confinement",
        }
    }
}

/// The result of checking a feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The feature.
    #[serde(skip)]
    pub feature: Feature,
    /// Whether it works here, for this process.
    pub available: bool,
    /// What the tracer uses, or falls back to.
    pub uses: String,
    /// What to change to make the feature available; `None` if it is.
    pub change: Option<String>,
}

impl Finding {
    fn new(feature: Feature, (uses, change): Outcome) -> Self {
        Self { feature, available: change.is_none(), uses, change }
    }
}

/// What a trial has found: what the tracer uses, and what to change if the feature is not available.
type Outcome = (String, Option<String>);

fn yes(uses: impl Into<String>) -> Outcome {
    (uses.into(), None)
}

fn no(uses: impl Into<String>, change: impl Into<String>) -> Outcome {
    (uses.into(), Some(change.into()))
}

/// What this kernel and the process's privileges allow. It prints as a table.
///
/// As JSON, it is one object. Its keys are stable; later versions may add more:
///
/// | key | |
/// | --- | --- |
/// | `kernel` | the kernel's release, a string |
/// | `can_trace_kprobes` | whether `probe trace FUNCTION` works |
/// | `features` | an object with [`Feature::name`] as keys |
/// | `features.*.available` | whether the feature works |
/// | `features.*.uses` | what the tracer uses, or falls back to: a string |
/// | `features.*.change` | what to change to make it available: a string, or `null` if it is |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    kernel: String,
    findings: Vec<Finding>,
}

impl Report {
    /// Tries every feature, with rings sized by `options`. This takes a fraction of a second.
    pub fn take(options: &Options) -> Self {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let found = trial::all(options).map(|(feature, outcome)| Finding::new(feature, outcome));
        Self { kernel, findings: found.into() }
    }

    /// The kernel's release.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// The results, one for each feature.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether a feature works.
    pub fn is_available(&self, feature: Feature) -> bool {
        self.findings.iter().any(|finding| finding.feature == feature && finding.available)
    }

    /// Whether kernel functions can be traced.
    pub fn can_trace_kprobes(&self) -> bool {
        let needed =
            [Feature::Programs, Feature::PerfEvents, Feature::LockedMemory, Feature::Kprobes];
        needed.into_iter().all(|feature| self.is_available(feature))
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Features<'f>(&'f [Finding]);

        impl Serialize for Features<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|found| (found.feature.name(), found)))
            }
        }

        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("kernel", &self.kernel)?;
        map.serialize_entry("can_trace_kprobes", &self.can_trace_kprobes())?;
        map.serialize_entry("features", &Features(&self.findings))?;
        map.end()
    }
}

/// One line for each feature, below it what to change if it is missing, and the verdict last.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.findings.iter().map(|found| found.feature.name());
        let width = names.map(str::len).max().unwrap_or_default();
        writeln!(f, "{:<width$}      USES", "FEATURE")?;
        for found in &self.findings {
            let available = if found.available { "yes" } else { "no" };
            let uses = Escaped(found.uses.as_bytes());
            writeln!(f, "{:<width$} {available:<4} {uses}", found.feature.name())?;
            if let Some(change) = &found.change {
                writeln!(f, "{:<width$}      → {}", "", Escaped(change.as_bytes()))?;
            }
        }
        let verdict = match self.can_trace_kprobes() {
            true => "functions can be traced",
            false => "functions cannot be traced, see above",
        };
        writeln!(f, "kernel {}: {verdict}", Escaped(self.kernel.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_keys_that_are_documented() {
        let findings = vec![
            Finding::new(Feature::Programs, yes("a")),
            Finding::new(Feature::Kprobes, no("b \"c\"\n", "d")),
        ];
        let report = Report { kernel: "6.12".into(), findings };
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            "{\"kernel\":\"6.12\",\"can_trace_kprobes\":false,\"features\":{\
             \"programs\":{\"available\":true,\"uses\":\"a\",\"change\":null},\
             \"kprobes\":{\"available\":false,\"uses\":\"b \\\"c\\\"\\n\",\"change\":\"d\"}}}"
        );
    }

    #[test]
    fn kprobes_need_programs_events_memory_and_kprobes() {
        let needed =
            [Feature::Programs, Feature::PerfEvents, Feature::LockedMemory, Feature::Kprobes];
        let without = |missing: Option<Feature>| {
            let outcome = |feature| if missing == Some(feature) { no("", "") } else { yes("") };
            let findings = needed.map(|feature| Finding::new(feature, outcome(feature)));
            Report { kernel: String::new(), findings: findings.into() }
        };
        assert!(without(None).can_trace_kprobes());
        for feature in needed {
            assert!(!without(Some(feature)).can_trace_kprobes(), "{feature:?}");
        }
    }

    #[test]
    fn every_feature_is_reported_once_and_with_what_to_change() {
        // Whatever this machine allows.
        let report = Report::take(&Options::new());
        let mut names: Vec<_> =
            report.findings().iter().map(|found| found.feature.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 19);
        assert_eq!(report.findings().len(), 19);
        for found in report.findings() {
            assert_eq!(found.available, found.change.is_none(), "{found:?}");
            assert!(!found.uses.is_empty() && !found.uses.contains('\n'), "{found:?}");
        }
    }

    #[test]
    fn the_table_has_aligned_columns_and_a_line_for_each_feature() {
        let findings = vec![
            Finding::new(Feature::ExactLoss, yes("a")),
            Finding::new(Feature::Btf, no("b\x1b[2J", "c\nd")),
        ];
        let report = Report { kernel: "6.12\u{9b}".into(), findings };
        assert_eq!(
            report.to_string().lines().collect::<Vec<_>>(),
            [
                "FEATURE         USES",
                "exact_loss yes  a",
                "btf        no   b\\u{1b}[2J",
                "                → c\\nd",
                "kernel 6.12\\u{9b}: functions cannot be traced, see above",
            ]
        );
    }
}
