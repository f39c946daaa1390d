//! The sources of events, and their names in `perf`.

use super::pmu::PmuEvent;

/// `enum perf_type_id`.
pub(super) const PERF_TYPE_HARDWARE: u32 = 0;
pub(super) const PERF_TYPE_SOFTWARE: u32 = 1;
pub(super) const PERF_TYPE_TRACEPOINT: u32 = 2;
pub(super) const PERF_TYPE_HW_CACHE: u32 = 3;
pub(super) const PERF_TYPE_RAW: u32 = 4;

/// Defines an enumeration with the values of the ABI and the names of each. The first name is displayed.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal: [$($text:literal),+],)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $value,)+
        }

        impl $name {
            pub(super) const ALL: &[(Self, &[&str])] = &[$((Self::$variant, &[$($text),+])),+];

            fn name(self) -> &'static str {
                Self::ALL.iter().find(|(value, _)| *value == self).map_or("", |(_, names)| names[0])
            }
        }
    };
}

/// Finds the value with this name.
fn named<T: Copy>(all: &[(T, &[&str])], name: &str) -> Option<T> {
    all.iter().find(|(_, names)| names.contains(&name)).map(|(value, _)| *value)
}

named! {
    /// Hardware events (`enum perf_hw_id`).
    Hardware {
        /// Cycles at the current frequency.
        CpuCycles = 0: ["cycles", "cpu-cycles"],
        /// Instructions that have retired.
        Instructions = 1: ["instructions"],
        /// Usually, accesses of the last-level cache.
        CacheReferences = 2: ["cache-references"],
        /// Usually, misses of the last-level cache.
        CacheMisses = 3: ["cache-misses"],
        /// Branches that have retired.
        BranchInstructions = 4: ["branches", "branch-instructions"],
        /// Branches that were mispredicted.
        BranchMisses = 5: ["branch-misses"],
        /// Cycles of the bus.
        BusCycles = 6: ["bus-cycles"],
        /// Cycles in which nothing was issued.
        StalledCyclesFrontend = 7: ["stalled-cycles-frontend", "idle-cycles-frontend"],
        /// Cycles in which nothing retired.
        StalledCyclesBackend = 8: ["stalled-cycles-backend", "idle-cycles-backend"],
        /// Cycles at the nominal frequency.
        RefCpuCycles = 9: ["ref-cycles"],
    }
}

named! {
    /// Software events (`enum perf_sw_ids`).
    Software {
        /// The time of a CPU in nanoseconds, measured by a timer.
        CpuClock = 0: ["cpu-clock"],
        /// The time of a thread on a CPU, in nanoseconds.
        TaskClock = 1: ["task-clock"],
        /// Page faults.
        PageFaults = 2: ["page-faults", "faults"],
        /// Context switches.
        ContextSwitches = 3: ["context-switches", "cs"],
        /// Migrations of threads to another CPU.
        CpuMigrations = 4: ["cpu-migrations", "migrations"],
        /// Page faults that were served without I/O.
        MinorFaults = 5: ["minor-faults"],
        /// Page faults that were served with I/O.
        MajorFaults = 6: ["major-faults"],
        /// Unaligned accesses that the kernel handled.
        AlignmentFaults = 7: ["alignment-faults"],
        /// Instructions that the kernel emulated.
        EmulationFaults = 8: ["emulation-faults"],
        /// Nothing: for records other than samples.
        Dummy = 9: ["dummy"],
        /// Context switches to another cgroup. Since 5.13.
        CgroupSwitches = 11: ["cgroup-switches"],
    }
}

named! {
    /// A cache (`enum perf_hw_cache_id`).
    Cache {
        /// The first-level data cache.
        L1d = 0: ["L1-dcache", "l1-d", "l1d", "L1-data"],
        /// The first-level instruction cache.
        L1i = 1: ["L1-icache", "l1-i", "l1i", "L1-instruction"],
        /// The last-level cache.
        LastLevel = 2: ["LLC", "L2"],
        /// The address translations of data.
        DataTlb = 3: ["dTLB", "d-tlb", "Data-TLB"],
        /// The address translations of instructions.
        InstructionTlb = 4: ["iTLB", "i-tlb", "Instruction-TLB"],
        /// The branch predictor.
        BranchUnit = 5: ["branch", "branches", "bpu", "btb", "bpc"],
        /// The memory of the NUMA node.
        Node = 6: ["node"],
    }
}

named! {
    /// An operation on a cache (`enum perf_hw_cache_op_id`).
    CacheOperation {
        /// Loads.
        Read = 0: ["load", "loads", "read"],
        /// Stores.
        Write = 1: ["store", "stores", "write"],
        /// Prefetches.
        Prefetch = 2: ["prefetch", "prefetches", "speculative-read", "speculative-load"],
    }
}

