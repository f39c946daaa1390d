#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_user::fuzzing::perf_record(data));
