//! What a test leaves behind: descriptors, mappings of rings, and what the kernel keeps of BPF.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

use aya::maps::loaded_maps;
use aya::programs::{loaded_links, loaded_programs};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// How many mappings of rings and of shared pages this process has.
pub fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("anon_inode:")).count()
}

/// The kernel frees BPF objects when all CPUs have come by, and some from a work queue.
const PATIENCE: Duration = Duration::from_secs(20);

/// BPF programs, maps and links, by their ids.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KernelObjects {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

impl KernelObjects {
    /// Those that a process has descriptors of. `process` is its folder in `/proc`.
    pub fn of(process: &str) -> Self {
        let mut found = Self::default();
        // It may have ended, and what it has open may have been closed.
        for info in fs::read_dir(format!("{process}/fdinfo")).into_iter().flatten().flatten() {
            let info = fs::read_to_string(info.path()).unwrap_or_default();
            for (key, value) in info.lines().filter_map(|line| line.split_once(':')) {
                let ids = match key {
                    "prog_id" => &mut found.programs,
                    "map_id" => &mut found.maps,
                    "link_id" => &mut found.links,
                    _ => continue,
                };
                ids.insert(value.trim().parse().unwrap());
            }
        }
        found
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Those of them that `others` are not.
    fn without(&self, others: &Self) -> Self {
        Self {
            programs: &self.programs - &others.programs,
            maps: &self.maps - &others.maps,
            links: &self.links - &others.links,
        }
    }

    /// Those of them that the kernel still has, whoever holds them: a descriptor, a pin, a link.
    fn alive(&self) -> Self {
        let programs: BTreeSet<u32> = loaded_programs().flatten().map(|one| one.id()).collect();
        let maps: BTreeSet<u32> = loaded_maps().flatten().map(|one| one.id()).collect();
        let links: BTreeSet<u32> = loaded_links().flatten().map(|one| one.id()).collect();
        Self {
            programs: &self.programs & &programs,
            maps: &self.maps & &maps,
            links: &self.links & &links,
        }
    }

    /// Waits until the kernel has freed all of them.
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

/// What this process has at one time.
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
            // The one of the folder itself is closed by then.
            if let Ok(what) = fs::read_link(entry.path())
                && !what.starts_with("/proc")
            {
                let number = entry.file_name().to_str().unwrap().parse().unwrap();
                descriptors.insert((number, what.display().to_string()));
            }
        }
        Self { descriptors, mappings: mappings(), objects: KernelObjects::of("/proc/self") }
    }

    /// All that has come since is gone, and of what this process had `at_end`, the kernel keeps
    /// nothing but what there was.
    pub fn assert_nothing_else(&self, at_end: &KernelObjects) {
        let now = Self::now();
        let left: Vec<_> = now.descriptors.difference(&self.descriptors).collect();
        assert!(left.is_empty(), "descriptors left behind: {left:?}");
        let left = now.mappings.saturating_sub(self.mappings);
        assert_eq!(left, 0, "mappings left behind");
        at_end.without(&self.objects).assert_gone();
    }
}
