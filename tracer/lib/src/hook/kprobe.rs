//! Kernel functions: a perf event for each, or one link for many.

use super::attach::{Attacher, Link, Part, Together, c_name};
use super::expand::{Choice, Expansion};
use super::instead::instead;
use super::{Bulk, Caller, Fields, Hook, Host};
use crate::error::{Result, TraceError};
use crate::kernel::btf::NoPrototype;
use crate::kernel::clones;
use crate::kernel::features;
use crate::kernel::symbols::{self, Extent, Home, Lookup, NO_MODULE, Site};
use crate::object::Side;
use crate::resolve::probe::Probe;
use crate::resolve::{BareFields, FieldSource, FunctionFields, Moment, UntypedFields};
use crate::spec::ProbeSpec;
use probe_perf::nearest::nearest;
use probe_sys::bpf::multi::{FunctionList, link_kprobe_multi};
use probe_sys::perf_event::{PerfEvent, ProbePoint};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::io;

/// The entry or the return of a kernel function.
pub(super) struct Kprobe {
    pub(super) returns: bool,
}

impl Hook for Kprobe {
    fn reads_registers(&self) -> bool {
        true
    }

    /// A kprobe inside a function does not need the tracing of functions.
    fn switched_off(&self, spec: &ProbeSpec) -> Option<&'static str> {
        let may_be_inside = !self.returns && (spec.offset() != 0 || spec.address().is_some());
        let of_functions = || features::ftrace_is_off().filter(|_| !may_be_inside);
        features::kprobes_are_off().or_else(of_functions)
    }

    fn may_be_skipped(&self) -> bool {
        true
    }

    fn replaces_return_address(&self) -> bool {
        self.returns
    }

    fn caller(&self, spec: &ProbeSpec, host: &mut Host) -> Caller {
        let is_entry = || match site_of(spec, false) {
            Ok(Some(site)) => site.offset == 0 && !symbols::is_cold(&site.function),
            Ok(None) => spec.offset() == 0 && !symbols::is_cold(spec.name()),
            Err(_) => false,
        };
        match !self.returns && host.types.follow_frame_pointers() && is_entry() {
            true => Caller::AtEntry,
            false => Caller::InStack,
        }
    }

    fn default_prefix(&self) -> Option<&'static str> {
        (!self.returns).then_some("kprobe:")
    }

    fn list(&self, spec: &ProbeSpec, host: &mut Host) -> Result<Vec<String>> {
        pmu(spec)?;
        if spec.is_glob() {
            let names = host.functions(spec, &[])?.0;
            return Ok(names.iter().map(|name| in_module(spec, name)).collect());
        }
        self.check(spec, host)?;
        if spec.address().is_some() {
            return Ok(vec![spec.name().to_owned()]);
        }
        let found = symbols::look_up(spec.name(), spec.module());
        match found.count == 1 && !symbols::is_blacklisted(spec.name()) {
            true => Ok(vec![in_module(spec, spec.name())]),
            false => Err(unprobeable(spec, found)),
        }
    }

    fn expand(&self, pattern: &ProbeSpec, choice: &Choice, host: &mut Host) -> Result<Expansion> {
        if features::kprobe_pmu().is_none() && !features::has_kprobe_multi() {
            return Err(no_kprobes(pattern));
        }
        let (names, left_out) = host.functions(pattern, &choice.exclude)?;
        Expansion::of_pattern(&names, left_out)
    }

    fn bulk(&self) -> Bulk {
        if features::has_kprobe_multi() { Bulk::AtOnce } else { Bulk::OneByOne }
    }

    fn fields(&self, spec: &ProbeSpec, as_call: bool, host: &mut Host) -> Fields {
        let moment = Moment::of(self.returns, as_call);
        if let Some(site) = site_of(spec, false)? {
            return Ok(match (site.offset, site.is_unique) {
                (0, true) => fields_of_function(&spec.named(&site.function), host, moment),
                // Types do not say which of the functions of a name they describe.
                (0, false) => Box::new(UntypedFields::Kernel(moment)),
                _ => Box::new(BareFields::inside(&site.function)),
            });
        }
        if spec.offset() != 0 {
            check_offset(spec)?;
            return Ok(Box::new(BareFields::inside(spec.name())));
        }
        Ok(fields_of_function(spec, host, moment))
    }

    /// Opening probes is quicker than reading the symbol table.
    fn notes(&self, spec: &ProbeSpec, _as_call: bool, _host: &mut Host) -> Vec<String> {
        let is_name = !spec.is_glob() && spec.address().is_none();
        let Some(pmu) = features::kprobe_pmu().filter(|_| is_name) else { return Vec::new() };
        let made = clones::SUFFIXES.map(|suffix| format!("{}{suffix}0", spec.name()));
        let exists = |name: &&str| {
            let name = CString::new(*name).unwrap_or_default();
            PerfEvent::kprobe(pmu, ProbePoint::Function { name: &name, offset: 0 }, false).is_ok()
        };
        let made: Vec<_> = made.iter().map(String::as_str).filter(exists).collect();
        clones::note(spec.name(), &made).into_iter().collect()
    }

    /// Names may be known where types are not.
    fn check(&self, spec: &ProbeSpec, _host: &mut Host) -> Result<()> {
        if site_of(spec, self.returns)?.is_some() {
            return Ok(());
        }
        match spec.module() {
            Some(module) => addresses_of(spec, Some(module), &addresses(Some(module))?).map(drop),
            None => match symbols::look_up(spec.name(), None) {
                Lookup { count: 0, near, .. } => Err(unknown(spec, near)),
                _ => Ok(()),
            },
        }
    }

    fn attach(
        &self,
        attacher: &mut Attacher<'_>,
        spec: &ProbeSpec,
        part: Part,
        number: u32,
    ) -> Result<Link> {
        let (programs, returns) = part.of_function(self.returns);
        if spec.offset() != 0 && spec.address().is_none() {
            check_offset(spec)?;
        }
        let (pmu, name) = (pmu(spec)?, c_name(spec)?);
        if returns {
            site_of(spec, returns)?;
        }
        let location = match (spec.address(), spec.module()) {
            (Some(address), _) => ProbePoint::Address(address.saturating_add(spec.offset())),
            // By its name, the kernel would look for it in all modules.
            (None, Some(module)) => {
                ProbePoint::Address(attacher.address(spec, module)? + spec.offset())
            }
            (None, None) => {
                let by_name = ProbePoint::Function { name: &name, offset: spec.offset() };
                match features::refuses_shared_names() {
                    true => by_name,
                    false => match attacher.function(spec, None)? {
                        0 => by_name,
                        address => ProbePoint::Address(address + spec.offset()),
                    },
                }
            }
        };
        let event = PerfEvent::kprobe(pmu, location, returns).map_err(|error| why(spec, error))?;
        attacher.perf_event(spec, event, Side::Kernel, (part, programs), number)
    }

    fn attach_at_once(
        &self,
        attacher: &mut Attacher<'_>,
        probes: &[Probe],
        first: usize,
    ) -> Result<Together> {
        let (mut by_name, mut by_address) = (Vec::new(), Vec::new());
        let mut together = Together::default();
        for (number, spec) in (first..).zip(probes.iter().map(Probe::spec)) {
            let Some(module) = spec.module() else {
                by_name.push((number as u64, c_name(spec)?));
                continue;
            };
            // By its name, the kernel would look for it in all modules.
            match attacher.address(spec, module) {
                Ok(address) => by_address.push((number as u64, address)),
                Err(TraceError::UnknownFunction { .. } | TraceError::Ambiguous { .. }) => {
                    together.others.push(number);
                }
                Err(why) => return Err(why),
            }
        }
        let (programs, returns) = Part::Whole.of_function(self.returns);
        let program = attacher.object.multi_program(&format!("{programs}_by_cookie"))?;
        let link_names = |functions: &[(u64, CString)]| {
            let (cookies, names): (Vec<_>, Vec<_>) =
                functions.iter().map(|(number, name)| (*number, name.as_c_str())).unzip();
            link_kprobe_multi(program, FunctionList::Names(&names), &cookies, returns)
        };
        let mut link = link_names(&by_name);
        // A name is not known. From 5.19 to 6.1, the kernel does not know those of functions in modules.
        if let Err(error) = &link
            && error.raw_os_error() == Some(libc::ESRCH)
        {
            let refusal = io::Error::from_raw_os_error(libc::ESRCH);
            let name_of = |number: u64| probes[number as usize - first].spec().name();
            let homes = symbols::homes(by_name.iter().map(|(number, _)| name_of(*number)));
            by_name.retain(|&(number, _)| {
                match homes[name_of(number)] {
                    Home::Kernel => return true,
                    Home::Module(address) => by_address.push((number, address)),
                    Home::Unclear => together.others.push(number as usize),
                }
                false
            });
            together.refusal = (!together.others.is_empty()).then_some(refusal);
            link = link_names(&by_name);
        }
        together.add(by_name.into_iter().map(|(number, _)| number), link);
        if !by_address.is_empty() && !features::passes_cookies_of_addresses() {
            together.others.extend(by_address.drain(..).map(|(number, _)| number as usize));
        }
        let (cookies, addresses): (Vec<_>, Vec<_>) = by_address.into_iter().unzip();
        let functions = FunctionList::Addresses(&addresses);
        let link = link_kprobe_multi(program, functions, &cookies, returns);
        together.add(cookies.into_iter(), link);
        Ok(together)
    }

    fn calls(&self, _spec: &ProbeSpec) -> Option<Side> {
        (!self.returns).then_some(Side::Kernel)
    }
}

