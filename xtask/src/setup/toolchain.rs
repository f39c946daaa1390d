//! The tools that building eBPF needs beyond stable Rust: the standard library's sources, from Debian if rustup has
//! none, and bpf-linker.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use probe_build::Rustc;

use super::apt::Suite;
use super::{Cache, files};
use crate::say::Step;

/// The Debian suites with Rust releases, newest first.
const RUST_SUITES: [&str; 2] = ["trixie-backports", "trixie"];

/// Shows a step of [`probe_build`] like those of xtask.
pub(crate) fn begin(message: &str) -> Box<dyn Fn(&str)> {
    let step = Step::begin(message);
    Box::new(move |line| step.show(line))
}

/// Ensures that the compiler has the sources of `core`, for `-Z build-std`.
pub(crate) fn ensure_sources(rustc: &Rustc, cache: &Cache) -> Result<()> {
    if rustc.has_sources() {
        return Ok(());
    }
    cache.locked(|| {
        let Err(error) = rustc.ensure_sources(cache, begin) else { return Ok(()) };
        let release = &rustc.release;
        let found = cache.ensure(&format!("rust-src/{release}"), |path| {
            let found = sources_from_debian(release, cache, path);
            found.with_context(|| format!("rustup has no sources of Rust {release} ({error})"))
        })?;
        point_at(&rustc.sources(), &find_sources(&found)?)?;
        ensure!(rustc.has_sources(), "the sources of Rust {release} are incomplete");
        Ok(())
    })
}

fn sources_from_debian(release: &str, cache: &Cache, path: &Path) -> Result<()> {
    let step = Step::begin(format_args!("fetching rust-src {release} (apt)"));
    for name in RUST_SUITES {
        let suite = Suite::update(cache, name)?;
        let versions = suite.show("rust-src")?;
        if let Some(package) = versions.iter().find(|one| is_release(&one.version, release)) {
            return suite.unpack(package, path, &step);
        }
    }
    bail!(
        "Debian has no rust-src {release}; run `rustup component add rust-src`, or use a Rust that has its sources"
    )
}

fn point_at(link: &Path, sources: &Path) -> Result<()> {
    let advice = || {
        format!(
            "cannot write to the sysroot; run as its owner: mkdir -p {} && ln -sfn {} {}",
            link.parent().unwrap_or(link).display(),
            sources.display(),
            link.display()
        )
    };
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent).with_context(advice)?;
    }
    if link.is_symlink() {
        fs::remove_file(link).with_context(advice)?;
    }
    symlink(sources, link).with_context(advice)
}

/// The sources in an unpacked rust-src, such as `usr/src/rustc-1.95.0`.
fn find_sources(unpacked: &Path) -> Result<PathBuf> {
    let mut sources = files::entries(&unpacked.join("usr/src"))?.into_iter();
    let found = sources.find(|path| path.join("library/core/Cargo.toml").exists());
    found.with_context(|| format!("found no library sources in {}", unpacked.display()))
}

/// Whether a Debian version (`1.95.0+dfsg1-2~bpo13+1`) belongs to a release (`1.95.0`).
fn is_release(version: &str, release: &str) -> bool {
    version
        .strip_prefix(release)
        .is_some_and(|rest| rest.starts_with(['+', '-', '~']) || rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_version_is_of_a_release() {
        assert!(is_release("1.95.0+dfsg1-2~bpo13+1", "1.95.0"));
        assert!(is_release("1.95.0-1", "1.95.0"));
        assert!(!is_release("1.95.1+dfsg1-1", "1.95.0"));
        assert!(!is_release("1.95.01", "1.95.0"));
    }
}
