//! Kprobes one by one: a perf event each.

use super::super::error::TraceError;
use super::super::features;
use super::super::spec::{ProbeSpec, Provider};
use super::super::symbols;
use super::{Attacher, Link, c_name, unprobeable};
use crate::sys::perf_event::{PerfEvent, Place};
use std::io;

impl Attacher<'_> {
    pub(super) fn kprobe(&mut self, spec: &ProbeSpec, number: u32) -> Result<Link, TraceError> {
        self.kprobe_as(spec, sort(spec), is_return(spec), number)
    }

    /// The same, with programs for hooks of this sort.
    pub(super) fn kprobe_as(
        &mut self,
        spec: &ProbeSpec,
        sort: &str,
        returns: bool,
        number: u32,
    ) -> Result<Link, TraceError> {
        let event = self.kprobe_event(spec, returns)?.map_err(|error| why(spec, error))?;
        self.perf_event(spec, event, sort, number)
    }

    /// The event of a kprobe, or what the kernel says instead.
    pub(super) fn kprobe_event(
        &mut self,
        spec: &ProbeSpec,
        returns: bool,
    ) -> Result<io::Result<PerfEvent>, TraceError> {
        let pmu =
            features::kprobe_pmu().ok_or_else(|| TraceError::NoKprobes { spec: spec.clone() })?;
        let name = c_name(spec)?;
        let place = match spec.module() {
            // The kernel would look everywhere.
            Some(module) => Place::Address(self.address(spec, module)? + spec.offset()),
            None => Place::Function { name: &name, offset: spec.offset() },
        };
        Ok(PerfEvent::kprobe(pmu, place, returns))
    }

    /// Where a function of a module begins.
    pub(super) fn address(&mut self, spec: &ProbeSpec, module: &str) -> Result<u64, TraceError> {
        if !self.addresses.contains_key(module) {
            let read =
                symbols::addresses(module).map_err(|source| TraceError::Symbols { source })?;
            self.addresses.insert(module.to_owned(), read);
        }
        let known = &self.addresses[module];
        let spec = || spec.clone();
        match known.get(spec().name()).map(Vec::as_slice) {
            None if known.is_empty() => {
                Err(TraceError::UnknownModule { spec: spec(), module: module.to_owned() })
            }
            None => {
                let near = symbols::nearest(spec().name(), known.keys().cloned());
                Err(TraceError::UnknownFunction { spec: spec(), near })
            }
            Some([0, ..]) => Err(TraceError::HiddenAddress { spec: spec() }),
            Some(&[address]) => Ok(address),
            Some(several) => Err(TraceError::Ambiguous { spec: spec(), count: several.len() }),
        }
    }
}

/// Whether it is where a function returns.
pub(super) fn is_return(spec: &ProbeSpec) -> bool {
    spec.provider() == Provider::Kretprobe
}

/// What programs for such a probe are called after.
pub(super) fn sort(spec: &ProbeSpec) -> &'static str {
    match spec.provider() {
        Provider::Kretprobe => "kretprobe",
        _ => "kprobe",
    }
}

/// Whether the kernel will not have a probe there, whoever asks.
pub(super) fn is_no_place(error: &io::Error) -> bool {
    const NO_PLACE: [i32; 6] = [
        libc::ENOENT,
        libc::EADDRNOTAVAIL,
        libc::EINVAL,
        libc::EOPNOTSUPP,
        // Between two instructions.
        libc::EILSEQ,
        // In the middle of what ftrace patches.
        libc::EBUSY,
    ];
    error.raw_os_error().is_some_and(|errno| NO_PLACE.contains(&errno))
}

/// The kernel's errno says little: what it means, the symbol table tells.
fn why(spec: &ProbeSpec, source: io::Error) -> TraceError {
    match is_no_place(&source) {
        true => unprobeable(spec, symbols::look_up(spec.name())),
        false => TraceError::Attach { spec: spec.clone(), source },
    }
}
