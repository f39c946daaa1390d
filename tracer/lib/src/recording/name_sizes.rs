//! The sizes of names in a recording.
//!
//! A name stands in the file once, and in the output of every event that has its address in a stack, perhaps a thousand
//! times. Long names make a small file a large output, so they are not used.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The longest names of one address, in bytes. Compilers make names of some kilobytes.
const LONGEST: usize = 32 << 10;

/// The largest number of functions at one address: one, and those that are inlined there.
const DEEPEST: usize = 256;

/// The sizes of the names that were learnt together.
#[derive(Debug, Deserialize)]
pub(super) struct NameSizes {
    names: Vec<(IgnoredAny, Vec<FrameSize>)>,
}

#[derive(Debug, Deserialize)]
struct FrameSize {
    name: String,
    module: Option<String>,
    source: Option<(String, IgnoredAny)>,
}

impl NameSizes {
    /// Whether a compiler could have made the names.
    pub(super) fn are_usual(&self) -> bool {
        self.names.iter().all(|(_, frames)| {
            let sizes = frames.iter().map(FrameSize::bytes);
            frames.len() <= DEEPEST && sizes.sum::<usize>() <= LONGEST
        })
    }
}

impl FrameSize {
    fn bytes(&self) -> usize {
        let module = self.module.as_ref().map_or(0, String::len);
        let source = self.source.as_ref().map_or(0, |(file, _)| file.len());
        self.name.len() + module + source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(frames: &[(&str, Option<&str>)]) -> NameSizes {
        let frame = |(name, module): &(&str, Option<&str>)| serde_json::json!({"name": name, "offset": 1, "module": module, "source": null});
        let frames: Vec<_> = frames.iter().map(frame).collect();
        let learnt =
            serde_json::json!({"process": null, "since": 0, "names": [[{"at": 1}, frames]]});
        serde_json::from_value(learnt).unwrap()
    }

    #[test]
    fn long_names_and_many_of_them_are_not_usual() {
        let long = "x".repeat(LONGEST);
        assert!(sizes(&[("f", Some("/usr/bin/a"))]).are_usual());
        assert!(sizes(&[(&long, None)]).are_usual());
        assert!(!sizes(&[(&long, Some("a"))]).are_usual());
        assert!(sizes(&[("f", None); DEEPEST]).are_usual());
        assert!(!sizes(&[("f", None); DEEPEST + 1]).are_usual());
    }
}
