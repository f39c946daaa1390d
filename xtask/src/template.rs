//! `cargo xtask new`: creates a project outside the clone from `template/`. Also the test of the template.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::report::libtest::Counts;
use crate::run::{TRACING_REQUIRES, executables, may_trace};
use crate::setup::cache;
use crate::setup::files::{self, digest};
use crate::workspace::{self, Workspace, cargo, cargo_quiet};
use crate::{process, say};

/// The project's name in the template.
const NAME: &str = "my-probe";
/// Time limit for the program to print an event and to exit.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to create; its name becomes the project's
    folder: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let folder = std::path::absolute(&self.folder)?;
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        check_name(name)?;
        ensure!(!folder.exists(), "{} already exists", folder.display());
        write(&folder, name)?;
        say::line(format_args!("{} is ready: `cargo run` in it, as root", folder.display()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Builds a new project as its author would, and runs it if this user may load programs. Otherwise, it counts as skipped.
pub(crate) fn test(workspace: &Workspace) -> Result<Counts> {
    let root = workspace::root();
    // Outside the clone, but always in the same folder, so that Cargo rebuilds little.
    let clone = digest(root.as_os_str().as_encoded_bytes());
    let project = cache()?.path("template").join(&clone[..16]).join(NAME);
    // As `new` finds it.
    if project.exists() {
        fs::remove_dir_all(&project)
            .with_context(|| format!("cannot remove {}", project.display()))?;
    }
    write(&project, NAME)?;
    let mut fmt = cargo();
    fmt.current_dir(&project).args(["fmt", "--check"]);
    // `--all` would format the clone's crates as well.
    for package in ["my-probe", "my-probe-ebpf", "my-probe-event"] {
        fmt.args(["--package", package]);
    }
    process::loud(&mut fmt)?;
    let target = workspace.target().join("template");
    let mut build = cargo_quiet("build");
    let built = executables(build.current_dir(&project).env("CARGO_TARGET_DIR", &target))?;
    if !may_trace() {
        say::line(format_args!("the template was built but not run: {TRACING_REQUIRES}"));
        return Ok(Counts::skipped(1));
    }
    let program = built.iter().find(|built| built.target == NAME);
    Run::start(&program.context("the template has no program")?.path)?.check()?;
    Ok(Counts::PASSED)
}

/// Writes the project into a folder. Unchanged files are not written.
fn write(folder: &Path, name: &str) -> Result<()> {
    let root = workspace::root();
    let template = root.join("template");
    // Without Cargo's own files, which a build of the template leaves.
    for file in files::all_below(&template, &["target"])? {
        if file.ends_with("Cargo.lock") {
            continue;
        }
        let text = adapt(&files::read_text(&file)?, name, &root);
        files::write_if_changed(&folder.join(file.strip_prefix(&template)?), text.as_bytes())?;
    }
    let lock = folder.join("Cargo.lock");
    if !lock.exists() {
        // The clone is tested with these versions. Cargo removes those that the project does not use.
        fs::copy(root.join("Cargo.lock"), &lock)
            .with_context(|| format!("cannot write {}", lock.display()))?;
    }
    Ok(())
}

/// Adapts a file of the template to a project's name, and its paths to the clone's root.
fn adapt(text: &str, name: &str, root: &Path) -> String {
    // The name of the crates first: the name of the packages has hyphens, so it is not in what replaces them.
    let named = text.replace(&NAME.replace('-', "_"), &name.replace('-', "_")).replace(NAME, name);
    // Last, because the clone's path may contain the name.
    named.replace("path = \"../probe", &format!("path = \"{}/probe", root.display()))
}

/// Checks that a project of this name can be built.
fn check_name(name: &str) -> Result<()> {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    ensure!(is_name, "`{name}` is not a valid package name");
    // Cargo has folders of these names beside the program.
    const RESERVED: [&str; 4] = ["build", "deps", "examples", "incremental"];
    ensure!(!RESERVED.contains(&name), "Cargo does not allow a program to be named `{name}`");
    let lock = files::read_text(&workspace::root().join("Cargo.lock"))?;
    for package in [name.to_owned(), format!("{name}-ebpf"), format!("{name}-event")] {
        ensure!(
            !lock.contains(&format!("\nname = \"{package}\"\n")),
            "`{name}` would have a package `{package}`, which one of its dependencies is called; choose another name"
        );
    }
    Ok(())
}

/// The running program. Dropping it kills the program.
struct Run {
    child: Child,
    lines: Receiver<String>,
    printed: String,
    deadline: Instant,
}

impl Run {
    fn start(program: &Path) -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Ok(Self { child, lines, printed: String::new(), deadline: Instant::now() + LIMIT })
    }

    /// Starts processes until the program prints one of them, then interrupts the program.
    fn check(mut self) -> Result<()> {
        let is_event = |line: &str| line.starts_with("CPU ") && line.contains(": true (");
        while !self.printed.lines().any(is_event) {
            let printed = &self.printed;
            ensure!(Instant::now() < self.deadline, "the program printed no event:\n{printed}");
            Command::new("true").status().context("cannot run `true`")?;
            if self.read_line(Duration::from_millis(100)) == Err(RecvTimeoutError::Disconnected) {
                bail!("the program exited ({}):\n{}", self.child.wait()?, self.printed)
            }
        }
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        while self.read_line(self.deadline.saturating_duration_since(Instant::now())).is_ok() {}
        let printed = &self.printed;
        ensure!(Instant::now() < self.deadline, "SIGINT did not end the program:\n{printed}");
        let status = self.child.wait()?;
        ensure!(status.success(), "the program failed ({status}):\n{printed}");
        let last = printed.lines().last().unwrap_or_default();
        ensure!(is_complete(last), "the ledger is not complete:\n{printed}");
        Ok(())
    }

    /// Waits for a line of output and adds it to what was printed.
    fn read_line(&mut self, limit: Duration) -> Result<(), RecvTimeoutError> {
        self.printed.push_str(&self.lines.recv_timeout(limit)?);
        self.printed.push('\n');
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the last line of the output is a ledger without gaps.
fn is_complete(line: &str) -> bool {
    line.starts_with("ledger: attempted ") && line.contains("; complete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_named_after_its_folder() {
        let adapted = |text| adapt(text, "net-watch", Path::new("/src/my-probe"));
        assert_eq!(
            adapted("probe-user = { path = \"../probe-user\" }"),
            "probe-user = { path = \"/src/my-probe/probe-user\" }"
        );
        assert_eq!(adapted("name = \"my-probe-ebpf\""), "name = \"net-watch-ebpf\"");
        assert_eq!(adapted("use my_probe_event::Exec;"), "use net_watch_event::Exec;");
    }

    #[test]
    fn names_are_those_of_packages() {
        check_name("net-watch_2").unwrap();
        for name in ["2nd", "", "a b", "a/b", "deps", "probe", "probe-user", "aya"] {
            check_name(name).unwrap_err();
        }
    }

    #[test]
    fn projects_are_complete_and_keep_their_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("net-watch");
        write(&project, "net-watch").unwrap();
        for file in ["Cargo.toml", "Cargo.lock", "build.rs", "src/main.rs", "ebpf/src/main.rs"] {
            assert!(project.join(file).is_file(), "{file}");
        }
        let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("\"../") && !manifest.contains(NAME), "{manifest}");

        fs::write(project.join("Cargo.lock"), "mine").unwrap();
        write(&project, "net-watch").unwrap();
        assert_eq!(fs::read_to_string(project.join("Cargo.lock")).unwrap(), "mine");
    }

    #[test]
    fn the_documentation_shows_the_template() {
        let root = workspace::root();
        let page = fs::read_to_string(root.join("docs/your-own-probe.md")).unwrap();
        let mut shown = 0;
        for part in page.split("<!-- template/").skip(1) {
            let (file, rest) = part.split_once(" -->\n```").unwrap();
            let (_, block) = rest.split_once('\n').unwrap();
            let (code, _) = block.split_once("\n```\n").unwrap();
            let text = fs::read_to_string(root.join("template").join(file)).unwrap();
            assert!(text.contains(code), "template/{file} differs from the documentation");
            shown += 1;
        }
        assert_eq!(shown, 6);
    }

    #[test]
    fn a_ledger_with_a_gap_is_not_complete() {
        assert!(is_complete("ledger: attempted 8 = handled 8 + lost 0; complete"));
        assert!(!is_complete("ledger: attempted 8 = handled 7 + lost 0; INCOMPLETE: CPU 0"));
        assert!(!is_complete("CPU 0: true (1) of user 0"));
    }
}
