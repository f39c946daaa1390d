//! Names that were looked up, for others.

use super::{Address, Frame, Owner};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Names of addresses: of the kernel, or of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::trace) struct Learnt {
    pub(super) process: Option<Owner>,
    /// None for an address of which nobody knew.
    pub(super) names: Vec<(Address, Arc<[Frame]>)>,
}
