//! Progress messages on standard error, one line for each step.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

pub(crate) fn line(message: impl Display) {
    // A task goes on when standard error is closed.
    let _ = writeln!(stderr(), "xtask: {message}");
}

pub(crate) fn on_terminal() -> bool {
    stderr().is_terminal()
}

/// A long step: prints what it does and shows a spinner until dropped.
pub(crate) struct Step(Option<ProgressBar>);

impl Step {
    pub(crate) fn begin(message: impl Display) -> Self {
        line(&message);
        Self(on_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
                .expect("the template is constant");
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        }))
    }

    /// Shows the step's latest line of output beside the spinner.
    pub(crate) fn show(&self, line: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(line.trim_end().to_owned());
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
