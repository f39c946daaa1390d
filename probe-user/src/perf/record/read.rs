//! Counters that are read with a sample, or when a thread ends (`struct read_format`).

use super::ReadFormat;
use super::fields::{Fields, Taken, Words};

/// A counter, or all of a group, as they were at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadValues<'r> {
    /// How long they were switched on, in nanoseconds.
    pub time_enabled: Option<u64>,
    /// How long they counted, in nanoseconds.
    pub time_running: Option<u64>,
    format: ReadFormat,
    /// Of no group.
    single: Option<ReadValue>,
    /// What is told of each counter of a group.
    group: Words<'r>,
}

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadValue {
    /// What it counted.
    pub value: u64,
    /// Its id.
    pub id: Option<u64>,
    /// How many records of it were lost.
    pub lost: Option<u64>,
}

impl<'r> ReadValues<'r> {
    /// Each counter: one, unless they are a group.
    pub fn counters(&self) -> impl Iterator<Item = ReadValue> + use<'r> {
        let format = self.format;
        let mut words = self.group.iter();
        let of_group = std::iter::from_fn(move || {
            let value = words.next()?;
            let mut next = |flag| if format.contains(flag) { words.next() } else { None };
            Some(ReadValue { value, id: next(ReadFormat::ID), lost: next(ReadFormat::LOST) })
        });
        self.single.into_iter().chain(of_group)
    }

    pub(super) fn take(fields: &mut Fields<'r>, format: ReadFormat) -> Taken<Self> {
        let fields = fields.named("counters");
        let each = 1 + (format & (ReadFormat::ID | ReadFormat::LOST)).bits().count_ones();
        // How many they are, or the value of the one.
        let first = fields.u64()?;
        let mut next = |flag| format.contains(flag).then(|| fields.u64()).transpose();
        let time_enabled = next(ReadFormat::TOTAL_TIME_ENABLED)?;
        let time_running = next(ReadFormat::TOTAL_TIME_RUNNING)?;
        let mut values = Self { time_enabled, time_running, format, ..Self::default() };
        if format.contains(ReadFormat::GROUP) {
            values.group = fields.words(first.saturating_mul(each.into()))?;
        } else {
            let (id, lost) = (next(ReadFormat::ID)?, next(ReadFormat::LOST)?);
            values.single = Some(ReadValue { value: first, id, lost });
        }
        Ok(values)
    }
}
