//! Which process this is: what one has mapped, the children that it forks do not have.

use super::{attempt, call};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process, told from those that it forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

/// The number of this process: the kernel makes it 0 in a child.
static NUMBER: OnceLock<Option<&AtomicU64>> = OnceLock::new();

/// The last number that was given, to this process or to those that it comes from.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// This one.
    pub(crate) fn this() -> Self {
        let Some(number) = NUMBER.get_or_init(|| wiped_on_fork().ok()) else { return Self(0) };
        // ORDERING: nothing else hangs on the number.
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        match number.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Self(next),
            Err(given) => Self(given),
        }
    }

    /// Whether it is still this one, and not one that forked it. Before Linux 4.14, it always is.
    #[inline]
    pub(crate) fn is_this(self) -> bool {
        // ORDERING: as above.
        NUMBER.get().copied().flatten().is_none_or(|it| it.load(Ordering::Relaxed) == self.0)
    }
}

/// A number on a page of its own, which is 0 at first, and in every child.
fn wiped_on_fork() -> io::Result<&'static AtomicU64> {
    const LEN: usize = size_of::<AtomicU64>();
    let page = attempt("mmap", || {
        // SAFETY: the kernel chooses the address, so nothing of ours is mapped over.
        let page = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), LEN, protection, flags, -1, 0)
        };
        if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(page) }
    })?;
    // SAFETY: the range is the mapping that was just made.
    call("madvise", || unsafe { libc::madvise(page, LEN, libc::MADV_WIPEONFORK) })?;
    // SAFETY: the page is aligned, long enough, and never unmapped; there is no other reference to it.
    Ok(unsafe { &*page.cast::<AtomicU64>() })
}

#[cfg(all(test, feature = "aya"))]
mod tests {
    use super::*;
    use crate::sys::disturb::in_child;

    #[test]
    fn a_child_is_another_process_and_so_is_its_child() {
        let this = Process::this();
        assert!(this.is_this() && Process::this() == this);
        let tells_apart = in_child(|| {
            let was_this = this.is_this();
            let child = Process::this();
            let grandchild = in_child(|| u8::from(this.is_this() || child.is_this())).ok();
            u8::from(was_this || child == this || !child.is_this() || grandchild != Some(0))
        });
        assert_eq!(tells_apart.unwrap(), 0);
        assert!(this.is_this());
    }
}
