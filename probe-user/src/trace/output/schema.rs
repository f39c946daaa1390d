//! The published schema of JSON lines, for tests and fuzzing: whatever is written, it describes.

use jsonschema::Validator;
use serde_json::Value as Json;
use std::sync::LazyLock;

static SCHEMA: LazyLock<Json> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../docs/events.schema.json"))
        .expect("it is written as JSON")
});
static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    jsonschema::meta::validate(&SCHEMA).expect("it is a schema");
    jsonschema::validator_for(&SCHEMA).expect("it is a schema")
});

/// A line as its reader has it, and as the schema has it.
///
/// # Panics
///
/// If it is not JSON, or the schema does not describe it.
pub(crate) fn valid(line: &str) -> Json {
    let json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    if let Err(error) = VALIDATOR.validate(&json) {
        panic!("{line}: {error}");
    }
    json
}

#[cfg(test)]
mod tests;
