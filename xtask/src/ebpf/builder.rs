//! Builds eBPF objects reproducibly: every clone on every machine gets the same bytes from the same compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use object::build::elf::{self, SectionData};
use object::elf::SHT_STRTAB;
use probe_build::{Rustc, linker};

use super::object::{Object, TARGET};
use crate::process;
use crate::setup::{cache, files, toolchain};
use crate::workspace::{self, Workspace, cargo, cargo_quiet};

/// The tools and settings that every object is built with.
pub(crate) struct Builder {
    pub(crate) rustc: Rustc,
    target: PathBuf,
    flags: String,
    /// Folders of this machine whose paths must not appear in an object.
    private: [PathBuf; 4],
}

impl Builder {
    pub(crate) fn set_up(workspace: &Workspace) -> Result<Self> {
        let cache = cache()?;
        let rustc = Rustc::ask()?;
        toolchain::ensure_sources(&rustc, &cache)?;
        let linker = linker::ensure(&rustc, &cache, toolchain::begin)?;
        process::quiet(cargo().args(["fetch", "--quiet", "--target", TARGET]))?;
        let private = [workspace::root(), cargo_home()?, rustc.sysroot.clone(), cache.path("")];
        let flags = flags(&private, &linker)?;
        Ok(Self { rustc, target: workspace.target().join("ebpf"), flags, private })
    }

    /// Builds an object and returns its bytes.
    pub(crate) fn build(&self, object: &Object) -> Result<Vec<u8>> {
        process::loud(&mut self.cargo("build", object))
            .with_context(|| format!("cannot build {}", object.path.display()))?;
        let built = self.target.join(TARGET).join("release").join(&object.bin);
        let bytes = without_dwarf(&files::read(&built)?)
            .with_context(|| format!("cannot strip {}", object.path.display()))?;
        for folder in &self.private {
            ensure!(
                !contains(&bytes, folder.as_os_str().as_encoded_bytes()),
                "{} contains a path of this machine: {}",
                object.path.display(),
                folder.display()
            );
        }
        Ok(bytes)
    }

    /// `cargo VERB` for the object's package, with the settings of its build.
    pub(crate) fn cargo(&self, verb: &str, object: &Object) -> Command {
        let mut command = cargo_quiet(verb);
        command.args(["--release", "-Z", "build-std=core", "--target", TARGET]);
        command.args(["--package", &object.package, "--bin", &object.bin]);
        command.arg("--target-dir").arg(&self.target);
        command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_ENCODED_RUSTFLAGS", &self.flags);
        command.env_remove("RUSTFLAGS");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
                command.env_remove(name); // a user's own profile would change the bytes
            }
        }
        command
    }
}

fn flags([root, cargo, sysroot, cache]: &[PathBuf; 4], linker: &Path) -> Result<String> {
    let mut flags = probe_build::object::flags("x86_64", linker);
    let mut remap = |from: &Path, to: &str| {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    };
    // The last matching prefix wins.
    remap(cache, "/cache");
    remap(cargo, "/cargo");
    // The name of a registry's folder depends on its URL.
    for registry in files::entries(&cargo.join("registry/src")).unwrap_or_default() {
        remap(&registry, "/cargo/registry");
    }
    remap(sysroot, "/rust");
    let sources = sysroot.join("lib/rustlib/src/rust");
    if let Ok(real) = sources.canonicalize() {
        remap(&real, "/rust/lib/rustlib/src/rust");
    }
    remap(root, "/probe");
    Ok(flags.join("\u{1f}"))
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(std::path::absolute(home)?);
    }
    let home = std::env::home_dir().context("neither CARGO_HOME nor HOME is set")?;
    Ok(home.join(".cargo"))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}

/// Removes DWARF from an object. BTF is generated from it, but no loader reads it.
fn without_dwarf(object: &[u8]) -> Result<Vec<u8>> {
    let mut builder = elf::Builder::read(object).context("not an ELF object")?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        if name.starts_with(b".debug_") || name.starts_with(b".rel.debug_") {
            section.delete = true;
        }
    }
    // LLVM stores section names in the symbols' string table. The writer needs a separate one.
    let own = builder.sections.iter().any(|section| section.name.as_slice() == b".shstrtab");
    if !own {
        let names = builder.sections.add();
        names.name = b".shstrtab"[..].into();
        names.sh_type = SHT_STRTAB;
        names.sh_addralign = 1;
        names.data = SectionData::SectionString;
    }
    builder.delete_orphans();
    builder.delete_unused_versions();
    let mut stripped = Vec::new();
    builder.write(&mut stripped).context("cannot write an ELF object")?;
    Ok(stripped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_bytes() {
        assert!(contains(b"\0/home/x/a.rs\0", b"/home/x"));
        assert!(!contains(b"/home", b"/home/x"));
        assert!(!contains(b"abc", b""));
    }

    #[test]
    fn checked_in_object_has_been_stripped() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tracer/lib/ebpf/probe.bpf.o");
        let object = std::fs::read(path).unwrap();
        assert!(!object.windows(7).any(|window| window == b".debug_"));
        assert!(object.windows(8).any(|window| window == b".BTF.ext"));
        assert_eq!(without_dwarf(&object).unwrap(), object);
    }

    #[test]
    fn only_objects_are_stripped() {
        assert!(without_dwarf(b"no object").is_err());
    }
}
