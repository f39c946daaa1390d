//! A checked-in eBPF object: what it is built from.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Package, TargetKind};
use sha2::{Digest, Sha256};

use crate::manifest::Manifest;
use crate::process;
use crate::workspace::{self, Workspace, cargo};

/// What eBPF packages are built for.
pub(crate) const TARGET: &str = "bpfel-unknown-none";

/// An object that is checked in, and the package whose binary it is.
pub(crate) struct Object {
    /// From the workspace's root.
    pub(crate) path: PathBuf,
    pub(crate) package: String,
    pub(crate) bin: String,
    /// Folders of the package and of the workspace packages it depends on.
    folders: Vec<PathBuf>,
    /// Packages from elsewhere, with version and features.
    outside: Vec<String>,
}

impl Object {
    /// Every package with `[package.metadata.ebpf]`.
    pub(crate) fn all(workspace: &Workspace) -> Result<Vec<Self>> {
        let packages = workspace.metadata.workspace_packages();
        packages
            .iter()
            .filter(|package| !package.metadata["ebpf"].is_null())
            .map(|package| Self::of(package, &packages))
            .collect()
    }

    fn of(package: &Package, packages: &[&Package]) -> Result<Self> {
        let name = package.name.as_str();
        let path = package.metadata["ebpf"]["object"]
            .as_str()
            .with_context(|| format!("{name}: metadata.ebpf.object is no path"))?;
        let bins = package
            .targets
            .iter()
            .filter(|target| target.kind.contains(&TargetKind::Bin))
            .collect::<Vec<_>>();
        let [bin] = bins[..] else { bail!("{name}: an eBPF package has one binary") };

        let tree = process::read(cargo().args([
            "tree",
            "--package",
            name,
            "--target",
            TARGET,
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--no-dedupe",
            "--format",
            "{p} {f}",
        ]))?;
        let (inside, outside) = parse_tree(&tree);
        let folders = packages
            .iter()
            .filter(|package| inside.contains(package.name.as_str()))
            .filter_map(|package| package.manifest_path.parent())
            .map(|folder| folder.as_std_path().to_owned())
            .collect();
        Ok(Self {
            path: path.into(),
            package: name.to_owned(),
            bin: bin.name.clone(),
            folders,
            outside: outside.into_iter().collect(),
        })
    }

    /// Whether the checked-in bytes are those that the sources at hand built.
    pub(crate) fn is_fresh(&self, workspace: &Workspace, manifest: &Manifest) -> Result<bool> {
        let Some(entry) = manifest.entry(&self.path) else { return Ok(false) };
        let Ok(bytes) = fs::read(workspace::root().join(&self.path)) else { return Ok(false) };
        Ok(digest(&bytes) == entry.sha256 && self.sources(workspace)? == entry.sources)
    }

    /// A hash of all that the object's bytes come from, but for the tools.
    pub(crate) fn sources(&self, workspace: &Workspace) -> Result<String> {
        let root = workspace::root();
        let mut files = BTreeSet::new();
        for folder in &self.folders {
            add_files(folder, &mut files)?;
        }
        self.add_shared(&root, &mut files)?;

        let mut hash = Sha256::new();
        for file in files {
            let name = file.strip_prefix(&root).unwrap_or(&file);
            let bytes =
                fs::read(&file).with_context(|| format!("cannot read {}", name.display()))?;
            add(&mut hash, name.as_os_str().as_encoded_bytes());
            add(&mut hash, &bytes);
        }
        for package in &self.outside {
            add(&mut hash, package.as_bytes());
        }
        add(&mut hash, build_settings(&root, workspace)?.as_bytes());
        Ok(hex(&hash.finalize()))
    }

    /// The example and its eBPF crate share record.rs by `#[path]`, which cargo does not see.
    fn add_shared(&self, root: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
        let examples = root.join("probe-user/examples");
        for folder in &self.folders {
            let Some(parent) = folder.parent() else { continue };
            if parent.starts_with(&examples) && parent != examples {
                for entry in fs::read_dir(parent)? {
                    let path = entry?.path();
                    if path.extension().is_some_and(|extension| extension == "rs") {
                        files.insert(path);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What of the root manifest reaches the object: profiles, and the edition its packages inherit.
/// Versions of dependencies reach it through the lock file.
fn build_settings(root: &Path, workspace: &Workspace) -> Result<String> {
    let text = fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest: toml::Table = text.parse().context("Cargo.toml is broken")?;
    let profiles = manifest.get("profile").map(toml::Value::to_string).unwrap_or_default();
    let editions = workspace
        .metadata
        .workspace_packages()
        .iter()
        .filter(|package| !package.metadata["ebpf"].is_null())
        .map(|package| package.edition.as_str())
        .collect::<Vec<_>>();
    Ok(format!("{profiles}\n{}", editions.join(" ")))
}

/// Names of the packages in the workspace, and lines for those outside, of
/// `cargo tree --format "{p} {f}"`.
fn parse_tree(tree: &str) -> (BTreeSet<&str>, BTreeSet<String>) {
    let mut inside = BTreeSet::new();
    let mut outside = BTreeSet::new();
    for line in tree.lines() {
        let Some((name, _)) = line.split_once(' ') else { continue };
        if line.contains(" (/") {
            inside.insert(name);
        } else {
            outside.insert(line.trim_end().to_owned());
        }
    }
    (inside, outside)
}

/// All files of a package but those that cannot reach its object.
fn add_files(folder: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !["target", "tests", "benches", "examples"].contains(&&*name) {
                add_files(&path, files)?;
            }
        } else if !name.starts_with('.') && !name.ends_with(".o") && !name.ends_with(".md") {
            files.insert(path);
        }
    }
    Ok(())
}

/// Adds a part with its length, so that no two lists of parts hash alike.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// SHA-256 of a file's bytes, in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_tells_the_workspace_from_the_rest() {
        let tree = "probe-ebpf v0.1.0 (/w/probe-ebpf) \n\
            aya-ebpf v0.2.1 default\n\
            zerocopy-derive v0.8.1 (proc-macro) \n\
            probe-common v0.1.0 (/w/probe-common) std\n\
            aya-ebpf v0.2.1 default\n";
        let (inside, outside) = parse_tree(tree);
        assert_eq!(inside.into_iter().collect::<Vec<_>>(), ["probe-common", "probe-ebpf"]);
        let outside = outside.into_iter().collect::<Vec<_>>();
        assert_eq!(outside, ["aya-ebpf v0.2.1 default", "zerocopy-derive v0.8.1 (proc-macro)"]);
    }

    #[test]
    fn only_files_that_reach_the_object_count() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["src", "tests", "target"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        for file in ["Cargo.toml", "src/main.rs", "tests/a.rs", "x.bpf.o", "README.md", ".swp"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let mut files = BTreeSet::new();
        add_files(dir.path(), &mut files).unwrap();
        let names = files.iter().map(|file| file.strip_prefix(dir.path()).unwrap());
        let expected = ["Cargo.toml", "src/main.rs"];
        assert_eq!(names.collect::<Vec<_>>(), expected.map(Path::new));
    }

    #[test]
    fn parts_do_not_run_together() {
        let hash = |parts: &[&[u8]]| {
            let mut hash = Sha256::new();
            parts.iter().for_each(|part| add(&mut hash, part));
            hex(&hash.finalize())
        };
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_eq!(hash(&[b"a"]).len(), 64);
    }
}
