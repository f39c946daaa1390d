//! CPUs that go online and offline, as the kernel reports them: `netlink(7)`, `NETLINK_KOBJECT_UEVENT`. It does not report
//! those that are offline while the machine is suspended, so this watches for that, too.

use crate::timer::Timer;
use crate::{attempt, call, clock, cpus};
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// The kernel's own messages; those of udev are in group 2.
const KERNEL_GROUP: u32 = 1;

/// Receives notices of CPUs that go online or offline.
#[derive(Debug)]
pub struct CpuWatch {
    socket: OwnedFd,
    clock: Timer,
    /// For how long the machine had been suspended at most when that was last looked at, in nanoseconds.
    suspended: i64,
}

/// Prepares something for each CPU that goes online, in addition to its queue.
pub trait Prepare: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// A CPU is online, perhaps again. Its records are handled after this returns.
    fn prepare(&mut self, cpu: u32);
}

/// What the kernel reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A CPU is online, perhaps again.
    Online(u32),
    /// A CPU is offline.
    Offline(u32),
    /// Notices were dropped, or the machine was suspended: any CPU may have gone online or offline, or both.
    Missed,
}

/// The CPUs that have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// CPUs that are offline.
    pub gone: Vec<u32>,
    /// CPUs that are online, perhaps again.
    pub come: Vec<u32>,
}

impl Notice {
    /// The changes, given the CPUs that were online before.
    pub fn changes(self, known: impl Iterator<Item = u32>) -> Changes {
        match self {
            Self::Online(cpu) => Changes { gone: Vec::new(), come: vec![cpu] },
            Self::Offline(cpu) => Changes { gone: vec![cpu], come: Vec::new() },
            // If the list cannot be read, no change is known.
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
    /// Starts watching all CPUs.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let open =
            || socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT));
        let socket = attempt("socket", open)?;
        // The filter comes before bind(), so that no other message is ever queued.
        filter(socket.as_fd())?;
        attempt("bind", || bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP)))?;
        let clock = Timer::of_clock_changes()?;
        let [_, suspended] = clock::suspended();
        Ok(Self { socket, clock, suspended })
    }

    /// The descriptors that are readable when there is a notice, or somebody has set the clock.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.clock.as_fd()]
    }

    /// Takes the next notice, if there is one.
    pub fn take(&mut self) -> Option<Notice> {
        if self.was_suspended() { Some(Notice::Missed) } else { self.next_message() }
    }

    /// Whether the machine has been suspended since the last call.
    fn was_suspended(&mut self) -> bool {
        // First, so that a later change makes it readable again.
        self.clock.take();
        let [least, most] = clock::suspended();
        let was_suspended = least > self.suspended;
        self.suspended = if was_suspended { most } else { most.min(self.suspended) };
        was_suspended
    }

    fn next_message(&self) -> Option<Notice> {
        // Only the first string of a message is needed.
        let mut buffer = [0; 256];
        // The kernel's port is 0, which no process can have.
        let is_kernel = |from| SocketAddrNetlink::try_from(from).is_ok_and(|from| from.pid() == 0);
        loop {
            let received =
                attempt("recvfrom", || recvfrom(&self.socket, &mut buffer, RecvFlags::empty()));
            match received {
                Ok((len, _, from)) => {
                    let message = buffer.get(..len).filter(|_| from.is_some_and(is_kernel));
                    if let Some(notice) = message.and_then(read) {
                        return Some(notice);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Some(Notice::Missed);
                }
                // There is no message. The socket has no other error.
                Err(_) => return None,
            }
        }
    }
}

/// Makes the kernel drop every message that begins with neither `onli` nor `offl`, so that it wakes nobody.
fn filter(socket: BorrowedFd<'_>) -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD, 0, 0, 0),
        step(JUMP_IF_EQUAL, 2, 0, u32::from_be_bytes(*b"onli")),
        step(JUMP_IF_EQUAL, 1, 0, u32::from_be_bytes(*b"offl")),
        step(RETURN, 0, 0, 0),
        step(RETURN, 0, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let len = size_of_val(&program) as libc::socklen_t;
    // SAFETY: the program and its steps have the lengths given; the kernel copies both.
    call("setsockopt", || unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            len,
        )
    })
    .map(drop)
}

/// Reads a message: `ACTION@/devices/system/cpu/cpuN`, and further strings that repeat this as variables.
pub fn read(message: &[u8]) -> Option<Notice> {
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
