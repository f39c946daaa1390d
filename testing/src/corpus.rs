//! Checked-in inputs of the fuzz targets.

use std::fs;
use std::path::Path;

/// Runs a target over each input of its corpus, and over every prefix of it.
pub fn run(name: &str, target: fn(&[u8])) {
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
