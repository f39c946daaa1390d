//! What set-up made, outside the clone, so that every clone shares it and `cargo clean` keeps it.

use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use etcetera::BaseStrategy;

use crate::say;

/// Where every attempt at a step has a folder of its own. A step that is done is a link into it, so
/// that what was cut short is never taken for done, and what its processes still write hurts nobody.
const ATTEMPTS: &str = "attempts";

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
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let link = self.path(name);
        if let Ok(made) = link.canonicalize() {
            return Ok(made);
        }
        self.locked(|| {
            if let Ok(made) = link.canonicalize() {
                return Ok(made); // another xtask made it while this one waited
            }
            let prefix = format!("{}.", name.replace('/', "-"));
            self.clear(&prefix);
            let attempts = self.path(ATTEMPTS);
            for folder in [Some(&*attempts), link.parent()].into_iter().flatten() {
                fs::create_dir_all(folder)
                    .with_context(|| format!("cannot create {}", folder.display()))?;
            }
            let attempt = tempfile::Builder::new().prefix(&prefix).tempdir_in(&attempts)?;
            fs::set_permissions(attempt.path(), fs::Permissions::from_mode(0o755))?;
            make(attempt.path())?;
            let made = attempt.keep();
            // A link to an attempt that somebody removed by hand.
            let _ = fs::remove_file(&link);
            symlink(&made, &link).with_context(|| format!("cannot create {}", link.display()))?;
            Ok(made)
        })
    }

    /// Removes what earlier attempts left, as far as that can be done.
    fn clear(&self, prefix: &str) {
        let Ok(entries) = fs::read_dir(self.path(ATTEMPTS)) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
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

        // What a process that was killed leaves, and still writes to.
        let rubble = cache.path(ATTEMPTS).join("a-b.killed");
        fs::create_dir(&rubble).unwrap();

        let made = cache.ensure("a/b", |path| {
            assert!(!rubble.exists() && !path.join("half").exists(), "rubble was left");
            Ok(fs::write(path.join("whole"), "")?)
        });
        let made = made.unwrap();
        assert!(made.join("whole").exists());
        assert_eq!(cache.ensure("a/b", |_| panic!("done already")).unwrap(), made);
    }

    #[test]
    fn steps_nest() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned()).unwrap();
        cache.ensure("outer", |_| cache.ensure("inner", |_| Ok(())).map(drop)).unwrap();
        assert!(cache.path("inner").exists());
    }
}
