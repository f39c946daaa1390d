//! A cache of finished setup steps, in the user's cache folder. All projects share it, and `cargo clean` keeps it.

use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{Error, on_terminal};

/// The folder of all attempts at steps, each in a folder of its own. A finished step is a link to its attempt.
/// An interrupted attempt is therefore never mistaken for a finished one, and its remaining processes cannot
/// damage one.
const ATTEMPTS: &str = "attempts";

/// A folder with the results of steps that run once.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    held: Cell<bool>,
    waiting: fn(),
}

impl Cache {
    /// Opens `$PROBE_CACHE`, or `probe-xtask` in the user's cache folder. `waiting` is called when
    /// another process holds the cache's lock.
    ///
    /// # Errors
    ///
    /// If the folder cannot be found or created.
    pub fn open(waiting: fn()) -> Result<Self, Error> {
        let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = if let Some(root) = folder("PROBE_CACHE") {
            PathBuf::from(root)
        } else if let Some(caches) = folder("XDG_CACHE_HOME").map(PathBuf::from)
            // The XDG specification says to ignore relative paths.
            && caches.is_absolute()
        {
            caches.join("probe-xtask")
        } else {
            let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
            let none = "there is no cache folder: set HOME, or PROBE_CACHE to a folder";
            home.ok_or_else(|| Error(none.to_owned()))?.join(".cache/probe-xtask")
        };
        Self::at(std::path::absolute(&root).map_err(Error::file("find", root))?, waiting)
    }

    /// Opens the cache of a build script, which shows on the terminal that it waits for another process.
    pub(crate) fn of_build() -> Result<Self, Error> {
        Self::open(|| drop(on_terminal("waiting for another build, which is setting up")))
    }

    /// Opens the cache in a folder, as [`Self::open`] does.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created.
    pub fn at(root: PathBuf, waiting: fn()) -> Result<Self, Error> {
        let create = fs::create_dir_all(&root);
        create.map_err(|cause| {
            let root = root.display();
            Error(format!(
                "cannot create the cache {root}; set PROBE_CACHE to another folder: {cause}"
            ))
        })?;
        Ok(Self { root, held: Cell::new(false), waiting })
    }

    /// The path of `name` in the cache.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// Whether the folder `name` is complete.
    pub fn has(&self, name: &str) -> bool {
        self.path(name).canonicalize().is_ok()
    }

    /// The folder `name`. If it is not complete, `make` fills it first.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created, or `make` fails.
    pub fn ensure<E: From<Error>>(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let link = self.path(name);
        if let Ok(made) = link.canonicalize() {
            return Ok(made);
        }
        self.locked(|| {
            if let Ok(made) = link.canonicalize() {
                return Ok(made); // another process made it while this one waited
            }
            let step = name.replace('/', "-");
            self.clear(&step);
            let attempt = self.path(ATTEMPTS).join(format!("{step}.{}", std::process::id()));
            for folder in [Some(&*attempt), link.parent()].into_iter().flatten() {
                fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
            }
            if let Err(error) = make(&attempt) {
                let _ = fs::remove_dir_all(&attempt);
                return Err(error);
            }
            // A link remains if somebody removed its attempt by hand.
            let _ = fs::remove_file(&link);
            symlink(&attempt, &link).map_err(Error::file("create", link))?;
            Ok(attempt)
        })
    }

    /// Removes what earlier attempts at a step left, as far as possible.
    fn clear(&self, step: &str) {
        let Ok(entries) = fs::read_dir(self.path(ATTEMPTS)) else { return };
        for entry in entries.flatten() {
            // Behind the last dot is the process.
            if entry.path().file_stem().is_some_and(|of| of == step) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Runs `work` under the cache's lock, so that no other process runs a step meanwhile.
    ///
    /// # Errors
    ///
    /// If the lock cannot be taken, or `work` fails.
    pub fn locked<T, E: From<Error>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if self.held.get() {
            return work();
        }
        let path = self.path("lock");
        let file = File::create(&path).map_err(Error::file("create", &path))?;
        let _lock = lock(&path, file, self.waiting)?;
        self.held.set(true);
        let result = work();
        self.held.set(false);
        result
    }
}

/// Waits for the lock of a file or folder, and calls `waiting` if another process holds it. Dropping the file releases
/// the lock.
///
/// # Errors
///
/// If it cannot be locked.
pub fn lock(path: &Path, file: File, waiting: impl FnOnce()) -> Result<File, Error> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            waiting();
            file.lock().map_err(Error::file("lock", path))?;
        }
        Err(TryLockError::Error(cause)) => return Err(Error::file("lock", path)(cause)),
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_run_once_and_again_after_an_interruption() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache"), || {}).unwrap();
        let failed = cache.ensure("a/b", |path| {
            fs::write(path.join("half"), "").unwrap();
            Err(Error("cut short".to_owned()))
        });
        assert!(failed.is_err());
        assert!(!cache.has("a/b"));

        // A killed process left this folder, and its children still write to it.
        let rubble = cache.path(ATTEMPTS).join("a-b.1");
        fs::create_dir(&rubble).unwrap();
        let of_another_step = cache.path(ATTEMPTS).join("a-b.2.1");
        fs::create_dir(&of_another_step).unwrap();

        let made = cache.ensure::<Error>("a/b", |path| {
            assert!(!rubble.exists() && !path.join("half").exists(), "rubble was left");
            fs::write(path.join("whole"), "").unwrap();
            Ok(())
        });
        let made = made.unwrap();
        assert!(made.join("whole").exists());
        assert!(of_another_step.exists(), "the step a/b.2 lost its result");
        assert!(cache.has("a/b"));
        assert_eq!(cache.ensure::<Error>("a/b", |_| panic!("done already")).unwrap(), made);
    }

    #[test]
    fn steps_nest() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned(), || {}).unwrap();
        cache.ensure::<Error>("outer", |_| cache.ensure("inner", |_| Ok(())).map(drop)).unwrap();
        assert!(cache.has("inner"));
    }
}
