//! Finding many functions by their names, without looking at every type for each.

use super::{Btf, Kind, TypeId, word};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Functions, by what their names hash to: 12 bytes each.
#[derive(Default)]
pub(super) struct Index {
    functions: Vec<(u32, TypeId)>,
}

impl Index {
    /// Of a file's own functions.
    pub(super) fn new(btf: &Btf) -> Self {
        let functions = btf.own(Kind::Function);
        let mut functions: Vec<_> =
            functions.map(|(id, words)| (hash(btf.name(word(words, 0)).as_bytes()), id)).collect();
        functions.sort_unstable();
        Self { functions }
    }

    /// Those that may have a name, in the order of the file.
    pub(super) fn candidates(&self, name: &[u8]) -> impl Iterator<Item = TypeId> {
        let hash = hash(name);
        let first = self.functions.partition_point(|&(other, _)| other < hash);
        self.functions[first..]
            .iter()
            .take_while(move |(other, _)| *other == hash)
            .map(|&(_, id)| id)
    }
}

fn hash(name: &[u8]) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() as u32
}
