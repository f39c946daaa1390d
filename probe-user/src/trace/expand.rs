//! Patterns: what they stand for, on this kernel.

use super::binary::{Binary, BinaryError, Matching};
use super::error::TraceError;
use super::features;
use super::glob::{Functions, Glob};
use super::kernel_types::KernelTypes;
use super::list;
use super::spec::{ProbeSpec, Provider};
use super::syscall;
use super::tracefs::Tracefs;
use super::trampolines::Trampolines;
use std::fmt;

/// Most functions that patterns may stand for, unless [`force`](super::TracerBuilder::force) is set, where
/// all of them are attached at once (kprobe.multi).
///
/// That is quick, and costs what is traced little; each of them takes 1.4 KiB of the kernel's memory.
const MOST_AT_ONCE: usize = 10_000;

/// And where each is attached by itself: that takes the kernel a grace period of RCU each, and as much
/// again to detach it.
const MOST_ONE_BY_ONE: usize = 1_000;

/// And where each takes a program of its own: to verify one takes 7 ms or more, if it tells its hits.
const MOST_PROGRAMS: usize = 500;

/// What a spec stands for.
#[derive(Debug)]
pub(super) struct Expansion {
    /// One for each function or tracepoint; the spec itself, if it is no pattern.
    pub(super) specs: Vec<ProbeSpec>,
    /// What is left out, if it is one.
    pub(super) left_out: Option<LeftOut>,
}

/// What a pattern matches, and what is not probed all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The pattern.
    pub pattern: ProbeSpec,
    /// Functions that must not be probed: the kernel forbids it, or the tracer's own programs run them.
    pub denied: usize,
    /// Functions that share their name with others.
    pub ambiguous: usize,
    /// Functions that do not have what the spec's fields or its predicate name.
    pub unresolved: usize,
    /// Functions that the kernel refused, by themselves.
    pub refused: usize,
    /// Functions that the kernel does not tell the types of, which trampolines take.
    pub untyped: usize,
    /// Functions of a library that are chosen when a program is loaded: where they are is not known.
    pub indirect: usize,
}

impl LeftOut {
    fn new(pattern: &ProbeSpec) -> Self {
        Self {
            pattern: pattern.clone(),
            denied: 0,
            ambiguous: 0,
            unresolved: 0,
            refused: 0,
            untyped: 0,
            indirect: 0,
        }
    }

    /// How many there are in all.
    pub fn count(&self) -> usize {
        let Self { denied, ambiguous, unresolved, refused, untyped, indirect, .. } = self;
        denied + ambiguous + unresolved + refused + untyped + indirect
    }
}

/// `kprobe:vfs_*: 3 functions are left out: 2 must not be probed, 1 has a name that others have, too`
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.count();
        let (functions, are) = if total == 1 { ("function", "is") } else { ("functions", "are") };
        write!(f, "{}: {total} {functions} {are} left out", self.pattern)?;
        let reasons = [
            (self.denied, "must not be probed", "must not be probed"),
            (
                self.ambiguous,
                "has a name that others have, too",
                "have names that others have, too",
            ),
            (self.unresolved, "does not have the fields", "do not have the fields"),
            (self.refused, "was refused by the kernel", "were refused by the kernel"),
            (
                self.untyped,
                "has no types that the kernel tells",
                "have no types that the kernel tells",
            ),
            (
                self.indirect,
                "is chosen when a program is loaded (IFUNC)",
                "are chosen when a program is loaded (IFUNC)",
            ),
        ];
        let reasons = reasons.into_iter().filter(|&(count, ..)| count > 0);
        for (number, (count, one, many)) in reasons.enumerate() {
            let before = if number == 0 { ":" } else { "," };
            write!(f, "{before} {count} {}", if count == 1 { one } else { many })?;
        }
        Ok(())
    }
}

/// Which of a pattern's matches are meant, and how many may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    exclude: Vec<Glob>,
    force: bool,
}

impl Choice {
    pub(super) fn exclude(&mut self, glob: Glob) {
        self.exclude.push(glob);
    }

    pub(super) fn force(&mut self, force: bool) {
        self.force = force;
    }

    /// What each of these specs stands for.
    pub(super) fn expand(
        &self,
        specs: &[ProbeSpec],
        tracefs: &mut Option<Tracefs>,
        types: &mut KernelTypes,
    ) -> Result<Vec<Expansion>, TraceError> {
        let mut expansions = Vec::new();
        for spec in specs {
            expansions.push(match (spec.is_glob(), spec.provider()) {
                (true, Provider::Tracepoint) => {
                    let tracefs = Tracefs::opened(tracefs)?;
                    self.names(spec, tracefs.matching(&Glob::new(spec.name())?))?
                }
                (true, Provider::RawTracepoint) => {
                    self.names(spec, list::raw_tracepoints(spec)?)?
                }
                (true, Provider::Ksyscall) => {
                    self.names(spec, syscall::matching(spec, Tracefs::opened(tracefs)?)?)?
                }
                (true, Provider::Kprobe | Provider::Kretprobe) => self.functions(spec, tracefs)?,
                (true, Provider::Fentry | Provider::Fexit) => {
                    self.trampolines(spec, tracefs, types)?
                }
                (true, Provider::Uprobe | Provider::Uretprobe) => self.user_functions(spec)?,
                (false, _) => Expansion { specs: vec![spec.clone()], left_out: None },
            });
        }
        self.check(specs, &expansions)?;
        Ok(expansions)
    }

