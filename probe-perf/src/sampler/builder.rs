//! Configuring a sampler.

use super::Sampler;
use super::hotplug::Hotplug;
use super::rings::{EventOpener, SamplerRings};
use crate::error::PerfError;
use crate::event::{Event, LONG, Rate, Software, Source};
use crate::record::{ReadFormat, SampleType};
use crate::target::Target;
use probe_sys::perf_event::{Attr, Flags};
use probe_sys::ring::page::rounded_up;

/// `PERF_SAMPLE_BRANCH_ANY` of `branch_sample_type`.
const BRANCH_ANY: u64 = 1 << 3;

/// Builds a [`Sampler`].
#[derive(Clone, Debug)]
pub struct SamplerBuilder {
    events: Vec<Event>,
    target: Target,
    rate: Rate,
    each_hit: bool,
    /// The attributes that all events share.
    attr: Attr,
    bytes_per_ring: usize,
}

impl Default for SamplerBuilder {
    /// Samples every event of this process, and wakes for each record.
    fn default() -> Self {
        let sample_type = SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::CPU
            | SampleType::PERIOD;
        // Without WATERMARK, the kernel wakes only for samples, not for other records. Every record is longer than a byte.
        let flags = Flags::DISABLED | Flags::SAMPLE_ID_ALL | Flags::USE_CLOCKID | Flags::WATERMARK;
        let attr = Attr {
            sample_type: sample_type.bits(),
            flags: flags.bits(),
            wakeup: 1,
            ..Attr::default()
        };
        let (target, rate) = (Target::ThisProcess, Rate::Period(1));
        let (events, each_hit) = (Vec::new(), false);
        Self { events, target, rate, each_hit, attr, bytes_per_ring: 512 << 10 }
    }
}

impl SamplerBuilder {
    /// Adds an event. Without any, the sampler uses `cpu-clock`, which every machine has.
    #[must_use]
    pub fn event(mut self, event: impl Into<Event>) -> Self {
        self.events.push(event.into());
        self
    }

    /// Sets the target. The default is this process.
    #[must_use]
    pub fn target(self, target: Target) -> Self {
        Self { target, ..self }
    }

    /// Takes one sample per `period` events; for clocks, per this many nanoseconds. With 0,
    /// there are only the other records. Events whose terms set a rate keep it.
    #[must_use]
    pub fn period(self, period: u64) -> Self {
        Self { rate: Rate::Period(period), ..self }
    }

    /// Takes this many samples per second: the kernel adapts the period. Events whose terms set a rate keep it.
    #[must_use]
    pub fn frequency(self, frequency: u64) -> Self {
        Self { rate: Rate::Frequency(frequency), ..self }
    }

    /// Takes a sample at each hit of a tracepoint, whatever the rate of other events.
    #[must_use]
    pub fn each_hit_of_tracepoints(self) -> Self {
        Self { each_hit: true, ..self }
    }

    /// Adds fields to samples. They always have the event's id, the instruction, the thread, the time and the CPU, and the
    /// period unless an event has a fixed one other than 1. With [`SampleType::BRANCH_STACK`], they have branches of all
    /// kinds.
    #[must_use]
    pub fn sample(mut self, what: SampleType) -> Self {
        self.attr.sample_type |= what.bits();
        self
    }

    /// Adds call chains to samples: of the kernel, and of the process as far as it is compiled with frame pointers.
    #[must_use]
    pub fn callchains(self) -> Self {
        self.sample(SampleType::CALLCHAIN)
    }

    /// Adds registers of the process to samples, one bit each.
    #[must_use]
    pub fn user_registers(mut self, mask: u64) -> Self {
        self.attr.sample_regs_user = mask;
        self.sample(SampleType::REGS_USER)
    }

    /// Adds the registers at the event to samples, one bit each.
    #[must_use]
    pub fn interrupted_registers(mut self, mask: u64) -> Self {
        self.attr.sample_regs_intr = mask;
        self.sample(SampleType::REGS_INTR)
    }

    /// Adds this many bytes of the process's stack to samples: a multiple of 8, below 65,528.
    #[must_use]
    pub fn user_stack(mut self, bytes: u32) -> Self {
        self.attr.sample_stack_user = bytes;
        self.sample(SampleType::STACK_USER)
    }

