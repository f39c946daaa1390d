//! Ratios for the comparisons that the project makes claims about.

use super::Report;
use super::row::Row;
use crate::contender::Contender::{self, *};
use std::fmt;

pub(super) fn write(report: &Report, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let all = report.machine.cpus;
    let cost = |row: &Row| row.producer_ns_net;
    let rate = |row: &Row| row.delivered_per_s;
    let drain = |row: &Row| row.drain_ns;
    let idle = |row: &Row| row.latency_ns.get("1").map(|latency| latency.p50 as f64);
    let cpu = |row: &Row| row.paced.get("100000").and_then(|paced| paced.consumer_cpu);
    let mut line = |what: &str, ours: Side<'_>, theirs: Side<'_>| {
        let (Some(a), Some(b)) = (ours.of(report), theirs.of(report)) else { return Ok(()) };
        writeln!(f, "{:7.3}  {what}: {} / {}", a / b, ours.name(), theirs.name())
    };
    type Figure<'f> = &'f dyn Fn(&Row) -> Option<f64>;
    struct Side<'f>(Contender, usize, Figure<'f>);
    impl Side<'_> {
        fn of(&self, report: &Report) -> Option<f64> {
            self.2(report.row(self.0, self.1)?)
        }

        fn name(&self) -> String {
            let cpus = if self.1 == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", self.1) };
            format!("{} ({cpus})", self.0)
        }
    }
    let ours = EvpipeAdaptive;
    for peer in [LibbpfRingbufNowake, LibbpfRingbuf, LibbpfPerf, Aya] {
        line("producer's cost", Side(ours, 1, &cost), Side(peer, 1, &cost))?;
    }
    for ours in [EvpipePercpu, EvpipePercpuRealtime] {
        line("producer's cost", Side(ours, 1, &cost), Side(LibbpfRingbufNowake, 1, &cost))?;
    }
    // Both send blocks; the maps differ.
    let packed = LibbpfRingbufPercpuPacked;
    line("producer's cost", Side(ours, 1, &cost), Side(packed, 1, &cost))?;
    let peer = Side(LibbpfRingbufPercpuRealtime, 1, &cost);
    line("producer's cost", Side(EvpipePercpuRealtime, 1, &cost), peer)?;
    let bursts = |row: &Row| row.producer_burst_ns_net;
    for ours in [ours, EvpipePercpuRealtime] {
        let peer = Side(LibbpfRingbufNowake, 1, &bursts);
        line("producer's cost, in bursts", Side(ours, 1, &bursts), peer)?;
    }
    line("producer's cost", Side(EvpipeFlight, 1, &cost), Side(ours, 1, &cost))?;
    let peer = Side(LibbpfPerfTuned, 1, &cost);
    line("producer's cost, unpacked", Side(EvpipeWatermark, 1, &cost), peer)?;
    if all > 1 {
        line("delivered", Side(ours, all, &rate), Side(LibbpfRingbufNowake, all, &rate))?;
        for (ours, peer) in [
            (ours, LibbpfRingbufPercpu),
            (ours, packed),
            (EvpipePercpuRealtime, LibbpfRingbufPercpuRealtime),
        ] {
            line("delivered", Side(ours, all, &rate), Side(peer, all, &rate))?;
        }
        line("delivered", Side(ours, all, &rate), Side(ours, 1, &rate))?;
        for percpu in [EvpipePercpu, EvpipePercpuRealtime] {
            line("delivered", Side(percpu, all, &rate), Side(ours, all, &rate))?;
        }
        let peer = Side(LibbpfRingbufNowakeUntimed, all, &rate);
        line("delivered", Side(EvpipeAdaptiveBlocktime, all, &rate), peer)?;
    }
    line("drain / bare walk", Side(ours, 1, &drain), Side(ours, 1, &|row| row.walk_ns))?;
    for peer in [LibbpfPerf, LibbpfRingbuf, packed, Aya] {
        line("drain", Side(ours, 1, &drain), Side(peer, 1, &drain))?;
    }
    line("median latency, 1/s", Side(ours, 1, &idle), Side(LibbpfPerf, 1, &idle))?;
    line("consumer CPU, 100,000/s", Side(ours, 1, &cpu), Side(LibbpfPerf, 1, &cpu))
}
