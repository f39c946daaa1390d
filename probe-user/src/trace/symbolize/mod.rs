//! Names for addresses: of the kernel's functions, and of those of processes.

mod elf_file;
mod frame;
mod learnt;
mod service;

pub(super) use elf_file::ElfFile;
pub use frame::Frame;
pub(super) use learnt::Learnt;

use probe_common::trace::{COMM_LEN, Task};
use serde::{Deserialize, Serialize};
use service::Service;
use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::iter;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// So many addresses of processes are remembered at a time.
const REMEMBERED: usize = 1 << 16;

/// Names for addresses, each looked up once.
///
/// Looking up is done by a thread of its own, with [blazesym](https://docs.rs/blazesym), which keeps of the
/// privileges of this one what it takes to look into other users' processes, and only if that is wanted. So
/// begin before you [give yours up](crate::trace::privileges).
///
/// A process can be looked into while it exists: the addresses of one have no names that has ended before
/// any of its addresses was looked up.
#[derive(Debug, Default)]
pub struct Symbols {
    source: Source,
    kernel: HashMap<Address, Arc<[Frame]>>,
    processes: HashMap<(Owner, Address), Arc<[Frame]>>,
    files: HashMap<(Arc<ElfFile>, Address), Arc<[Frame]>>,
    /// What was looked up since somebody asked, if anybody does.
    learnt: Option<Vec<Learnt>>,
}

/// Where names come from.
#[derive(Debug, Default)]
enum Source {
    #[default]
    Nowhere,
    Service(Service),
    /// From somebody else, who has looked them up: they are remembered, all of them.
    Told(Receiver<Learnt>),
}

/// An address, and what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Address {
    at: u64,
    /// Whether a call returns there, which may be in another function than the call.
    is_return: bool,
}

/// A process. What it executes later is of another name, as a rule, and lies elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    comm: [u8; COMM_LEN],
}

/// Whose addresses have to be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whose {
    /// The kernel's, and those of processes that can be looked into without privileges.
    Kernel,
    /// Those of all processes, too: by `CAP_SYS_PTRACE`, `CAP_DAC_READ_SEARCH` and
    /// `CAP_CHECKPOINT_RESTORE`, as far as they are there.
    Processes,
}

impl Symbols {
    /// Without names: addresses stay what they are.
    pub fn none() -> Self {
        Self::default()
    }

    /// Begins, and reads the kernel's symbol table (`/proc/kallsyms`).
    ///
    /// # Errors
    ///
    /// If there can be no thread.
    pub fn start(whose: Whose) -> io::Result<Self> {
        Ok(Self { source: Source::Service(Service::start(whose)?), ..Self::default() })
    }

    /// The function of the kernel that an address is in; none, if nobody knows.
    pub fn of_kernel(&mut self, address: u64) -> Arc<[Frame]> {
        self.of_kernel_stack(&[address]).pop().unwrap_or_default()
    }

    /// The functions that a stack of the kernel has, address by address, the innermost first: none for an
    /// address of which nobody knows.
    pub fn of_kernel_stack(&mut self, addresses: &[u64]) -> Vec<Arc<[Frame]>> {
        self.listen();
        let Self { source, kernel, learnt, .. } = self;
        learn(kernel, stack(addresses), |unknown| {
            let found = source.service()?.of_kernel(unknown)?;
            note(learnt, None, unknown, &found);
            Some(found)
        })
    }

    /// The same of a process's stack.
    pub fn of_process_stack(&mut self, task: &Task, addresses: &[u64]) -> Vec<Arc<[Frame]>> {
        self.listen();
        let Self { source, processes, learnt, .. } = self;
        if processes.len() > REMEMBERED && source.service().is_some() {
            processes.clear();
        }
        let owner = Owner { pid: task.pid, comm: task.comm };
        learn(processes, stack(addresses).map(|address| (owner, address)), |unknown| {
            let unknown = unknown.iter().map(|(_, address)| *address).collect::<Vec<_>>();
            let found = source.service()?.of_process(owner, &unknown)?;
            note(learnt, Some(owner), &unknown, &found);
            Some(found)
        })
    }