    /// These, but for those that are excluded.
    fn names(&self, spec: &ProbeSpec, names: Vec<String>) -> Result<Expansion, TraceError> {
        let is_excluded = |name: &str| {
            let own = name.split_once(':').map_or(name, |(_, own)| own);
            self.exclude.iter().any(|glob| glob.matches(name) || glob.matches(own))
        };
        let specs: Vec<_> =
            names.iter().filter(|name| !is_excluded(name)).map(|name| spec.named(name)).collect();
        if specs.is_empty() {
            let spec = spec.clone();
            return Err(TraceError::NoMatch { spec, denied: 0, ambiguous: 0, untyped: 0 });
        }
        Ok(Expansion { specs, left_out: Some(LeftOut::new(spec)) })
    }

    fn functions(
        &self,
        spec: &ProbeSpec,
        tracefs: &mut Option<Tracefs>,
    ) -> Result<Expansion, TraceError> {
        if features::kprobe_pmu().is_none() && !features::has_kprobe_multi() {
            return Err(TraceError::NoKprobes { spec: spec.clone() });
        }
        // Without it, the symbol table tells.
        let tracefs = Tracefs::opened(tracefs).ok();
        let glob = Glob::new(spec.name())?;
        let found = Functions::find(&glob, &self.exclude, spec.module(), tracefs)
            .map_err(|source| TraceError::Symbols { source })?;
        let (denied, ambiguous) = (found.denied, found.ambiguous.len());
        among_functions(found.names, LeftOut { denied, ambiguous, ..LeftOut::new(spec) })
    }

    fn trampolines(
        &self,
        spec: &ProbeSpec,
        tracefs: &mut Option<Tracefs>,
        types: &mut KernelTypes,
    ) -> Result<Expansion, TraceError> {
        if !self.force && !features::guards_trampolines() {
            return Err(TraceError::UnguardedTrampolines { spec: spec.clone() });
        }
        let tracefs = Tracefs::opened(tracefs).ok();
        let Trampolines { names, ambiguous, denied, untyped } =
            Trampolines::find(spec, &self.exclude, tracefs, types)?;
        among_functions(names, LeftOut { ambiguous, denied, untyped, ..LeftOut::new(spec) })
    }

    fn user_functions(&self, spec: &ProbeSpec) -> Result<Expansion, TraceError> {
        if features::uprobe_pmu().is_none() {
            return Err(TraceError::NoUprobes { spec: spec.clone() });
        }
        let failed = |source| TraceError::Binary { spec: spec.clone(), source };
        let glob = Glob::new(spec.name())?;
        let binary = Binary::open(spec.module().unwrap_or_default()).map_err(failed)?;
        let is_excluded = |name: &str| self.exclude.iter().any(|glob| glob.matches(name));
        let Matching { names, ambiguous, indirect } =
            binary.matching(|name| glob.matches(name) && !is_excluded(name));
        if names.is_empty() {
            let path = binary.path().to_owned();
            return Err(failed(BinaryError::NoMatch { path, ambiguous, indirect }));
        }
        let specs = names.iter().map(|name| spec.named(name)).collect();
        let left_out = LeftOut { ambiguous, indirect, ..LeftOut::new(spec) };
        Ok(Expansion { specs, left_out: Some(left_out) })
    }

    /// Whether these are not too many.
    fn check(&self, specs: &[ProbeSpec], expansions: &[Expansion]) -> Result<(), TraceError> {
        let (mut at_once, mut one_by_one, mut programs) = (0, 0, 0);
        let mut largest: Option<(usize, &ProbeSpec)> = None;
        for (spec, expansion) in specs.iter().zip(expansions) {
            if expansion.left_out.is_none() {
                continue;
            }
            let count = expansion.specs.len();
            if largest.is_none_or(|(most, _)| count > most) {
                largest = Some((count, spec));
            }
            match spec.provider() {
                Provider::Kprobe | Provider::Kretprobe if features::has_kprobe_multi() => {
                    at_once += count;
                }
                Provider::RawTracepoint | Provider::Fentry | Provider::Fexit => programs += count,
                _ if !features::has_cookies() => programs += count,
                _ => one_by_one += count,
            }
        }
        let too_many =
            [(at_once, MOST_AT_ONCE), (one_by_one, MOST_ONE_BY_ONE), (programs, MOST_PROGRAMS)];
        let excess = too_many.into_iter().find(|(count, most)| count > most && !self.force);
        match (excess, largest) {
            (Some((count, most)), Some((_, largest))) => {
                Err(TraceError::TooManyMatches { spec: largest.clone(), count, most })
            }
            _ => Ok(()),
        }
    }
}

/// These functions, and what is left out beside them.
fn among_functions(names: Vec<String>, left_out: LeftOut) -> Result<Expansion, TraceError> {
    let LeftOut { pattern, denied, ambiguous, untyped, .. } = &left_out;
    if names.is_empty() {
        return Err(TraceError::NoMatch {
            spec: pattern.clone(),
            denied: *denied,
            ambiguous: *ambiguous,
            untyped: *untyped,
        });
    }
    let specs = names.iter().map(|name| pattern.named(name)).collect();
    Ok(Expansion { specs, left_out: Some(left_out) })
}
