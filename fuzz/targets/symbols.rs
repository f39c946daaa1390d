//! `cargo xtask fuzz symbols`; does nothing without `--cfg fuzzing`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_tracer::fuzzing::symbols(data));

#[cfg(not(fuzzing))]
fn main() {}
