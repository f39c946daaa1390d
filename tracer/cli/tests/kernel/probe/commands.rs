//! Commands whose system calls are known, to be traced.

use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// Makes `count` writes of one byte to standard output, and no other writes.
pub fn writes(count: u32) -> [String; 6] {
    let count = format!("count={count}");
    ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", &count, "status=none"].map(str::to_owned)
}

/// Makes these writes on CPU 0.
pub fn writes_on_one_cpu(count: u32) -> Vec<String> {
    [&["taskset", "-c", "0"].map(str::to_owned)[..], &writes(count)].concat()
}

/// Two processes, on CPU 0 and CPU 1, that pass a byte back and forth `times` times through pipes
/// in `dir`. Their writes alternate.
pub fn alternating_writes(dir: &Path, times: u32) -> [String; 3] {
    shell(&format!(
        "cd {}; mkfifo a b; exec 3<>a 4<>b; taskset -c 0 dd bs=1 count={times} <&3 >&4 & \
         taskset -c 1 dd bs=1 count={times} <&4 >&3 & printf x >&3; wait",
        dir.display()
    ))
}

/// Those writes.
pub const ALTERNATING: &str = "tracepoint:syscalls:sys_enter_write/fd == 1 && comm == \"dd\"/";

pub fn shell(script: &str) -> [String; 3] {
    ["sh", "-c", script].map(str::to_owned)
}

/// Runs the workload of a module of this executable, and prints nothing.
pub fn workload(module: &str, work: &str) -> [String; 5] {
    let script = format!("{WORK}=$1 exec \"$0\" --ignored --exact {module}::workload >/dev/null");
    ["sh", "-c", &script, &own(), work].map(str::to_owned)
}

const WORK: &str = "PROBE_TEST_WORK";

/// The work that the workload is to do; empty if the workload is run as a test.
pub fn requested_work() -> String {
    std::env::var(WORK).unwrap_or_default()
}

/// The path of this executable.
pub fn own() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// A file for `dd` to read.
pub struct Readable(NamedTempFile);

impl Readable {
    pub fn new(bytes: usize) -> Self {
        let mut file = tempfile::Builder::new().prefix("read-me-").tempfile_in(".").unwrap();
        file.write_all(&vec![b'x'; bytes]).unwrap();
        Self(file)
    }

    pub fn name(&self) -> &str {
        self.0.path().file_name().unwrap().to_str().unwrap()
    }

    /// Reads the file in pieces, and once more at its end.
    pub fn reads(&self, piece: usize) -> [String; 4] {
        let (input, piece) = (format!("if={}", self.0.path().display()), format!("bs={piece}"));
        ["dd", &input, "of=/dev/null", &piece].map(str::to_owned)
    }
}
