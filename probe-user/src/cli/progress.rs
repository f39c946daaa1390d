//! How far the attaching of many probes is, where a terminal shows it.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use probe_user::trace::Attaching;

/// So many are attached before one wonders.
const MANY: usize = 50;

/// Shows a bar on standard error, if that is a terminal, until all are attached, or none is any more.
pub(crate) fn bar() -> impl FnMut(Attaching) {
    let mut bar = None;
    move |Attaching { done, total, .. }| {
        if total >= MANY {
            bar.get_or_insert_with(|| begin(total)).set_position(done as u64);
        }
        if done == total {
            // It takes itself away.
            bar = None;
        }
    }
}

fn begin(total: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("attaching {bar:40} {pos} of {len} probes");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total as u64).with_style(style).with_finish(ProgressFinish::AndClear)
}
