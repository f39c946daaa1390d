//! Users: `getpwnam_r(3)` and its relatives, and the ids that a thread runs with.

use crate::attempt;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

/// A user of the system, as `passwd(5)` describes it.
#[derive(Clone, Debug)]
pub struct User {
    /// The id.
    pub id: u32,
    /// The id of the group that new processes of the user belong to.
    pub group: u32,
    /// The name.
    pub name: OsString,
    /// The home directory.
    pub home: OsString,
    /// The login shell.
    pub shell: OsString,
}

impl User {
    /// Looks up a user by name, in every database that libc is configured to ask. `None` if there is no such user.
    pub fn named(name: &str) -> io::Result<Option<Self>> {
        let Ok(name) = CString::new(name) else { return Ok(None) };
        // SAFETY: the name is terminated; the rest is as `found` promises.
        found(|user, strings, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), user, strings.as_mut_ptr(), strings.len(), found)
        })
    }

    /// Looks up a user by id, like [`named`](Self::named).
    pub fn numbered(id: u32) -> io::Result<Option<Self>> {
        // SAFETY: as `found` promises.
        found(|user, strings, found| unsafe {
            libc::getpwuid_r(id, user, strings.as_mut_ptr(), strings.len(), found)
        })
    }

    /// The ids that a process of the user has after a login: those of the user and of all its groups.
    pub fn identity(&self) -> io::Result<Identity> {
        /// A process has no more groups (`NGROUPS_MAX`).
        const MOST: usize = 1 << 16;
        let name = CString::new(self.name.as_bytes())?;
        let mut groups = vec![0; 64];
        loop {
            let mut number = groups.len() as libc::c_int;
            // SAFETY: the name is terminated, and libc writes at most `number` groups.
            let all = unsafe {
                libc::getgrouplist(name.as_ptr(), self.group, groups.as_mut_ptr(), &raw mut number)
            };
            if all >= 0 {
                groups.truncate(all as usize);
                let groups = groups.into_iter().map(Gid::from_raw).collect();
                return Ok(Identity { groups, ..Identity::new(self.id, self.group) });
            }
            if groups.len() >= MOST {
                return Err(io::Error::other("the user is in too many groups"));
            }
            groups.resize(2 * groups.len(), 0);
        }
    }
}

/// Ids that a thread can run with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl Identity {
    /// The ids of a user and of one group.
    pub fn new(user: u32, group: u32) -> Self {
        Self { user: Uid::from_raw(user), group: Gid::from_raw(group), groups: Vec::new() }
    }

    /// The user and the group that own nothing, on every Linux (`/proc/sys/kernel/overflowuid`).
    pub fn nobody() -> Self {
        Self::new(65534, 65534)
    }

    /// Gives the calling thread these ids, as real, effective and saved ids. It does not allocate.
    pub fn assume(&self) -> io::Result<()> {
        let Self { user, group, groups } = self;
        attempt("setgroups", || set_thread_groups(groups))?;
        attempt("setresgid", || set_thread_res_gid(*group, *group, *group))?;
        attempt("setresuid", || set_thread_res_uid(*user, *user, *user))
    }
}

/// Calls a function that looks up a user, with longer memory for strings until it is enough.
///
/// The function is passed memory for a user, which points into the memory for strings, and for a pointer to it, which is
/// null if there is no such user.
fn found(
    mut look_up: impl FnMut(
        *mut libc::passwd,
        &mut [libc::c_char],
        *mut *mut libc::passwd,
    ) -> libc::c_int,
) -> io::Result<Option<User>> {
    /// No record of a user is longer than this.
    const LONGEST: usize = 1 << 20;
    let mut strings = vec![0; 1 << 10];
    loop {
        let mut user = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        match look_up(user.as_mut_ptr(), &mut strings, &raw mut found) {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: libc has filled in the user that it found.
                let user = unsafe { user.assume_init() };
                let owned = |text| {
                    // SAFETY: the strings of a user are terminated, and live as long as `strings`.
                    let text = unsafe { CStr::from_ptr(text) };
                    OsStr::from_bytes(text.to_bytes()).to_owned()
                };
                return Ok(Some(User {
                    id: user.pw_uid,
                    group: user.pw_gid,
                    name: owned(user.pw_name),
                    home: owned(user.pw_dir),
                    shell: owned(user.pw_shell),
                }));
            }
            // getpwnam_r(3) lists these for "the given name or uid was not found".
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
    fn users_are_found_by_name_and_id() {
        let root = User::named("root").unwrap().unwrap();
        assert_eq!((root.id, root.group, &*root.name), (0, 0, OsStr::new("root")));
        assert_eq!(User::numbered(0).unwrap().unwrap().name, "root");
        assert!(root.identity().unwrap().groups.contains(&Gid::from_raw(0)));
        assert!(User::named("no-such-user").unwrap().is_none());
        assert!(User::named("ro\0ot").unwrap().is_none());
        assert!(User::numbered(u32::MAX - 1).unwrap().is_none());
    }
}