    /// Adds the counter to samples, in this format. Where the kernel reports lost records (6.0+), the format includes them.
    #[must_use]
    pub fn counters(mut self, format: ReadFormat) -> Self {
        self.attr.read_format = format.bits();
        self.sample(SampleType::READ)
    }

    /// Uses perf's own clock instead of `CLOCK_MONOTONIC`. Hardware traces use it, too.
    #[must_use]
    pub fn perf_clock(mut self) -> Self {
        self.attr.flags &= !Flags::USE_CLOCKID.bits();
        self
    }

    /// Adds flags, for example for records other than samples. A sampler with [`Flags::WRITE_BACKWARD`] does not open.
    #[must_use]
    pub fn flags(mut self, flags: Flags) -> Self {
        self.attr.flags |= flags.bits();
        self
    }

    /// Sets the size of each ring in bytes, which is rounded up to a power of two of at least a page.
    #[must_use]
    pub fn bytes_per_ring(self, bytes: usize) -> Self {
        Self { bytes_per_ring: bytes, ..self }
    }

    /// Wakes after this many bytes instead of for each record, at the latest when the ring is half full.
    #[must_use]
    pub fn wake_after_bytes(mut self, bytes: u32) -> Self {
        self.attr.wakeup = bytes;
        self
    }

    /// Opens the events. They are disabled until [`Sampler::enable`], or, with [`Flags::ENABLE_ON_EXEC`], until the process
    /// executes a program.
    ///
    /// # Errors
    ///
    /// If an event or the target does not exist, the frequency is 0, the size of the rings is invalid, or you lack the
    /// privileges.
    pub fn open(self) -> Result<Sampler, PerfError> {
        let bytes_per_ring = self.ring_size()?;
        let attrs = self.attrs()?;
        let events = self.sampled();
        // This must come before the list of online CPUs is read.
        let hotplug = Hotplug::of(&self.target);
        let sites = self.target.sites_of_each(&events)?.into_iter().enumerate();
        let each = sites.flat_map(|(n, sites)| sites.into_iter().map(move |site| (site, n)));
        let mut opener = EventOpener { events, attrs, bytes_per_ring };
        let mut rings = SamplerRings::default();
        rings.open(&mut opener, each)?;
        Ok(Sampler::new(opener, rings, hotplug))
    }

    /// The size of each ring after rounding up.
    fn ring_size(&self) -> Result<usize, PerfError> {
        let bytes = self.bytes_per_ring;
        rounded_up(bytes).ok_or(PerfError::RingSize(bytes))
    }

    /// The events, or the default one.
    fn sampled(&self) -> Vec<Event> {
        match self.events.as_slice() {
            [] => vec![Software::CpuClock.into()],
            events => events.to_vec(),
        }
    }

    /// The attributes of each event.
    fn attrs(&self) -> Result<Vec<Attr>, PerfError> {
        let events = self.sampled();
        // Asked for the period of a software event or tracepoint with a fixed one, the kernel takes a sample of each event
        // (`perf_swevent_event`). All events have the same layout of samples.
        let has_period = events.iter().all(|one| !matches!(self.rate_of(one), Rate::Period(2..)));
        let attr = |event| {
            let mut attr = self.attr(event)?;
            if !has_period {
                attr.sample_type &= !SampleType::PERIOD.bits();
            }
            Ok(attr)
        };
        events.iter().map(attr).collect()
    }

