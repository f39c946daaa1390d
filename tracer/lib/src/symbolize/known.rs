//! Names that are known.

use super::{Address, Frame, Owner};
use crate::binary::FileVersion;
use crate::symbolize::images::ElfFile;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How many bytes the names take that are remembered at a time, about. Users choose how long their names are.
const ROOM: usize = 16 << 20;

/// What a name takes beside its frames, about.
const OF_NAME: usize = 200;

/// What a process or file takes beside its names and its path, about.
const OF_SPACE: usize = 400;

/// What addresses refer to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Space {
    Kernel,
    Process(Owner),
    /// Offsets in this file, in bytes.
    File(Arc<ElfFile>),
    /// Offsets in one version of a file, in bytes. Names contain its path, so this does, too.
    Contents(FileVersion, PathBuf),
}

impl Space {
    /// The approximate size of its place, in bytes, without its names.
    fn size(&self) -> usize {
        OF_SPACE
            + match self {
                Self::Kernel | Self::Process(_) => 0,
                Self::File(file) => file.path.as_os_str().len(),
                Self::Contents(_, path) => path.as_os_str().len(),
            }
    }
}

/// The functions at an address, and since when it has belonged to them, by time.
type ByTime = Vec<(u64, Arc<[Frame]>)>;

/// Names by address and time. Only in a process may an address get another name.
#[derive(Debug, Default)]
pub(super) struct Known {
    names: HashMap<Space, HashMap<Address, ByTime>>,
    /// How many bytes they take.
    taken: usize,
}

impl Known {
    /// The names in a space.
    pub(super) fn of(&self, space: &Space) -> SpaceNames<'_> {
        SpaceNames(self.names.get(space))
    }

    pub(super) fn insert(
        &mut self,
        space: &Space,
        address: Address,
        since: u64,
        frames: Arc<[Frame]>,
    ) {
        self.taken += size(&frames);
        let addresses = match self.names.get_mut(space) {
            Some(addresses) => addresses,
            None => {
                self.taken += space.size();
                self.names.entry(space.clone()).or_default()
            }
        };
        // Most addresses get only one name.
        let names = addresses.entry(address).or_insert_with(|| Vec::with_capacity(1));
        match names.binary_search_by_key(&since, |(at, _)| *at) {
            Ok(at) => {
                let previous = std::mem::replace(&mut names[at].1, frames);
                self.taken -= size(&previous);
            }
            Err(at) => names.insert(at, (since, frames)),
        }
    }

    /// Forgets everything if it is much. What is forgotten is looked up again.
    pub(super) fn shrink(&mut self) {
        if self.taken > ROOM {
            *self = Self::default();
        }
    }
}

/// The names in a space.
#[derive(Clone, Copy)]
pub(super) struct SpaceNames<'k>(Option<&'k HashMap<Address, ByTime>>);

impl<'k> SpaceNames<'k> {
    /// The functions at an address at a time, and since when it has belonged to them.
    pub(super) fn at(self, address: Address, time: u64) -> Option<(u64, &'k Arc<[Frame]>)> {
        let names = self.0?.get(&address)?;
        let (since, frames) = names[..names.partition_point(|(at, _)| *at <= time)].last()?;
        Some((*since, frames))
    }

    /// The functions at an address that has belonged to them since exactly this time.
    pub(super) fn since(self, address: Address, since: u64) -> Option<&'k Arc<[Frame]>> {
        self.at(address, since).filter(|(at, _)| *at == since).map(|(_, frames)| frames)
    }
}

/// How many bytes a name takes, about.
fn size(frames: &[Frame]) -> usize {
    let of_frame = |frame: &Frame| {
        let source = frame.source.as_ref().map_or(0, |(file, _)| file.len());
        size_of::<Frame>()
            + frame.name.len()
            + frame.module.as_ref().map_or(0, String::len)
            + source
    };
    OF_NAME + frames.iter().map(of_frame).sum::<usize>()
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
            known.insert(&space, address, since, name(new));
        }
        let at =
            |time| known.of(&space).at(address, time).map(|(_, frames)| frames[0].name.as_str());
        assert_eq!([9, 10, 19, 20].map(at), [None, Some("a"), Some("a"), Some("b")]);
        assert!(known.of(&space).since(address, 19).is_none());
        assert_eq!(known.of(&space).since(address, 20), Some(&name("b")));
        assert_eq!(known.taken, OF_SPACE + 2 * size(&name("a")));
    }

    #[test]
    fn long_names_are_not_kept_without_limit() {
        let mut known = Known::default();
        let name = "x".repeat(4096);
        let mut most = 0;
        for at in 0..20_000 {
            let frame = Frame { name: name.clone(), offset: Some(0), module: None, source: None };
            known.insert(&Space::Kernel, Address { at, is_return: false }, 0, [frame].into());
            known.shrink();
            most = most.max(known.names.get(&Space::Kernel).map_or(0, HashMap::len));
        }
        assert!((1000..5000).contains(&most), "{most}");
    }
}
