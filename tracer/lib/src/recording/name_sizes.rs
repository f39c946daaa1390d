//! The sizes of names in a recording.
//!
//! A name stands in the file once, and in the output of every event that has its address in a stack, perhaps a thousand
//! times. Long names make a small file a large output, so they are not used.

use crate::resolve::names::LONGEST;
use serde::Deserialize;
use serde::de::IgnoredAny;

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
    /// Whether a compiler could have made the names, for each address.
    pub(super) fn are_usual(&self) -> impl Iterator<Item = bool> {
        self.names.iter().map(|(_, frames)| {
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

    fn are_usual(addresses: &[&[(&str, Option<&str>)]]) -> Vec<bool> {
        let frame = |(name, module): &(&str, Option<&str>)| serde_json::json!({"name": name, "offset": 1, "module": module, "source": null});
        let names = addresses.iter().map(|frames| {
            let frames: Vec<_> = frames.iter().map(frame).collect();
            serde_json::json!([{"at": 1}, frames])
        });
        let names: Vec<_> = names.collect();
        let learnt = serde_json::json!({"process": null, "since": 0, "names": names});
        serde_json::from_value::<NameSizes>(learnt).unwrap().are_usual().collect()
    }

    #[test]
    fn long_names_and_many_of_them_are_not_usual() {
        let long = "x".repeat(LONGEST);
        let usual = are_usual(&[
            &[("f", Some("/usr/bin/a"))],
            &[(&long, None)],
            &[(&long, Some("a"))],
            &[("f", None); DEEPEST],
            &[("f", None); DEEPEST + 1],
        ]);
        assert_eq!(usual, [true, true, false, true, false]);
    }
}
