//! Names that are known.

use super::{Address, Frame, Owner};
use crate::binary::FileVersion;
use crate::binary::root::RootId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// Roughly how many bytes the names take that are remembered at a time. Users choose how long their names are.
const ROOM: usize = 16 << 20;

/// Roughly what a name takes beside its frames.
const OF_NAME: usize = 200;

/// Roughly what a process or file takes beside its names and its path.
const OF_SPACE: usize = 400;

/// What addresses refer to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Space {
    Kernel,
    Process(Owner),
    /// Offsets in one version of a file, in bytes. Names contain its path, and may come from files in a root directory, so this has
    /// them, too.
    Contents(FileVersion, PathBuf, Option<RootId>),
}

impl Space {
    /// The approximate size of its place, in bytes, without its names.
    fn size(&self) -> usize {
        OF_SPACE
            + match self {
                Self::Kernel | Self::Process(_) => 0,
                Self::Contents(_, path, _) => path.as_os_str().len(),
            }
    }
}

/// The functions at an address.
#[derive(Debug)]
struct Name {
    frames: Arc<[Frame]>,
    /// When none were found first, and when it is looked up again, if there are none.
    missing: u64,
    until: u64,
}

/// When addresses that had no functions at a time are looked up again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub(super) now: u64,
    /// The least time until then. Later, it is as long as there have been no functions: there may be many such addresses.
    pub(super) pause: u64,
}

impl Retry {
    pub(super) const NEVER: Self = Self { now: 0, pause: u64::MAX };

    pub(super) fn until(self, missing: u64) -> u64 {
        self.now.saturating_add(self.pause.max(self.now.saturating_sub(missing)))
    }
}

/// Names by their addresses and the times since which they have belonged to these.
type ByTime = BTreeMap<(Address, u64), Name>;

/// Names by address and time. Only in a process may an address get another name.
#[derive(Debug, Default)]
pub(super) struct Known {
    names: HashMap<Space, ByTime>,
    /// How many bytes they take.
    taken: usize,
}

impl Known {
    /// The names in a space.
    pub(super) fn of(&self, space: &Space) -> SpaceNames<'_> {
        SpaceNames(self.names.get(space))
    }

    /// Adds the functions at an address for good, even if there are none.
    pub(super) fn insert(
        &mut self,
        space: &Space,
        address: Address,
        since: u64,
        frames: Arc<[Frame]>,
    ) {
        self.insert_until(space, address, since, frames, Retry::NEVER);
    }

    /// Adds the functions at an address. That there are none is believed for a while only. Returns whether that is new.
    pub(super) fn insert_until(
        &mut self,
        space: &Space,
        address: Address,
        since: u64,
        frames: Arc<[Frame]>,
        retry: Retry,
    ) -> bool {
        self.taken += size(&frames);
        let names = match self.names.get_mut(space) {
            Some(names) => names,
            None => {
                self.taken += space.size();
                self.names.entry(space.clone()).or_default()
            }
        };
        let name = |frames, missing| Name { frames, missing, until: retry.until(missing) };
        match names.entry((address, since)) {
            Entry::Occupied(mut place) => {
                let missing = place.get().missing;
                let previous = place.insert(name(frames, missing));
                self.taken -= size(&previous.frames);
                previous.frames != place.get().frames
            }
            Entry::Vacant(place) => {
                place.insert(name(frames, retry.now));
                true
            }
        }
    }

    /// Forgets everything if it takes too much memory. What is forgotten is looked up again.
    pub(super) fn shrink(&mut self) {
        if self.taken > ROOM {
            *self = Self::default();
        }
    }
}

/// The names in a space.
#[derive(Clone, Copy)]
pub(super) struct SpaceNames<'k>(Option<&'k ByTime>);

impl<'k> SpaceNames<'k> {
    /// The functions at an address at a time, and since when it has belonged to them.
    pub(super) fn at(self, address: Address, time: u64) -> Option<(u64, &'k Arc<[Frame]>)> {
        self.last(address, time).map(|(since, name)| (since, &name.frames))
    }

    /// The functions at an address that has belonged to them since exactly this time.
    pub(super) fn since(self, address: Address, since: u64) -> Option<&'k Arc<[Frame]>> {
        self.exactly(address, since).map(|name| &name.frames)
    }

    /// Whether an address needs no look-up now: it has belonged to known functions since exactly this time, or it was just
    /// looked up.
    pub(super) fn is_known(self, address: Address, since: u64, now: u64) -> bool {
        let name = self.exactly(address, since);
        name.is_some_and(|name| !name.frames.is_empty() || now < name.until)
    }

    fn last(self, address: Address, time: u64) -> Option<(u64, &'k Name)> {
        let (&(_, since), name) = self.0?.range((address, 0)..=(address, time)).next_back()?;
        Some((since, name))
    }

    fn exactly(self, address: Address, since: u64) -> Option<&'k Name> {
        self.0?.get(&(address, since))
    }
}

/// Roughly how many bytes a name takes.
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
    fn an_address_without_functions_is_looked_up_again_after_a_while() {
        let mut known = Known::default();
        let (space, address) = (Space::Kernel, Address { at: 1, is_return: false });
        let frame = Frame { name: "f".into(), offset: Some(0), module: None, source: None };
        // At each look-up: the time, the number of functions, whether that is new, and until when it is believed.
        let states =
            [(0, 0, true, 5), (5, 0, false, 10), (10, 0, false, 20), (20, 1, true, u64::MAX)];
        for (now, functions, expected, until) in states {
            let frames: Arc<[_]> = vec![frame.clone(); functions].into();
            let is_new = known.insert_until(&space, address, 5, frames, Retry { now, pause: 5 });
            assert_eq!(is_new, expected);
            let is_known = |now| known.of(&space).is_known(address, 5, now);
            assert!(is_known(until - 1) && is_known(until) == (functions > 0));
            assert!(!known.of(&space).is_known(address, 6, now));
        }
    }

    /// From a file, in any order.
    #[test]
    fn names_of_an_address_may_come_in_any_order() {
        let mut known = Known::default();
        let (space, address) = (Space::Kernel, Address { at: 1, is_return: false });
        for since in (1..=200_000).rev() {
            known.insert(&space, address, since, Arc::default());
        }
        let since = |time| known.of(&space).at(address, time).map(|(since, _)| since);
        assert_eq!([0, 1, 777, u64::MAX].map(since), [None, Some(1), Some(777), Some(200_000)]);
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
            most = most.max(known.names.get(&Space::Kernel).map_or(0, BTreeMap::len));
        }
        assert!((1000..5000).contains(&most), "{most}");
    }
}
