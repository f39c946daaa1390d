//! Tests on a real kernel: perf events without eBPF.

mod aux_area;
mod common;
mod counter;
mod forked;
mod hotplug_sampler;
mod limits;
mod multiplexed;
mod perf_data;
mod perf_dump;
mod perf_script;
mod sampler;
mod sampler_records;
#[path = "../../../probe-user/tests/kernel/suite/mod.rs"]
#[allow(dead_code, reason = "these tests use a part of what the pipe's tests share")]
mod suite;
