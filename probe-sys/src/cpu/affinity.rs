//! `sched_setaffinity(2)`, `sched_getaffinity(2)`.
//!
//! These use libc: rustix's CPU sets end at CPU 1023, and its `sched_getaffinity` does not return the size of the
//! kernel's sets.

use crate::call;
use std::io;

/// Binds the calling thread to a CPU.
pub fn stay_on(cpu: u32) -> io::Result<()> {
    let (word, bit) = (cpu / u64::BITS, cpu % u64::BITS);
    let mut set = vec![0u64; word as usize + 1];
    set[word as usize] = 1 << bit;
    // SAFETY: the kernel reads the set, whose size is given; 0 is the calling thread.
    call("sched_setaffinity", || unsafe {
        libc::sched_setaffinity(0, size_of_val(&*set), set.as_ptr().cast())
    })
    .map(drop)
}

/// An upper bound for the number of CPUs: the size of the kernel's own CPU sets, rounded up to a multiple of 64. Unlike
/// the files in sysfs, a container cannot change it.
pub fn upper_bound() -> io::Result<usize> {
    let mut set = vec![0u64; 16];
    loop {
        // SAFETY: the kernel writes at most as many bytes as the set has; 0 is the calling thread.
        let written = call("sched_getaffinity", || unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&*set), set.as_mut_ptr())
        });
        match written {
            Ok(bytes) => return Ok(bytes as usize * 8),
            // The set is smaller than the kernel's.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && set.len() < 1 << 20 => {
                set.resize(2 * set.len(), 0);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus;

    #[test]
    fn no_cpu_is_beyond_the_upper_bound() {
        let highest = cpus::possible().unwrap().pop().unwrap() as usize;
        assert!((highest + 1..highest + 8192).contains(&upper_bound().unwrap()));
    }

    #[test]
    fn a_thread_stays_on_its_cpu() {
        std::thread::spawn(|| {
            for cpu in cpus::online().unwrap() {
                stay_on(cpu).unwrap();
                assert_eq!(rustix::thread::sched_getcpu(), cpu as usize);
            }
            assert_eq!(stay_on(8191).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        })
        .join()
        .unwrap();
    }
}
