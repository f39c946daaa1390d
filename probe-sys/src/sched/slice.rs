//! `sched_getattr(2)` and `sched_setattr(2)`.

use crate::call;
use std::io;
use std::time::Duration;

/// The shortest time slice (`__setscheduler_params` in the kernel's `kernel/sched/syscalls.c`).
pub const SHORTEST: Duration = Duration::from_micros(100);

/// Requests time slices of this length for the calling thread (6.12+). When it wakes, it preempts a thread with longer
/// slices. Threads with a policy other than `SCHED_OTHER` are left as they are.
pub fn set(slice: Duration) -> io::Result<()> {
    let mut attributes = get()?;
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_runtime = slice.as_nanos() as u64;
        // SAFETY: the kernel reads the attributes, which contain their size; 0 is the calling thread.
        call("sched_setattr", || unsafe {
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0)
        })?;
    }
    Ok(())
}

fn get() -> io::Result<libc::sched_attr> {
    // SAFETY: all fields are integers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attributes) as u32;
    // SAFETY: the kernel writes at most `size` bytes; 0 is the calling thread.
    call("sched_getattr", || unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0)
    })?;
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_other_attributes() {
        std::thread::spawn(|| {
            let kept = || {
                let attributes = get().unwrap();
                (attributes.sched_policy, attributes.sched_nice, attributes.sched_flags)
            };
            rustix::process::nice(3).unwrap();
            let before = kept();
            set(SHORTEST).unwrap();
            assert_eq!(kept(), before);
            // Older kernels ignore it.
            let slice = get().unwrap().sched_runtime;
            assert!([0, SHORTEST.as_nanos() as u64].contains(&slice), "{slice}");
        })
        .join()
        .unwrap();
    }
}
