//! PMUs of our own, the module in `tests/aux_module`: one whose AUX area has bytes that are known (`probe_aux`),
//! and two with room for one event at a time, which counts time (`probe_narrow_0`, `probe_narrow_1`).

#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// Whether this kernel has it; `cargo xtask test` builds it where it can.
pub fn is_loaded() -> bool {
    static IS_LOADED: LazyLock<bool> = LazyLock::new(|| {
        let Some(module) = std::env::var_os("PROBE_AUX_MODULE") else {
            eprintln!("skipped: there is no module of PMUs for this kernel");
            return false;
        };
        if !Path::new("/sys/bus/event_source/devices/probe_aux").exists() {
            let status = Command::new("insmod").arg(module).status().unwrap();
            assert!(status.success());
        }
        true
    });
    *IS_LOADED
}

/// The bytes that are written into an area, from the `from`th on.
pub fn pattern(from: u64) -> impl Iterator<Item = u8> {
    (from..).map(|at| (at ^ at >> 8) as u8)
}
