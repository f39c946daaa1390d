//! The fields of a hook at which neither arguments nor a result can be read.

use super::shape::Shape;
use super::{FieldSource, Reading, ResolveError};
use crate::spec::{At, FieldPath, FieldType};
use probe_tracer_common::fetch::FetchField;

/// No fields but the built-in ones.
#[derive(Clone, Debug)]
pub(crate) struct BareFields {
    /// Why there are no others.
    why: String,
}

impl BareFields {
    /// At an offset in a function.
    pub(crate) fn inside(function: &str) -> Self {
        let why =
            format!("inside {function}, its arguments may be in other registers than at its entry");
        Self { why }
    }

    /// In a function of a Go program.
    pub(crate) fn of_go(function: &str) -> Self {
        let why = format!(
            "{function} is a Go function, whose arguments and results are not where C has them"
        );
        Self { why }
    }
}

impl FieldSource for BareFields {
    fn own(&self, _: &FieldPath, _: Option<FieldType>, _: At) -> Option<Reading> {
        None
    }

    fn unknown(&self, path: &FieldPath) -> ResolveError {
        let names = super::builtin::NAMES.join(", ");
        ResolveError::new(path.at, format!("{}; only these can be read: {names}", self.why))
    }

    fn defaults(&self) -> Vec<(String, FetchField, Shape)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::tests::resolve;

    #[test]
    fn only_built_in_fields_are_read() {
        let fields = BareFields::inside("vfs_read");
        assert!(fields.defaults().is_empty());
        assert!(resolve(&fields, "pid").is_ok());
        for field in ["arg0", "count", "retval", "latency"] {
            let error = resolve(&fields, field).unwrap_err().what;
            assert!(error.starts_with("inside vfs_read, its arguments may be in other"), "{error}");
        }
    }
}
