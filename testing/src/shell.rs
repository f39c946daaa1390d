//! A shell that a test leads through its script.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A shell that prints a byte wherever its script has come to a point that the test waits for, the first at its beginning.
pub struct Shell {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Shell {
    /// Starts a script, and waits for its first byte.
    pub fn start(script: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut this = Self { child, input, output };
        this.wait();
        this
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes to the script, and waits for its next byte.
    pub fn lead(&mut self, input: &[u8]) {
        self.input.write_all(input).unwrap();
        self.wait();
    }

    fn wait(&mut self) {
        self.output.read_exact(&mut [0]).unwrap();
    }

    /// Ends the script's input, and waits for the end of the shell.
    pub fn end(self) {
        let Self { mut child, input, output: _output } = self;
        drop(input);
        child.wait().unwrap();
    }
}
