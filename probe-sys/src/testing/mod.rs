//! What tests of this crate and of the crates above it share.

#[cfg(any(test, feature = "testing"))]
pub mod disturb;
#[doc(hidden)]
pub mod input;
