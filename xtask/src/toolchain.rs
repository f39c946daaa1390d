//! What building eBPF needs beyond stable Rust: the library's sources, and bpf-linker.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::apt::Suite;
use crate::cache::Cache;
use crate::object::digest;
use crate::process;
use crate::say::Step;
use crate::workspace::cargo;

pub(crate) const BPF_LINKER: &str = "0.13.0";

/// Seconds that rustup may take to fetch the library's sources before Debian is asked.
const RUSTUP_LIMIT: &str = "90";
/// Debian's suites that carry Rust releases, the newer first.
const RUST_SUITES: [&str; 2] = ["trixie-backports", "trixie"];

/// The compiler that builds everything, eBPF too.
pub(crate) struct Rustc {
    /// `1.95.0 (59807616e 2026-04-14)`
    pub(crate) version: String,
    release: String,
    llvm_major: u32,
    pub(crate) sysroot: PathBuf,
}

impl Rustc {
    pub(crate) fn ask() -> Result<Self> {
        let about = process::read(Command::new("rustc").arg("-vV"))?;
        let sysroot = process::read(Command::new("rustc").args(["--print", "sysroot"]))?;
        parse_rustc(&about, sysroot.trim().into())
            .with_context(|| format!("cannot make sense of `rustc -vV`:\n{about}"))
    }

    /// Sources of `core`, for `-Z build-std`.
    pub(crate) fn ensure_sources(&self, cache: &Cache) -> Result<()> {
        if self.has_sources() {
            return Ok(());
        }
        cache.locked(|| {
            if self.has_sources() || self.sources_from_rustup() {
                return Ok(());
            }
            let found = cache.ensure(&format!("rust-src/{}", self.release), |path| {
                self.sources_from_debian(cache, path)
            })?;
            self.point_at(&find_sources(&found)?)?;
            ensure!(self.has_sources(), "the sources of Rust {} are incomplete", self.release);
            Ok(())
        })
    }

    /// `rust` in the sysroot: cargo looks for the sources nowhere else.
    fn sources(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib/src/rust")
    }

    fn has_sources(&self) -> bool {
        self.sources().join("library/core/Cargo.toml").exists()
    }

    fn sources_from_rustup(&self) -> bool {
        let Some(toolchain) = self.sysroot.file_name() else { return false };
        let is_rustup = self.sysroot.parent().is_some_and(|parent| parent.ends_with("toolchains"));
        if !is_rustup || which::which("rustup").is_err() {
            return false;
        }
        let step = Step::begin(format_args!("fetching rust-src {} (rustup)", self.release));
        let mut command = Command::new("timeout");
        command.args([RUSTUP_LIMIT, "rustup", "component", "add", "rust-src", "--toolchain"]);
        // No network for rustup is no failure: Debian is asked next.
        process::watched(command.arg(toolchain), &step).is_ok() && self.has_sources()
    }

    fn sources_from_debian(&self, cache: &Cache, path: &Path) -> Result<()> {
        let step = Step::begin(format_args!("fetching rust-src {} (apt)", self.release));
        for name in RUST_SUITES {
            let suite = Suite::update(cache, name)?;
            let versions = suite.show("rust-src")?;
            if let Some(package) =
                versions.iter().find(|one| is_release(&one.version, &self.release))
            {
                return suite.unpack(package, path, &step);
            }
        }
        bail!(
            "Debian has no rust-src {}: `rustup component add rust-src`, or use a Rust that has it",
            self.release
        )
    }

