//! Builds the object of an eBPF crate.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::{Cache, Error, Rustc, linker, on_terminal, process};

/// The target of eBPF crates.
pub const TARGET: &str = "bpfel-unknown-none";

/// The compiler's flags for an eBPF crate, in the order of the command line.
///
/// `arch` is the architecture of the kernel that runs the program, as in `cfg(target_arch)`.
pub fn flags(arch: &str, linker: &Path) -> Vec<String> {
    vec![
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        // The linker turns the debug information into BTF.
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", linker.display()),
    ]
}

/// Builds the eBPF crate in `folder`, and returns the path of its object. Call it from a build script.
///
/// The path is also in an environment variable for the crate that is being built, named after the
/// folder: `env!("EBPF_OBJECT")` for the folder `ebpf`. The crate must have exactly one binary. The
/// binary is always optimised, because the kernel's verifier rejects unoptimised programs. Compiler
/// warnings are shown as warnings of the build script, and the script runs again when a source file
/// changes.
///
/// # Errors
///
/// If the build needs something that is missing and cannot be fetched, if the crate does not compile, or if the object
/// of another crate is already in the same environment variable.
pub fn ebpf(folder: impl AsRef<Path>) -> Result<PathBuf, Error> {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let arch = variable("CARGO_CFG_TARGET_ARCH")?;
    let folder = package.join(folder);
    if !folder.join("Cargo.toml").is_file() {
        let folder = folder.display();
        return Err(Error(format!("there is no eBPF crate in {folder}: it has no Cargo.toml")));
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let variable = variable_name(&name);
    take(&variable, &folder)?;
    let rustc = Rustc::ask()?;
    if !rustc.has_sources() {
        rustc.ensure_sources(&Cache::of_build()?, on_terminal)?;
    }
    let linker = linker::find(&rustc)?;

    let target = out.join(&name).join("target");
    let objects = out.join(&name).join("object");
    // A renamed binary would still be there under its old name.
    let _ = fs::remove_dir_all(&objects);

    let mut cargo = cargo(&target);
    cargo.args(["build", "--quiet", "--release", "--target", TARGET]);
    cargo.args(["-Z", "build-std=core", "-Z", "unstable-options"]);
    cargo.arg("--artifact-dir").arg(&objects);
    cargo.current_dir(&folder);
    // Allows unstable options in the stable compiler.
    cargo.env("RUSTC_BOOTSTRAP", "1");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(&arch, &linker).join("\u{1f}"));
    for (setting, value) in
        [("OPT_LEVEL", "3"), ("DEBUG_ASSERTIONS", "false"), ("OVERFLOW_CHECKS", "false")]
    {
        cargo.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    let printed = process::watched(&mut cargo, |_| {}).map_err(|cause| {
        let (folder, linker) = (folder.display(), linker.display());
        Error(format!("cannot build the eBPF crate in {folder} with {linker}: {cause}"))
    })?;
    for line in printed.lines() {
        println!("cargo::warning={line}");
    }

    let object = only_file(&objects, &folder)?;
    let bin = object.file_name().unwrap_or_default();
    let info = target.join(TARGET).join("release").join(bin).with_extension("d");
    let info = fs::read_to_string(&info).map_err(Error::file("read", info))?;
    let mut sources = dependencies(&info);
    let settings = settings(sources.iter().chain([&package.join("build.rs"), &folder.join("src")]));
    sources.extend(settings);
    for source in sources {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    for variable in ["BPF_LINKER", "PROBE_CACHE"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rustc-env={variable}={}", object.display());
    Ok(object)
}

/// A Cargo command that builds in `target`, without the settings of the build script that starts it.
pub(crate) fn cargo(target: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_the_outer_build(name)) {
        command.env_remove(name);
    }
    command.env("CARGO_TARGET_DIR", target);
    // The setting `build.build-dir` would put both builds into one folder, where this one waits for the other for ever.
    command.env("CARGO_BUILD_BUILD_DIR", target);
    command
}

fn is_of_the_outer_build(name: &OsStr) -> bool {
    const PREFIXES: [&str; 6] =
        ["CARGO_CFG_", "CARGO_FEATURE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PROFILE_", "DEP_"];
    const NAMES: [&str; 12] = [
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_PRIMARY_PACKAGE",
        "CARGO_TARGET_DIR",
        "OUT_DIR",
        "RUSTC_LINKER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
        "TARGET",
        "HOST",
    ];
    let Some(name) = name.to_str() else { return false };
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

fn variable(name: &str) -> Result<String, Error> {
    let missing = |_| Error(format!("{name} is not set: call this from a build script (build.rs)"));
    std::env::var(name).map_err(missing)
}

/// Reserves an environment variable for the crate in a folder.
fn take(variable: &str, folder: &Path) -> Result<(), Error> {
    static TAKEN: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    match taken.insert(variable.to_owned(), folder.to_owned()) {
        Some(other) if other != folder => Err(Error(format!(
            "{variable} would be the object of two eBPF crates, in {} and in {}: rename one of the folders",
            other.display(),
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// `EBPF_OBJECT` for the folder `ebpf`.
fn variable_name(folder: &str) -> String {
    let name = folder.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    format!("{}_OBJECT", name.to_ascii_uppercase())
}

/// The only file in the folder of a crate's objects.
fn only_file(objects: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let entries = fs::read_dir(objects).map_err(Error::file("read", objects))?;
    let files = entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    <[PathBuf; 1]>::try_from(files).map(|[file]| file).map_err(|files| {
        let (folder, found) = (folder.display(), files.len());
        Error(format!("the eBPF crate in {folder} has {found} binaries instead of one"))
    })
}

/// The files in a Makefile rule, the format in which Cargo lists the sources of a binary.
fn dependencies(rule: &str) -> Vec<PathBuf> {
    let Some((_, listed)) = rule.lines().next().unwrap_or_default().split_once(": ") else {
        return Vec::new();
    };
    // Spaces within names are escaped.
    let names = listed.replace("\\ ", "\0");
    names.split_whitespace().map(|name| name.replace('\0', " ").into()).collect()
}

/// The files above these that a build depends on: manifests of packages and workspaces, and what is beside them.
fn settings<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> BTreeSet<PathBuf> {
    let folders: BTreeSet<&Path> = paths.flat_map(|path| path.ancestors().skip(1)).collect();
    let names = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml", "rust-toolchain.toml"];
    let all = folders.into_iter().flat_map(|folder| names.map(|name| folder.join(name)));
    all.filter(|file| file.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_outer_build_are_forgotten() {
        for name in ["CARGO_PKG_NAME", "CARGO_ENCODED_RUSTFLAGS", "CARGO_PROFILE_DEV_LTO"] {
            assert!(is_of_the_outer_build(OsStr::new(name)), "{name}");
        }
        for name in ["CARGO", "CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_MAKEFLAGS", "RUSTC"] {
            assert!(!is_of_the_outer_build(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn variable_is_named_after_the_folder() {
        assert_eq!(variable_name("ebpf"), "EBPF_OBJECT");
        assert_eq!(variable_name("net-ebpf"), "NET_EBPF_OBJECT");
    }

    #[test]
    fn a_variable_holds_one_object() {
        take("NET_EBPF_OBJECT", Path::new("/p/net-ebpf")).unwrap();
        take("NET_EBPF_OBJECT", Path::new("/p/net-ebpf")).unwrap();
        take("DISK_EBPF_OBJECT", Path::new("/p/disk-ebpf")).unwrap();
        let error = take("NET_EBPF_OBJECT", Path::new("/p/net_ebpf")).unwrap_err().to_string();
        assert!(error.contains("in /p/net-ebpf and in /p/net_ebpf: rename"), "{error}");
    }

    #[test]
    fn sources_are_listed() {
        let rule = "/t/my-ebpf: /p/my\\ probe/src/main.rs /p/record.rs\n";
        let expected = ["/p/my probe/src/main.rs", "/p/record.rs"].map(PathBuf::from);
        assert_eq!(dependencies(rule), expected);
        assert!(dependencies("").is_empty());
    }

    #[test]
    fn a_build_depends_on_the_manifests_above() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("app/ebpf/src")).unwrap();
        fs::create_dir_all(path("common/src")).unwrap();
        let files = [
            "Cargo.lock",
            "Cargo.toml",
            "app/Cargo.toml",
            "app/ebpf/Cargo.toml",
            "common/Cargo.toml",
        ];
        for file in files {
            fs::write(path(file), "").unwrap();
        }
        let sources = ["app/ebpf/src/main.rs", "common/src/lib.rs"].map(path);
        let found = settings(sources.iter());
        let within: Vec<_> =
            found.iter().filter_map(|file| file.strip_prefix(dir.path()).ok()?.to_str()).collect();
        assert_eq!(within, files);
    }

    #[test]
    fn a_crate_has_one_object() {
        let dir = tempfile::tempdir().unwrap();
        let found =
            |dir: &Path| only_file(dir, Path::new("ebpf")).map_err(|error| error.to_string());
        assert_eq!(
            found(dir.path()).unwrap_err(),
            "the eBPF crate in ebpf has 0 binaries instead of one"
        );
        fs::write(dir.path().join("a"), "").unwrap();
        assert_eq!(found(dir.path()).unwrap(), dir.path().join("a"));
        fs::write(dir.path().join("b"), "").unwrap();
        assert!(found(dir.path()).unwrap_err().contains("has 2 binaries"));
    }

    #[test]
    fn callers_other_than_build_scripts_get_an_error() {
        // Tests have no OUT_DIR.
        let error = ebpf("ebpf").unwrap_err().to_string();
        assert!(error.contains("call this from a build script"), "{error}");
    }
}
