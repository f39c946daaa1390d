//! The contenders and their properties.

use clap::ValueEnum;
use probe_user::common::control::Clock;
use std::fmt;

/// A mechanism that delivers records from the kernel to user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Contender {
    /// The pipe with its defaults: packed, adaptive wakeups.
    EvpipeAdaptive,
    /// `EvpipeAdaptive` with one consumer per CPU.
    EvpipePercpu,
    /// `EvpipePercpu` with real-time consumers and an eighth of the ring.
    EvpipePercpuRealtime,
    /// `EvpipeAdaptive` with one timestamp per block.
    EvpipeAdaptiveBlocktime,
    /// `EvpipeAdaptive` with the kernel's coarse clock.
    EvpipeAdaptiveCoarse,
    /// The packed pipe as a flight recorder: rings are overwritten and never read.
    EvpipeFlight,
    /// The pipe unpacked, with a watermark at a quarter of the ring.
    EvpipeWatermark,
    /// The pipe unpacked, with a wakeup after every record.
    EvpipeEach,
    /// aya's `PerfEventArray`, used as its documentation shows.
    Aya,
    /// libbpf's `perf_buffer`, used as its documentation shows.
    LibbpfPerf,
    /// `LibbpfPerf` with a wakeup every 64 records.
    #[value(name = "libbpf-perf-every64")]
    LibbpfPerfEvery64,
    /// `LibbpfPerf` with a watermark at a quarter of the ring.
    LibbpfPerfTuned,
    /// libbpf's `ring_buffer`, used as its documentation shows.
    LibbpfRingbuf,
    /// `LibbpfRingbuf` with `BPF_RB_NO_WAKEUP`, polled every millisecond.
    LibbpfRingbufNowake,
    /// `LibbpfRingbufNowake` without timestamps.
    LibbpfRingbufNowakeUntimed,
    /// One `ring_buffer` per CPU in an array of maps, polled every millisecond.
    LibbpfRingbufPercpu,
    /// `LibbpfRingbufPercpu` with a real-time consumer on each CPU and an eighth of the ring.
    LibbpfRingbufPercpuRealtime,
    /// `LibbpfRingbufPercpu` with the pipe's packing: one entry holds a block of records.
    LibbpfRingbufPercpuPacked,
    /// The baseline: writes the record and its timestamp, but outputs nothing. No contender can be
    /// cheaper.
    NoOutput,
}

/// The eBPF programs that emit for a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emitter {
    Pipe,
    Perf,
    Ring,
    RingNowake,
    RingNowakeUntimed,
    RingPerCpu,
    RingPerCpuPacked,
    Floor,
}

/// The properties of a contender.
pub(crate) struct Profile {
    pub(crate) emitter: Emitter,
    /// Where the pipe's records take their timestamps from.
    pub(crate) clock: Clock,
    consumed: Consumed,
    /// Whether a record wakes an idle consumer. Otherwise the consumer polls on a timer.
    pub(crate) is_woken: bool,
    /// Whether records arrive with the time of their own emission.
    pub(crate) is_timed: bool,
    /// Whether to measure it with every payload length, or only with the common one.
    pub(crate) takes_every_payload: bool,
    needs_libbpf: bool,
}

/// Where records are consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consumed {
    /// The calling thread.
    Here,
    /// A background thread on each CPU.
    OnEachCpu,
    /// Nothing is consumed.
    Never,
}

impl Profile {
    /// The defaults, for a contender that polls on a timer.
    fn of(emitter: Emitter) -> Self {
        Self {
            emitter,
            clock: Clock::PerRecord,
            consumed: Consumed::Here,
            is_woken: false,
            is_timed: true,
            takes_every_payload: false,
            needs_libbpf: false,
        }
    }

    fn woken(self) -> Self {
        Self { is_woken: true, ..self }
    }

    fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    fn on_each_cpu(self) -> Self {
        Self { consumed: Consumed::OnEachCpu, ..self }
    }

    fn unread(self) -> Self {
        Self { consumed: Consumed::Never, is_timed: false, ..self }
    }

    fn untimed(self) -> Self {
        Self { is_timed: false, ..self }
    }

    fn every_payload(self) -> Self {
        Self { takes_every_payload: true, ..self }
    }

    fn libbpf(self) -> Self {
        Self { needs_libbpf: true, ..self }
    }
}

impl Contender {
    pub(crate) fn profile(self) -> Profile {
        use Emitter as By;
        let of = Profile::of;
        match self {
            Self::EvpipeAdaptive => of(By::Pipe).woken().every_payload(),
            Self::EvpipePercpu | Self::EvpipePercpuRealtime => of(By::Pipe).woken().on_each_cpu(),
            Self::EvpipeAdaptiveBlocktime => of(By::Pipe).woken().clock(Clock::PerBlock),
            Self::EvpipeAdaptiveCoarse => of(By::Pipe).woken().clock(Clock::Coarse),
            Self::EvpipeFlight => of(By::Pipe).unread(),
            Self::EvpipeWatermark => of(By::Pipe).every_payload(),
            Self::EvpipeEach => of(By::Pipe).woken().every_payload(),
            Self::Aya => of(By::Perf).woken().every_payload(),
            Self::LibbpfPerf => of(By::Perf).libbpf().woken().every_payload(),
            Self::LibbpfPerfEvery64 => of(By::Perf).libbpf(),
            Self::LibbpfPerfTuned => of(By::Perf).libbpf().every_payload(),
            Self::LibbpfRingbuf => of(By::Ring).libbpf().woken().every_payload(),
            Self::LibbpfRingbufNowake => of(By::RingNowake).libbpf().every_payload(),
            Self::LibbpfRingbufNowakeUntimed => of(By::RingNowakeUntimed).libbpf().untimed(),
            Self::LibbpfRingbufPercpu => of(By::RingPerCpu).libbpf(),
            Self::LibbpfRingbufPercpuRealtime => of(By::RingPerCpu).libbpf().on_each_cpu(),
            Self::LibbpfRingbufPercpuPacked => of(By::RingPerCpuPacked).libbpf(),
            Self::NoOutput => of(By::Floor).unread(),
        }
    }

    /// Whether records arrive.
    pub(crate) fn delivers(self) -> bool {
        self.profile().consumed != Consumed::Never
    }

    /// Whether the calling thread consumes, rather than background threads.
    pub(crate) fn is_consumed_here(self) -> bool {
        self.profile().consumed == Consumed::Here
    }

    /// Whether it is this project's pipe.
    pub(crate) fn is_ours(self) -> bool {
        self.profile().emitter == Emitter::Pipe
    }

    /// Whether it is compiled into this build.
    pub(crate) fn is_built_in(self) -> bool {
        cfg!(feature = "libbpf") || !self.profile().needs_libbpf
    }
}

impl Emitter {
    /// The name of the program that emits `records` records per run, with `payload` bytes each.
    pub(crate) fn program(self, records: u32, payload: usize) -> String {
        let name = match self {
            Self::Pipe => "pipe",
            Self::Perf => "perf",
            Self::Ring => "ring",
            Self::RingNowake => "nowake",
            Self::RingNowakeUntimed => "untimed",
            Self::RingPerCpu => "ring_percpu",
            Self::RingPerCpuPacked => "packed",
            Self::Floor => "floor",
        };
        let burst = if records == 1 { "" } else { "_burst" };
        format!("{name}{burst}_{payload}")
    }
}

/// Prints the name used on the command line.
impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no contender is skipped");
        f.write_str(value.get_name())
    }
}
