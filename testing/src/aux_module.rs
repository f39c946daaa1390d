//! The test PMUs of the module in `testing/aux_module`. `probe_aux` writes known bytes to its AUX
//! area. `probe_narrow_0` and `probe_narrow_1` each have room for one event at a time, which counts
//! time.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// Why a test is skipped without the module.
pub const MISSING: &str = "there is no module of PMUs for this kernel";

/// Whether this kernel has the module; `cargo xtask test` builds it where it can.
pub fn is_loaded() -> bool {
    static IS_LOADED: LazyLock<bool> = LazyLock::new(|| {
        let Some(module) = std::env::var_os("PROBE_AUX_MODULE") else { return false };
        if !Path::new("/sys/bus/event_source/devices/probe_aux").exists() {
            let status = Command::new("insmod").arg(module).status().unwrap();
            assert!(status.success());
        }
        true
    });
    *IS_LOADED
}

/// The bytes written to an AUX area, starting at offset `from`.
pub fn pattern(from: u64) -> impl Iterator<Item = u8> {
    (from..).map(|at| (at ^ at >> 8) as u8)
}