    fn attr(&self, event: &Event) -> Result<Attr, PerfError> {
        let Attr { kind, config, config1, config2, config3, flags, .. } = event.attr()?;
        let (sample_period, rate_flag) = match self.rate_of(event) {
            Rate::Period(period @ LONG..) => return Err(PerfError::Period(period)),
            Rate::Period(period) => (period, Flags::empty()),
            Rate::Frequency(0) => return Err(PerfError::NoSamples),
            Rate::Frequency(frequency) => (frequency, Flags::FREQ),
        };
        let mut attr =
            Attr { kind, config, config1, config2, config3, sample_period, ..self.attr.clone() };
        attr.flags |= flags | rate_flag.bits();
        if attr.flags & Flags::WRITE_BACKWARD.bits() != 0 {
            return Err(PerfError::Backward);
        }
        if attr.flags & Flags::USE_CLOCKID.bits() != 0 {
            attr.clockid = libc::CLOCK_MONOTONIC;
        }
        // The kernel wakes once records exceed this many bytes, for which a ring of about that size has no room.
        let half = u32::try_from(self.ring_size()? / 2).unwrap_or(u32::MAX);
        attr.wakeup = attr.wakeup.min(half);
        if attr.sample_type & SampleType::BRANCH_STACK.bits() != 0 {
            attr.branch_sample_type = BRANCH_ANY;
        }
        // The kernel may be too old for this: see `EventOpener::event`.
        attr.read_format |= ReadFormat::LOST.bits();
        Ok(attr)
    }

    fn rate_of(&self, event: &Event) -> Rate {
        let is_each = self.each_hit && matches!(event.source(), Source::Tracepoint(..));
        if is_each { Rate::Period(1) } else { event.rate().unwrap_or(self.rate) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequency_of_0_is_refused() {
        assert!(matches!(Sampler::builder().frequency(0).open(), Err(PerfError::NoSamples)));
    }

    #[test]
    fn a_period_that_is_too_long_is_refused() {
        let error = Sampler::builder().period(LONG).open().unwrap_err().to_string();
        assert!(error.contains("9223372036854775808 events is too long"), "{error}");
        assert!(Sampler::builder().period(LONG - 1).open().is_ok());
    }

    #[test]
    fn a_ring_that_is_written_backward_is_refused() {
        let error = Sampler::builder().flags(Flags::WRITE_BACKWARD).open().unwrap_err();
        assert!(matches!(error, PerfError::Backward), "{error}");
    }

    #[test]
    fn the_watermark_is_at_most_half_of_the_ring() {
        let wakeup = |builder: SamplerBuilder| {
            let attr = builder.attrs().unwrap().remove(0);
            assert!(Flags::from_bits_retain(attr.flags).contains(Flags::WATERMARK));
            attr.wakeup
        };
        let (builder, half) = (Sampler::builder().bytes_per_ring(100_000), 64 << 10);
        assert_eq!(wakeup(builder.clone()), 1, "each record wakes");
        for (bytes, expected) in [(100, 100), (half, half), (half + 1, half), (u32::MAX, half)] {
            assert_eq!(wakeup(builder.clone().wake_after_bytes(bytes)), expected);
        }
    }

    #[test]
    fn every_format_of_counters_has_lost_records() {
        let format = |builder: SamplerBuilder| builder.attrs().unwrap()[0].read_format;
        let (id, lost) = (ReadFormat::ID, ReadFormat::LOST);
        assert_eq!(format(Sampler::builder()), lost.bits());
        assert_eq!(format(Sampler::builder().counters(id)), (id | lost).bits());
    }

    #[test]
    fn branches_are_of_all_kinds() {
        let kinds = |builder: SamplerBuilder| builder.attrs().unwrap()[0].branch_sample_type;
        let builder = Sampler::builder();
        assert_eq!(kinds(builder.clone()), 0);
        assert_eq!(kinds(builder.sample(SampleType::BRANCH_STACK)), BRANCH_ANY);
    }

    #[test]
    fn the_rate_of_an_event_overrides_that_of_the_sampler() {
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

    #[test]
    fn samples_of_fixed_periods_do_not_have_them() {
        let has_period = |builder: SamplerBuilder| {
            let attrs = builder.attrs().unwrap();
            attrs.iter().map(|attr| attr.sample_type & SampleType::PERIOD.bits() != 0).collect()
        };
        let clock = || Sampler::builder().event(Software::CpuClock);
        let fixed: Event = "software/config=0,period=5/".parse().unwrap();
        for (builder, expected) in [
            (Sampler::builder(), vec![true]),
            (Sampler::builder().period(1000), vec![false]),
            (Sampler::builder().frequency(99), vec![true]),
            (clock().period(1000), vec![false]),
            (clock().event(fixed), vec![false; 2]),
        ] {
            let has_period: Vec<bool> = has_period(builder.clone());
            assert_eq!(has_period, expected, "{builder:?}");
        }
    }
}
