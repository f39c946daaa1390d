//! Whether privileges are kept.

/// Whether `probe` keeps the privileges that it may still need.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Seal {
    /// Give up every privilege before the first event is read, except the one to signal a command. Standard error names any
    /// other that is kept. CPUs that come online later are not covered, except by counts and latencies. Addresses of
    /// other users' processes have no names
    #[arg(long = "sealed")]
    pub(crate) is_sealed: bool,
}
