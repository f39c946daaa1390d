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
    Floor,
}

impl Contender {
    pub(crate) fn emitter(self) -> Emitter {
        match self {
            Self::EvpipeAdaptive
            | Self::EvpipePercpu
            | Self::EvpipePercpuRealtime
            | Self::EvpipeAdaptiveBlocktime
            | Self::EvpipeAdaptiveCoarse
            | Self::EvpipeFlight
            | Self::EvpipeWatermark
            | Self::EvpipeEach => Emitter::Pipe,
            Self::EvpipeAlone => Emitter::PipeAlone,
            Self::Aya | Self::LibbpfPerf | Self::LibbpfPerfEvery64 | Self::LibbpfPerfTuned => {
                Emitter::Perf
            }
            Self::LibbpfRingbuf => Emitter::Ring,
            Self::LibbpfRingbufNowake => Emitter::RingNowake,
            Self::LibbpfRingbufNowakeUntimed => Emitter::RingNowakeUntimed,
            Self::NoOutput => Emitter::Floor,
        }
    }

    /// What the records of a pipe have their time from.
    pub(crate) fn clock(self) -> Clock {
        match self {
            Self::EvpipeAdaptiveBlocktime => Clock::PerBlock,
            Self::EvpipeAdaptiveCoarse => Clock::Coarse,
            _ => Clock::PerRecord,
        }
    }

    /// Whether its records arrive, with the time of their own emission.
    pub(crate) fn is_timed(self) -> bool {
        self.delivers() && self != Self::LibbpfRingbufNowakeUntimed
    }

    /// Whether its records arrive.
    pub(crate) fn delivers(self) -> bool {
        !matches!(self, Self::NoOutput | Self::EvpipeFlight)
    }

    /// Whether it is consumed by the thread that asks for it, and not by others meanwhile.
    pub(crate) fn is_consumed_here(self) -> bool {
        !matches!(self, Self::EvpipePercpu | Self::EvpipePercpuRealtime)
    }

    /// Whether a record wakes its consumer that is idle; those of the others look by a timer.
    pub(crate) fn is_woken(self) -> bool {
        match self {
            Self::EvpipeAdaptive
            | Self::EvpipePercpu
            | Self::EvpipePercpuRealtime
            | Self::EvpipeAdaptiveBlocktime
            | Self::EvpipeAdaptiveCoarse
            | Self::EvpipeEach
            | Self::Aya
            | Self::LibbpfPerf
            | Self::LibbpfRingbuf => true,
            Self::EvpipeFlight
            | Self::EvpipeWatermark
            | Self::EvpipeAlone
            | Self::LibbpfPerfEvery64
            | Self::LibbpfPerfTuned
            | Self::LibbpfRingbufNowake
            | Self::LibbpfRingbufNowakeUntimed
            | Self::NoOutput => false,
        }
    }

    /// Whether it is measured with every length of payload, or with the one that all have.
    pub(crate) fn takes_every_payload(self) -> bool {
        !matches!(
            self,
            Self::LibbpfRingbufNowakeUntimed
                | Self::NoOutput
                | Self::EvpipePercpu
                | Self::EvpipePercpuRealtime
                | Self::EvpipeAdaptiveBlocktime
                | Self::EvpipeAdaptiveCoarse
                | Self::EvpipeFlight
                | Self::EvpipeAlone
                | Self::LibbpfPerfEvery64
        )
    }

    /// Whether it is the pipe.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self.emitter(), Emitter::Pipe | Emitter::PipeAlone)
    }

    pub(crate) fn needs_libbpf(self) -> bool {
        !self.is_ours() && !matches!(self, Self::Aya | Self::NoOutput)
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
