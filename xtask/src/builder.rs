//! Builds eBPF objects, so that every clone on every machine gets the same bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cache::Cache;
use crate::object::{Object, TARGET};
use crate::process;
use crate::toolchain::Rustc;
use crate::workspace::{self, Workspace, cargo};
use crate::{say, strip};

/// The tools and settings that every object is built with.
pub(crate) struct Builder {
    pub(crate) rustc: Rustc,
    target: PathBuf,
    flags: String,
    /// Folders of this machine that no object may name.
    private: Vec<PathBuf>,
}

impl Builder {
    pub(crate) fn set_up(workspace: &Workspace) -> Result<Self> {
        let cache = Cache::open()?;
        let rustc = Rustc::ask()?;
        rustc.ensure_sources(&cache)?;
        let linker = rustc.ensure_bpf_linker(&cache)?.join("bpf-linker");
        process::quiet(cargo().args(["fetch", "--quiet", "--target", TARGET]))?;
        let private = vec![workspace::root(), cargo_home()?, rustc.sysroot.clone(), cache.path("")];
        let flags = flags(&private, &linker)?;
        Ok(Self { rustc, target: workspace.target().join("ebpf"), flags, private })
    }

    /// Builds an object and returns its bytes.
    pub(crate) fn build(&self, object: &Object) -> Result<Vec<u8>> {
        process::loud(&mut self.cargo("build", object))
            .with_context(|| format!("cannot build {}", object.path.display()))?;
        let built = self.target.join(TARGET).join("release").join(&object.bin);
        let bytes = fs::read(&built).with_context(|| format!("no {}", built.display()))?;
        let bytes = strip::debug_sections(&bytes)
            .with_context(|| format!("cannot strip {}", object.path.display()))?;
        for folder in &self.private {
            ensure!(
                !contains(&bytes, folder.as_os_str().as_encoded_bytes()),
                "{} has a path of this machine in it: {}",
                object.path.display(),
                folder.display()
            );
        }
        Ok(bytes)
    }

    /// `cargo VERB` for the object's package, as it is built.
    pub(crate) fn cargo(&self, verb: &str, object: &Object) -> Command {
        let mut command = cargo();
        command.arg(verb).args(["--release", "-Z", "build-std=core", "--target", TARGET]);
        command.args(["--package", &object.package, "--bin", &object.bin]);
        command.arg("--target-dir").arg(&self.target);
        if !say::on_terminal() {
            command.arg("--quiet");
        }
        command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_ENCODED_RUSTFLAGS", &self.flags);
        command.env_remove("RUSTFLAGS");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
                command.env_remove(name); // somebody's own profile would change the bytes
            }
        }
        command
    }
}

fn flags(private: &[PathBuf], linker: &Path) -> Result<String> {
    let mut flags = vec![
        "--cfg=bpf_target_arch=\"x86_64\"".to_owned(),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", linker.display()),
    ];
    let [root, cargo, sysroot, cache] = private else { bail!("four folders are remapped") };
    let mut remap = |from: &Path, to: &str| {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    };
    // Where several fit, the last one counts.
    remap(cache, "/cache");
    remap(cargo, "/cargo");
    // The folder of a registry is named after where it was reached.
    if let Ok(registries) = fs::read_dir(cargo.join("registry/src")) {
        for registry in registries {
            remap(&registry?.path(), "/cargo/registry");
        }
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
    let home = etcetera::home_dir().context("neither CARGO_HOME nor HOME is set")?;
    Ok(home.join(".cargo"))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
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
}
