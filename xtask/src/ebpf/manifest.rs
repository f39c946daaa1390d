//! `tracer/lib/ebpf/manifest.toml`: the sources and tools that the checked-in objects were built from.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::setup::files::write_if_changed;

const PATH: &str = "tracer/lib/ebpf/manifest.toml";
const HEAD: &str =
    "# Written by `cargo xtask build-ebpf`, compared by `cargo xtask build-ebpf --check`.\n\n";

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Manifest {
    pub(crate) rustc: String,
    pub(crate) bpf_linker: String,
    #[serde(default, rename = "object")]
    pub(crate) objects: Vec<Entry>,
}

/// One checked-in object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Relative to the workspace root.
    pub(crate) path: PathBuf,
    /// Hash of the object's bytes.
    pub(crate) sha256: String,
    /// Hash of everything that the bytes depend on, except the tools.
    pub(crate) sources: String,
}

impl Manifest {
    /// Reads the clone's manifest. A missing file is an empty manifest.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let path = root.join(PATH);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).with_context(|| format!("{PATH} is not valid")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {PATH}")),
        }
    }

    pub(crate) fn save(&self, root: &Path) -> Result<()> {
        let text = format!("{HEAD}{}", toml::to_string(self)?);
        write_if_changed(&root.join(PATH), text.as_bytes()).map(drop)
    }

    pub(crate) fn entry(&self, path: &Path) -> Option<&Entry> {
        self.objects.iter().find(|entry| entry.path == path)
    }

    /// Describes how a compiler differs from the one that built the objects. `None` if it is the same.
    pub(crate) fn other_rustc(&self, rustc: &str) -> Option<String> {
        let built = &self.rustc;
        (built != rustc).then(|| format!("rustc is {rustc}, the objects were built with {built}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            rustc: "1.95.0 (59807616e 2026-04-14)".into(),
            bpf_linker: "0.13.0".into(),
            objects: vec![Entry {
                path: "tracer/lib/ebpf/probe.bpf.o".into(),
                sha256: "aa".into(),
                sources: "bb".into(),
            }],
        }
    }

    #[test]
    fn manifest_is_read_back() {
        let text = toml::to_string(&manifest()).unwrap();
        assert!(text.contains("[[object]]"), "{text}");
        assert_eq!(toml::from_str::<Manifest>(&text).unwrap(), manifest());
        assert!(manifest().entry(Path::new("tracer/lib/ebpf/probe.bpf.o")).is_some());
        assert!(manifest().entry(Path::new("other.bpf.o")).is_none());
    }

    #[test]
    fn missing_manifest_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::load(dir.path()).unwrap(), Manifest::default());
    }

    #[test]
    fn another_compiler_is_named() {
        let manifest = manifest();
        assert_eq!(manifest.other_rustc(&manifest.rustc), None);
        let other = manifest.other_rustc("1.96.0 (1 2026-05-28)").unwrap();
        let built = "the objects were built with 1.95.0 (59807616e 2026-04-14)";
        assert_eq!(other, format!("rustc is 1.96.0 (1 2026-05-28), {built}"));
    }
}
