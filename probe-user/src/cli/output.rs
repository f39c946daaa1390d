//! Where the events of a trace go.

use probe_user::Consumer;
use probe_user::trace::Account;
use probe_user::trace::output::Printer;
use probe_user::trace::recording::Recorder;
use std::io::{self, Write};

/// What takes the events of a trace, and has something before and behind them.
pub(crate) trait Output: Consumer {
    fn start(&mut self) -> io::Result<()>;
    fn finish(&mut self, ledger: &Account) -> io::Result<()>;
    /// How many events it has taken.
    fn events(&self) -> u64;
}

impl<W: Write> Output for Printer<W> {
    fn start(&mut self) -> io::Result<()> {
        self.start()
    }

    fn finish(&mut self, ledger: &Account) -> io::Result<()> {
        self.finish(ledger.clone())
    }

    fn events(&self) -> u64 {
        self.printed()
    }
}

impl<W: Write> Output for Recorder<W> {
    fn start(&mut self) -> io::Result<()> {
        self.start()
    }

    fn finish(&mut self, ledger: &Account) -> io::Result<()> {
        self.finish(ledger.clone())
    }

    fn events(&self) -> u64 {
        self.recorded()
    }
}
