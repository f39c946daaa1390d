//! `sched_getattr(2)` and `sched_setattr(2)`.

use super::call;
use std::io;
use std::time::Duration;

/// The shortest that there is (`__setscheduler_params` in the kernel's `kernel/sched/syscalls.c`).
pub(crate) const SHORTEST: Duration = Duration::from_micros(100);

/// Asks for the CPU in turns of this length, from 6.12 on: who asks for shorter ones than who runs is let before it, once
/// it wakes. Threads that have another policy than `SCHED_OTHER` have no turns, and keep what they have.
pub(crate) fn set(slice: Duration) -> io::Result<()> {
    let mut attributes = get()?;
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_runtime = slice.as_nanos() as u64;
        // SAFETY: the kernel reads as many bytes as the attributes say they have; 0 is this thread.
        call("sched_setattr", || unsafe {
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0)
        })?;
    }
    Ok(())
}

fn get() -> io::Result<libc::sched_attr> {
    // SAFETY: integers, of which zeros are some.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attributes) as u32;
    // SAFETY: the kernel writes as many bytes as it is told; 0 is this thread.
    call("sched_getattr", || unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0)
    })?;
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_has_beside_its_slice() {
        std::thread::spawn(|| {
            let kept = || {
                let attributes = get().unwrap();
                (attributes.sched_policy, attributes.sched_nice, attributes.sched_flags)
            };
            rustix::process::nice(3).unwrap();
            let before = kept();
            set(SHORTEST).unwrap();
            assert_eq!(kept(), before);
            // Older kernels take no note of it.
            let slice = get().unwrap().sched_runtime;
            assert!([0, SHORTEST.as_nanos() as u64].contains(&slice), "{slice}");
        })
        .join()
        .unwrap();
    }
}
