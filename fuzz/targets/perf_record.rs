//! `cargo xtask fuzz perf_record`; does nothing without `--cfg fuzzing`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_perf::fuzzing::perf_record(data));

#[cfg(not(fuzzing))]
fn main() {}
