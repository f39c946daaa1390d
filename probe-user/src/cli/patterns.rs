//! Patterns on the command line.

use super::args::Choice;
use probe_user::trace::{LeftOut, TraceError, TracerBuilder};
use std::io::{self, Write};

/// Leaves out what is not meant.
pub(crate) fn choose(builder: TracerBuilder, choice: &Choice) -> Result<TracerBuilder, TraceError> {
    let builder = builder.force(choice.force);
    choice.exclude.iter().try_fold(builder, |builder, glob| builder.exclude(glob))
}

/// Says what is not probed though it matches, on standard error.
pub(crate) fn tell(left_out: &[LeftOut]) {
    for pattern in left_out.iter().filter(|pattern| pattern.count() > 0) {
        // Nobody may be there to read it, which is no reason to fail.
        let _ = writeln!(io::stderr(), "probe: {pattern}");
    }
}
