//! `cargo xtask fuzz recording`; does nothing without `--cfg fuzzing`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_tracer::fuzzing::recording(data, check));

/// Panics unless the line matches the published schema.
#[cfg(fuzzing)]
fn check(line: &str) {
    use std::sync::LazyLock;
    static VALIDATOR: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
        let schema = include_str!("../../tracer/lib/events.schema.json");
        let schema = serde_json::from_str(schema).expect("the schema is valid JSON");
        jsonschema::validator_for(&schema).expect("the schema is valid")
    });
    let json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    if let Err(error) = VALIDATOR.validate(&json) {
        panic!("{line}: {error}");
    }
}

#[cfg(not(fuzzing))]
fn main() {}
