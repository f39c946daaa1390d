//! Tests on a real kernel: the pipe, fed by eBPF programs.

mod adaptive;
mod allocation;
mod c_header;
mod clock;
mod failures;
mod flight;
mod hotplug;
mod latency;
mod ledger;
mod nesting;
mod ordered;
mod owned;
mod parts;
mod per_cpu;
mod pipe;
mod raw;
mod restart;
mod room;
mod sharing;
mod suite;
mod suspend;
