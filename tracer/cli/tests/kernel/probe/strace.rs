//! What a process does, by strace.

use super::{binary, succeed};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

/// The system calls of `probe`, and of other processes, line by line.
pub struct Calls {
    pub output: Output,
    pub own: Vec<String>,
    pub others: Vec<String>,
}

impl Calls {
    /// Those of these names, while `probe` runs with these arguments. Descriptors are shown with their paths.
    pub fn of(names: &str, args: &[&str]) -> Self {
        // A file for each thread: calls of several are not mixed up.
        let logs = tempfile::tempdir().unwrap();
        let log = logs.path().join("log");
        let mut command = Command::new("strace");
        command.args(["-ff", "-y", "-e", &format!("trace=execve,clone,clone3,{names}"), "-o"]);
        let output = succeed(command.arg(&log).arg(binary()).args(args));
        let logs = fs::read_dir(logs.path()).unwrap().map(|one| one.unwrap().path());
        let logs = logs.map(|path| {
            let thread = path.extension().unwrap().to_str().unwrap().to_owned();
            (thread, fs::read_to_string(path).unwrap())
        });
        let logs: Vec<_> = logs.collect();
        let executes = format!("execve(\"{}\"", binary().display());
        let first = logs.iter().find(|(_, log)| log.starts_with(&executes)).unwrap();
        let mut threads = BTreeSet::from([first.0.clone()]);
        loop {
            let known = threads.len();
            let of_probe = logs.iter().filter(|(thread, _)| threads.contains(thread));
            let started = of_probe.flat_map(|(_, log)| log.lines()).filter_map(|line| {
                let (_, thread) = line.rsplit_once(" = ")?;
                line.contains("CLONE_THREAD").then(|| thread.to_owned())
            });
            let started: Vec<_> = started.collect();
            threads.extend(started);
            if threads.len() == known {
                break;
            }
        }
        let (own, others): (Vec<_>, Vec<_>) =
            logs.iter().partition(|(thread, _)| threads.contains(thread));
        let [own, others] = [own, others].map(|logs| {
            let lines = logs.iter().flat_map(|(_, log)| log.lines());
            // Other lines are about signals and the end.
            let calls = lines.filter(|line| line.starts_with(|one: char| one.is_ascii_lowercase()));
            calls.map(str::to_owned).collect()
        });
        Self { output, own, others }
    }
}