    fn point_at(&self, sources: &Path) -> Result<()> {
        let link = self.sources();
        let advice = || {
            format!(
                "cannot write into the sysroot; as its owner: mkdir -p {} && ln -sfn {} {}",
                link.parent().unwrap_or(&link).display(),
                sources.display(),
                link.display()
            )
        };
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent).with_context(advice)?;
        }
        if link.is_symlink() {
            fs::remove_file(&link).with_context(advice)?;
        }
        symlink(sources, &link).with_context(advice)
    }

    /// The folder that has `bpf-linker`, built against the compiler's own LLVM, so that no other
    /// LLVM need be installed.
    pub(crate) fn ensure_bpf_linker(&self, cache: &Cache) -> Result<PathBuf> {
        // Another sysroot has another libLLVM, even of the same release.
        let sysroot = digest(self.sysroot.as_os_str().as_encoded_bytes());
        let name = format!("bpf-linker/{BPF_LINKER}-rust-{}-{}", self.release, &sysroot[..8]);
        let root = cache.ensure(&name, |path| {
            let lib = self.sysroot.join("lib");
            let prefix = path.join("llvm");
            fs::create_dir_all(prefix.join("lib"))?;
            symlink(find_llvm(&lib)?, prefix.join("lib/libLLVM.so"))?;

            let step =
                Step::begin(format_args!("building bpf-linker {BPF_LINKER} (about a minute)"));
            let mut install = cargo();
            install
                .args(["install", "bpf-linker", "--version", BPF_LINKER, "--locked"])
                .arg("--no-default-features")
                .args(["--features", &format!("llvm-{}", self.llvm_major)])
                .arg("--root")
                .arg(path)
                .arg("--target-dir")
                .arg(path.join("target"))
                .env_remove("CARGO_ENCODED_RUSTFLAGS")
                .env("LLVM_PREFIX", &prefix)
                .env("RUSTFLAGS", linker_flags(&prefix, &lib));
            process::watched(&mut install, &step)?;
            fs::remove_dir_all(path.join("target"))?;
            Ok(())
        })?;
        Ok(root.join("bin"))
    }
}

fn linker_flags(prefix: &Path, lib: &Path) -> String {
    format!("-L native={}/lib -C link-arg=-Wl,-rpath,{}", prefix.display(), lib.display())
}

fn parse_rustc(about: &str, sysroot: PathBuf) -> Option<Rustc> {
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name));
    Some(Rustc {
        version: field("rustc ")?.trim().to_owned(),
        release: field("release: ")?.trim().to_owned(),
        llvm_major: field("LLVM version: ")?.split('.').next()?.trim().parse().ok()?,
        sysroot,
    })
}

/// The compiler's LLVM: `libLLVM.so.22.1-rust-1.95.0-stable`.
fn find_llvm(lib: &Path) -> Result<PathBuf> {
    fs::read_dir(lib)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libLLVM.so")
        })
        .with_context(|| format!("{} has no libLLVM: use rustup's Rust", lib.display()))
}

/// `usr/src/rustc-1.95.0` of an unpacked rust-src.
fn find_sources(unpacked: &Path) -> Result<PathBuf> {
    fs::read_dir(unpacked.join("usr/src"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.join("library/core/Cargo.toml").exists())
        .with_context(|| format!("{} has no library sources", unpacked.display()))
}

/// Whether a Debian version (`1.95.0+dfsg1-2~bpo13+1`) is of this release (`1.95.0`).
fn is_release(version: &str, release: &str) -> bool {
    version
        .strip_prefix(release)
        .is_some_and(|rest| rest.starts_with(['+', '-', '~']) || rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: &str = "rustc 1.95.0 (59807616e 2026-04-14)\n\
        binary: rustc\n\
        commit-hash: 59807616e1fa2540724bfbac14d7976d7e4a3860\n\
        commit-date: 2026-04-14\n\
        host: x86_64-unknown-linux-gnu\n\
        release: 1.95.0\n\
        LLVM version: 22.1.2\n";

    #[test]
    fn rustc_tells_its_versions() {
        let rustc = parse_rustc(ABOUT, PathBuf::from("/sysroot")).unwrap();
        assert_eq!(rustc.version, "1.95.0 (59807616e 2026-04-14)");
        assert_eq!(rustc.release, "1.95.0");
        assert_eq!(rustc.llvm_major, 22);
        assert!(parse_rustc("rustc 1.95.0\n", PathBuf::new()).is_none());
    }

    #[test]
    fn debian_version_is_of_a_release() {
        assert!(is_release("1.95.0+dfsg1-2~bpo13+1", "1.95.0"));
        assert!(is_release("1.95.0-1", "1.95.0"));
        assert!(!is_release("1.95.1+dfsg1-1", "1.95.0"));
        assert!(!is_release("1.95.01", "1.95.0"));
    }
}
