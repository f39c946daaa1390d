//! The progress of attaching many probes.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use probe_tracer::Attaching;

/// From this many probes on, attaching takes noticeably long.
const MANY: usize = 50;

/// Shows a progress bar if standard error is a terminal, until the last probe is attached.
pub(crate) fn bar() -> impl FnMut(Attaching) {
    let mut bar = None;
    move |Attaching { done, total, .. }| {
        if total >= MANY {
            bar.get_or_insert_with(|| begin(total)).set_position(done as u64);
        }
        if done == total {
            // Dropping the bar erases it.
            bar = None;
        }
    }
}

fn begin(total: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("attaching {bar:40} {pos} of {len} probes");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total as u64).with_style(style).with_finish(ProgressFinish::AndClear)
}
