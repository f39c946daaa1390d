//! What users of system calls should know.

use crate::spec::Predicate;

/// Whether a system call never returns.
pub(super) fn never_returns(call: &str) -> bool {
    matches!(call, "exit" | "exit_group")
}

/// What to know about calls, and about a predicate on the result of one. Of a tracepoint at the exit of a system call, `call` is
/// the whole name.
pub(super) fn notes(call: &str, predicate: Option<&Predicate>, as_call: bool) -> Vec<String> {
    let no_return = (as_call && never_returns(call)).then(|| {
        "this call never returns, so --ret and latencies have none; without --ret, its entries are reported".to_owned()
    });
    no_return.into_iter().chain(predicate.and_then(Predicate::with_result_of_c)).collect()
}
