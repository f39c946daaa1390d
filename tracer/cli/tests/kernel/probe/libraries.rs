//! A program that loads libraries at the same address.

use super::succeed;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A program that calls a function of one library, then one of another library, which has taken its place.
pub struct Libraries {
    dir: TempDir,
}

impl Libraries {
    /// The functions, each in a library.
    pub const FUNCTIONS: [&str; 2] = ["first", "second"];

    pub fn compile() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/libraries.c");
        let compile = |output: &str, options: &[&str]| {
            let mut cc = Command::new("cc");
            cc.args(["-O0", "-fno-omit-frame-pointer"]).args(options).arg(&source);
            succeed(cc.arg("-o").arg(dir.path().join(output)).arg("-ldl"));
        };
        compile("loads", &[]);
        for name in Self::FUNCTIONS {
            compile(name, &["-shared", "-fPIC", &format!("-DNAME={name}")]);
        }
        Self { dir }
    }

    /// Calls each of the functions this many times, in turn.
    pub fn command(&self, times: u32) -> Vec<String> {
        let path = |name: &str| self.dir.path().join(name).to_str().unwrap().to_owned();
        let pairs = Self::FUNCTIONS.into_iter().flat_map(|name| [path(name), name.to_owned()]);
        [path("loads"), times.to_string()].into_iter().chain(pairs).collect()
    }
}
