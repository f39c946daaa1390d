//! Expands patterns to the functions and tracepoints that they match on this kernel.

use super::architecture::Architecture;
use super::{Bulk, Host, of};
use crate::binary::{BinaryError, FileProblem};
use crate::error::{Result, TraceError};
use crate::kernel::features;
use crate::spec::{Predicate, ProbeSpec, Provider};
use probe_perf::pattern::Glob;
use std::fmt;

/// The limit for patterns whose matches are attached with one link (kprobe.multi), unless
/// [`no_limit`](crate::TracerBuilder::no_limit) is set.
///
/// Attaching them is quick and adds little overhead. Each takes 1.4 KiB of kernel memory.
const MOST_AT_ONCE: usize = 10_000;

/// The limit where each match is attached by itself. The kernel waits for one RCU grace period to
/// attach each and for another to detach it.
pub(super) const MOST_ONE_BY_ONE: usize = 1_000;

/// The limit where each match needs a program of its own. Verifying one that emits records takes 7
/// ms or more.
const MOST_PROGRAMS: usize = 500;

/// The probes that a spec expands to.
#[derive(Debug)]
pub(crate) struct Expansion {
    pub(crate) specs: Vec<ProbeSpec>,
    pub(crate) reason: Reason,
}

/// Why probes are part of a trace, which decides what happens if one of them cannot be had.
#[derive(Debug)]
pub(crate) enum Reason {
    /// The user named it: that is an error.
    Named,
    /// Names match a pattern: it is left out.
    Matched(LeftOut),
    /// The user named something else that stands for these, too: it is left out with a warning.
    Beside,
}

impl Expansion {
    /// The expansion of a pattern to these names. It is an error if there are none.
    pub(super) fn of_pattern(names: &[String], left_out: LeftOut) -> Result<Self> {
        if names.is_empty() {
            let LeftOut { pattern: spec, denied, ambiguous, untyped, .. } = left_out;
            return Err(TraceError::NoMatch { spec, denied, ambiguous, untyped });
        }
        let specs = names.iter().map(|name| left_out.pattern.named(name)).collect();
        Ok(Self { specs, reason: Reason::Matched(left_out) })
    }
}

/// What a pattern matches but the tracer does not probe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The pattern.
    pub pattern: ProbeSpec,
    /// Functions that must not be probed: the kernel forbids it, or the tracer's own programs call
    /// them.
    pub denied: usize,
    /// Functions that share their name with others.
    pub ambiguous: usize,
    /// Functions without the fields that the spec or its predicate names.
    pub unresolved: usize,
    /// Functions or tracepoints that the kernel refused individually, or that are gone by now.
    pub refused: usize,
    /// Functions that return a second time, such as `setjmp`, or are not called, such as `_start`: a probe on the return would
    /// crash the program.
    pub crashing: usize,
    /// Functions whose types, which a trampoline needs, the kernel does not have.
    pub untyped: usize,
    /// Functions of a library whose implementation is chosen at load time (IFUNC), so that their
    /// address is not known.
    pub indirect: usize,
}

impl LeftOut {
    pub(super) fn new(pattern: &ProbeSpec) -> Self {
        Self {
            pattern: pattern.clone(),
            denied: 0,
            ambiguous: 0,
            unresolved: 0,
            refused: 0,
            crashing: 0,
            untyped: 0,
            indirect: 0,
        }
    }

    /// The count of what is left out for this reason, if the error concerns only the one probe that caused it.
    pub(crate) fn count_of(&mut self, error: &TraceError) -> Option<&mut usize> {
        let problem = match error {
            // Other matches may have these fields.
            TraceError::Field(_) => return Some(&mut self.unresolved),
            TraceError::UnknownFunction { .. }
            | TraceError::UnknownTracepoint { .. }
            | TraceError::Blacklisted { .. }
            | TraceError::Ambiguous { .. }
            | TraceError::NoInstruction { .. }
            | TraceError::TrampolineRefused { .. } => return Some(&mut self.refused),
            TraceError::Binary { source: BinaryError::InFile { problem, .. }, .. } => problem,
            _ => return None,
        };
        match problem {
            FileProblem::InstructionRefused(_) => Some(&mut self.refused),
            FileProblem::ReturnsAgain | FileProblem::LooksForCaller | FileProblem::NotCalled => {
                Some(&mut self.crashing)
            }
            _ => None,
        }
    }

    /// The total.
    pub fn count(&self) -> usize {
        let Self { denied, ambiguous, unresolved, refused, crashing, untyped, indirect, .. } = self;
        denied + ambiguous + unresolved + refused + crashing + untyped + indirect
    }
}

