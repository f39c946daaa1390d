//! Somebody who always runs.

use std::process::{Child, Command, Stdio};

/// A program that never ends, until this is dropped.
pub struct Busy(Child);

impl Busy {
    pub fn start() -> Self {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "of=/dev/null"]).stdin(Stdio::null()).stderr(Stdio::null());
        Self(dd.spawn().unwrap())
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
