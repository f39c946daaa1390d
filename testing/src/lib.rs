//! Helpers shared by the kernel tests of several crates.

pub mod aux_module;
pub mod cgroup;
pub mod corpus;
pub mod cpu;
pub mod crafted;
pub mod left;
pub mod pattern;
pub mod set_on_drop;
pub mod shell;
pub mod skip;
pub mod switches;
pub mod version;
