//! The clone: where it is, what is in it, and a cargo that was not told of xtask itself.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};

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
}

/// The clone this xtask was built from; its folder may have been moved since.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_owned).unwrap_or(manifest)
}

/// `cargo` in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env_clear().envs(environment());
    command
}

/// The environment as it was before `cargo run` told xtask about itself: build scripts, tests and
/// what `run` runs would take that for theirs.
pub(crate) fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| {
        if told_by_cargo(&name) {
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

fn told_by_cargo(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
        || ["CARGO", "CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"]
            .contains(&name)
}

/// The library path without the build's folders and the toolchain's.
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

    #[test]
    fn what_cargo_told_is_forgotten() {
        assert!(told_by_cargo(OsStr::new("CARGO_PKG_NAME")));
        assert!(told_by_cargo(OsStr::new("CARGO_MANIFEST_DIR")));
        assert!(!told_by_cargo(OsStr::new("CARGO_HOME")));
        assert!(!told_by_cargo(OsStr::new("CARGO_TARGET_DIR")));
    }

    #[test]
    fn library_path_keeps_what_was_there_before() {
        let path = OsStr::new("/t/debug/deps:/t/debug:/h/.rustup/toolchains/stable/lib:/opt/lib");
        assert_eq!(without_cargo(path, Some(Path::new("/t/debug"))), "/opt/lib");
        assert_eq!(without_cargo(OsStr::new("/t/debug"), Some(Path::new("/t/debug"))), "");
    }
}
