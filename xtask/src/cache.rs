//! What set-up made, outside the clone, so that every clone shares it and `cargo clean` keeps it.

use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use etcetera::BaseStrategy;

use crate::say;

/// Its presence says that a step was done to its end; without it the folder is rubble.
const DONE: &str = ".done";

pub(crate) struct Cache {
    root: PathBuf,
    held: Cell<bool>,
}

impl Cache {
    /// `PROBE_CACHE`, or `probe-xtask` in the user's cache folder.
    pub(crate) fn open() -> Result<Self> {
        let root = match std::env::var_os("PROBE_CACHE") {
            Some(root) if !root.is_empty() => std::path::absolute(root)?,
            _ => etcetera::choose_base_strategy()
                .context("no cache folder: set HOME, or PROBE_CACHE to a folder")?
                .cache_dir()
                .join("probe-xtask"),
        };
        Self::at(root)
    }

    fn at(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root).with_context(|| {
            format!("cannot create the cache {}; set PROBE_CACHE to another folder", root.display())
        })?;
        Ok(Self { root, held: Cell::new(false) })
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// The folder `name`, which `make` fills if that was never done to its end.
    pub(crate) fn ensure(
        &self,
        name: impl AsRef<Path>,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.path(name);
        let done = path.join(DONE);
        if done.exists() {
            return Ok(path);
        }
        self.locked(|| {
            if done.exists() {
                return Ok(()); // another xtask made it while this one waited
            }
            if path.exists() {
                fs::remove_dir_all(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
            make(&path)?;
            File::create(&done).with_context(|| format!("cannot write {}", done.display()))?;
            Ok(())
        })?;
        Ok(path)
    }

    /// Runs `work` while no other xtask sets anything up.
    pub(crate) fn locked<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.held.get() {
            return work();
        }
        let path = self.path("lock");
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                say::line("waiting for another xtask, which is setting up");
                file.lock().context("cannot lock the cache")?;
            }
            Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the cache"),
        }
        self.held.set(true);
        let result = work();
        self.held.set(false);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_done_once_and_repaired_when_cut_short() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache")).unwrap();
        let failed = cache.ensure("a/b", |path| {
            fs::write(path.join("half"), "")?;
            anyhow::bail!("cut short")
        });
        assert!(failed.is_err());

        let made = cache.ensure("a/b", |path| {
            assert!(!path.join("half").exists(), "rubble was left");
            Ok(fs::write(path.join("whole"), "")?)
        });
        assert!(made.unwrap().join("whole").exists());
        cache.ensure("a/b", |_| panic!("done already")).unwrap();
    }

    #[test]
    fn steps_nest() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned()).unwrap();
        cache.ensure("outer", |_| cache.ensure("inner", |_| Ok(())).map(drop)).unwrap();
        assert!(cache.path("inner").exists());
    }
}
