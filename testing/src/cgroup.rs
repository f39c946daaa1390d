//! A temporary cgroup.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::{Path, PathBuf};

/// A cgroup2 file system, mounted until this is dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Self {
        let mounted = tempfile::tempdir().unwrap();
        mount("none", mounted.path(), "cgroup2", MountFlags::empty(), None).unwrap();
        Self(mounted)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(self.path(), UnmountFlags::empty()).unwrap();
    }
}

/// A cgroup with a nested one, both removed on drop.
pub struct Cgroup {
    mounted: Mounted,
    name: String,
}

impl Cgroup {
    const INNER: &str = "inner";

    /// Makes a cgroup in the file system's root. Its name ends with the number of this process: other runs of the same
    /// test have cgroups there, too.
    pub fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let cgroup = Self { mounted: Mounted::new(), name };
        std::fs::create_dir_all(cgroup.inner()).unwrap();
        cgroup
    }

    /// Makes perf events report cgroups created from now on. They do so once any controller has
    /// been enabled in the hierarchy. systemd enables one; on machines without it, this function
    /// does.
    pub fn let_perf_events_know() {
        const CONTROLLER: &str = "pids";
        let mounted = Mounted::new();
        let control = mounted.path().join("cgroup.subtree_control");
        let is_in = |path: &Path| {
            let controllers = std::fs::read_to_string(path).unwrap();
            controllers.split_ascii_whitespace().any(|name| name == CONTROLLER)
        };
        // If another hierarchy holds the controller, it has already been moved out of this one.
        if is_in(&mounted.path().join("cgroup.controllers")) && !is_in(&control) {
            for sign in ['+', '-'] {
                std::fs::write(&control, format!("{sign}{CONTROLLER}")).unwrap();
            }
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn root(&self) -> &Path {
        self.mounted.path()
    }

    pub fn path(&self) -> PathBuf {
        self.root().join(&self.name)
    }

    pub fn inner(&self) -> PathBuf {
        self.path().join(Self::INNER)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for path in [self.inner(), self.path()] {
            std::fs::remove_dir(path).unwrap();
        }
    }
}
