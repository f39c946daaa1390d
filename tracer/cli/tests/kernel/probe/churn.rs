//! A program that churns through processes, mappings and addresses.

use super::succeed;
use rustix::process::Pid;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A program of which each process has many mappings with long paths, and a stack of addresses that no other process has, in
/// a function with a long name.
pub struct Churn {
    dir: TempDir,
}

impl Churn {
    pub fn compile() -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/churn.c");
        let mut cc = Command::new("cc");
        cc.args(["-O0", "-fno-omit-frame-pointer", &format!("-DNAME={}", this.function())]);
        succeed(cc.arg("-o").arg(this.path("churn")).arg(source));
        fs::create_dir(this.path("mapped")).unwrap();
        this
    }

    /// The name of the function.
    pub fn function(&self) -> String {
        "f".repeat(4000)
    }

    /// The program, with this number of processes in each phase.
    pub fn command(&self, processes: u32, phases: u32) -> [String; 5] {
        let [program, mapped, ended] = ["churn", "mapped", "ended"].map(|name| self.path(name));
        [program, mapped, ended, processes.to_string(), phases.to_string()]
    }

    /// Waits for the end of a phase. Returns the process that waits for SIGUSR1 now.
    pub fn wait_for(&self, phase: u32) -> Pid {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < Duration::from_secs(120), "phase {phase} does not end");
            std::thread::sleep(Duration::from_millis(20));
            let ended = fs::read_to_string(self.path("ended")).unwrap_or_default();
            if let Some((pid, _)) = ended.split_once(&format!(" {phase}\n")) {
                let pid = pid.rsplit('\n').next().unwrap();
                return Pid::from_raw(pid.parse().unwrap()).unwrap();
            }
        }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }
}
