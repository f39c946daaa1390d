//! The namespaces of this process, as far as they concern a trace.

use crate::error::{Result, TraceError};
use probe_sys::clock;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

// `PROC_PID_INIT_INO` and `PROC_USER_INIT_INO` in `include/linux/proc_ns.h`.
const INITIAL_PID: u64 = 0xEFFF_FFFC;
const INITIAL_USER: u64 = 0xEFFF_FFFD;

/// A PID namespace, as eBPF programs identify it (`bpf_get_ns_current_pid_tgid` in bpf-helpers(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PidNamespace {
    /// Its inode, or 0 if it is the initial one.
    pub(crate) inode: u64,
    /// The kernel's number of the device of all namespaces.
    pub(crate) device: u64,
}

/// A process, as eBPF programs recognise it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessId {
    /// Its id in its own namespace.
    pub(crate) pid: u32,
    pub(crate) namespace: PidNamespace,
}

impl PidNamespace {
    pub(crate) fn is_initial(self) -> bool {
        self.inode == 0
    }

    /// The namespace of this process. Checks that `/proc` shows the same one, because whatever else the
    /// tracer reads there would be about other processes.
    pub(crate) fn own() -> Result<Self> {
        let shown = fs::read_link("/proc/self").map_err(TraceError::NoProc)?;
        match shown == Path::new(&std::process::id().to_string()) {
            true => of("self").map_err(TraceError::NoProc),
            false => Err(TraceError::ForeignProc),
        }
    }

    /// How programs recognise the process of this id, which is one of this namespace.
    pub(crate) fn process(self, pid: u32) -> Result<ProcessId> {
        let failed = |source| TraceError::ProcessNamespace { pid, source };
        let status = match fs::read_to_string(format!("/proc/{pid}/status")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(TraceError::NoProcess(pid));
            }
            status => status.map_err(failed)?,
        };
        match number_in(&status, "Tgid:") {
            Some(process) if process != pid => {
                return Err(TraceError::AThread { tid: pid, process });
            }
            _ => {}
        }
        if self.is_initial() {
            // Programs see the ids of this namespace.
            return Ok(ProcessId { pid, namespace: self });
        }
        let namespace = of(&pid.to_string()).map_err(failed)?;
        let innermost = innermost_id(&status).ok_or(TraceError::NoProcess(pid))?;
        Ok(ProcessId { pid: innermost, namespace })
    }

    /// Checks that programs see the id of this process or thread, which is one of this namespace. They do not see the ids of
    /// nested namespaces, for which `nested` is the error.
    pub(crate) fn check(self, id: u32, nested: fn(u32) -> TraceError) -> Result<()> {
        if self.is_initial() {
            return Ok(());
        }
        match of(&id.to_string()) {
            Ok(namespace) if namespace == self => Ok(()),
            Ok(_) => Err(nested(id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(TraceError::NoProcess(id)),
            Err(source) => Err(TraceError::ProcessNamespace { pid: id, source }),
        }
    }
}

/// The namespace of the process or thread of this name in `/proc`.
fn of(task: &str) -> io::Result<PidNamespace> {
    let metadata = match fs::metadata(format!("/proc/{task}/ns/pid")) {
        // A kernel without PID namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound && task == "self" => {
            return Ok(PidNamespace::default());
        }
        metadata => metadata?,
    };
    let inode = if metadata.ino() == INITIAL_PID { 0 } else { metadata.ino() };
    Ok(PidNamespace { inode, device: kernel_device(metadata.dev()) })
}

/// The kernel's own number of a device, whose minor number has 20 bits.
fn kernel_device(device: u64) -> u64 {
    (u64::from(libc::major(device)) << 20) | u64::from(libc::minor(device))
}

/// The last id in the line `NSpid` of `/proc/PID/status`.
pub(crate) fn innermost_id(status: &str) -> Option<u32> {
    number_in(status, "NSpid:")
}

/// The process of a thread.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    number_in(&fs::read_to_string(format!("/proc/{tid}/status")).ok()?, "Tgid:")
}

/// The last number in a line of `/proc/PID/status`.
fn number_in(status: &str, line: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|one| one.strip_prefix(line))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Checks that a command would start in the namespaces of this process.
pub(crate) fn check_for_children() -> Result<()> {
    let inode = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).ok().map(|it| it.ino());
    match inode("pid_for_children") {
        Some(of_children) if inode("pid") != Some(of_children) => Err(TraceError::ForeignChildren),
        // Before the first child, the file exists but has no target.
        None if fs::symlink_metadata("/proc/self/ns/pid_for_children").is_ok() => {
            Err(TraceError::ForeignChildren)
        }
        _ => Ok(()),
    }
}

/// Checks that this process has the clock of records, or knows the difference.
pub(crate) fn check_clock() -> Result<()> {
    clock::namespace_offset().map(drop).ok_or(TraceError::ForeignClock)
}

/// Checks that capabilities of this process count: those of other user namespances allow no tracing.
pub(crate) fn check_user() -> Result<()> {
    match fs::metadata("/proc/self/ns/user") {
        Ok(metadata) if metadata.ino() != INITIAL_USER => Err(TraceError::ForeignUser),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_id_is_the_last_one() {
        assert_eq!(innermost_id("Name:\tsh\nNSpid:\t4711\t12\t1\nNSpgid:\t1\n"), Some(1));
        assert_eq!(innermost_id("NSpid:\t4711\n"), Some(4711));
        assert_eq!(innermost_id("NSpid:\n"), None);
        assert_eq!(innermost_id("Pid:\t5\n"), None);
    }

    #[test]
    fn devices_are_numbered_as_the_kernel_numbers_them() {
        assert_eq!(kernel_device(libc::makedev(0, 4)), 4);
        assert_eq!(kernel_device(libc::makedev(0, 0x1_2345)), 0x1_2345);
        assert_eq!(kernel_device(libc::makedev(259, 3)), (259 << 20) | 3);
    }

    #[test]
    fn this_process_is_in_its_own_namespace() {
        let own = PidNamespace::own().unwrap();
        let this = std::process::id();
        assert!(own.check(this, TraceError::NestedThread).is_ok());
        assert_eq!(own.process(this).unwrap(), ProcessId { pid: this, namespace: own });
        assert!(matches!(own.process(0), Err(TraceError::NoProcess(0))));
        assert!(check_for_children().is_ok() && check_clock().is_ok());
    }
}
