//! Distinguishing a process from its forked children, which do not have its mappings.

use crate::call;
use crate::memory::map;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of a process, which a forked child does not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

/// The number of this process. The kernel resets it to 0 in a child.
static NUMBER: OnceLock<Option<&AtomicU64>> = OnceLock::new();

/// The last number that was assigned, to this process or to an ancestor.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The calling process.
    pub fn this() -> Self {
        let Some(number) = NUMBER.get_or_init(|| wiped_on_fork().ok()) else { return Self(0) };
        // ORDERING: nothing else depends on the number.
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        match number.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Self(next),
            Err(given) => Self(given),
        }
    }

    /// Whether this is the calling process, and not an ancestor of it. Always true before Linux 4.14.
    #[inline]
    pub fn is_this(self) -> bool {
        // ORDERING: as above.
        NUMBER.get().copied().flatten().is_none_or(|it| it.load(Ordering::Relaxed) == self.0)
    }
}

/// Creates a number on a page of its own, which is 0 at first and in every child.
fn wiped_on_fork() -> io::Result<&'static AtomicU64> {
    const LEN: usize = size_of::<AtomicU64>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let page = map(LEN, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
    // SAFETY: the range is the mapping that was just made.
    call("madvise", || unsafe { libc::madvise(page.as_ptr().cast(), LEN, libc::MADV_WIPEONFORK) })?;
    // SAFETY: the page is aligned, long enough, and never unmapped; there is no other reference to it.
    Ok(unsafe { page.cast().as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disturb::in_child;

    #[test]
    fn a_child_is_another_process_and_so_is_its_child() {
        let this = Process::this();
        assert!(this.is_this() && Process::this() == this);
        let exit_code = in_child(|| {
            let was_this = this.is_this();
            let child = Process::this();
            let grandchild = in_child(|| u8::from(this.is_this() || child.is_this())).ok();
            u8::from(was_this || child == this || !child.is_this() || grandchild != Some(0))
        });
        assert_eq!(exit_code.unwrap(), 0);
        assert!(this.is_this());
    }
}
