//! Whether privileges are kept.

/// Whether `probe` keeps the privileges that it may still need.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Seal {
    /// Give up every privilege before the first event is read, except to signal a command, and what standard error names.
    /// Events of CPUs that come online later are lost; counts and latencies have them
    #[arg(long = "sealed")]
    pub(crate) is_sealed: bool,
}