/// The name of a function in a spec like this one.
pub(super) fn in_module(spec: &ProbeSpec, name: &str) -> String {
    match spec.module() {
        Some(module) => format!("{module}:{name}"),
        None => name.to_owned(),
    }
}

/// The type of perf events of kprobes.
pub(super) fn pmu(spec: &ProbeSpec) -> Result<u32> {
    features::kprobe_pmu().ok_or_else(|| no_kprobes(spec))
}

fn no_kprobes(spec: &ProbeSpec) -> TraceError {
    TraceError::NoKprobes { spec: spec.clone(), instead: instead(spec) }
}

/// What is at the address that a spec has instead of a name. If a return is to be probed, a function has to begin there.
fn site_of(spec: &ProbeSpec, returns: bool) -> Result<Option<Site>> {
    let not_an_entry = |site| Err(TraceError::NotAnEntry { spec: spec.clone(), site });
    let Some(address) = spec.address() else {
        return match returns && symbols::is_cold(spec.name()) {
            true => not_an_entry(spec.name().to_owned()),
            false => Ok(None),
        };
    };
    match symbols::containing(address.saturating_add(spec.offset())) {
        Some(site) if returns && (site.offset != 0 || symbols::is_cold(&site.function)) => {
            not_an_entry(site.to_string())
        }
        Some(site) => Ok(Some(site)),
        None if symbols::are_hidden() => Err(TraceError::HiddenAddress { spec: spec.clone() }),
        None => Err(TraceError::NoInstruction { spec: spec.clone() }),
    }
}

