//! Files and directories to write to.

use anyhow::{Result, anyhow};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Creates a file, or truncates an existing one.
pub(crate) fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| failed(path, &error))
}

/// Creates a directory, unless it exists.
pub(crate) fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot create {}: {error}", path.display())
}
