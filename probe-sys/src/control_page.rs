//! The control page of the pipe: one entry per CPU, which eBPF programs and their consumer share.

use crate::memory::Mapping;
use probe_common::control::{CONTROL_CPUS, CpuControl};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The mapped control page: the values of a memory-mappable array of [`CpuControl`].
#[derive(Debug)]
pub struct ControlPage {
    mapping: Mapping,
}

// SAFETY: the fields of the page are only accessed as atomics, and the mapping does not change until it is dropped.
unsafe impl Sync for ControlPage {}

impl ControlPage {
    /// Maps the values of a map, which must be such an array.
    pub fn map(map: BorrowedFd<'_>) -> io::Result<Self> {
        let len = CONTROL_CPUS as usize * size_of::<CpuControl>();
        Ok(Self { mapping: Mapping::new(map, len)? })
    }

    /// A CPU's entry. `None` if the page has none, or if this process was forked from the one that mapped the page.
    pub fn cpu(&self, cpu: u32) -> Option<CpuFlags<'_>> {
        let at = cpu as usize * size_of::<CpuControl>();
        (cpu < CONTROL_CPUS && self.mapping.is_here()).then_some(CpuFlags { page: self, at })
    }

    fn field(&self, at: usize) -> &AtomicU32 {
        // SAFETY: CpuFlags has checked that the entry is in the page.
        let field = unsafe { self.mapping.address().add(at) }.cast();
        // SAFETY: it is a 4-aligned u32 that both sides access with single loads and stores.
        unsafe { AtomicU32::from_ptr(field.as_ptr()) }
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: CpuFlags has checked that the entry is in the page.
        let counter = unsafe { self.mapping.address().add(at) }.cast();
        // SAFETY: it is an 8-aligned u64 that both sides access atomically.
        unsafe { AtomicU64::from_ptr(counter.as_ptr()) }
    }
}

/// One CPU's entry of the control page.
#[derive(Debug)]
pub struct CpuFlags<'p> {
    page: &'p ControlPage,
    at: usize,
}

impl CpuFlags<'_> {
    /// Sets how many bytes of records may be packed.
    pub fn set_limit(&self, bytes: u32) {
        // ORDERING: the limit may take effect at any time.
        self.page.field(self.at + offset_of!(CpuControl, limit)).store(bytes, Ordering::Relaxed);
    }

    /// Sets the number of the consumer to which the CPU belongs, or 0.
    pub fn set_owner(&self, owner: u32) {
        // ORDERING: consumers do not take CPUs from each other at the same time.
        self.page.field(self.at + offset_of!(CpuControl, owner)).store(owner, Ordering::Relaxed);
    }

    /// The number of the consumer to which the CPU belongs, or 0.
    pub fn owner(&self) -> u32 {
        // ORDERING: as above.
        self.page.field(self.at + offset_of!(CpuControl, owner)).load(Ordering::Relaxed)
    }

    /// Sets how many outputs of the consumer that has taken over had no room in the ring of the earlier one.
    pub fn set_uncounted(&self, outputs: u32) {
        // ORDERING: this is a count by itself.
        let field = self.page.field(self.at + offset_of!(CpuControl, uncounted));
        field.store(outputs, Ordering::Relaxed);
    }

    /// How many outputs of the consumer that has taken over had no room in the ring of the earlier one.
    pub fn uncounted(&self) -> u32 {
        // ORDERING: as above.
        self.page.field(self.at + offset_of!(CpuControl, uncounted)).load(Ordering::Relaxed)
    }

    /// Begins the eager period of this number, or makes the CPU lazy with 0.
    pub fn set_eager(&self, period: u32) {
        // ORDERING: a period takes effect when the flush program runs afterwards, which interrupts the CPU.
        let flag = self.page.field(self.at + offset_of!(CpuControl, eager));
        flag.store(period, Ordering::SeqCst);
    }

    /// Whether the CPU has announced the end of this eager period. The consumer has looked at the ring before, so the
    /// wakeups so far are answered, unless the CPU has announced its last one.
    pub fn answer(&self, period: u32) -> bool {
        let field = |at| self.page.field(self.at + at);
        // ORDERING: these numbers only decide when the CPU stops waking.
        let wakeups = field(offset_of!(CpuControl, wakeups)).load(Ordering::Relaxed);
        let answered = field(offset_of!(CpuControl, answered));
        // ORDERING: as above. Storing only what is new leaves the cache line to the CPU.
        if answered.load(Ordering::Relaxed) != wakeups {
            answered.store(wakeups, Ordering::Relaxed);
        }
        // ORDERING: the CPU has announced the end before it wrote the record that woke us, and the kernel's wakeup
        // orders the two.
        field(offset_of!(CpuControl, ending)).load(Ordering::Acquire) == period
    }

    /// Whether the CPU has announced the end of an eager period of this number, now or for an earlier consumer, or has
    /// ended it.
    pub fn knows(&self, period: u32) -> bool {
        // ORDERING: the flush program has interrupted the CPU, or the period has not begun.
        [offset_of!(CpuControl, ending), offset_of!(CpuControl, ended)]
            .into_iter()
            .any(|at| self.page.field(self.at + at).load(Ordering::Acquire) == period)
    }

    /// The number of the block that is open, or 0.
    pub fn open(&self) -> u32 {
        // ORDERING: the number only decides whether a flush is worth while.
        self.page.field(self.at + offset_of!(CpuControl, open)).load(Ordering::Acquire)
    }

    /// How many records were lost because the ring had no room for them.
    pub fn lost_records(&self) -> u64 {
        // ORDERING: this is a count by itself.
        self.page.counter(self.at + offset_of!(CpuControl, lost_records)).load(Ordering::Relaxed)
    }

    /// How many times an output or a record failed for another reason.
    pub fn failures(&self) -> u64 {
        // ORDERING: what is read after a change was tallied before it.
        self.page.counter(self.at + offset_of!(CpuControl, failures)).load(Ordering::Acquire)
    }
}
