//! What is sampled, and how.

use super::error::PerfError;
use super::event::Event;
use super::event_opener::EventOpener;
use super::event_source::Rate;
use super::later_cpus::LaterCpus;
use super::names::Software;
use super::record::{ReadFormat, SampleType};
use super::sampler::Sampler;
use super::sampler_rings::SamplerRings;
use super::scope::Scope;
use crate::sys::memory::page_size;
use crate::sys::perf_event::{Attr, Flags};

/// Builds a [`Sampler`].
#[derive(Clone, Debug)]
pub struct SamplerBuilder {
    events: Vec<Event>,
    scope: Scope,
    rate: Rate,
    sample_type: SampleType,
    read_format: ReadFormat,
    flags: Flags,
    regs_user: u64,
    regs_intr: u64,
    stack_user: u32,
    bytes_per_ring: usize,
    wake_after_bytes: Option<u32>,
}

impl Default for SamplerBuilder {
    /// This process, with a sample for each event, which wakes.
    fn default() -> Self {
        Self {
            events: Vec::new(),
            scope: Scope::ThisProcess,
            rate: Rate::Period(1),
            sample_type: SampleType::IDENTIFIER
                | SampleType::IP
                | SampleType::TID
                | SampleType::TIME
                | SampleType::CPU
                | SampleType::PERIOD,
            read_format: ReadFormat::empty(),
            flags: Flags::DISABLED | Flags::SAMPLE_ID_ALL | Flags::USE_CLOCKID,
            regs_user: 0,
            regs_intr: 0,
            stack_user: 0,
            bytes_per_ring: 512 << 10,
            wake_after_bytes: None,
        }
    }
}

impl SamplerBuilder {
    /// Samples this event, too. Without one, it is `cpu-clock`, which every machine has.
    #[must_use]
    pub fn event(mut self, event: impl Into<Event>) -> Self {
        self.events.push(event.into());
        self
    }

    /// Of whom.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// A sample for every so many of the event; of clocks, nanoseconds. Events that say their own
    /// rate keep it.
    #[must_use]
    pub fn period(self, period: u64) -> Self {
        Self { rate: Rate::Period(period), ..self }
    }

    /// So many samples a second, by a period that the kernel adapts.
    #[must_use]
    pub fn frequency(self, frequency: u64) -> Self {
        Self { rate: Rate::Frequency(frequency), ..self }
    }

    /// Has samples tell this, too. They always tell the event, where, who, when, on which CPU, and the period.
    #[must_use]
    pub fn sample(self, what: SampleType) -> Self {
        Self { sample_type: self.sample_type | what, ..self }
    }

    /// Has samples tell the functions that led there: of the kernel, and of the process as far as it is
    /// compiled with frame pointers.
    #[must_use]
    pub fn callchains(self) -> Self {
        self.sample(SampleType::CALLCHAIN)
    }

    /// Has samples tell these registers of the process, a bit each.
    #[must_use]
    pub fn user_registers(self, mask: u64) -> Self {
        Self { regs_user: mask, ..self.sample(SampleType::REGS_USER) }
    }

    /// Has samples tell these registers where the event was, a bit each.
    #[must_use]
    pub fn interrupted_registers(self, mask: u64) -> Self {
        Self { regs_intr: mask, ..self.sample(SampleType::REGS_INTR) }
    }

    /// Has samples tell so many bytes of the process's stack: a multiple of 8, below 65,528.
    #[must_use]
    pub fn user_stack(self, bytes: u32) -> Self {
        Self { stack_user: bytes, ..self.sample(SampleType::STACK_USER) }
    }

    /// Has samples tell the counter, and this of it.
    #[must_use]
    pub fn counters(self, format: ReadFormat) -> Self {
        Self { read_format: format, ..self.sample(SampleType::READ) }
    }