/// Checks that an offset is inside the function. The kernel would probe whatever is there.
fn check_offset(spec: &ProbeSpec) -> Result<()> {
    let found = symbols::extents(spec.name(), spec.module())
        .map_err(|source| TraceError::Symbols { source })?;
    let spec = || spec.clone();
    match found.as_slice() {
        // Attaching explains that there is none.
        [] => Ok(()),
        [Extent { begin: 0, .. }] => Err(TraceError::HiddenAddress { spec: spec() }),
        [one] if spec().offset() < one.size => Ok(()),
        [one] => {
            let hit = symbols::containing(one.begin.saturating_add(spec().offset()));
            let hit = hit.map(|site| site.to_string());
            Err(TraceError::OutOfFunction { spec: spec(), size: one.size, hit })
        }
        several @ [first, ..] => {
            let (count, first) = (several.len(), first.begin);
            Err(TraceError::Ambiguous { spec: spec(), count, first })
        }
    }
}

/// What can be read of a function, as far as the kernel knows its types.
fn fields_of_function(spec: &ProbeSpec, host: &mut Host, moment: Moment) -> Box<dyn FieldSource> {
    let (name, untyped) = (spec.name(), Box::new(UntypedFields::Kernel(moment)));
    let Some(kernel) = host.types.kernel() else { return untyped };
    let in_kernel = spec.module().is_none_or(|module| module == NO_MODULE);
    let mut found = match in_kernel {
        true => FunctionFields::new(kernel, name, moment),
        false => Err(NoPrototype::Unknown),
    };
    if matches!(found, Err(NoPrototype::Unknown)) && spec.module() != Some(NO_MODULE) {
        let mut modules = host.types.modules(spec.module());
        found = modules
            .find_map(|(_, module)| FunctionFields::new(module.clone(), name, moment).ok())
            .ok_or(NoPrototype::Unknown);
    }
    match found {
        Ok(source) => Box::new(source),
        Err(error) => {
            log::debug!("{name} has arguments without names: {error}");
            untyped
        }
    }
}

