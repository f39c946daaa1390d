//! Notices records that failed for another reason than a full ring. They leave no trace in a ring.

use crate::error::TallyError;
use crate::ledger::accounts::Accounts;
use crate::queue::notices::Failure;
use probe_common::tally::FailureClass;
use probe_sys::control_page::ControlPage;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often to look, at most.
const LOOK: Duration = Duration::from_secs(1);

/// What has been noticed so far.
#[derive(Debug)]
pub(crate) struct Failures {
    /// The CPUs to look at; `None` for all.
    cpus: Option<Vec<u32>>,
    /// When to look again.
    next: Instant,
    /// How many failures there were on all CPUs at the last look; `None` if not all of them are reported.
    seen: Option<u64>,
    /// How many records have been reported.
    reported: BTreeMap<(u32, FailureClass), u64>,
}

impl Failures {
    pub(crate) fn new(cpus: Option<&[u32]>) -> Self {
        let (cpus, next) = (cpus.map(<[u32]>::to_vec), Instant::now() + LOOK);
        Self { cpus, next, seen: Some(0), reported: BTreeMap::new() }
    }

    /// Starts or stops watching a CPU.
    pub(crate) fn set_watched(&mut self, cpu: u32, is_watched: bool) {
        if let Some(cpus) = &mut self.cpus {
            cpus.retain(|&one| one != cpu);
            cpus.extend(is_watched.then_some(cpu));
        }
    }

    /// Takes over a CPU from those that have reported its failures until now.
    pub(crate) fn follow(&mut self, cpu: u32, earlier: &mut Self) {
        earlier.set_watched(cpu, false);
        self.reported.extend(earlier.reported.extract_if(.., |(of, _), _| *of == cpu));
    }

    /// What has failed and is not reported yet. `None` if it is not time to look yet. It first reads the failure counts in the
    /// control page, which is cheaper than reading the counts by kind.
    pub(crate) fn look(
        &mut self,
        accounts: &Accounts,
        page: Option<&ControlPage>,
    ) -> Result<Option<Vec<Failure>>, TallyError> {
        let now = Instant::now();
        if now < self.next {
            return Ok(None);
        }
        self.next = now + LOOK;
        let seen = Some(seen(accounts, page)?);
        if seen == self.seen {
            return Ok(Some(Vec::new()));
        }
        let new = self.look_now(accounts)?;
        self.seen = seen;
        Ok(Some(new))
    }

    /// What has failed and is not reported yet.
    pub(crate) fn look_now(&mut self, accounts: &Accounts) -> Result<Vec<Failure>, TallyError> {
        let (mut new, failed) = (Vec::new(), accounts.failed()?);
        // The accounts may have begun later meanwhile.
        for (of, reported) in &mut self.reported {
            *reported = failed.get(of).copied().unwrap_or(0).min(*reported);
        }
        for ((cpu, class), failed) in failed {
            if self.cpus.as_ref().is_some_and(|cpus| !cpus.contains(&cpu)) {
                continue;
            }
            let before = self.reported.get(&(cpu, class)).copied().unwrap_or(0);
            if failed > before {
                new.push(Failure { cpu, class, records: failed - before });
            }
        }
        Ok(new)
    }

    /// Notes that a failure is reported now.
    pub(crate) fn report(&mut self, failure: Failure) {
        *self.reported.entry((failure.cpu, failure.class)).or_default() += failure.records;
    }

    /// Makes the next look return whatever has not been reported yet.
    pub(crate) fn look_again(&mut self) {
        (self.next, self.seen) = (Instant::now(), None);
    }

    /// Whether the next look finds what an earlier one has found.
    pub(crate) fn are_left(&self) -> bool {
        self.seen.is_none()
    }
}

/// A sum that grows with each failure.
fn seen(accounts: &Accounts, page: Option<&ControlPage>) -> Result<u64, TallyError> {
    let cpus = accounts.tally().cpus().iter();
    match cpus.map(|&cpu| Some(page?.cpu(cpu)?.failures())).sum::<Option<u64>>() {
        Some(failures) => Ok(failures),
        // Somebody else's page, or CPUs without an entry. What the pipe refuses comes with the next failed output.
        None => accounts.failed_outputs(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_has_reported_is_not_reported_again() {
        let (cpu, class) = (3, FailureClass::NoEvent);
        let (mut first, mut own) = (Failures::new(Some(&[0])), Failures::new(Some(&[cpu])));
        first.set_watched(cpu, true);
        first.report(Failure::new(0, class, 7));
        first.report(Failure::new(cpu, class, 1_000));
        own.follow(cpu, &mut first);
        assert_eq!(own.reported, BTreeMap::from([((cpu, class), 1_000)]));
        assert_eq!(first.reported, BTreeMap::from([((0, class), 7)]));
        assert_eq!((first.cpus, own.cpus), (Some(vec![0]), Some(vec![cpu])));
    }
}
