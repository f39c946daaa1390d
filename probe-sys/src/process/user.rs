//! `getpwnam_r(3)`.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;

/// Looks up the id of the user with this name, in every database that libc is configured to ask. `None` if there is no
/// such user.
pub fn user_id(name: &str) -> io::Result<Option<u32>> {
    /// No record of a user is longer than this.
    const LONGEST: usize = 1 << 20;
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut strings = vec![0u8; 1 << 10];
    loop {
        let mut user = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name is terminated; libc writes a user, at most as many bytes of strings as there is room for,
        // and a pointer.
        let errno = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                user.as_mut_ptr(),
                strings.as_mut_ptr().cast(),
                strings.len(),
                &raw mut found,
            )
        };
        match errno {
            0 if found.is_null() => return Ok(None),
            // SAFETY: libc has filled in the user that it found.
            0 => return Ok(Some(unsafe { user.assume_init() }.pw_uid)),
            // getpwnam_r(3) lists these for "the given name was not found".
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            libc::EINTR => {}
            libc::ERANGE if strings.len() < LONGEST => strings.resize(2 * strings.len(), 0),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(user_id("root").unwrap(), Some(0));
        assert_eq!(user_id("no-such-user").unwrap(), None);
        assert_eq!(user_id("ro\0ot").unwrap(), None);
    }
}
