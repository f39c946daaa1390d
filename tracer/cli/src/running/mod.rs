//! What a running command of the tracer needs: its end, triggers of dumps, and privileges.

pub(crate) mod ending;
pub(crate) mod flight;
pub(crate) mod follow;
pub(crate) mod privileges;
pub(crate) mod signals;
