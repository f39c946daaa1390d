//! What patterns match and is not probed.

use probe_user::trace::LeftOut;
use std::io::{self, Write};

/// Says what is not probed though it matches, on standard error.
pub(crate) fn tell(left_out: &[LeftOut]) {
    for pattern in left_out.iter().filter(|pattern| pattern.count() > 0) {
        // Nobody may be there to read it, which is no reason to fail.
        let _ = writeln!(io::stderr(), "probe: {pattern}");
    }
}
