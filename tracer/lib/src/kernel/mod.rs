//! The running kernel: its functions, their types, its features, and the capabilities and the identity of this process.

pub(crate) mod btf;
pub(crate) mod capabilities;
pub(crate) mod clones;
pub(crate) mod compat_calls;
pub(crate) mod confinement;
pub(crate) mod deny;
pub(crate) mod features;
pub(crate) mod functions;
pub(crate) mod identity;
pub(crate) mod lockdown;
pub(crate) mod symbols;
pub(crate) mod types;
