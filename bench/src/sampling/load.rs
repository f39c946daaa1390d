//! What runs while it is sampled.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How many processes run a load.
pub(super) const PROCESSES: usize = 2;

/// What several processes do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) name: &'static str,
    /// A script for the shell, which runs until it is killed. `$0` is a folder with sources.
    script: &'static str,
    /// A command that succeeds if the machine can run the load.
    needs: &'static str,
}

pub(super) const LOADS: [Load; 4] = [
    Load {
        name: "Python, with deep calls",
        script: r#"exec python3 "$0/deep.py""#,
        needs: "python3 --version",
    },
    Load {
        name: "a shell that starts `true`",
        script: "while :; do /bin/true; done",
        needs: "true",
    },
    Load {
        name: "gcc, for 400 functions",
        script: r#"while :; do gcc -O2 -c "$0/many.c" -o "$0/$$.o"; done"#,
        needs: "gcc --version",
    },
    Load {
        name: "rustc, for 600 functions",
        script: r#"while :; do rustc --crate-type lib --emit "metadata=$0/$$.rmeta" "$0/many.rs"; done"#,
        needs: "rustc --version",
    },
];

const DEEP: &str = "def deep(n):\n    return sum(range(1000)) if n == 0 else deep(n - 1)\n\nwhile True:\n    deep(50)\n";

impl Load {
    pub(super) fn is_possible(&self) -> bool {
        let mut command = Command::new("sh");
        command.args(["-c", self.needs]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    pub(super) fn start(&self, sources: &Path) -> Result<Running> {
        let mut running = Running(Vec::new());
        for _ in 0..PROCESSES {
            let mut command = Command::new("sh");
            command.args(["-c", self.script]).arg(sources).process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            running.0.push(command.spawn().context("cannot start sh")?);
        }
        Ok(running)
    }
}

/// A load, which runs until it is dropped. Each of its processes is the first of a group.
pub(super) struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It fails only if the group has ended.
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

/// Writes what the loads compile and run.
pub(super) fn write_sources(folder: &Path) -> Result<()> {
    let (mut in_c, mut in_rust) = (String::new(), String::new());
    for n in 0..400 {
        writeln!(
            in_c,
            "int f{n}(int *a, int n) {{ int s = 0; for (int i = 0; i < n; i++) {{ s += a[i] * {n} + (s >> 3); \
             if (s % 7 == 0) s ^= a[(i + {n}) % n]; }} return s; }}"
        )?;
    }
    for n in 0..600 {
        writeln!(
            in_rust,
            "pub fn f{n}(a: &[i64]) -> i64 {{ let mut s = 0; for (k, x) in a.iter().enumerate() {{ \
             s += x * {n} + (s >> 3) + k as i64; if s % 7 == 0 {{ s ^= a[(k + {n}) % a.len()]; }} }} s }}"
        )?;
    }
    for (name, text) in [("deep.py", DEEP), ("many.c", &in_c), ("many.rs", &in_rust)] {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
