//! `cargo xtask fuzz spec`; does nothing without `--cfg fuzzing`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_tracer::fuzzing::spec(data));

#[cfg(not(fuzzing))]
fn main() {}
