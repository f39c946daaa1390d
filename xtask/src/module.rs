//! The kernel module that tests load into a machine, built by the headers of its kernel.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::kernel::{Headers, Kernel};
use crate::say::Step;
use crate::{apt, process, workspace};

/// `objtool`, which looks at what is compiled, comes with the headers and needs a library.
const NEEDS: [&str; 2] = ["make", "libelf1"];

/// Builds the module for a kernel in `folder`, if this machine can build for it.
pub(crate) fn build(cache: &Cache, kernel: &Kernel, folder: &Path) -> Result<Option<PathBuf>> {
    if !kernel.series.takes_modules() {
        return Ok(None);
    }
    apt::install(&NEEDS)?;
    let headers = Headers::ensure(cache, kernel)?;
    let folder = folder.join(format!("module-{}", kernel.release));
    fs::create_dir_all(&folder)?;
    let sources = workspace::root().join("probe-user/tests/aux_module");
    let entries = fs::read_dir(&sources);
    for entry in entries.with_context(|| format!("cannot read {}", sources.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join(entry.file_name()))
            .with_context(|| format!("cannot copy {}", entry.path().display()))?;
    }
    let step = Step::begin(format_args!("building a module for {}", kernel.series));
    let mut make = Command::new("make");
    make.arg("-C").arg(headers.folder()).arg(format!("M={}", folder.display()));
    // Not the very compiler that the kernel was built by, which this machine may not have.
    process::watched(make.args(["CC=gcc", "modules"]), &step)
        .with_context(|| format!("cannot build {}", sources.display()))?;
    Ok(Some(folder.join("probe_aux.ko")))
}

/// The variable by which tests find it.
pub(crate) fn variable(module: &Path) -> OsString {
    let mut variable = OsString::from("PROBE_AUX_MODULE=");
    variable.push(module);
    variable
}
