//! Leak checks: descriptors, ring mappings and BPF objects that a test leaves behind.

use aya::maps::loaded_maps;
use aya::programs::{loaded_links, loaded_programs};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// The number of ring and control-page mappings of this process.
pub fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("anon_inode:")).count()
}

/// The kernel frees BPF objects when all CPUs have come by, and some from a work queue. Another process that lists all
/// objects, as this one does, has each of them open for a moment.
const PATIENCE: Duration = Duration::from_secs(20);

const PROGRAM: &str = "program";
const MAP: &str = "map";
const LINK: &str = "link";

/// `None` for what was gone before it could be read, or was only being made. Fails for any other reason: what cannot
/// be read may have been left behind.
#[track_caller]
fn unless_gone<T, E: Error + 'static>(result: Result<T, E>) -> Option<T> {
    let error = match result {
        Ok(found) => return Some(found),
        Err(error) => error,
    };
    let first: &(dyn Error + 'static) = &error;
    let mut causes = std::iter::successors(Some(first), |&cause| cause.source());
    let code = causes.find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    match code.map(Errno::from_raw_os_error) {
        // The kernel has EAGAIN for a link that is being made.
        Some(Errno::NOENT | Errno::SRCH | Errno::AGAIN) => None,
        _ => panic!("cannot tell what is left behind: {error:?}"),
    }
}

/// The kinds and ids of BPF objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KernelObjects(BTreeSet<(&'static str, u32)>);

impl KernelObjects {
    /// The objects that a process has descriptors for. `process` is its directory in `/proc`.
    pub fn of(process: &str) -> Self {
        let mut found = Self::default();
        // The process may have exited, and descriptors may have been closed.
        for info in unless_gone(fs::read_dir(format!("{process}/fdinfo"))).into_iter().flatten() {
            let read = info.and_then(|info| fs::read_to_string(info.path()));
            let info = unless_gone(read).unwrap_or_default();
            for (key, value) in info.lines().filter_map(|line| line.split_once(':')) {
                let kind = match key {
                    "prog_id" => PROGRAM,
                    "map_id" => MAP,
                    "link_id" => LINK,
                    _ => continue,
                };
                found.0.insert((kind, value.trim().parse().unwrap()));
            }
        }
        found
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The objects that still exist, whatever holds them: a descriptor, a pin or a link.
    fn alive(&self) -> Self {
        let programs = loaded_programs().filter_map(unless_gone).map(|one| (PROGRAM, one.id()));
        let maps = loaded_maps().filter_map(unless_gone).map(|one| (MAP, one.id()));
        let links = loaded_links().filter_map(unless_gone).map(|one| (LINK, one.id()));
        let all: BTreeSet<_> = programs.chain(maps).chain(links).collect();
        Self(&self.0 & &all)
    }

    /// Adds what another set has.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Waits until the kernel has freed all of these objects.
    pub fn assert_gone(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let alive = self.alive();
            if alive.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "left behind in the kernel: {alive:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The resources of this process at one moment.
#[derive(Debug)]
pub struct Held {
    descriptors: BTreeSet<(u32, String)>,
    mappings: usize,
    objects: KernelObjects,
}

impl Held {
    pub fn now() -> Self {
        let mut descriptors = BTreeSet::new();
        for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
            // Skips the descriptor of the directory itself, which is closed by now.
            if let Ok(what) = fs::read_link(entry.path())
                && !what.starts_with("/proc")
            {
                let number = entry.file_name().to_str().unwrap().parse().unwrap();
                descriptors.insert((number, what.display().to_string()));
            }
        }
        Self { descriptors, mappings: mappings(), objects: KernelObjects::of("/proc/self") }
    }

    /// Asserts that all resources acquired since are released. Of the objects held `at_end`, only
    /// those that existed before may remain.
    pub fn assert_nothing_else(&self, at_end: &KernelObjects) {
        let now = Self::now();
        let left: Vec<_> = now.descriptors.difference(&self.descriptors).collect();
        assert!(left.is_empty(), "descriptors left behind: {left:?}");
        let left = now.mappings.saturating_sub(self.mappings);
        assert_eq!(left, 0, "mappings left behind");
        KernelObjects(&at_end.0 - &self.objects.0).assert_gone();
    }
}
