//! Child processes: an error names the command and shows its last output. Shared with this repository's xtask, and not
//! a part of the public API.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};

use crate::Error;

/// The number of lines of a failed command's output that its error shows.
const TAIL: usize = 30;

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|cause| start(command, &cause))?;
    succeeded(command, output.status, &[&*output.stderr, &*output.stdout].concat())?;
    Ok(output.stdout)
}

/// Runs a command and returns its standard output as text.
pub fn read(command: &mut Command) -> Result<String, Error> {
    let printed = output(command)?;
    String::from_utf8(printed)
        .map_err(|_| Error(format!("the output of {} is not UTF-8", name(command))))
}

/// Runs a command, passes its output to `show` line by line, and returns the output.
pub fn watched(command: &mut Command, show: impl Fn(&str)) -> Result<String, Error> {
    let (reader, writer) = std::io::pipe().map_err(|cause| start(command, &cause))?;
    let copy = writer.try_clone().map_err(|cause| start(command, &cause))?;
    let child = command.stdin(Stdio::null()).stdout(copy).stderr(writer).spawn();
    // The command holds the pipe's writing ends, which would keep the pipe open forever.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.map_err(|cause| start(command, &cause))?;
    let mut printed = String::new();
    // If the pipe cannot be read, the output ends but the command goes on.
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        show(&line);
        printed.push_str(&line);
        printed.push('\n');
    }
    let status = child.wait().map_err(|cause| start(command, &cause))?;
    succeeded(command, status, printed.as_bytes())?;
    Ok(printed)
}

/// Runs a command that prints to standard error, its standard output included.
pub fn loud(command: &mut Command) -> Result<(), Error> {
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    succeeded(command, status.map_err(|cause| start(command, &cause))?, b"")
}

fn start(command: &Command, cause: &std::io::Error) -> Error {
    Error(format!("cannot start {}: {cause}", name(command)))
}

fn succeeded(command: &Command, status: ExitStatus, printed: &[u8]) -> Result<(), Error> {
    if status.success() {
        return Ok(());
    }
    let name = name(command);
    match tail(&String::from_utf8_lossy(printed), TAIL) {
        "" => Err(Error(format!("{name} failed ({status})"))),
        tail => Err(Error(format!("{name} failed ({status}):\n{tail}"))),
    }
}

/// A short name of the command without its options, such as `apt-get update`.
fn name(command: &Command) -> String {
    let is_verb = |arg: &&str| {
        arg.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !arg.starts_with('-')
    };
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default();
    match command.get_args().filter_map(|arg| arg.to_str()).find(is_verb) {
        Some(verb) => format!("{program} {verb}"),
        None => program.to_owned(),
    }
}

/// The last `lines` lines of a text.
pub fn tail(text: &str, lines: usize) -> &str {
    let text = text.trim_end();
    match text.rmatch_indices('\n').nth(lines.saturating_sub(1)) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_keeps_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a\nb\n", 5), "a\nb");
        assert_eq!(tail("", 5), "");
    }

    #[test]
    fn name_is_program_and_verb() {
        let mut command = Command::new("/usr/bin/apt-get");
        command.args(["-q", "-o", "Dir::Cache=/x", "update"]);
        assert_eq!(name(&command), "apt-get update");
    }

    #[test]
    fn errors_show_the_last_lines_of_output() {
        let fail = "seq 100; echo why >&2; exit 3";
        let error = watched(Command::new("/bin/sh").args(["-c", fail]), |_| {}).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("sh failed (exit status: 3):\n72\n73"), "{error}");
        assert!(error.ends_with("100\nwhy"), "{error}");
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "sh failed (exit status: 3):\nwhy");
    }

    #[test]
    fn output_is_returned() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2"]);
        assert_eq!(read(&mut command).unwrap(), "out\n");
        assert_eq!(watched(&mut command, |_| {}).unwrap(), "out\nerr\n");
    }
}
