//! The functions behind the fuzz targets. Each takes arbitrary bytes and asserts what must hold for every
//! input. The tests of this module run the same functions on the corpora in the repository.
//!
//! Each function reuses its buffers from one input to the next, because allocating them would dominate its
//! run time.

mod block;
mod dispatch;
mod drain;
mod event;

pub use block::block;
pub use dispatch::dispatch;
pub use drain::drain;

#[cfg(test)]
mod tests {
    use super::*;
    use probe_testing::corpus::run;

    #[test]
    fn corpus_of_block() {
        run("block", block);
    }

    #[test]
    fn corpus_of_dispatch() {
        run("dispatch", dispatch);
    }

    #[test]
    fn corpus_of_drain() {
        run("drain", drain);
    }
}
