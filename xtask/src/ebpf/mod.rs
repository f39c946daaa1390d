//! The checked-in eBPF objects: building them, finding stale ones, comparing them with a new build.

mod builder;
mod manifest;
pub(crate) mod object;

use std::process::ExitCode;

use anyhow::{Result, bail};
use probe_build::linker::VERSION as BPF_LINKER;

use self::builder::Builder;
use self::manifest::{Entry, Manifest};
use self::object::Object;
use crate::setup::files::{digest, write_if_changed};
use crate::workspace::{self, Workspace};
use crate::{process, say};

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

/// Builds every object and writes it to its checked-in path, then updates the manifest.
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
        // Hash before building: a file that changes during the build then makes the object stale.
        let sources = object.sources(workspace)?;
        let bytes = builder.build(object)?;
        if write_if_changed(&root.join(&object.path), &bytes)? {
            say::line(format_args!("{} changed, {} bytes", object.path.display(), bytes.len()));
        }
        let sha256 = digest(&bytes);
        manifest.objects.push(Entry { path: object.path.clone(), sha256, sources });
    }
    manifest.save(&root)
}

/// Rebuilds all objects if the sources of one have changed since it was built.
pub(crate) fn refresh(workspace: &Workspace) -> Result<()> {
    let (objects, manifest) = (Object::all(workspace)?, Manifest::load(&workspace::root())?);
    if !faults(workspace, &objects, &manifest, None)?.is_empty() {
        say::line("eBPF sources changed, rebuilding the objects");
        build(workspace)?;
    }
    Ok(())
}

/// Compares the checked-in objects with a new build. Another compiler writes other bytes: then the build has to succeed,
/// and the sources are compared.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    verdict(workspace, Some(&Builder::set_up(workspace)?))
}

/// Compares the sources and the checked-in objects with the manifest, without building.
pub(crate) fn check_manifest(workspace: &Workspace) -> Result<()> {
    verdict(workspace, None)
}

fn verdict(workspace: &Workspace, builder: Option<&Builder>) -> Result<()> {
    let (objects, manifest) = (Object::all(workspace)?, Manifest::load(&workspace::root())?);
    let rustc = builder.map(|builder| &*builder.rustc.version);
    if let Some(other) = rustc.and_then(|rustc| manifest.other_rustc(rustc)) {
        say::line(format_args!("the bytes of the eBPF objects are not compared: {other}"));
    }
    let mut wrong = faults(workspace, &objects, &manifest, builder)?;
    let is_built = |entry: &&Entry| objects.iter().any(|object| object.path == entry.path);
    wrong.extend(manifest.objects.iter().filter(|entry| !is_built(entry)).map(|entry| {
        format!("{} is in the manifest, but no package builds it", entry.path.display())
    }));
    // The repository fixes this version, so the objects were not built since it changed.
    if manifest.bpf_linker != BPF_LINKER {
        let built = &manifest.bpf_linker;
        wrong.push(format!("bpf-linker is {BPF_LINKER}, the objects were built with {built}"));
    }
    if !wrong.is_empty() {
        bail!("{}; run `{REBUILD}`", wrong.join("; "));
    }
    Ok(())
}

/// What is wrong with the checked-in objects. With a builder, they are compared with a new build.
fn faults(
    workspace: &Workspace,
    objects: &[Object],
    manifest: &Manifest,
    builder: Option<&Builder>,
) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for object in objects {
        let built = builder.map(|builder| {
            Ok::<_, anyhow::Error>((&*builder.rustc.version, builder.build(object)?))
        });
        faults.extend(object.fault(workspace, manifest, built.transpose()?)?);
    }
    Ok(faults)
}

/// Runs clippy on the eBPF packages, which clippy for this machine's target leaves out.
pub(crate) fn clippy(workspace: &Workspace) -> Result<()> {
    let builder = Builder::set_up(workspace)?;
    for object in Object::all(workspace)? {
        let mut command = builder.cargo("clippy", &object);
        process::loud(command.args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