named! {
    /// The result of an operation on a cache (`enum perf_hw_cache_op_result_id`).
    CacheResult {
        /// All accesses.
        Access = 0: ["refs", "Reference", "ops", "access"],
        /// Accesses that missed the cache.
        Miss = 1: ["misses", "miss"],
    }
}

/// The source of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// A counter of the CPU.
    Hardware(Hardware),
    /// The kernel.
    Software(Software),
    /// A counter of the CPU's caches.
    Cache(Cache, CacheOperation, CacheResult),
    /// A tracepoint: its category and its name.
    Tracepoint(String, String),
    /// An event that a PMU describes.
    Pmu(PmuEvent),
    /// A configuration of the event type with this number (`/sys/bus/event_source/devices/*/type`).
    Raw {
        /// The type.
        kind: u32,
        /// `config` of `struct perf_event_attr`.
        config: u64,
        /// `config1`.
        config1: u64,
        /// `config2`.
        config2: u64,
    },
}

impl Source {
    /// The source with this name, which has no colon.
    pub(super) fn known(name: &str) -> Option<Self> {
        let hardware = || named(Hardware::ALL, name).map(Self::Hardware);
        let software = || named(Software::ALL, name).map(Self::Software);
        software().or_else(hardware).or_else(|| cache(name)).or_else(|| raw(name))
    }

    /// The notation of the source, without a modifier.
    pub(super) fn notation(&self) -> String {
        match self {
            Self::Hardware(event) => event.name().to_owned(),
            Self::Software(event) => event.name().to_owned(),
            Self::Cache(cache, operation, result) => cache_name(*cache, *operation, *result),
            Self::Tracepoint(category, name) => format!("{category}:{name}"),
            Self::Pmu(event) => event.text.clone(),
            Self::Raw { kind: PERF_TYPE_RAW, config, config1: 0, config2: 0 } => {
                format!("r{config:x}")
            }
            Self::Raw { kind, config, config1, config2 } => {
                format!("type {kind}, config {config:#x}, {config1:#x}, {config2:#x}")
            }
        }
    }
}

/// Parses `LLC`, `LLC-loads` or `LLC-load-misses`.
fn cache(name: &str) -> Option<Source> {
    // Longest first: the name of one cache may be a prefix of another's.
    let mut caches: Vec<_> = Cache::ALL
        .iter()
        .flat_map(|(cache, names)| names.iter().map(|name| (*cache, *name)))
        .filter(|(_, own)| name.starts_with(own))
        .collect();
    caches.sort_by_key(|(_, own)| std::cmp::Reverse(own.len()));
    let (cache, own) = *caches.first()?;
    let (mut operation, mut result) = (None, None);
    let mut rest = &name[own.len()..];
    while let Some(text) = rest.strip_prefix('-') {
        // A name may contain a dash.
        let ends = text.match_indices('-').map(|(at, _)| at).chain([text.len()]);
        let (end, found) = ends
            .filter_map(|end| {
                let part = &text[..end];
                let operation = named(CacheOperation::ALL, part).map(Ok);
                Some((end, operation.or_else(|| named(CacheResult::ALL, part).map(Err))?))
            })
            .next_back()?;
        let is_repeated = match found {
            Ok(found) => operation.replace(found).is_some(),
            Err(found) => result.replace(found).is_some(),
        };
        if is_repeated {
            return None;
        }
        rest = &text[end..];
    }
    let operation = operation.unwrap_or(CacheOperation::Read);
    let result = result.unwrap_or(CacheResult::Access);
    rest.is_empty().then_some(Source::Cache(cache, operation, result))
}

pub(super) fn cache_name(cache: Cache, operation: CacheOperation, result: CacheResult) -> String {
    let (cache, name) = (cache.name(), operation.name());
    match (result, operation) {
        (CacheResult::Miss, _) => format!("{cache}-{name}-{}", result.name()),
        (CacheResult::Access, CacheOperation::Prefetch) => format!("{cache}-{name}es"),
        (CacheResult::Access, _) => format!("{cache}-{name}s"),
    }
}

/// Parses `r1a8`: a raw event code from the CPU's manual.
fn raw(name: &str) -> Option<Source> {
    let digits = name.strip_prefix('r').filter(|digits| !digits.starts_with('+'))?;
    let config = u64::from_str_radix(digits, 16).ok()?;
    Some(Source::Raw { kind: PERF_TYPE_RAW, config, config1: 0, config2: 0 })
}