    /// The functions that code in a file belongs to, which is at this place in it, in bytes.
    pub(super) fn of_file(
        &mut self,
        file: &Arc<ElfFile>,
        at: u64,
        is_return: bool,
    ) -> Arc<[Frame]> {
        let Self { source, files, .. } = self;
        if files.len() > REMEMBERED {
            files.clear();
        }
        let key = (Arc::clone(file), Address { at, is_return });
        let found = learn(files, iter::once(key), |unknown| {
            let addresses: Vec<Address> = unknown.iter().map(|(_, address)| *address).collect();
            source.service()?.of_file(file, &addresses)
        });
        found.into_iter().next().unwrap_or_default()
    }

    /// Keeps what is looked up from now on for [`learnt`](Self::learnt).
    pub(super) fn noting(mut self) -> Self {
        self.learnt = Some(Vec::new());
        self
    }

    /// What was looked up since this was asked.
    pub(super) fn learnt(&mut self) -> Vec<Learnt> {
        self.learnt.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Names that are told, and who tells them. Nothing is looked up.
    pub(super) fn told() -> (Sender<Learnt>, Self) {
        let (teller, told) = mpsc::channel();
        (teller, Self { source: Source::Told(told), ..Self::default() })
    }

    /// Takes what was told meanwhile.
    fn listen(&mut self) {
        let Source::Told(told) = &self.source else { return };
        for Learnt { process, names } in told.try_iter() {
            for (address, frames) in names {
                match process {
                    None => drop(self.kernel.insert(address, frames)),
                    Some(owner) => drop(self.processes.insert((owner, address), frames)),
                }
            }
        }
    }
}

impl Source {
    fn service(&self) -> Option<&Service> {
        match self {
            Self::Service(service) => Some(service),
            _ => None,
        }
    }
}

fn note(
    learnt: &mut Option<Vec<Learnt>>,
    process: Option<Owner>,
    addresses: &[Address],
    found: &[Arc<[Frame]>],
) {
    if let Some(learnt) = learnt {
        let names = addresses.iter().copied().zip(found.iter().cloned()).collect();
        learnt.push(Learnt { process, names });
    }
}

/// What a stack has: where the innermost function is, and where the others are returned to.
fn stack(addresses: &[u64]) -> impl Iterator<Item = Address> + Clone {
    addresses.iter().enumerate().map(|(n, &at)| Address { at, is_return: n > 0 })
}

/// What is known of each of `keys`, once `look_up` was asked for those of which nothing is.
fn learn<K: Clone + Eq + Hash>(
    known: &mut HashMap<K, Arc<[Frame]>>,
    keys: impl Iterator<Item = K> + Clone,
    look_up: impl FnOnce(&[K]) -> Option<Vec<Arc<[Frame]>>>,
) -> Vec<Arc<[Frame]>> {
    let unknown: Vec<K> = keys.clone().filter(|key| !known.contains_key(key)).collect();
    if !unknown.is_empty()
        && let Some(found) = look_up(&unknown)
    {
        known.extend(unknown.into_iter().zip(found));
    }
    keys.map(|key| known.get(&key).cloned().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    extern "C" fn here() -> u64 {
        std::hint::black_box(7)
    }

    fn this_process() -> Task {
        Task { pid: std::process::id(), tid: std::process::id(), comm: [0; COMM_LEN] }
    }

    #[test]
    fn a_function_of_this_process_has_its_name() {
        let mut symbols = Symbols::start(Whose::Processes).unwrap();
        assert_eq!(here(), 7);
        let begin = here as extern "C" fn() -> u64 as usize as u64;
        let frames = symbols.of_process_stack(&this_process(), &[begin, begin + 3, 8]);
        let outer: Vec<_> = frames.iter().filter_map(|one| one.last()).collect();
        assert_eq!(outer.len(), 2, "{frames:?}");
        for (frame, offset) in outer.into_iter().zip([0, 3]) {
            assert!(frame.name.contains("here"), "{frame}");
            assert_eq!(frame.offset, Some(offset), "{frame}");
            let executable = std::env::current_exe().unwrap();
            assert!(frame.source.is_some() || frame.module.as_deref() == executable.to_str());
        }
    }

    #[test]
    fn without_names_addresses_stay_what_they_are() {
        let mut symbols = Symbols::none();
        assert!(symbols.of_kernel(u64::MAX).is_empty());
        assert!(symbols.of_process_stack(&this_process(), &[1])[0].is_empty());
        let gone = Task { pid: u32::MAX >> 1, ..this_process() };
        let mut symbols = Symbols::start(Whose::Processes).unwrap();
        assert!(symbols.of_process_stack(&gone, &[1])[0].is_empty());
    }

    #[test]
    fn the_names_can_be_sent_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<Symbols>();
    }
}
