//! Set-up: packages, tools, their cache and generated files.

pub(crate) mod apt;
pub(crate) mod files;
pub(crate) mod peers;
pub(crate) mod toolchain;

pub(crate) use probe_build::Cache;

/// Opens the cache of downloads and tools, outside the clone. Build scripts of other projects share it.
pub(crate) fn cache() -> anyhow::Result<Cache> {
    let waiting = || crate::say::line("waiting for another xtask or build to finish its set-up");
    Ok(Cache::open(waiting)?)
}
