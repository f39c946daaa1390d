//! Notices records that failed for another reason than a full ring. They leave no trace in a ring.

use crate::error::TallyError;
use crate::ledger::accounts::Accounts;
use crate::queue::notices::Failure;
use probe_common::tally::FailureClass;
use probe_sys::control_page::ControlPage;
use std::collections::BTreeMap;
use std::sync::Arc;
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
    /// Where CPUs count their failures, which is little to read, other than the counts by kind.
    page: Option<Arc<ControlPage>>,
    /// How many failures there were on all CPUs at the last look.
    seen: u64,
    /// How many records have been reported.
    reported: BTreeMap<(u32, FailureClass), u64>,
}

impl Failures {
    pub(crate) fn new(page: Option<Arc<ControlPage>>, cpus: Option<&[u32]>) -> Self {
        let (cpus, next) = (cpus.map(<[u32]>::to_vec), Instant::now() + LOOK);
        Self { cpus, next, page, seen: 0, reported: BTreeMap::new() }
    }

    /// What has failed since the last look. `None` if it is not time to look yet.
    pub(crate) fn look(&mut self, accounts: &Accounts) -> Result<Option<Vec<Failure>>, TallyError> {
        let now = Instant::now();
        if now < self.next {
            return Ok(None);
        }
        self.next = now + LOOK;
        let seen = self.seen_by(accounts)?;
        if std::mem::replace(&mut self.seen, seen) == seen {
            return Ok(Some(Vec::new()));
        }
        self.look_now(accounts).map(Some)
    }

    /// A sum that grows with each failure.
    fn seen_by(&self, accounts: &Accounts) -> Result<u64, TallyError> {
        let cpus = accounts.tally().cpus().iter();
        let entry = |&cpu| Some(self.page.as_ref()?.cpu(cpu)?.failures());
        match cpus.map(entry).sum::<Option<u64>>() {
            Some(failures) => Ok(failures),
            // Somebody else's page, or CPUs without an entry. What the pipe refuses comes with the next failed output.
            None => accounts.failed_outputs(),
        }
    }

    /// What has failed since the last look.
    pub(crate) fn look_now(&mut self, accounts: &Accounts) -> Result<Vec<Failure>, TallyError> {
        let mut new = Vec::new();
        for ((cpu, class), failed) in accounts.failed()? {
            if self.cpus.as_ref().is_some_and(|cpus| !cpus.contains(&cpu)) {
                continue;
            }
            let before = self.reported.insert((cpu, class), failed).unwrap_or(0);
            if failed > before {
                new.push(Failure { cpu, class, records: failed - before });
            }
        }
        Ok(new)
    }
}
