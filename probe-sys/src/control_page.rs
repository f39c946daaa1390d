//! The control page of the pipe: one entry per CPU, which eBPF programs and their consumer share.

use crate::memory::Mapping;
use probe_common::control::{CONTROL_CPUS, CpuControl};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The mapped control page: the values of a memory-mappable array of [`CpuControl`].
#[derive(Debug)]
pub struct ControlPage {
    mapping: Mapping,
}

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

    /// Sets the number of the consumer's current sleep; 0 if it is awake.
    pub fn set_asleep(&self, sleep: u32) {
        // ORDERING: the flag takes effect when the flush program runs afterwards, which interrupts the CPU.
        let flag = self.page.field(self.at + offset_of!(CpuControl, asleep));
        flag.store(sleep, Ordering::SeqCst);
    }

    /// Whether the CPU has ended the sleep of this number.
    pub fn has_ended(&self, sleep: u32) -> bool {
        // ORDERING: the CPU that ended the sleep has woken us through the ring, which orders the rest.
        self.page.field(self.at + offset_of!(CpuControl, woken)).load(Ordering::Acquire) == sleep
    }

    /// The number of the block that is open, or 0.
    pub fn open(&self) -> u32 {
        // ORDERING: the number only decides whether a flush is worth while.
        self.page.field(self.at + offset_of!(CpuControl, open)).load(Ordering::Acquire)
    }
}
