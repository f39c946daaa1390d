//! Processes to trace that go on until they are dropped.

use super::dd;
use anyhow::{Context, Result};
use std::process::{Child, Command, Stdio};

pub(super) struct Process(Child);

impl Process {
    /// One that writes all the time.
    pub(super) fn writing() -> Result<Self> {
        Self::start(&dd::endless())
    }

    /// One that does nothing.
    pub(super) fn sleeping() -> Result<Self> {
        Self::start(&["sleep", "infinity"].map(str::to_owned))
    }

    fn start(words: &[String]) -> Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().with_context(|| format!("cannot start {}", words[0]))?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
