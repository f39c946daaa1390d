//! virtme-ng, in a Python environment of its own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::process;
use crate::say::Step;

const VIRTME_NG: &str = "1.42";

/// `virtme-run`, the part of virtme-ng that boots: `vng` passes its options through a shell.
pub(crate) fn ensure_virtme_run(cache: &Cache) -> Result<PathBuf> {
    let root = cache.ensure(&format!("virtme-ng/{VIRTME_NG}"), |root| {
        let step = Step::begin(format_args!("installing virtme-ng {VIRTME_NG} (pip)"));
        process::watched(Command::new("python3").args(["-m", "venv"]).arg(root), &step)
            .context("cannot make a Python environment; is python3-venv installed?")?;
        let mut pip = Command::new(root.join("bin/pip"));
        pip.args(["install", "--retries", "5", "--no-input"]);
        process::watched(pip.arg(format!("virtme-ng=={VIRTME_NG}")), &step)
    })?;
    Ok(root.join("bin/virtme-run"))
}
