//! Addresses of the network.

use probe_sys::escape::Quoted;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

/// An IP address of 4 or 16 bytes.
pub(super) fn ip(bytes: &[u8]) -> Option<String> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(bytes).to_string());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string())
}

/// A `struct sockaddr`, of which more may follow.
pub(super) fn socket(bytes: &[u8]) -> Option<String> {
    let (family, rest) = bytes.split_first_chunk()?;
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_UNSPEC => Some("AF_UNSPEC".to_owned()),
        libc::AF_INET => {
            let (port, rest) = port(rest)?;
            let address = Ipv4Addr::from(*rest.first_chunk::<4>()?);
            Some(SocketAddrV4::new(address, port).to_string())
        }
        libc::AF_INET6 => {
            let (port, rest) = port(rest)?;
            let (_flow, rest) = rest.split_first_chunk::<4>()?;
            let (address, rest) = rest.split_first_chunk::<16>()?;
            let scope = u32::from_ne_bytes(*rest.first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(*address), port, 0, scope).to_string())
        }
        libc::AF_UNIX => Some(unix(rest)),
        _ => None,
    }
}

fn port(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (port, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*port), rest))
}

/// A path, which ends at the first zero byte; or `@` and the name of an abstract socket, in which zero bytes are bytes like
/// others. Those at its end are left out, because they may only fill the structure.
fn unix(bytes: &[u8]) -> String {
    match bytes {
        [0, name @ ..] => {
            let length = name.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            format!("@{}", Quoted(&name[..length]))
        }
        path => {
            let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
            Quoted(path).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_usual() {
        let family = |family: i32, rest: &[u8]| [&(family as u16).to_ne_bytes(), rest].concat();
        let mut inet6 = vec![0, 80, 0, 0, 0, 0];
        inet6.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        inet6.extend_from_slice(&[0; 4]);
        for (bytes, shown) in [
            (family(libc::AF_INET, &[0, 80, 127, 0, 0, 1, 0, 0]), Some("127.0.0.1:80")),
            (family(libc::AF_INET6, &inet6), Some("[::1]:80")),
            (family(libc::AF_UNIX, b"/a\x1b\0zz"), Some("\"/a\\u{1b}\"")),
            (family(libc::AF_UNIX, b"/abc"), Some("\"/abc\"")),
            (family(libc::AF_UNIX, b"@abc"), Some("\"@abc\"")),
            (family(libc::AF_UNIX, b"\0abc\0"), Some("@\"abc\"")),
            (family(libc::AF_UNIX, b"\0a\0b\xff\n"), Some("@\"a\\u{0}b\\xff\\n\"")),
            (family(libc::AF_UNIX, b"\0"), Some("@\"\"")),
            (family(libc::AF_UNSPEC, &[]), Some("AF_UNSPEC")),
            (family(libc::AF_INET, &[0, 80, 127]), None),
            (family(libc::AF_NETLINK, &[0; 16]), None),
            (vec![1], None),
        ] {
            assert_eq!(socket(&bytes).as_deref(), shown, "{bytes:?}");
        }
        assert_eq!(ip(&[10, 0, 0, 1]).as_deref(), Some("10.0.0.1"));
        assert_eq!(ip(&Ipv6Addr::LOCALHOST.octets()).as_deref(), Some("::1"));
        assert_eq!(ip(&[1, 2, 3]), None);
    }
}
