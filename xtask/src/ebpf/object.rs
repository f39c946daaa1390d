//! A checked-in eBPF object and the sources it is built from.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Package, TargetKind};
use sha2::{Digest, Sha256};

use super::manifest::Manifest;
use crate::process;
use crate::setup::files::{self, digest, hex};
use crate::workspace::{self, Workspace, cargo};

pub(crate) use probe_build::object::TARGET;

/// A checked-in object and the package that builds it.
pub(crate) struct Object {
    /// Relative to the workspace root.
    pub(crate) path: PathBuf,
    pub(crate) package: String,
    pub(crate) bin: String,
    /// Folders of the package and of the workspace packages it depends on.
    folders: Vec<PathBuf>,
    /// Packages from outside the workspace, with version and features.
    outside: Vec<String>,
}

impl Object {
    /// The objects of all packages with `[package.metadata.ebpf]`.
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
            .with_context(|| format!("{name}: metadata.ebpf.object is not a path"))?;
        let bins = package
            .targets
            .iter()
            .filter(|target| target.kind.contains(&TargetKind::Bin))
            .collect::<Vec<_>>();
        let [bin] = bins[..] else { bail!("{name}: an eBPF package must have exactly one binary") };

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

    /// What is wrong with the checked-in bytes: they are not those of the current sources, or differ from those of a new
    /// build by the same compiler. `None` if nothing is. `built` is the compiler and the bytes of the new build.
    pub(crate) fn fault(
        &self,
        workspace: &Workspace,
        manifest: &Manifest,
        built: Option<(&str, Vec<u8>)>,
    ) -> Result<Option<String>> {
        let path = self.path.display();
        let Some(entry) = manifest.entry(&self.path) else {
            return Ok(Some(format!("{path} is not in the manifest")));
        };
        let bytes = match fs::read(workspace::root().join(&self.path)) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Some(format!("{path} cannot be read: {error}"))),
        };
        let differs = |(rustc, built)| manifest.other_rustc(rustc).is_none() && built != bytes;
        Ok(if built.is_some_and(differs) {
            Some(format!("{path} differs from a new build"))
        } else if digest(&bytes) != entry.sha256 {
            Some(format!("{path} does not match its hash in the manifest"))
        } else if self.sources(workspace)? != entry.sources {
            Some(format!("{path} was built from other sources, according to the manifest"))
        } else {
            None
        })
    }

    /// A hash of everything that the object's bytes depend on, except the tools.
    pub(crate) fn sources(&self, workspace: &Workspace) -> Result<String> {
        let root = workspace::root();
        let mut files = BTreeSet::new();
        for folder in &self.folders {
            files.extend(sources_in(folder)?);
            files.extend(shared(folder, &root)?);
        }

        let mut hash = Sha256::new();
        for file in files {
            let name = file.strip_prefix(&root).unwrap_or(&file);
            add(&mut hash, name.as_os_str().as_encoded_bytes());
            add(&mut hash, &files::read(&file)?);
        }
        for package in &self.outside {
            add(&mut hash, package.as_bytes());
        }
        add(&mut hash, build_settings(&root, workspace)?.as_bytes());
        Ok(hex(&hash.finalize()))
    }
}

/// The file record.rs that an example and its eBPF crate share by `#[path]`. Cargo does not know of it.
fn shared(folder: &Path, root: &Path) -> Result<Vec<PathBuf>> {
    let examples = root.join("probe-user/examples");
    match folder.parent() {
        Some(example) if example.starts_with(&examples) && example != examples => {
            let is_rust = |path: &PathBuf| path.extension().is_some_and(|end| end == "rs");
            Ok(files::entries(example)?.into_iter().filter(is_rust).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The parts of the root manifest that affect an object: the profiles, and the edition that packages inherit. The
/// versions of dependencies are in [`Object::outside`].
fn build_settings(root: &Path, workspace: &Workspace) -> Result<String> {
    let text = files::read_text(&root.join("Cargo.toml"))?;
    let manifest: toml::Table = text.parse().context("Cargo.toml is not valid")?;
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

/// Parses `cargo tree --format "{p} {f}"`: the names of workspace packages, and the lines of all others.
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

/// All files of a package except those that cannot affect its object.
fn sources_in(folder: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let files = files::all_below(folder, &["target", "tests", "benches", "examples"])?;
    Ok(files.into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with('.') && !name.ends_with(".o") && !name.ends_with(".md")
    }))
}

/// Hashes a part after its length, so that different lists of parts have different hashes.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

#[cfg(test)]
mod tests {
    use super::super::manifest::Entry;
    use super::*;

    #[test]
    fn packages_of_the_workspace_are_separated_from_others() {
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
    fn bytes_are_those_of_a_new_build_by_the_same_compiler() {
        let workspace = Workspace::load().unwrap();
        let path = PathBuf::from("tracer/lib/ebpf/probe.bpf.o");
        let name = String::new();
        let (folders, outside) = (Vec::new(), Vec::new());
        let object =
            Object { path: path.clone(), package: name.clone(), bin: name, folders, outside };
        let bytes = files::read(&workspace::root().join(&path)).unwrap();
        let sources = object.sources(&workspace).unwrap();
        let mut manifest = Manifest { rustc: "1.95.0".to_owned(), ..Manifest::default() };
        manifest.objects.push(Entry { path, sha256: digest(&bytes), sources });
        let fault = |manifest: &Manifest, rustc, built: &[u8]| {
            object.fault(&workspace, manifest, Some((rustc, built.to_owned()))).unwrap()
        };
        assert_eq!(fault(&manifest, "1.95.0", &bytes), None);
        assert!(fault(&manifest, "1.95.0", b"other").unwrap().contains("a new build"));
        assert_eq!(fault(&manifest, "1.96.0", b"other"), None);
        manifest.objects[0].sources.clear();
        assert!(fault(&manifest, "1.96.0", b"other").unwrap().contains("other sources"));
    }

    #[test]
    fn only_files_that_affect_the_object_are_hashed() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["src", "tests", "target"] {
            files::create_folder(&dir.path().join(folder)).unwrap();
        }
        for file in ["Cargo.toml", "src/main.rs", "tests/a.rs", "x.bpf.o", "README.md", ".swp"] {
            files::write(&dir.path().join(file), "").unwrap();
        }
        let files = sources_in(dir.path()).unwrap().collect::<BTreeSet<_>>();
        let expected = ["Cargo.toml", "src/main.rs"].map(|file| dir.path().join(file));
        assert_eq!(files, expected.into());
    }

    #[test]
    fn different_lists_of_parts_have_different_hashes() {
        let hash = |parts: &[&[u8]]| {
            let mut hash = Sha256::new();
            parts.iter().for_each(|part| add(&mut hash, part));
            hex(&hash.finalize())
        };
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_eq!(hash(&[b"a"]).len(), 64);
    }
}