impl Attacher<'_> {
    /// The start address of a function of a module.
    fn address(&mut self, spec: &ProbeSpec, module: &str) -> Result<u64> {
        match self.function(spec, Some(module))? {
            0 => Err(TraceError::HiddenAddress { spec: spec.clone() }),
            address => Ok(address),
        }
    }

    /// The start address of the only function of this name, in `module` only if it is given; 0 if the kernel hides it.
    fn function(&mut self, spec: &ProbeSpec, module: Option<&str>) -> Result<u64> {
        let known = match self.addresses.entry(module.map(str::to_owned)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(addresses(module)?),
        };
        match addresses_of(spec, module, known)? {
            &[address] => Ok(address),
            several => {
                let (count, first) = (several.len(), several.first().copied().unwrap_or_default());
                Err(TraceError::Ambiguous { spec: spec.clone(), count, first })
            }
        }
    }
}

fn addresses(module: Option<&str>) -> Result<HashMap<String, Vec<u64>>> {
    symbols::addresses(module).map_err(|source| TraceError::Symbols { source })
}

/// The addresses of the functions of this name, out of those of all functions: of a module, if it is given.
fn addresses_of<'k>(
    spec: &ProbeSpec,
    module: Option<&str>,
    known: &'k HashMap<String, Vec<u64>>,
) -> Result<&'k [u64]> {
    match (known.get(spec.name()), module) {
        (Some(found), _) => Ok(found),
        (None, Some(module)) if known.is_empty() => {
            let (spec, module, instead) = (spec.clone(), module.to_owned(), instead(spec));
            Err(TraceError::UnknownModule { spec, module, instead })
        }
        (None, _) => Err(unknown(spec, nearest(spec.name(), known.keys().cloned()))),
    }
}

/// The error for a name that no function has.
fn unknown(spec: &ProbeSpec, near: Vec<String>) -> TraceError {
    let instead = instead(spec);
    TraceError::UnknownFunction { spec: spec.clone(), near, instead }
}

/// Whether the kernel refuses a probe there regardless of privileges.
fn is_refusal(error: &io::Error) -> bool {
    const REFUSALS: [i32; 6] = [
        libc::ENOENT,
        libc::EADDRNOTAVAIL,
        libc::EINVAL,
        libc::EOPNOTSUPP,
        // Not at an instruction boundary.
        libc::EILSEQ,
        // Inside the bytes that ftrace patches.
        libc::EBUSY,
    ];
    error.raw_os_error().is_some_and(|errno| REFUSALS.contains(&errno))
}

/// Explains the kernel's errno with the help of the symbol table.
fn why(spec: &ProbeSpec, source: io::Error) -> TraceError {
    if !is_refusal(&source) {
        return TraceError::Attach { spec: spec.clone(), source };
    }
    match site_of(spec, false) {
        Ok(None) => unprobeable(spec, symbols::look_up(spec.name(), spec.module())),
        Ok(Some(Site { offset: 0, .. })) => TraceError::Blacklisted { spec: spec.clone() },
        Ok(Some(_)) => TraceError::NoInstruction { spec: spec.clone() },
        Err(error) => error,
    }
}

/// Explains why a function cannot be probed, given what the symbol table has of it.
fn unprobeable(spec: &ProbeSpec, found: Lookup) -> TraceError {
    let spec = spec.clone();
    match found.count {
        0 => unknown(&spec, found.near),
        _ if symbols::is_blacklisted(spec.name()) => TraceError::Blacklisted { spec },
        _ if spec.offset() != 0 => TraceError::NoInstruction { spec },
        1 => TraceError::Blacklisted { spec },
        count => TraceError::Ambiguous { spec, count, first: found.first },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_function_has_no_return() {
        let spec = |text: &str| text.parse::<ProbeSpec>().unwrap();
        let refused = site_of(&spec("kretprobe:vfs_read.cold"), true).unwrap_err();
        let expected =
            "vfs_read.cold is not the beginning of a function, where its return would be probed";
        assert!(refused.to_string().contains(expected), "{refused}");
        for (text, returns) in [("kretprobe:vfs_read", true), ("kprobe:vfs_read.cold", false)] {
            assert_eq!(site_of(&spec(text), returns).unwrap(), None, "{text}");
        }
    }
}
