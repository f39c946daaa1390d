//! Where the events of a trace go.

use super::ledger;
use probe_user::Consumer;
use probe_user::trace::Account;
use probe_user::trace::output::Printer;
use probe_user::trace::recording::Recorder;
use std::io::{self, Write};

/// What takes the events of a trace, and has something before and behind them.
pub(crate) trait Output: Consumer {
    /// What it writes, as an error calls it.
    const WHAT: &str;

    fn start(&mut self) -> io::Result<()>;
    fn finish(&mut self, ledger: &Account) -> io::Result<()>;
    /// What it has taken, and how many of it.
    fn told(&self) -> String;
}

impl<W: Write> Output for Printer<W> {
    const WHAT: &str = "events";

    fn start(&mut self) -> io::Result<()> {
        self.start()
    }

    fn finish(&mut self, ledger: &Account) -> io::Result<()> {
        self.finish(ledger.clone())
    }

    fn told(&self) -> String {
        ledger::events(self.printed())
    }
}

impl<W: Write> Output for Recorder<W> {
    const WHAT: &str = "events";

    fn start(&mut self) -> io::Result<()> {
        self.start()
    }

    fn finish(&mut self, ledger: &Account) -> io::Result<()> {
        self.finish(ledger.clone())
    }

    fn told(&self) -> String {
        ledger::events(self.recorded())
    }
}
