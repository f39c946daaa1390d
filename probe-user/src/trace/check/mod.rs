//! What this kernel and these privileges allow.
//!
//! Nothing is concluded from a version: each feature is tried as the tracer uses it, and let go of at
//! once. Only tracefs stays mounted, if it was not and this process may mount it.
//!
//! ```no_run
//! use probe_user::Options;
//! use probe_user::trace::check::Report;
//!
//! let report = Report::take(&Options::new());
//! for finding in report.findings().iter().filter(|finding| !finding.available) {
//!     println!("{}: {:?}", finding.feature.name(), finding.change);
//! }
//! ```

mod conditions;
mod table;
mod trial;

use crate::options::Options;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Something that the tracer makes use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// `CAP_BPF` and `CAP_PERFMON`, or what stands for them.
    Capabilities,
    /// The kernel's lockdown, and LSMs that have a say. Available where none forbids tracing.
    Lockdown,
    /// The tracer's eBPF programs load.
    Programs,
    /// Perf events for eBPF programs to write to.
    PerfEvents,
    /// Memory for the rings.
    LockedMemory,
    /// Probes on kernel functions.
    Kprobes,
    /// Many kernel functions by one link.
    KprobeMulti,
    /// Programs know which of their probes was hit.
    AttachCookies,
    /// Names, ids and formats of tracepoints.
    Tracefs,
    /// Probes on tracepoints.
    Tracepoints,
    /// Probes on raw tracepoints.
    RawTracepoints,
    /// Probes on functions of programs and libraries.
    Uprobes,
    /// [`Wakeup::Adaptive`](crate::Wakeup::Adaptive).
    AdaptiveWakeup,
    /// The kernel tells at any time how much it has lost.
    ExactLoss,
    /// The kernel's types.
    Btf,
    /// Notices of CPUs that come and go.
    CpuHotplug,
}

impl Feature {
    /// Its name, which is its key in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::Lockdown => "lockdown",
            Self::Programs => "programs",
            Self::PerfEvents => "perf_events",
            Self::LockedMemory => "locked_memory",
            Self::Kprobes => "kprobes",
            Self::KprobeMulti => "kprobe_multi",
            Self::AttachCookies => "attach_cookies",
            Self::Tracefs => "tracefs",
            Self::Tracepoints => "tracepoints",
            Self::RawTracepoints => "raw_tracepoints",
            Self::Uprobes => "uprobes",
            Self::AdaptiveWakeup => "adaptive_wakeup",
            Self::ExactLoss => "exact_loss",
            Self::Btf => "btf",
            Self::CpuHotplug => "cpu_hotplug",
        }
    }
}

/// What was found out about a feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The feature.
    #[serde(skip)]
    pub feature: Feature,
    /// Whether it works here, for this process.
    pub available: bool,
    /// What the tracer uses, or makes do with.
    pub uses: String,
    /// What to change for it to become available, by name.
    pub change: Option<String>,
}

impl Finding {
    fn yes(feature: Feature, uses: impl Into<String>) -> Self {
        Self { feature, available: true, uses: uses.into(), change: None }
    }

    fn no(feature: Feature, uses: impl Into<String>, change: impl Into<String>) -> Self {
        Self { feature, available: false, uses: uses.into(), change: Some(change.into()) }
    }
}

/// What this kernel and these privileges allow. It shows as a table.
///
/// As JSON it is one object, whose keys are stable; there may be more of them in later versions:
///
/// | key | |
/// | --- | --- |
/// | `kernel` | the kernel's release, a string |
/// | `can_trace_kprobes` | whether `probe trace FUNCTION` works |
/// | `features` | an object with [`Feature::name`] as keys |
/// | `features.*.available` | whether the feature works |
/// | `features.*.uses` | what the tracer uses, or makes do with: a text |
/// | `features.*.change` | what to change for it to become available: a text, or `null` if it is |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    kernel: String,
    findings: Vec<Finding>,
}

impl Report {
    /// Tries every feature, with rings as `options` have them. It takes a fraction of a second.
    pub fn take(options: &Options) -> Self {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        Self { kernel, findings: trial::all(options) }
    }

    /// The kernel's release.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// What was found out, each feature once.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_keys_that_are_documented() {
        let findings = vec![
            Finding::yes(Feature::Programs, "a"),
            Finding::no(Feature::Kprobes, "b \"c\"\n", "d"),
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
    fn kprobes_take_all_that_carries_them() {
        let needed =
            [Feature::Programs, Feature::PerfEvents, Feature::LockedMemory, Feature::Kprobes];
        let with = |missing: Option<Feature>| {
            let find = |feature| match missing == Some(feature) {
                true => Finding::no(feature, "", ""),
                false => Finding::yes(feature, ""),
            };
            Report { kernel: String::new(), findings: needed.map(find).to_vec() }
        };
        assert!(with(None).can_trace_kprobes());
        for feature in needed {
            assert!(!with(Some(feature)).can_trace_kprobes(), "{feature:?}");
        }
    }

    #[test]
    fn every_feature_is_reported_once_and_told_how_to_get() {
        // Whatever this machine allows.
        let report = Report::take(&Options::new());
        let mut names: Vec<_> =
            report.findings().iter().map(|found| found.feature.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 16);
        assert_eq!(report.findings().len(), 16);
        for found in report.findings() {
            assert_eq!(found.available, found.change.is_none(), "{found:?}");
            assert!(!found.uses.is_empty() && !found.uses.contains('\n'), "{found:?}");
        }
    }
}
