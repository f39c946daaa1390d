//! The kernel's messages about devices: `netlink(7)`, `NETLINK_KOBJECT_UEVENT`.

use super::call;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A socket that hears of devices that go online or offline.
#[derive(Debug)]
pub(crate) struct Uevents {
    socket: OwnedFd,
}

/// The kernel's own messages; those of udev are in group 2.
const KERNEL_GROUP: u32 = 1;

impl Uevents {
    /// Opens a socket for messages that begin with `onli` or `offl`: nobody is woken by others.
    pub(crate) fn of_online_devices() -> io::Result<Self> {
        // SAFETY: no pointers.
        let socket = call("socket", || unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                libc::NETLINK_KOBJECT_UEVENT,
            )
        })?;
        // SAFETY: the kernel has just opened it for us.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // Before it is bound, so that nothing else ever gets in.
        filter(socket.as_fd())?;
        // SAFETY: all zero is a valid address.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = KERNEL_GROUP;
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is as long as said.
        call("bind", || unsafe {
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len)
        })?;
        Ok(Self { socket })
    }

    /// Takes the next message of the kernel, up to as many bytes as there is room for. `None` if
    /// there is none.
    ///
    /// # Errors
    ///
    /// With `ENOBUFS` if messages were dropped.
    pub(crate) fn next<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        loop {
            // SAFETY: all zero is a valid address.
            let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
            let mut from_len = size_of_val(&from) as libc::socklen_t;
            // SAFETY: the buffer is writable for the length given, and so is the address.
            let received = call("recvfrom", || unsafe {
                libc::recvfrom(
                    self.socket.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut from_len,
                )
            });
            match received {
                // The kernel's own port is 0; nobody else can have it.
                Ok(len) if from.nl_pid == 0 => return Ok(buffer.get(..len as usize)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Uevents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Has the kernel drop every message that does not begin with one of the two words.
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
    // SAFETY: the program and its steps are as long as said; the kernel copies both.
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
