//! `sched_setaffinity(2)`.

use super::call;
use std::io;

/// Keeps this thread on a CPU.
pub(crate) fn stay_on(cpu: u32) -> io::Result<()> {
    let (word, bit) = (cpu / u64::BITS, cpu % u64::BITS);
    let mut set = vec![0u64; word as usize + 1];
    set[word as usize] = 1 << bit;
    // SAFETY: the kernel reads as many bytes as it is told; 0 is this thread.
    call("sched_setaffinity", || unsafe {
        libc::sched_setaffinity(0, size_of_val(&*set), set.as_ptr().cast())
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus;

    #[test]
    fn a_thread_stays_on_a_cpu_that_there_is() {
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
