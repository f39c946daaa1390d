//! Packets with descriptors, between two processes.

use super::message::{FILES, LARGEST};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// One end of a connection on which packets of limited size arrive whole.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// Both ends of a new connection.
    pub(super) fn pair() -> io::Result<[Self; 2]> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (one, other) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok([Self(one), Self(other)])
    }

    pub(super) fn send(
        &self,
        message: &impl Serialize,
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > LARGEST || files.len() > FILES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(files));
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next packet, and the descriptors that come with it.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<(T, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let message = self.receive_into(&mut ancillary)?;
        let rights = ancillary.drain().filter_map(|one| match one {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files = rights.flatten().collect();
        Ok((message, files))
    }

    /// The next packet, before a time. The kernel closes descriptors that come with it.
    pub(super) fn receive_until<T: DeserializeOwned>(&self, deadline: Instant) -> io::Result<T> {
        self.limit(Timeout::Recv, deadline)?;
        self.receive_into(&mut RecvAncillaryBuffer::default())
    }

    /// The next packet, before a time, and the descriptors that come with it. Only for a trusted sender.
    pub(super) fn receive_files_until<T: DeserializeOwned>(
        &self,
        deadline: Instant,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        self.limit(Timeout::Recv, deadline)?;
        self.receive()
    }

    /// Sends before a time.
    pub(super) fn send_until(
        &self,
        message: &impl Serialize,
        files: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> io::Result<()> {
        self.limit(Timeout::Send, deadline)?;
        self.send(message, files)
    }

    fn limit(&self, which: Timeout, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Zero, to which shorter times are rounded, would mean that there is no limit.
        Ok(set_socket_timeout(&self.0, which, Some(left.max(Duration::from_millis(1))))?)
    }

    fn receive_into<T: DeserializeOwned>(
        &self,
        ancillary: &mut RecvAncillaryBuffer<'_>,
    ) -> io::Result<T> {
        let mut bytes = vec![0; LARGEST];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = rustix::io::retry_on_intr(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], ancillary, flags)
        })?;
        match received.bytes {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            len => Ok(serde_json::from_slice(&bytes[..len])?),
        }
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn packets_arrive_whole_with_their_files_or_not_at_all() {
        let [one, other] = Channel::pair().unwrap();
        let file = File::open("/proc/self/comm").unwrap();
        one.send(&"text", &[file.as_fd(), file.as_fd()]).unwrap();
        let (text, files) = other.receive::<String>().unwrap();
        assert_eq!((text.as_str(), files.len()), ("text", 2));
        let mut read = String::new();
        File::from(files.into_iter().next().unwrap()).read_to_string(&mut read).unwrap();
        assert!(!read.is_empty());
        assert!(one.send(&"x".repeat(LARGEST), &[]).is_err());
        // A packet of another type, and none.
        one.send(&7, &[file.as_fd()]).unwrap();
        let receive =
            |time| other.receive_until::<String>(Instant::now() + time).unwrap_err().kind();
        assert_eq!(receive(Duration::from_secs(60)), io::ErrorKind::InvalidData);
        assert_eq!(receive(Duration::from_millis(10)), io::ErrorKind::WouldBlock);
        drop(one);
        assert_eq!(other.receive::<u8>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
