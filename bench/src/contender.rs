//! Who takes part.

use clap::ValueEnum;
use probe_user::common::control::Clock;
use std::fmt;

/// A way to get records out of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Contender {
    /// The pipe as it comes: packed, adaptive.
    EvpipeAdaptive,
    /// The same, with a consumer on each CPU.
    EvpipePercpu,
    /// The same, whose consumers have a real-time priority and an eighth of the ring.
    EvpipePercpuRealtime,
    /// As it comes, with one time for all records of a block.
    EvpipeAdaptiveBlocktime,
    /// The same, with the kernel's coarse clock.
    EvpipeAdaptiveCoarse,
    /// The pipe packed, as a flight recorder: rings are overwritten, and nobody reads.
    EvpipeFlight,
    /// The pipe unpacked, with a wakeup at a quarter of the ring.
    EvpipeWatermark,
    /// The same, and each record is emitted alone.
    EvpipeAlone,
    /// The pipe unpacked, with a wakeup after every record.
    EvpipeEach,
    /// aya's `PerfEventArray`, as its documentation uses it.
    Aya,
    /// libbpf's `perf_buffer`, as its documentation uses it.
    LibbpfPerf,
    /// The same, with a wakeup after every 64 records.
    #[value(name = "libbpf-perf-every64")]
    LibbpfPerfEvery64,
    /// The same, with a wakeup at a quarter of the ring.
    LibbpfPerfTuned,
    /// libbpf's `ring_buffer`, as its documentation uses it.
    LibbpfRingbuf,
    /// The same with `BPF_RB_NO_WAKEUP`, looked at every millisecond.
    LibbpfRingbufNowake,
    /// The same, and nobody takes the time.
    LibbpfRingbufNowakeUntimed,
    /// A `ring_buffer` for each CPU, in an array of maps, looked at every millisecond.
    LibbpfRingbufPercpu,
    /// The same, each consumed on its CPU with a real-time priority, and an eighth of the ring.
    LibbpfRingbufPercpuRealtime,
    /// Nobody: the record is written, its time included, and goes nowhere. What none of the others
    /// can save.
    NoOutput,
}

/// Which programs emit for a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emitter {
    Pipe,
    PipeAlone,
    Perf,
    Ring,
    RingNowake,
    RingNowakeUntimed,
    RingPerCpu,
    Floor,
}

/// What of a contender others have to know.
struct Profile {
    emitter: Emitter,
    /// What the records of a pipe have their time from.
    clock: Clock,
    consumed: Consumed,
    /// Whether a record wakes its consumer that is idle; those of the others look by a timer.
    is_woken: bool,
    /// Whether its records have a time, each its own.
    is_timed: bool,
    takes_every_payload: bool,
    needs_libbpf: bool,
}

/// Who consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consumed {
    /// The thread that asks for it.
    Here,
    /// Threads of its own, meanwhile: one on each CPU.
    OnEachCpu,
    /// Its records go nowhere.
    ByNobody,
}

impl Profile {
    /// Of a contender that looks by a timer.
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

    fn by_nobody(self) -> Self {
        Self { consumed: Consumed::ByNobody, is_timed: false, ..self }
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
    fn profile(self) -> Profile {
        use Emitter as By;
        let of = Profile::of;
        match self {
            Self::EvpipeAdaptive => of(By::Pipe).woken().every_payload(),
            Self::EvpipePercpu | Self::EvpipePercpuRealtime => of(By::Pipe).woken().on_each_cpu(),
            Self::EvpipeAdaptiveBlocktime => of(By::Pipe).woken().clock(Clock::PerBlock),
            Self::EvpipeAdaptiveCoarse => of(By::Pipe).woken().clock(Clock::Coarse),
            Self::EvpipeFlight => of(By::Pipe).by_nobody(),
            Self::EvpipeWatermark => of(By::Pipe).every_payload(),
            Self::EvpipeAlone => of(By::PipeAlone),
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
            Self::NoOutput => of(By::Floor).by_nobody(),
        }
    }

    pub(crate) fn emitter(self) -> Emitter {
        self.profile().emitter
    }

    /// What the records of a pipe have their time from.
    pub(crate) fn clock(self) -> Clock {
        self.profile().clock
    }

    /// Whether its records arrive, with the time of their own emission.
    pub(crate) fn is_timed(self) -> bool {
        self.profile().is_timed
    }

    /// Whether its records arrive.
    pub(crate) fn delivers(self) -> bool {
        self.profile().consumed != Consumed::ByNobody
    }

    /// Whether it is consumed by the thread that asks for it, and not by others meanwhile.
    pub(crate) fn is_consumed_here(self) -> bool {
        self.profile().consumed == Consumed::Here
    }

    /// Whether a record wakes its consumer that is idle; those of the others look by a timer.
    pub(crate) fn is_woken(self) -> bool {
        self.profile().is_woken
    }

    /// Whether it is measured with every length of payload, or with the one that all have.
    pub(crate) fn takes_every_payload(self) -> bool {
        self.profile().takes_every_payload
    }

    /// Whether it is the pipe.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self.emitter(), Emitter::Pipe | Emitter::PipeAlone)
    }

    /// Whether this build can measure it.
    pub(crate) fn is_built_in(self) -> bool {
        cfg!(feature = "libbpf") || !self.profile().needs_libbpf
    }
}

impl Emitter {
    /// The name of the program whose runs emit so many records, with so many bytes of payload.
    pub(crate) fn program(self, records: u32, payload: usize) -> String {
        let name = match self {
            Self::Pipe => "pipe",
            Self::PipeAlone => "alone",
            Self::Perf => "perf",
            Self::Ring => "ring",
            Self::RingNowake => "nowake",
            Self::RingNowakeUntimed => "untimed",
            Self::RingPerCpu => "ring_percpu",
            Self::Floor => "floor",
        };
        let burst = if records == 1 { "" } else { "_burst" };
        format!("{name}{burst}_{payload}")
    }
}

/// As on the command line.
impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no contender is skipped");
        f.write_str(value.get_name())
    }
}
