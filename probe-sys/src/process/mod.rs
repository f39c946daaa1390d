//! Processes: which one this is, children that wait before they execute, signals that wait, and users.

mod fork;
mod held_child;
mod signals;
mod user;

pub use fork::Process;
pub use held_child::HeldChild;
pub use signals::DeferredSignals;
pub use user::user_id;
