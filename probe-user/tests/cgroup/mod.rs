//! A cgroup for a test.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::{Path, PathBuf};

/// The file system of cgroups, mounted as long as this is there.
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

/// A cgroup, with another one in it, that is gone when this is.
pub struct Cgroup {
    mounted: Mounted,
    name: &'static str,
}

impl Cgroup {
    const INNER: &str = "inner";

    /// Makes a cgroup of this name in the file system's root.
    pub fn new(name: &'static str) -> Self {
        let cgroup = Self { mounted: Mounted::new(), name };
        std::fs::create_dir_all(cgroup.inner()).unwrap();
        cgroup
    }

    /// Has perf events know of the cgroups that are made from now on, as they do once somebody has controlled
    /// anything in the hierarchy: systemd has, and where there is none, it has to be done.
    pub fn let_perf_events_know() {
        const CONTROLLER: &str = "pids";
        let mounted = Mounted::new();
        let control = mounted.path().join("cgroup.subtree_control");
        let is_in = |path: &Path| {
            let controllers = std::fs::read_to_string(path).unwrap();
            controllers.split_ascii_whitespace().any(|name| name == CONTROLLER)
        };
        // Where another hierarchy has it, somebody has taken it from this one.
        if is_in(&mounted.path().join("cgroup.controllers")) && !is_in(&control) {
            for sign in ['+', '-'] {
                std::fs::write(&control, format!("{sign}{CONTROLLER}")).unwrap();
            }
        }
    }

    pub fn root(&self) -> &Path {
        self.mounted.path()
    }

    pub fn path(&self) -> PathBuf {
        self.root().join(self.name)
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