/// `kprobe:vfs_*: 3 functions are left out: 2 must not be probed, 1 shares its name with others`
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.count();
        let what = match self.pattern.provider() {
            Provider::Tracepoint | Provider::RawTracepoint => "tracepoint",
            _ => "function",
        };
        let (s, are) = if total == 1 { ("", "is") } else { ("s", "are") };
        write!(f, "{}: {total} {what}{s} {are} left out", self.pattern)?;
        let reasons = [
            (self.denied, "must not be probed", "must not be probed"),
            (self.ambiguous, "shares its name with others", "share their name with others"),
            (self.unresolved, "does not have the fields", "do not have the fields"),
            (self.refused, "could not be probed", "could not be probed"),
            (
                self.crashing,
                "would crash the program with a probe on its return",
                "would crash the program with probes on their returns",
            ),
            (self.untyped, "has no types in the kernel", "have no types in the kernel"),
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

/// Which of a pattern's matches to probe, and how many are allowed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// Patterns of names to leave out.
    pub(crate) exclude: Vec<Glob>,
    /// Whether the limits on the number of matches are lifted.
    pub(crate) no_limit: bool,
}

impl Choice {
    /// Expands each of these specs. What they stand for besides comes last, so that without patterns, probes have the
    /// numbers of their specs. With `calls`, all of them are attached one by one.
    pub(crate) fn expand(
        &self,
        specs: &[ProbeSpec],
        calls: bool,
        host: &mut Host,
    ) -> Result<Vec<Expansion>> {
        let (mut expansions, mut besides) = (Vec::new(), Vec::new());
        for spec in specs {
            Architecture::HERE.check(spec)?;
            if let Some(why) = of(spec.provider()).switched_off(spec) {
                return Err(TraceError::SwitchedOff { spec: spec.clone(), why });
            }
            let mut notes = of(spec.provider()).notes(spec, calls, host);
            notes.extend(spec.predicate().and_then(Predicate::literal_pattern));
            notes.iter().for_each(|note| log::warn!("{spec}: {note}"));
            let hook = of(spec.provider());
            let own = match spec.is_glob() {
                true => hook.expand(spec, self, host)?,
                false => Expansion { specs: vec![hook.own(spec, host)], reason: Reason::Named },
            };
            let specs = hook.besides(spec, &own.specs, self, host)?;
            besides.push(Expansion { specs, reason: Reason::Beside });
            expansions.push(own);
        }
        besides.retain(|one| !one.specs.is_empty());
        expansions.extend(besides);
        self.check(&expansions, calls)?;
        Ok(expansions)
    }

    /// Expands a pattern to these names, without the excluded ones.
    pub(super) fn names(&self, spec: &ProbeSpec, mut names: Vec<String>) -> Result<Expansion> {
        names.retain(|name| !self.excludes(name));
        Expansion::of_pattern(&names, LeftOut::new(spec))
    }

    /// Whether a name is excluded.
    pub(super) fn excludes(&self, name: &str) -> bool {
        let own = name.split_once(':').map_or(name, |(_, own)| own);
        self.exclude.iter().any(|glob| glob.matches(name) || glob.matches(own))
    }

    /// Checks that the patterns do not match too many probes.
    fn check(&self, expansions: &[Expansion], calls: bool) -> Result<()> {
        /// The matches of patterns that are attached in the same way.
        #[derive(Default)]
        struct Matches<'s> {
            count: usize,
            /// The number of matches of the pattern that has the most, and the pattern.
            largest: Option<(usize, &'s ProbeSpec)>,
        }

        let [mut at_once, mut one_by_one, mut programs] = [(); 3].map(|()| Matches::default());
        for Expansion { specs, reason } in expansions {
            let Reason::Matched(LeftOut { pattern: spec, .. }) = reason else { continue };
            let same = match of(spec.provider()).bulk() {
                Bulk::AtOnce if !calls => &mut at_once,
                Bulk::AtOnce => &mut one_by_one,
                Bulk::OneByOne if features::has_cookies() => &mut one_by_one,
                Bulk::OneByOne | Bulk::OwnPrograms => &mut programs,
            };
            let count = specs.len();
            same.count += count;
            if same.largest.is_none_or(|(most, _)| count > most) {
                same.largest = Some((count, spec));
            }
        }
        let limits =
            [(at_once, MOST_AT_ONCE), (one_by_one, MOST_ONE_BY_ONE), (programs, MOST_PROGRAMS)];
        for (Matches { count, largest }, most) in limits {
            if let Some((_, largest)) = largest
                && count > most
                && !self.no_limit
            {
                return Err(TraceError::TooManyMatches { spec: largest.clone(), count, most });
            }
        }
        Ok(())
    }
}
