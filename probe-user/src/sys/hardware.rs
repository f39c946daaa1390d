//! Counters of the CPU that user space reads by itself: one instruction each, and no system call.

/// The counter that `index` is the CPU's name of: `rdpmc` on x86-64, `PMEVCNTR<n>_EL0` or `PMCCNTR_EL0` on
/// aarch64. `None` where this is not known how to do.
///
/// The bits past the counter's width mean nothing. A CPU that does not allow it raises SIGSEGV; it does
/// allow it as long as a page of the process says `cap_user_rdpmc`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn counter(index: u32) -> Option<u64> {
    let (low, high): (u32, u32);
    // SAFETY: it writes the two registers, and nothing else; as it may touch memory for all that the
    // compiler knows, it stays between the loads of the lock around it.
    unsafe {
        std::arch::asm!("rdpmc", in("ecx") index, out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    Some(u64::from(high) << 32 | u64::from(low))
}

/// See above: there, the number of a counter is a part of the instruction.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn counter(index: u32) -> Option<u64> {
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
            // SAFETY: it writes the register, and nothing else; the barrier has it read here, and not
            // before.
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

/// The CPU's clock, in its own ticks: the time stamp counter on x86-64, `CNTVCT_EL0` on aarch64. `None`
/// where this is not known how to do.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> Option<u64> {
    let (low, high): (u32, u32);
    // SAFETY: it writes the two registers, and nothing else; the fence has it read here, and not before.
    unsafe {
        std::arch::asm!("lfence", "rdtsc", out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    Some(u64::from(high) << 32 | u64::from(low))
}

/// See above.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn ticks() -> Option<u64> {
    let value: u64;
    // SAFETY: it writes the register, and nothing else; the barrier has it read here, and not before.
    unsafe {
        std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) value,
            options(nostack, preserves_flags));
    }
    Some(value)
}

/// See above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn counter(_: u32) -> Option<u64> {
    None
}

/// See above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn ticks() -> Option<u64> {
    None
}
