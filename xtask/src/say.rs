//! What xtask itself has to say: one line a step, on standard error.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

pub(crate) fn line(message: impl Display) {
    // A closed standard error must not end a task that is doing fine.
    let _ = writeln!(stderr(), "xtask: {message}");
}

pub(crate) fn on_terminal() -> bool {
    stderr().is_terminal()
}

/// Says what a long step does, and shows that it lives as long as the value does.
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

    /// The step's last line of output, so that a terminal shows how far it is.
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
