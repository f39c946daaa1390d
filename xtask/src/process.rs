//! Child processes: what failed, and what it printed.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::say::Step;

/// Lines of a failed command's output that its error shows.
const TAIL: usize = 30;

/// Runs a command whose output nobody reads unless it fails.
pub(crate) fn quiet(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs a command and returns its standard output.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    String::from_utf8(output.stdout).with_context(|| format!("{} printed no UTF-8", name(command)))
}

/// Runs a command whose output goes to the step's progress line, and into the error if it fails.
pub(crate) fn watched(command: &mut Command, step: &Step) -> Result<()> {
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let child = spawn(command);
    // The command holds the pipe's writing ends, which would keep it open for ever.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child?;
    let mut printed = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        step.show(&line);
        printed.push_str(&line);
        printed.push('\n');
    }
    succeeded(command, child.wait()?, &printed)
}

/// Runs a command with xtask's own standard error for all it prints.
pub(crate) fn loud(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot start {}", name(command)))?;
    succeeded(command, status, "")
}

fn output(command: &mut Command) -> Result<Output> {
    let child = {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        spawn(command)?
    };
    let output = child.wait_with_output()?;
    let mut printed = String::from_utf8_lossy(&output.stderr).into_owned();
    printed.push_str(&String::from_utf8_lossy(&output.stdout));
    succeeded(command, output.status, &printed)?;
    Ok(output)
}

fn spawn(command: &mut Command) -> Result<std::process::Child> {
    command.spawn().with_context(|| format!("cannot start {}", name(command)))
}

fn succeeded(command: &Command, status: ExitStatus, printed: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let name = name(command);
    match tail(printed, TAIL) {
        "" => bail!("{name} failed ({status})"),
        tail => bail!("{name} failed ({status}):\n{tail}"),
    }
}

/// The command as a reader knows it: `apt-get update`, without the options.
fn name(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let mut name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let verb = command.get_args().filter_map(|arg| arg.to_str()).find(|arg| is_verb(arg));
    if let Some(verb) = verb {
        name.push(' ');
        name.push_str(verb);
    }
    name
}

fn is_verb(arg: &str) -> bool {
    arg.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !arg.starts_with('-')
}

/// The last `lines` lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> &str {
    let text = text.trim_end();
    match text.rmatch_indices('\n').nth(lines.saturating_sub(1)) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

/// Waits until a thread ends, and lets its panic go on here.
pub(crate) fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
    fn failure_shows_what_was_printed() {
        let error = quiet(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(format!("{error:#}").contains("why"), "{error:#}");
    }
}
