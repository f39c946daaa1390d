//! Models of protocols. Each model tries every order of the protocol's steps.

mod model;
mod retiring;
mod waking;