    /// Has times by perf's own clock, which is that of hardware traces, instead of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn perf_clock(self) -> Self {
        Self { flags: self.flags - Flags::USE_CLOCKID, ..self }
    }

    /// Has other records than samples, too, or is otherwise.
    #[must_use]
    pub fn flags(self, flags: Flags) -> Self {
        Self { flags: self.flags | flags, ..self }
    }

    /// Bytes of each ring: a power of two pages.
    #[must_use]
    pub fn bytes_per_ring(self, bytes: usize) -> Self {
        Self { bytes_per_ring: bytes, ..self }
    }

    /// Wakes after so many bytes, not for each record.
    #[must_use]
    pub fn wake_after_bytes(self, bytes: u32) -> Self {
        Self { wake_after_bytes: Some(bytes), ..self }
    }

    /// Opens the events. They are switched off until [`Sampler::enable`], or, with
    /// [`Flags::ENABLE_ON_EXEC`], until the process executes a program.
    ///
    /// # Errors
    ///
    /// If there is no such event, nobody of whom to observe it, or no privilege to do so.
    pub fn open(&self) -> Result<Sampler, PerfError> {
        let page = page_size();
        let pages = self.bytes_per_ring / page;
        if !self.bytes_per_ring.is_multiple_of(page) || !pages.is_power_of_two() {
            return Err(PerfError::Bytes { bytes: self.bytes_per_ring, page });
        }
        let events = match self.events.as_slice() {
            [] => vec![Software::CpuClock.into()],
            events => events.to_vec(),
        };
        let attrs = events.iter().map(|event| self.attr(event)).collect::<Result<_, _>>()?;
        // Before anybody reads which CPUs there are.
        let later = LaterCpus::of(&self.scope);
        let places = self.scope.places_of_each(&events, true)?.into_iter().enumerate();
        let each = places.flat_map(|(n, places)| places.into_iter().map(move |place| (place, n)));
        let mut opener = EventOpener::new(events, attrs, self.bytes_per_ring);
        let mut rings = SamplerRings::default();
        rings.open(&mut opener, each)?;
        Ok(Sampler::new(opener, rings, later))
    }

    fn attr(&self, event: &Event) -> Result<Attr, PerfError> {
        let mut attr = event.attr()?;
        let (period, rate_flag) = match event.rate().unwrap_or(self.rate) {
            Rate::Period(period) => (period, Flags::empty()),
            Rate::Frequency(frequency) => (frequency, Flags::FREQ),
        };
        attr.sample_period = period;
        attr.sample_type = self.sample_type.bits();
        attr.read_format = match self.read_format {
            format if format.is_empty() && !self.sample_type.contains(SampleType::READ) => {
                ReadFormat::LOST.bits()
            }
            format => format.bits(),
        };
        attr.flags |= (self.flags | rate_flag).bits();
        if self.flags.contains(Flags::CGROUP) {
            // The kernel passes over events of CPUs that have none of the flags that it looks for, and this one it does
            // not look for. The other one has no records of its own.
            attr.flags |= Flags::COMM_EXEC.bits();
        }
        if self.flags.contains(Flags::USE_CLOCKID) {
            attr.clockid = libc::CLOCK_MONOTONIC;
        }
        attr.sample_regs_user = self.regs_user;
        attr.sample_regs_intr = self.regs_intr;
        attr.sample_stack_user = self.stack_user;
        match self.wake_after_bytes {
            None => attr.wakeup = 1,
            Some(bytes) => {
                attr.wakeup = bytes;
                attr.flags |= Flags::WATERMARK.bits();
            }
        }
        Ok(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_event_says_goes_before_what_all_are_sampled_by() {
        let builder = Sampler::builder();
        let (period, frequency) = (builder.clone().period(7), builder.frequency(8));
        for (event, by_period, by_frequency) in [
            ("software/config=0/", (7, false), (8, true)),
            ("software/config=0,period=5/", (5, false), (5, false)),
            ("software/config=0,freq=6/", (6, true), (6, true)),
        ] {
            let event: Event = event.parse().unwrap();
            for (builder, expected) in [(&period, by_period), (&frequency, by_frequency)] {
                let attr = builder.attr(&event).unwrap();
                let is_frequency = Flags::from_bits_retain(attr.flags).contains(Flags::FREQ);
                assert_eq!((attr.sample_period, is_frequency), expected, "{event}");
            }
        }
    }
}
