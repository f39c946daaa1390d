//! Which rings the next drain looks at.

/// The CPUs whose rings the next drain looks at.
#[derive(Debug)]
pub(crate) struct Due {
    /// Whether the next drain looks at every ring, because it is unknown which have records.
    all: bool,
    /// CPUs that have woken the consumer, or that an earlier drain has left.
    cpus: Vec<u32>,
}

impl Due {
    /// Every ring, with memory for some CPUs, so that drains allocate nothing.
    pub(crate) fn all(cpus: usize) -> Self {
        // A CPU can be added for several reasons.
        Self { all: true, cpus: Vec::with_capacity(4 * cpus) }
    }

    /// Adds a CPU.
    pub(crate) fn add(&mut self, cpu: u32) {
        self.cpus.push(cpu);
    }

    /// Adds every CPU.
    pub(crate) fn add_all(&mut self) {
        self.all = true;
    }

    /// Removes every CPU, and those that were added one by one before.
    pub(crate) fn clear(&mut self) {
        self.all = false;
        self.cpus.clear();
    }

    /// Keeps only CPUs that were added one by one.
    pub(crate) fn only_added(&mut self) {
        self.all = false;
    }

    /// Whether there is nothing to look at.
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.cpus.is_empty()
    }

    /// The CPUs, each once and in ascending order; `None` for all.
    pub(crate) fn cpus(&mut self) -> Option<&[u32]> {
        self.cpus.sort_unstable();
        self.cpus.dedup();
        (!self.all).then_some(&self.cpus)
    }
}
