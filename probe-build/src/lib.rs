//! Builds an eBPF crate on stable Rust, from the build script of the program that loads it.
//!
//! ```no_run
//! // build.rs
//! fn main() -> std::process::ExitCode {
//!     probe_build::main("ebpf")
//! }
//! ```
//!
//! ```ignore
//! // src/main.rs
//! let object = Ebpf::load(aya::include_bytes_aligned!(env!("EBPF_OBJECT")))?;
//! ```
//!
//! Building eBPF takes two things beyond stable Rust. The sources of `core` come from rustup
//! ([`Rustc::ensure_sources`]). bpf-linker is built once against the compiler's own LLVM, so that no
//! other LLVM has to be installed ([`linker::find`]). If something cannot be fetched, the error names it.
//!
//! # Environment
//!
//! | variable | meaning |
//! | --- | --- |
//! | `BPF_LINKER` | the bpf-linker to use |
//! | `PROBE_CACHE` | the folder for bpf-linker, instead of `~/.cache/probe-xtask` |

#![deny(missing_docs, unsafe_code)]

mod cache;
pub mod linker;
pub mod object;
#[doc(hidden)]
pub mod process;
mod rustc;

pub use cache::{Cache, lock};
pub use object::ebpf;
pub use rustc::Rustc;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Why an eBPF crate could not be built. The message includes the cause, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    /// For `map_err`: adds the action that failed, and its file or folder.
    fn file(action: &str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self(format!("cannot {action} {}: {cause}", path.as_ref().display()))
    }
}

/// Shows that a long step begins, such as building bpf-linker. The result shows each line that the step prints.
pub type Begin = fn(&str) -> Box<dyn Fn(&str)>;

/// Shows the beginning of a step on the terminal that the build was started from, if there is one.
///
/// Cargo shows the output of a build script only once the script has ended, and repeats its warnings in
/// every later build.
pub fn on_terminal(message: &str) -> Box<dyn Fn(&str)> {
    eprintln!("{message}");
    if let Ok(mut terminal) = File::options().write(true).open("/dev/tty") {
        // Overwrites Cargo's progress bar, which Cargo draws again below.
        let _ = write!(terminal, "\r\x1b[Kprobe-build: {message}\r\n");
    }
    Box::new(|_| {})
}

/// The complete `main` of a build script: builds the eBPF crate in `folder` as [`ebpf`] does, and prints
/// the error if that fails.
pub fn main(folder: impl AsRef<Path>) -> ExitCode {
    match ebpf(folder) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
