//! The checked-in eBPF objects: building them, telling stale ones, comparing.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::builder::Builder;
use crate::manifest::{Entry, Manifest};
use crate::object::{Object, digest};
use crate::process;
use crate::say;
use crate::toolchain::BPF_LINKER;
use crate::workspace::{self, Workspace};

const REBUILD: &str = "cargo xtask build-ebpf";

pub(crate) fn task(check: bool) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    if check {
        self::check(&workspace)?
    } else {
        build(&workspace)?
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds every object and puts it in its place.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let objects = Object::all(workspace)?;
    let builder = Builder::set_up(workspace)?;
    let root = workspace::root();
    let mut manifest = Manifest {
        rustc: builder.rustc.version.clone(),
        bpf_linker: BPF_LINKER.to_owned(),
        objects: Vec::new(),
    };
    for object in &objects {
        // Before the build: a file changed while it runs makes the object stale, not wrongly fresh.
        let sources = object.sources(workspace)?;
        let bytes = builder.build(object)?;
        if write_if_changed(&root.join(&object.path), &bytes)? {
            say::line(format_args!("{} is new, {} bytes", object.path.display(), bytes.len()));
        }
        let sha256 = digest(&bytes);
        manifest.objects.push(Entry { path: object.path.clone(), sha256, sources });
    }
    manifest.save(&root)
}

/// Builds every object anew where its sources are not what it was built from.
pub(crate) fn refresh(workspace: &Workspace) -> Result<()> {
    let manifest = Manifest::load(&workspace::root())?;
    let objects = Object::all(workspace)?;
    let mut stale = false;
    for object in &objects {
        stale |= !object.is_fresh(workspace, &manifest)?;
    }
    if stale {
        say::line("eBPF sources changed, building the objects anew");
        build(workspace)?;
    }
    Ok(())
}

/// Compares what is checked in with a new build.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let objects = Object::all(workspace)?;
    let builder = Builder::set_up(workspace)?;
    let root = workspace::root();
    let manifest = Manifest::load(&root)?;
    let tools = manifest.other_tools(&builder.rustc.version, BPF_LINKER);
    if let Some(tools) = &tools {
        say::line(tools);
    }
    let mut wrong = Vec::new();
    for object in &objects {
        let built = builder.build(object)?;
        let path = object.path.display();
        let Some(entry) = manifest.entry(&object.path) else {
            wrong.push(format!("{path} is not in the manifest"));
            continue;
        };
        match fs::read(root.join(&object.path)) {
            Err(error) => wrong.push(format!("{path} cannot be read: {error}")),
            Ok(bytes) if bytes != built => {
                wrong.push(format!("{path} is not what its sources build"));
            }
            Ok(bytes) if digest(&bytes) != entry.sha256 => {
                wrong.push(format!("{path} is not what the manifest says"));
            }
            Ok(_) if object.sources(workspace)? != entry.sources => {
                wrong.push(format!("{path} was built from other sources, by the manifest"));
            }
            Ok(_) => {}
        }
    }
    for entry in &manifest.objects {
        if !objects.iter().any(|object| object.path == entry.path) {
            wrong.push(format!(
                "{} is in the manifest, but nothing builds it",
                entry.path.display()
            ));
        }
    }
    if !wrong.is_empty() {
        bail!("{}; run `{REBUILD}`", wrong.join("; "));
    }
    Ok(())
}

/// Runs clippy on the eBPF packages, which clippy for this machine's target does not see.
pub(crate) fn clippy(workspace: &Workspace) -> Result<()> {
    let builder = Builder::set_up(workspace)?;
    for object in Object::all(workspace)? {
        let mut command = builder.cargo("clippy", &object);
        process::loud(command.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Whether the file had other bytes, or was not there.
pub(crate) fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let parent = path.parent().context("a file has a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let mut file = tempfile::Builder::new().permissions(readable()).tempfile_in(parent)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

fn readable() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
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
