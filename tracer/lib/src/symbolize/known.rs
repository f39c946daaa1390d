//! Names that are known.

use super::{Address, Frame, Owner};
use crate::symbolize::images::ElfFile;
use std::collections::HashMap;
use std::sync::Arc;

/// The number of names that are remembered at a time.
const REMEMBERED: usize = 1 << 17;

/// What addresses refer to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Space {
    Kernel,
    Process(Owner),
    /// Offsets in this file, in bytes.
    File(Arc<ElfFile>),
}

/// The functions at an address, and since when it has belonged to them, by time.
type ByTime = Vec<(u64, Arc<[Frame]>)>;

/// Names by address and time. Only in a process may an address get another name.
#[derive(Debug, Default)]
pub(super) struct Known {
    names: HashMap<(Space, Address), ByTime>,
    number: usize,
}

impl Known {
    /// The functions at an address at a time, and since when it has belonged to them.
    pub(super) fn at(
        &self,
        space: &Space,
        address: Address,
        time: u64,
    ) -> Option<(u64, &Arc<[Frame]>)> {
        let names = self.names.get(&(space.clone(), address))?;
        let (since, frames) = names[..names.partition_point(|(at, _)| *at <= time)].last()?;
        Some((*since, frames))
    }

    /// The functions at an address that has belonged to them since exactly this time.
    pub(super) fn since(
        &self,
        space: &Space,
        address: Address,
        since: u64,
    ) -> Option<&Arc<[Frame]>> {
        self.at(space, address, since).filter(|(at, _)| *at == since).map(|(_, frames)| frames)
    }

    pub(super) fn insert(
        &mut self,
        space: Space,
        address: Address,
        since: u64,
        frames: Arc<[Frame]>,
    ) {
        let names = self.names.entry((space, address)).or_default();
        match names.binary_search_by_key(&since, |(at, _)| *at) {
            Ok(at) => names[at].1 = frames,
            Err(at) => {
                names.insert(at, (since, frames));
                self.number += 1;
            }
        }
    }

    /// Forgets everything if it is much.
    pub(super) fn shrink(&mut self) {
        if self.number > REMEMBERED {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_latest_name_of_a_time() {
        let mut known = Known::default();
        let address = Address { at: 1, is_return: false };
        let name = |name: &str| -> Arc<[Frame]> {
            let (name, offset, module, source) = (name.to_owned(), Some(0), None, None);
            Arc::new([Frame { name, offset, module, source }])
        };
        let space = Space::Process(Owner { pid: 1, comm: [0; 16] });
        for (since, new) in [(20, "b"), (10, "x"), (10, "a")] {
            known.insert(space.clone(), address, since, name(new));
        }
        let at = |time| known.at(&space, address, time).map(|(_, frames)| frames[0].name.as_str());
        assert_eq!([9, 10, 19, 20].map(at), [None, Some("a"), Some("a"), Some("b")]);
        assert!(known.since(&space, address, 19).is_none());
        assert_eq!(known.since(&space, address, 20), Some(&name("b")));
        assert_eq!(known.number, 2);
    }
}
