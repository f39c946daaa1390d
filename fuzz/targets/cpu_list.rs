//! `cargo xtask fuzz cpu_list`; does nothing without `--cfg fuzzing`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_sys::fuzzing::cpu_list(data));

#[cfg(not(fuzzing))]
fn main() {}
