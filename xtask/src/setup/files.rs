//! Files and folders: an error names the path.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a folder with its parents, unless it exists.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// The paths of the files and folders in a folder.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let paths: std::io::Result<_> = paths();
    paths.with_context(|| format!("cannot read {}", folder.display()))
}

/// The paths of all files in a folder and those below it, except in folders of these names.
pub(crate) fn all_below(folder: &Path, except: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = entries(folder)?;
    let is_folder = |path: &Path| path.is_dir() && !path.is_symlink();
    for path in files.extract_if(.., |path| is_folder(path)).collect::<Vec<_>>() {
        if !except.iter().any(|name| path.file_name() == Some(OsStr::new(name))) {
            files.extend(all_below(&path, except)?);
        }
    }
    Ok(files)
}

/// Writes the file unless it already has these bytes, creating its folder. Returns whether it wrote.
pub(crate) fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let parent = path.parent().context("a file has a folder")?;
    create_folder(parent)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(parent)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

/// SHA-256 of a file's bytes, in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_when_its_bytes_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.o");
        assert!(write_if_changed(&path, b"1").unwrap());
        assert!(!write_if_changed(&path, b"1").unwrap());
        assert!(write_if_changed(&path, b"2").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"2");
    }
}
