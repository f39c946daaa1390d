//! Processes: which one this is, children that wait before they execute, processes
//! that keep descriptors, name files or inherit none, functions of linked libraries, signals that wait, and users.

mod fork;
mod held_child;
mod keeper;
mod linked;
mod lone;
mod namer;
mod signals;
mod user;

pub use fork::Process;
pub use held_child::HeldChild;
pub use keeper::Keeper;
pub use linked::linked_function;
pub use lone::{fork_alone, spawn_alone};
pub use namer::{Namer, Unnamed};
pub use signals::DeferredSignals;
pub use user::{Identity, User};
