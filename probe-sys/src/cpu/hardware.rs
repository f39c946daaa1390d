//! Registers of the CPU that user space reads with one instruction and without a system call.

/// Reads the hardware counter with this index: `rdpmc` on x86-64, `PMEVCNTR<n>_EL0` or `PMCCNTR_EL0` on aarch64. `None`
/// on other architectures.
///
/// The bits beyond the counter's width have no meaning. The process receives SIGSEGV if the CPU does not allow the read;
/// it is allowed while a mapped page of the process has `cap_user_rdpmc`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn counter(index: u32) -> Option<u64> {
    let (low, high): (u32, u32);
    // SAFETY: it writes the two registers and nothing else. The compiler must assume that it accesses memory, so it
    // stays between the loads of the lock around it.
    unsafe {
        std::arch::asm!("rdpmc", in("ecx") index, out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    Some(u64::from(high) << 32 | u64::from(low))
}

/// See above. On aarch64, the index is a part of the instruction.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn counter(index: u32) -> Option<u64> {
    macro_rules! counters {
        ($($number:literal)*) => {
            match index {
                $($number => register!(concat!("pmevcntr", $number, "_el0")),)*
                31 => register!("pmccntr_el0"),
                _ => return None,
            }
        };
    }
    macro_rules! register {
        ($name:expr) => {{
            let value: u64;
            // SAFETY: it writes the register and nothing else. The barrier keeps the read from happening earlier.
            unsafe {
                std::arch::asm!("isb", concat!("mrs {}, ", $name), out(reg) value,
                    options(nostack, preserves_flags));
            }
            value
        }};
    }
    Some(
        counters!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30),
    )
}

/// Reads the CPU's clock, in ticks: the time stamp counter on x86-64, `CNTVCT_EL0` on aarch64. `None` on other
/// architectures.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks() -> Option<u64> {
    let (low, high): (u32, u32);
    // SAFETY: it writes the two registers and nothing else. The fence keeps the read from happening earlier.
    unsafe {
        std::arch::asm!("lfence", "rdtsc", out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    Some(u64::from(high) << 32 | u64::from(low))
}

/// See above.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn ticks() -> Option<u64> {
    let value: u64;
    // SAFETY: it writes the register and nothing else. The barrier keeps the read from happening earlier.
    unsafe {
        std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) value,
            options(nostack, preserves_flags));
    }
    Some(value)
}

/// See above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn counter(_: u32) -> Option<u64> {
    None
}

/// See above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn ticks() -> Option<u64> {
    None
}
