//! The compiler that builds everything, including eBPF, and the sources of its library.

use std::path::PathBuf;
use std::process::Command;

use crate::{Begin, Cache, Error, process};

/// The time limit for rustup to fetch the library's sources, in seconds.
const RUSTUP_LIMIT: &str = "90";

/// The compiler that builds everything, including eBPF.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rustc {
    /// The version with the commit: `1.95.0 (59807616e 2026-04-14)`.
    pub version: String,
    /// The version without the commit: `1.95.0`.
    pub release: String,
    /// The major version of its LLVM.
    pub llvm_major: u32,
    /// The folder that holds its libraries.
    pub sysroot: PathBuf,
}

impl Rustc {
    /// Asks `$RUSTC`, or the `rustc` on the path, for its version and folders.
    ///
    /// # Errors
    ///
    /// If the compiler cannot be run, or its output cannot be parsed.
    pub fn ask() -> Result<Self, Error> {
        let rustc = || Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let about = process::read(rustc().arg("-vV"))?;
        let sysroot = process::read(rustc().args(["--print", "sysroot"]))?;
        parse(&about, sysroot.trim().into())
            .ok_or_else(|| Error(format!("cannot parse the output of `rustc -vV`:\n{about}")))
    }

    /// Makes sure that the sources of `core`, which `-Z build-std` compiles, are installed. If they are
    /// missing, rustup installs them, under the cache's lock.
    ///
    /// # Errors
    ///
    /// If they are missing, and rustup cannot fetch them, or if the lock cannot be taken.
    pub fn ensure_sources(&self, cache: &Cache, begin: Begin) -> Result<(), Error> {
        // Another process may install them while this one waits.
        let ensure = || Ok::<_, Error>(self.has_sources() || self.sources_from_rustup(begin));
        if self.has_sources() || cache.locked(ensure)? {
            return Ok(());
        }
        Err(Error(format!(
            "the sources of Rust {} are missing. Run `rustup component add rust-src`; without \
             rustup, install your distribution's package (Debian: rust-src) of the same version",
            self.release
        )))
    }

    /// The folder `rust` in the sysroot, the only place where Cargo looks for the sources.
    pub fn sources(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib/src/rust")
    }

    /// Whether the sources of `core` are installed.
    pub fn has_sources(&self) -> bool {
        self.sources().join("library/core/Cargo.toml").exists()
    }

    /// Installs the sources with rustup. Returns whether they are there now.
    fn sources_from_rustup(&self, begin: Begin) -> bool {
        let Some(toolchain) = self.sysroot.file_name() else { return false };
        if !self.sysroot.parent().is_some_and(|parent| parent.ends_with("toolchains")) {
            return false;
        }
        let show = begin(&format!("fetching rust-src {} (rustup)", self.release));
        let mut command = Command::new("timeout");
        command.args([RUSTUP_LIMIT, "rustup", "component", "add", "rust-src", "--toolchain"]);
        // The reason for a failure does not matter: the caller's error says what else to try. rustup also fails if
        // somebody else installs the sources meanwhile.
        let _ = process::watched(command.arg(toolchain), show);
        self.has_sources()
    }
}

fn parse(about: &str, sysroot: PathBuf) -> Option<Rustc> {
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name));
    Some(Rustc {
        version: field("rustc ")?.trim().to_owned(),
        release: field("release: ")?.trim().to_owned(),
        llvm_major: field("LLVM version: ")?.split('.').next()?.trim().parse().ok()?,
        sysroot,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    const ABOUT: &str = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
        release: 1.95.0\nLLVM version: 22.1.2\n";

    #[test]
    fn versions_are_parsed_and_missing_sources_named() {
        let rustc = parse(ABOUT, PathBuf::from("/no/such/sysroot")).unwrap();
        assert_eq!(rustc.version, "1.95.0 (59807616e 2026-04-14)");
        assert_eq!(rustc.release, "1.95.0");
        assert_eq!(rustc.llvm_major, 22);
        assert!(parse("rustc 1.95.0\n", PathBuf::new()).is_none());

        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned(), || {}).unwrap();
        let error = rustc.ensure_sources(&cache, crate::on_terminal).unwrap_err().to_string();
        assert!(error.contains("the sources of Rust 1.95.0 are missing"), "{error}");
        assert!(error.contains("`rustup component add rust-src`"), "{error}");
    }

    #[test]
    fn sources_that_another_process_installs_are_found() {
        static WAITS: AtomicBool = AtomicBool::new(false);
        let dir = tempfile::tempdir().unwrap();
        let rustc = parse(ABOUT, dir.path().join("sysroot")).unwrap();
        let open = || Cache::at(dir.path().join("cache"), || WAITS.store(true, Ordering::Relaxed));
        thread::scope(|scope| {
            let locked = open().unwrap().locked(|| {
                let ensure = || rustc.ensure_sources(&open()?, crate::on_terminal);
                let other = scope.spawn(ensure);
                while !WAITS.load(Ordering::Relaxed) && !other.is_finished() {
                    thread::yield_now();
                }
                let core = rustc.sources().join("library/core");
                fs::create_dir_all(&core).unwrap();
                fs::write(core.join("Cargo.toml"), "").unwrap();
                Ok::<_, Error>(other)
            });
            locked.unwrap().join().unwrap().unwrap();
        });
    }
}
