//! Outputs of a trace.

pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod ledger;
mod patient;
pub(crate) mod print;
pub(crate) mod progress;
pub(crate) mod stacks;

pub(crate) use patient::{Patient, stdout};

use probe_sys::hint::counted;
use probe_tracer::Account;
use probe_tracer::output::Printer;
use probe_tracer::recording::Recorder;
use probe_user::Consumer;
use std::io::{self, Write};

/// Receives the events of a trace, and writes something before and after them.
pub(crate) trait Output: Consumer {
    /// What it writes, for error messages.
    const WHAT: &str = "events";

    fn start(&mut self) -> io::Result<()>;
    fn finish(&mut self, ledger: &Account) -> io::Result<()>;
    /// The amount that it received, with the noun.
    fn amount(&self) -> String;
}

impl<W: Write> Output for Printer<W> {
    fn start(&mut self) -> io::Result<()> {
        self.start()
    }

    fn finish(&mut self, ledger: &Account) -> io::Result<()> {
        self.finish(ledger.clone())
    }

    fn amount(&self) -> String {
        counted(self.printed(), "event")
    }
}

impl<W: Write> Output for Recorder<W> {
    fn start(&mut self) -> io::Result<()> {
        self.start()
    }

    fn finish(&mut self, ledger: &Account) -> io::Result<()> {
        self.finish(ledger.clone())
    }

    fn amount(&self) -> String {
        counted(self.recorded(), "event")
    }
}
