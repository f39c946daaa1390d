//! Finds bpf-linker, or builds it against the compiler's own LLVM.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{Begin, Cache, Error, Rustc, object, on_terminal, process};

/// The version of bpf-linker that [`ensure`] builds.
pub const VERSION: &str = "0.13.0";

/// Finds the bpf-linker to use: `$BPF_LINKER`, the one in the cache, the one on the path, or a new one in
/// the cache, in this order.
///
/// # Errors
///
/// If `$BPF_LINKER` is not a file, or none is found and none can be built.
pub fn find(rustc: &Rustc) -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os("BPF_LINKER").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        if path.is_file() {
            return Ok(path);
        }
        return Err(Error(format!("BPF_LINKER is {}, which is not a file", path.display())));
    }
    let cache = Cache::of_build()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    match on_path(&path).filter(|_| !cache.has(&name(rustc))) {
        Some(linker) => Ok(linker),
        None => ensure(rustc, &cache, on_terminal).map_err(|cause| {
            Error(format!("{cause}; to use another bpf-linker, set BPF_LINKER to its path"))
        }),
    }
}

/// The bpf-linker in the cache. It is built now if it is missing. It uses the compiler's own LLVM, so no other
/// LLVM has to be installed.
///
/// # Errors
///
/// If it cannot be built. Building takes a network, a C compiler, and a Rust compiler that has its LLVM in a
/// shared library, as rustup's compilers do.
pub fn ensure(rustc: &Rustc, cache: &Cache, begin: Begin) -> Result<PathBuf, Error> {
    let root = cache.ensure(&name(rustc), |path| {
        build(rustc, path, begin)
            .map_err(|cause| Error(format!("cannot build bpf-linker {VERSION}: {cause}")))
    })?;
    Ok(root.join("bin/bpf-linker"))
}

/// The folder of bpf-linker in the cache. The name includes the path of the compiler's LLVM: another sysroot has another
/// one, even for the same release, and a nightly compiler may get a new one under the same release.
fn name(rustc: &Rustc) -> String {
    let llvm = find_llvm(&rustc.sysroot.join("lib")).unwrap_or_else(|_| rustc.sysroot.clone());
    let llvm = fnv(llvm.as_os_str().as_encoded_bytes());
    format!("bpf-linker/{VERSION}-rust-{}-{llvm:016x}", rustc.release)
}

/// The FNV-1a hash, which is the same in every build.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn build(rustc: &Rustc, path: &Path, begin: Begin) -> Result<(), Error> {
    let libraries = rustc.sysroot.join("lib");
    let prefix = path.join("llvm");
    let link = prefix.join("lib/libLLVM.so");
    fs::create_dir_all(prefix.join("lib")).map_err(Error::file("create", &prefix))?;
    symlink(find_llvm(&libraries)?, &link).map_err(Error::file("create", &link))?;

    let show = begin(&format!("building bpf-linker {VERSION} (about a minute, once)"));
    let target = path.join("target");
    let flags = [
        format!("-Lnative={}/lib", prefix.display()),
        format!("-Clink-arg=-Wl,-rpath,{}", libraries.display()),
    ];
    let mut install = object::cargo(&target);
    install
        .args(["install", "bpf-linker", "--version", VERSION, "--locked"])
        .args(["--no-default-features", "--features", &format!("llvm-{}", rustc.llvm_major)])
        .arg("--root")
        .arg(path)
        // Outside of any project, so that no project's settings apply.
        .current_dir(path)
        .env("LLVM_PREFIX", &prefix)
        // Folders may have spaces in their names.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    process::watched(&mut install, show)?;
    fs::remove_dir_all(&target).map_err(Error::file("remove", &target))
}

/// Finds the compiler's LLVM, such as `libLLVM.so.22.1-rust-1.95.0-stable`. Of several, always the same one.
fn find_llvm(folder: &Path) -> Result<PathBuf, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file("read", folder))?.flatten();
    let is_llvm = |name: &OsString| name.to_string_lossy().starts_with("libLLVM.so");
    let found = entries.map(|entry| entry.file_name()).filter(is_llvm).max();
    found.map(|name| folder.join(name)).ok_or_else(|| {
        Error(format!(
            "{} has no libLLVM to build bpf-linker with, as the folder of rustup's Rust has",
            folder.display()
        ))
    })
}

fn on_path(path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join("bpf-linker")).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another hash would make every machine build its linker again.
    #[test]
    fn hash_is_fnv() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn linker_is_found_on_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ["none".into(), dir.path().to_owned()];
        let path = std::env::join_paths(folders).unwrap();
        assert_eq!(on_path(&path), None);
        let file = dir.path().join("bpf-linker");
        fs::write(&file, "").unwrap();
        assert_eq!(on_path(&path), Some(file));
    }

    #[test]
    fn a_compiler_without_llvm_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = find_llvm(dir.path()).unwrap_err().to_string();
        assert!(error.contains("rustup's Rust"), "{error}");
        let file = dir.path().join("libLLVM.so.22.1-rust-1.95.0-stable");
        fs::write(&file, "").unwrap();
        assert_eq!(find_llvm(dir.path()).unwrap(), file);
    }

    #[test]
    fn another_llvm_takes_another_linker() {
        let dir = tempfile::tempdir().unwrap();
        let rustc = Rustc {
            version: "1.97.0-nightly (1 2026-05-01)".to_owned(),
            release: "1.97.0-nightly".to_owned(),
            llvm_major: 22,
            sysroot: dir.path().to_owned(),
        };
        let without = name(&rustc);
        fs::create_dir(dir.path().join("lib")).unwrap();
        let llvm = |minor: u32| {
            let file = format!("lib/libLLVM.so.22.{minor}-rust-1.97.0-nightly");
            fs::write(dir.path().join(file), "").unwrap();
            name(&rustc)
        };
        let first = llvm(1);
        assert_ne!(first, without);
        assert_eq!(first, llvm(1));
        assert_ne!(first, llvm(2));
    }
}
