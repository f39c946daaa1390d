//! What the fuzz targets run: arbitrary bytes go in, and what has to be true of every input is
//! asserted. The tests of this module run the same functions over the corpora that are checked in.
//!
//! Each function keeps what it needs from one input to the next: to allocate would take longer than
//! all the rest.

mod block;
#[cfg(feature = "trace")]
mod btf;
mod cpu_list;
mod dispatch;
mod drain;
mod event;
mod input;
#[cfg(feature = "perf")]
mod perf_record;
#[cfg(feature = "trace")]
mod recording;
#[cfg(feature = "trace")]
mod spec;

pub use block::block;
#[cfg(feature = "trace")]
pub use btf::btf;
pub use cpu_list::cpu_list;
pub use dispatch::dispatch;
pub use drain::drain;
#[cfg(feature = "perf")]
pub use perf_record::perf_record;
#[cfg(feature = "trace")]
pub use recording::recording;
#[cfg(feature = "trace")]
pub use spec::spec;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// Runs a target over its corpus, and over every beginning of what is in there.
    fn run(name: &str, target: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
        let mut count = 0;
        for entry in fs::read_dir(&corpus).expect("the corpus is checked in") {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            for end in 0..=bytes.len() {
                let result = std::panic::catch_unwind(|| target(&bytes[..end]));
                assert!(result.is_ok(), "the first {end} bytes of {}", path.display());
            }
            count += 1;
        }
        assert!(count >= 12, "{count} inputs in {} are not all", corpus.display());
    }

    #[test]
    fn corpus_of_block() {
        run("block", block);
    }

    #[cfg(feature = "trace")]
    #[test]
    fn corpus_of_btf() {
        run("btf", btf);
    }

    #[test]
    fn corpus_of_cpu_list() {
        run("cpu_list", cpu_list);
    }

    #[test]
    fn corpus_of_dispatch() {
        run("dispatch", dispatch);
    }

    #[test]
    fn corpus_of_drain() {
        run("drain", drain);
    }

    #[cfg(feature = "perf")]
    #[test]
    fn corpus_of_perf_record() {
        run("perf_record", perf_record);
    }

    #[cfg(feature = "trace")]
    #[test]
    fn corpus_of_recording() {
        run("recording", recording);
    }

    #[cfg(feature = "trace")]
    #[test]
    fn corpus_of_spec() {
        run("spec", spec);
    }
}
