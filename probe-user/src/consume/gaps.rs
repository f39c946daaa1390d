//! Losses that are held back until what their CPU had sent before them is delivered.

use crate::queue::notices::Loss;
use std::collections::{BTreeMap, HashMap};

/// The most losses held, and the most CPUs whose times are kept.
const MOST: usize = 1 << 16;

/// A loss has no time. Its place is behind the last record that its CPU had sent before.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// The CPU that has sent the latest record, and the time of that record.
    latest: Option<(u32, u64)>,
    /// The same for the other CPUs.
    others: HashMap<u32, u64>,
    /// Losses by the time of the record before them, and by arrival.
    held: BTreeMap<(u64, u64), Loss>,
    arrivals: u64,
}

impl Gaps {
    /// Notes a record. Records come in batches from one CPU, so this is mostly a comparison.
    #[inline]
    pub(crate) fn record(&mut self, cpu: u32, time: u64) {
        match &mut self.latest {
            Some((latest, at)) if *latest == cpu => *at = time,
            _ => self.change_cpu(cpu, time),
        }
    }

    fn change_cpu(&mut self, cpu: u32, time: u64) {
        // Only a forged recording has as many CPUs.
        if self.others.len() >= MOST {
            self.others.clear();
        }
        self.others.extend(self.latest.replace((cpu, time)));
    }

    pub(crate) fn push(&mut self, loss: Loss) {
        let time = match self.latest {
            Some((cpu, time)) if cpu == loss.cpu => time,
            _ => self.others.get(&loss.cpu).copied().unwrap_or(0),
        };
        self.held.insert((time, self.arrivals), loss);
        self.arrivals += 1;
    }

    /// Removes the first loss whose place is before a record of the time `next`, or of no record. Without room for
    /// more, it is the first one, wherever its place is.
    pub(crate) fn pop_before(&mut self, next: Option<u64>) -> Option<Loss> {
        let (&(time, _), _) = self.held.first_key_value()?;
        let is_due = next.is_none_or(|next| time < next);
        if !is_due && self.held.len() <= MOST {
            return None;
        }
        self.held.pop_first().map(|(_, loss)| loss)
    }
}
