//! The clone: its root, its packages, and a cargo command without xtask's own environment.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};

use crate::say;
use crate::setup::files;

/// The features that tests are built with: all optional parts of the pipe.
pub(crate) const FEATURES: [&str; 2] = ["--features", "probe-user/aya,probe-user/tokio"];

pub(crate) struct Workspace {
    pub(crate) metadata: Metadata,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let mut command = MetadataCommand::new();
        command.current_dir(root()).no_deps();
        let metadata = command.exec().context("cargo metadata failed")?;
        Ok(Self { metadata })
    }

    pub(crate) fn target(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// Waits for the lock of the executables, logs and modules of this clone's tests.
    pub(crate) fn lock(&self) -> Result<File> {
        lock(&self.target().join("xtask"))
    }
}

fn lock(folder: &Path) -> Result<File> {
    files::create_folder(folder)?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    wait(&path, file, "tests this clone")
}

/// Waits for the lock of a file or folder, which keeps runs of xtask from disturbing each other. The kernel releases it
/// when the process ends, even after a crash. Dropping the result releases the lock.
pub(crate) fn wait(path: &Path, file: File, why: &str) -> Result<File> {
    let waiting = || say::line(format_args!("waiting for another xtask, which {why}"));
    Ok(probe_build::lock(path, file, waiting)?)
}

/// The root of the clone. The path that xtask was built with is only a fallback: the clone may have moved since.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_owned).unwrap_or(manifest)
}

pub(crate) fn git() -> Command {
    let mut git = Command::new("git");
    git.current_dir(root());
    git
}

/// A cargo command that runs in the workspace root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env_clear().envs(environment());
    command
}

/// `cargo VERB` in the workspace root, with `--quiet` unless standard error is a terminal.
pub(crate) fn cargo_quiet(verb: &str) -> Command {
    let mut command = cargo();
    command.arg(verb);
    if !say::on_terminal() {
        command.arg("--quiet");
    }
    command
}

/// The environment without the variables that `cargo run` sets for xtask. Build scripts, tests and `probe` would take
/// them for their own.
pub(crate) fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| {
        if set_by_cargo(&name) {
            None
        } else if name == LIBRARIES {
            let value = without_cargo(&value, own_folder().as_deref());
            (!value.is_empty()).then_some((name, value))
        } else {
            Some((name, value))
        }
    })
}

const LIBRARIES: &str = "LD_LIBRARY_PATH";

fn set_by_cargo(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
        || ["CARGO", "CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"]
            .contains(&name)
}

/// The library path without the folders of the build and the toolchain.
fn without_cargo(libraries: &OsStr, own: Option<&Path>) -> OsString {
    let kept = std::env::split_paths(libraries).filter(|path| {
        !own.is_some_and(|own| path.starts_with(own))
            && !path.components().any(|part| part.as_os_str() == "toolchains")
    });
    std::env::join_paths(kept).unwrap_or_default()
}

fn own_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::TryLockError;
    use std::time::{Duration, Instant};

    #[test]
    fn only_one_run_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap();
        let other = File::open(folder.path().join("lock")).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        // A child of another test has the lock, too, until it executes its program.
        let begun = Instant::now();
        while other.try_lock().is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn variables_of_cargo_are_removed() {
        assert!(set_by_cargo(OsStr::new("CARGO_PKG_NAME")));
        assert!(set_by_cargo(OsStr::new("CARGO_MANIFEST_DIR")));
        assert!(!set_by_cargo(OsStr::new("CARGO_HOME")));
        assert!(!set_by_cargo(OsStr::new("CARGO_TARGET_DIR")));
    }

    #[test]
    fn library_path_keeps_its_other_folders() {
        let path = OsStr::new("/t/debug/deps:/t/debug:/h/.rustup/toolchains/stable/lib:/opt/lib");
        assert_eq!(without_cargo(path, Some(Path::new("/t/debug"))), "/opt/lib");
        assert_eq!(without_cargo(OsStr::new("/t/debug"), Some(Path::new("/t/debug"))), "");
    }
}
