//! What a pattern stands for: attached at once where the kernel can (kprobe.multi, 5.18+), else one by one.

use super::super::binary::BinaryError;
use super::super::error::TraceError;
use super::super::features;
use super::super::probe::Probe;
use super::super::spec::Provider;
use super::kprobe::{is_return, sort};
use super::{Attacher, Link, Links, c_name};
use crate::sys::bpf::multi::{Places, link_kprobe_multi};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{CStr, CString};
use std::io;

impl Attacher<'_> {
    /// Attaches probes that a pattern stands for, numbered from `first` on, and tells how many of them the
    /// kernel refused by themselves. `each` is called when so many more are done.
    pub(in super::super) fn attach_matches(
        &mut self,
        probes: &[Probe],
        first: usize,
        links: &mut Links,
        each: &mut dyn FnMut(usize),
    ) -> Result<usize, TraceError> {
        let is_function = probes
            .iter()
            .all(|probe| matches!(probe.spec().provider(), Provider::Kprobe | Provider::Kretprobe));
        // Calls are known by where the stack is when they return, which is another place then.
        let is_call = probes.iter().any(Probe::is_call);
        if is_function && !is_call && features::has_kprobe_multi() {
            match self.at_once(probes, first)? {
                Ok(link) => {
                    each(probes.len());
                    links.probes.push((None, link));
                    return Ok(0);
                }
                // It refuses all of them if it does one. One by one, it is known which.
                Err(error) => log::debug!("{} functions at once: {error}", probes.len()),
            }
        }
        self.one_by_one(probes, first, links, each)
    }

    fn at_once(&mut self, probes: &[Probe], first: usize) -> Result<io::Result<Link>, TraceError> {
        let Some(spec) = probes.first().map(Probe::spec) else { return Err(TraceError::NoProbe) };
        let cookies: Vec<u64> = (first as u64..).take(probes.len()).collect();
        let returns = is_return(spec);
        let specs = probes.iter().map(Probe::spec);
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        match spec.module() {
            // The kernel would look everywhere.
            Some(module) => {
                for spec in specs {
                    addresses.push(self.address(spec, module)?);
                }
            }
            None => names = specs.map(c_name).collect::<Result<Vec<CString>, _>>()?,
        }
        let names: Vec<&CStr> = names.iter().map(CString::as_c_str).collect();
        let places = match names.as_slice() {
            [] => Places::Addresses(&addresses),
            names => Places::Names(names),
        };
        let program = self.object.multi_program(&format!("{}_by_cookie", sort(spec)))?;
        Ok(link_kprobe_multi(program, places, &cookies, returns)
            .map(|link| Link::Multi { _link: link }))
    }

    fn one_by_one(
        &mut self,
        probes: &[Probe],
        first: usize,
        links: &mut Links,
        each: &mut dyn FnMut(usize),
    ) -> Result<usize, TraceError> {
        make_room_for_descriptors(4 * probes.len() as u64);
        let mut refused = 0;
        let mut refusal = None;
        for (number, probe) in (first..).zip(probes) {
            match self.one(probe, number as u32)? {
                Ok(attached) => links.add(number, attached),
                Err(why) => {
                    refused += 1;
                    refusal.get_or_insert(why);
                }
            }
            each(1);
        }
        match refusal {
            Some(why) if refused == probes.len() => Err(why),
            _ => Ok(refused),
        }
    }

    /// The inner error, if the kernel will not have this one probed.
    fn one(
        &mut self,
        probe: &Probe,
        number: u32,
    ) -> Result<Result<Vec<Link>, TraceError>, TraceError> {
        match self.attach(probe, number) {
            Ok(links) => Ok(Ok(links)),
            Err(
                why @ (TraceError::UnknownFunction { .. }
                | TraceError::UnknownTracepoint { .. }
                | TraceError::Blacklisted { .. }
                | TraceError::Ambiguous { .. }
                | TraceError::NoInstruction { .. }
                | TraceError::TrampolineRefused { .. }
                | TraceError::Binary { source: BinaryError::NoPlace { .. }, .. }),
            ) => Ok(Err(why)),
            Err(error) => Err(error),
        }
    }
}

/// Lifts this process's limit of descriptors as far as it may, if so many more might not fit.
fn make_room_for_descriptors(count: u64) {
    /// What the rest of a trace needs on most machines.
    const OTHERS: u64 = 512;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < count + OTHERS) {
        // If it cannot be lifted, the kernel tells when there are too many.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}
