//! Names of events, as `perf` has them.

/// An enumeration whose values are those of the ABI, with the names that each has: the first is shown.
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

            pub(super) fn name(self) -> &'static str {
                Self::ALL.iter().find(|(value, _)| *value == self).map_or("", |(_, names)| names[0])
            }
        }
    };
}

/// Which of `all` has this name.
pub(super) fn named<T: Copy>(all: &[(T, &[&str])], name: &str) -> Option<T> {
    all.iter().find(|(_, names)| names.contains(&name)).map(|(value, _)| *value)
}

named! {
    /// What CPUs count (`enum perf_hw_id`).
    Hardware {
        /// Cycles, at whatever frequency.
        CpuCycles = 0: ["cycles", "cpu-cycles"],
        /// Instructions that have retired.
        Instructions = 1: ["instructions"],
        /// Accesses of the last cache, as a rule.
        CacheReferences = 2: ["cache-references"],
        /// Those that it did not have.
        CacheMisses = 3: ["cache-misses"],
        /// Branches that have retired.
        BranchInstructions = 4: ["branches", "branch-instructions"],
        /// Those that were not foreseen.
        BranchMisses = 5: ["branch-misses"],
        /// Cycles of the bus.
        BusCycles = 6: ["bus-cycles"],
        /// Cycles in which nothing was issued.
        StalledCyclesFrontend = 7: ["stalled-cycles-frontend", "idle-cycles-frontend"],
        /// Cycles in which nothing retired.
        StalledCyclesBackend = 8: ["stalled-cycles-backend", "idle-cycles-backend"],
        /// Cycles, at the nominal frequency.
        RefCpuCycles = 9: ["ref-cycles"],
    }
}

named! {
    /// What the kernel counts (`enum perf_sw_ids`).
    Software {
        /// Time of a CPU, in nanoseconds, by a timer.
        CpuClock = 0: ["cpu-clock"],
        /// Time of a thread on a CPU, in nanoseconds.
        TaskClock = 1: ["task-clock"],
        /// Page faults.
        PageFaults = 2: ["page-faults", "faults"],
        /// Context switches.
        ContextSwitches = 3: ["context-switches", "cs"],
        /// Moves of a thread to another CPU.
        CpuMigrations = 4: ["cpu-migrations", "migrations"],
        /// Page faults that took no reading.
        MinorFaults = 5: ["minor-faults"],
        /// Page faults that did.
        MajorFaults = 6: ["major-faults"],
        /// Accesses that were not aligned, which the kernel did.
        AlignmentFaults = 7: ["alignment-faults"],
        /// Instructions that the kernel emulated.
        EmulationFaults = 8: ["emulation-faults"],
        /// Nothing: for records that tell something else than samples.
        Dummy = 9: ["dummy"],
        /// Context switches to another cgroup. Since 5.13.
        CgroupSwitches = 11: ["cgroup-switches"],
    }
}

named! {
    /// A cache (`enum perf_hw_cache_id`).
    Cache {
        /// The first, of data.
        L1d = 0: ["L1-dcache", "l1-d", "l1d", "L1-data"],
        /// The first, of instructions.
        L1i = 1: ["L1-icache", "l1-i", "l1i", "L1-instruction"],
        /// The last.
        LastLevel = 2: ["LLC", "L2"],
        /// Of translations, for data.
        DataTlb = 3: ["dTLB", "d-tlb", "Data-TLB"],
        /// Of translations, for instructions.
        InstructionTlb = 4: ["iTLB", "i-tlb", "Instruction-TLB"],
        /// The unit that foresees branches.
        BranchUnit = 5: ["branch", "branches", "bpu", "btb", "bpc"],
        /// The memory of this node.
        Node = 6: ["node"],
    }
}

named! {
    /// What was done with a cache (`enum perf_hw_cache_op_id`).
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
    /// What came of it (`enum perf_hw_cache_op_result_id`).
    CacheResult {
        /// Every access.
        Access = 0: ["refs", "Reference", "ops", "access"],
        /// Those that the cache did not have.
        Miss = 1: ["misses", "miss"],
    }
}
