//! Running `probe` as nobody.

use std::process::Command;

/// Numbers of capabilities: `include/uapi/linux/capability.h`.
pub const DAC_READ_SEARCH: u32 = 2;
pub const KILL: u32 = 5;
pub const IPC_LOCK: u32 = 14;
pub const SYS_PTRACE: u32 = 19;
pub const SYS_ADMIN: u32 = 21;
pub const PERFMON: u32 = 38;
pub const BPF: u32 = 39;
pub const CHECKPOINT_RESTORE: u32 = 40;

/// Whether this kernel counts maps against `RLIMIT_MEMLOCK`.
pub fn maps_are_locked_memory() -> bool {
    super::version::kernel() < (5, 11)
}

/// `probe` as nobody, with these capabilities and no other; where maps are locked memory, with so
/// many bytes of it.
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

/// `probe` as nobody, with the two capabilities that it needs.
pub fn with_two_capabilities(memlock: u64, args: &[&str]) -> Command {
    with_capabilities(&[PERFMON, BPF], memlock, args)
}

/// Room for the maps, and not for large rings.
pub const MEMLOCK: u64 = 32 << 20;

/// The sysctl `kernel.perf_event_paranoid`, changed for as long as it lives.
///
/// At 3, which is a patch of Debian's, perf events are root's alone.
pub struct NotParanoid {
    before: String,
}

impl NotParanoid {
    const SYSCTL: &str = "/proc/sys/kernel/perf_event_paranoid";

    /// At most 2.
    pub fn ensure() -> Self {
        let before = std::fs::read_to_string(Self::SYSCTL).unwrap();
        if before.trim().parse::<i32>().unwrap() > 2 {
            std::fs::write(Self::SYSCTL, "2").unwrap();
        }
        Self { before }
    }

    /// The contrary: 3.
    pub fn not_at_all() -> Self {
        Self::set("3")
    }

    /// 2, as it is by default: memory that is locked is counted.
    pub fn by_default() -> Self {
        Self::set("2")
    }

    /// -1, at which perf events are everybody's.
    pub fn of_all() -> Self {
        Self::set("-1")
    }

    fn set(value: &str) -> Self {
        let this = Self::ensure();
        std::fs::write(Self::SYSCTL, value).unwrap();
        this
    }
}

impl Drop for NotParanoid {
    fn drop(&mut self) {
        std::fs::write(Self::SYSCTL, &self.before).unwrap();
    }
}
