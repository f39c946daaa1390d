//! Running `probe` as the user nobody, and where `/proc` shows less.

use std::process::Command;

/// Capability numbers from `include/uapi/linux/capability.h`.
pub const DAC_READ_SEARCH: u32 = 2;
pub const KILL: u32 = 5;
pub const SETGID: u32 = 6;
pub const SETUID: u32 = 7;
pub const IPC_LOCK: u32 = 14;
pub const SYS_PTRACE: u32 = 19;
pub const SYS_ADMIN: u32 = 21;
pub const SYSLOG: u32 = 34;
pub const PERFMON: u32 = 38;
pub const BPF: u32 = 39;
pub const CHECKPOINT_RESTORE: u32 = 40;

/// Whether this kernel counts maps against `RLIMIT_MEMLOCK`.
pub fn maps_are_locked_memory() -> bool {
    probe_testing::version::kernel() < (5, 11)
}

/// `probe` as nobody, with exactly these capabilities. `memlock` limits locked memory in bytes on
/// kernels that count maps against the limit.
pub fn with_capabilities(capabilities: &[u32], memlock: u64, args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    if maps_are_locked_memory() {
        command = Command::new("prlimit");
        command.args([&format!("--memlock={memlock}"), "setpriv"]);
    }
    let mut set = String::from("-all");
    for number in capabilities {
        set += &format!(",+cap_{number}");
    }
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([&format!("--inh-caps={set}"), &format!("--ambient-caps={set}")])
        .arg(format!("--bounding-set={set}"))
        .arg(super::copy_for_everybody())
        .args(args);
    command
}

/// `probe` as nobody, with the two capabilities that tracing needs.
pub fn with_two_capabilities(memlock: u64, args: &[&str]) -> Command {
    with_capabilities(&[PERFMON, BPF], memlock, args)
}

/// Enough for the maps, but not for large rings.
pub const MEMLOCK: u64 = 32 << 20;

/// Sets the sysctl `kernel.perf_event_paranoid` until this is dropped. At -1, all users can use perf
/// events. At 2, the default, locked memory is limited. At 3, which a Debian patch adds, only root
/// can use perf events.
pub struct Paranoid {
    before: String,
}

impl Paranoid {
    const SYSCTL: &str = "/proc/sys/kernel/perf_event_paranoid";

    pub fn set(value: i32) -> Self {
        let before = std::fs::read_to_string(Self::SYSCTL).unwrap();
        std::fs::write(Self::SYSCTL, value.to_string()).unwrap();
        Self { before }
    }

    /// Lowers the value to 2 if it is higher.
    pub fn at_most_2() -> Self {
        Self::set(Self::now().min(2))
    }

    /// The value.
    pub fn now() -> i32 {
        std::fs::read_to_string(Self::SYSCTL).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Paranoid {
    fn drop(&mut self) {
        std::fs::write(Self::SYSCTL, &self.before).unwrap();
    }
}

/// `probe` where `/proc` hides the processes of other users from those without privileges.
pub fn where_proc_hides<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let script = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(super::binary()).args(args);
    command
}
