//! CPUs that come and go, as the kernel tells of them.

use crate::cpus;
use crate::sys::uevent::Uevents;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Hears of CPUs that come and go.
#[derive(Debug)]
pub(crate) struct CpuWatch {
    uevents: Uevents,
}

/// Gets something ready for CPUs that come, beside their queues.
pub(crate) trait Prepare: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// A CPU is online, perhaps again, and what it emits is given to somebody in a moment.
    fn prepare(&mut self, cpu: u32);
}

/// What it has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A CPU is online, perhaps again.
    Online(u32),
    /// A CPU is offline.
    Offline(u32),
    /// More than could be kept: every CPU may have come or gone, and come back.
    Missed,
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// CPUs that are offline.
    pub(crate) gone: Vec<u32>,
    /// CPUs that are online, perhaps again.
    pub(crate) come: Vec<u32>,
}

impl Notice {
    /// What it says has changed, where `known` are the CPUs that were online.
    pub(crate) fn changes(self, known: impl Iterator<Item = u32>) -> Changes {
        match self {
            Self::Online(cpu) => Changes { gone: Vec::new(), come: vec![cpu] },
            Self::Offline(cpu) => Changes { gone: vec![cpu], come: Vec::new() },
            // Without a list, nothing is known to have changed.
            Self::Missed => cpus::online().map_or_else(
                |_| Changes::default(),
                |online| Changes {
                    gone: known.filter(|cpu| !online.contains(cpu)).collect(),
                    come: online,
                },
            ),
        }
    }
}

impl CpuWatch {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { uevents: Uevents::of_online_devices()? })
    }

    /// The next thing to know, if there is one.
    pub(crate) fn next(&self) -> Option<Notice> {
        // The first string of a message is all that is wanted of it.
        let mut buffer = [0; 256];
        loop {
            match self.uevents.next(&mut buffer) {
                Ok(Some(message)) => {
                    if let Some(notice) = read(message) {
                        return Some(notice);
                    }
                }
                Ok(None) => return None,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Some(Notice::Missed);
                }
                // The socket has no other errors.
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for CpuWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.uevents.as_fd()
    }
}

/// Reads a message: `ACTION@/devices/system/cpu/cpuN`, and strings that say the same in other words.
pub(crate) fn read(message: &[u8]) -> Option<Notice> {
    let first = message.split(|&byte| byte == 0).next()?;
    let (action, device) = std::str::from_utf8(first).ok()?.split_once('@')?;
    let cpu = device.strip_prefix("/devices/system/cpu/cpu")?.parse().ok()?;
    match action {
        "online" => Some(Notice::Online(cpu)),
        "offline" => Some(Notice::Offline(cpu)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_gap_every_cpu_may_have_changed() {
        let known = || [0, 4000].into_iter();
        let changes = |gone: &[u32], come: &[u32]| Changes { gone: gone.into(), come: come.into() };
        assert_eq!(Notice::Online(3).changes(known()), changes(&[], &[3]));
        assert_eq!(Notice::Offline(3).changes(known()), changes(&[3], &[]));
        assert_eq!(Notice::Missed.changes(known()), changes(&[4000], &cpus::online().unwrap()));
    }

    #[test]
    fn messages_about_cpus_are_read() {
        let message = b"online@/devices/system/cpu/cpu12\0ACTION=online\0SEQNUM=1\0";
        assert_eq!(read(message), Some(Notice::Online(12)));
        assert_eq!(read(b"offline@/devices/system/cpu/cpu1"), Some(Notice::Offline(1)));
        for other in [
            &b"online@/devices/system/memory/memory12\0"[..],
            b"add@/devices/system/cpu/cpu1\0",
            b"online@/devices/system/cpu/cpu\0",
            b"online@/devices/system/cpu/cpu1/x\0",
            b"online@/devices/system/cpu/cpu-1\0",
            b"\xffonline@/devices/system/cpu/cpu1\0",
            b"",
        ] {
            assert_eq!(read(other), None);
        }
    }
}
