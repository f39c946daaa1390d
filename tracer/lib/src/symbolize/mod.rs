//! Symbolization: names of functions for addresses in the kernel and in processes.

mod frame;
mod images;
pub(crate) mod sampled;
mod service;
pub(crate) mod stack;
pub(crate) mod stacks;

pub use frame::Frame;

use crate::kernel::symbols;
use crate::object::namespaces::PidNamespace;
use images::ElfFile;
use probe_tracer_common::trace::{COMM_LEN, Task};
use serde::{Deserialize, Serialize};
use service::Service;
use std::collections::HashMap;
use std::io;
use std::iter;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// The number of addresses that are remembered at a time.
const REMEMBERED: usize = 1 << 17;

/// Names for addresses, each looked up once.
///
/// A separate thread looks names up with [blazesym](https://docs.rs/blazesym). With [`SymbolAccess::Processes`], that
/// thread keeps those privileges of the calling thread that are needed to inspect other users' processes. Start
/// it before you [give up privileges](crate::session::privileges).
///
/// A process can be inspected only while it exists. If it ended before any of its addresses was looked up, its
/// addresses have no names.
#[derive(Debug, Default)]
pub struct Symbols {
    source: Source,
    known: HashMap<(Space, Address), Arc<[Frame]>>,
    /// Symbols looked up since the last call of [`Symbols::learnt`], if they are kept.
    learnt: Option<Vec<Learnt>>,
    /// Whether to warn that the kernel hides its addresses, once a name is missing.
    warns: bool,
}

/// Where names come from.
#[derive(Debug, Default)]
enum Source {
    #[default]
    Nowhere,
    Service(Service),
    /// Received from a recording. All of them are remembered.
    Channel(Receiver<Learnt>),
}

/// What addresses refer to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Space {
    Kernel,
    Process(Owner),
    /// Offsets in this file, in bytes.
    File(Arc<ElfFile>),
}

/// An address, and whether it is a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Address {
    at: u64,
    /// Whether a call returns there. The next instruction may be in another function than the call.
    is_return: bool,
}

/// A process that runs one program. After an exec it usually has another name and other mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    comm: [u8; COMM_LEN],
}

/// Names of addresses in the kernel or in a process, for storing them in a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Learnt {
    process: Option<Owner>,
    /// An address without known functions has no frames.
    names: Vec<(Address, Arc<[Frame]>)>,
}

/// Which addresses can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SymbolAccess {
    /// Those of the kernel, and of processes that can be inspected without privileges.
    Kernel,
    /// Also those of all other processes, with `CAP_SYS_PTRACE`, `CAP_DAC_READ_SEARCH` and
    /// `CAP_CHECKPOINT_RESTORE` as far as they are available.
    Processes,
}

impl Symbols {
    /// No names: every address remains a number.
    pub fn none() -> Self {
        Self::default()
    }

    /// Starts the thread and reads the kernel's symbol table (`/proc/kallsyms`).
    ///
    /// # Errors
    ///
    /// If the thread cannot be created, or if names of processes are wanted and `/proc` shows those of another PID
    /// namespace.
    pub fn start(access: SymbolAccess) -> io::Result<Self> {
        if access == SymbolAccess::Processes {
            PidNamespace::own().map_err(io::Error::other)?;
        }
        let warns = symbols::are_hidden();
        Ok(Self { source: Source::Service(Service::start(access)?), warns, ..Self::default() })
    }

    /// The functions at a kernel address; empty if they are unknown.
    pub fn of_kernel(&mut self, address: u64) -> Arc<[Frame]> {
        self.of_kernel_stack(&[address]).pop().unwrap_or_default()
    }

    /// The functions at each address of a kernel stack, the innermost first; empty for an address without known
    /// functions.
    pub fn of_kernel_stack(&mut self, addresses: &[u64]) -> Vec<Arc<[Frame]>> {
        self.look_up(&Space::Kernel, None, stack(addresses))
    }

    /// The functions at each address of a process's stack, like [`of_kernel_stack`](Self::of_kernel_stack).
    pub fn of_process_stack(&mut self, task: &Task, addresses: &[u64]) -> Vec<Arc<[Frame]>> {
        let owner = Owner { pid: task.pid, comm: task.comm };
        self.look_up(&Space::Process(owner), Some(task.tid), stack(addresses))
    }

    /// The functions at an offset in a file, in bytes.
    pub(crate) fn of_file(
        &mut self,
        file: &Arc<ElfFile>,
        at: u64,
        is_return: bool,
    ) -> Arc<[Frame]> {
        let address = iter::once(Address { at, is_return });
        let space = Space::File(Arc::clone(file));
        self.look_up(&space, None, address).pop().unwrap_or_default()
    }

    /// Keeps all symbols looked up from now on for [`learnt`](Self::learnt).
    pub(crate) fn noting(mut self) -> Self {
        self.learnt = Some(Vec::new());
        self
    }

    /// Takes the symbols looked up since the last call.
    pub(crate) fn learnt(&mut self) -> Vec<Learnt> {
        self.learnt.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Symbols that are sent by the caller, and the sender. Nothing is looked up.
    pub(crate) fn channel() -> (Sender<Learnt>, Self) {
        let (sender, receiver) = mpsc::channel();
        (sender, Self { source: Source::Channel(receiver), ..Self::default() })
    }

    /// The functions at each address, which may be in the stack of a thread.
    fn look_up(
        &mut self,
        space: &Space,
        tid: Option<u32>,
        addresses: impl Iterator<Item = Address> + Clone,
    ) -> Vec<Arc<[Frame]>> {
        let Self { source, known, learnt, warns } = self;
        let key = |address| (space.clone(), address);
        match source {
            Source::Nowhere => {}
            Source::Channel(receiver) => {
                for Learnt { process, names } in receiver.try_iter() {
                    let space = process.map_or(Space::Kernel, Space::Process);
                    known.extend(names.into_iter().map(|(at, name)| ((space.clone(), at), name)));
                }
            }
            Source::Service(service) => {
                if known.len() > REMEMBERED {
                    known.clear();
                }
                let is_unknown = |address: &Address| !known.contains_key(&key(*address));
                let unknown: Vec<_> = addresses.clone().filter(is_unknown).collect();
                if !unknown.is_empty()
                    && let Some(found) = service.look_up(space, tid, &unknown)
                {
                    if *warns && *space == Space::Kernel && found.iter().any(|one| one.is_empty()) {
                        *warns = false;
                        log::warn!(
                            "addresses in the kernel have no names, because kernel.kptr_restrict hides them: {}",
                            symbols::TO_SEE
                        );
                    }
                    let names = unknown.into_iter().zip(found);
                    // A recording has no names of files.
                    if let Some(learnt) = learnt
                        && !matches!(space, Space::File(_))
                    {
                        let process = match space {
                            Space::Process(owner) => Some(*owner),
                            _ => None,
                        };
                        learnt.push(Learnt { process, names: names.clone().collect() });
                    }
                    known.extend(names.map(|(address, frames)| (key(address), frames)));
                }
            }
        }
        addresses.map(|address| known.get(&key(address)).cloned().unwrap_or_default()).collect()
    }
}

/// The addresses of a stack: the innermost one is in the running function, the others are return addresses.
fn stack(addresses: &[u64]) -> impl Iterator<Item = Address> + Clone {
    addresses.iter().enumerate().map(|(n, &at)| Address { at, is_return: n > 0 })
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
        let mut symbols = Symbols::start(SymbolAccess::Processes).unwrap();
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
    fn unknown_addresses_have_no_frames() {
        let mut symbols = Symbols::none();
        assert!(symbols.of_kernel(u64::MAX).is_empty());
        assert!(symbols.of_process_stack(&this_process(), &[1])[0].is_empty());
        let ended = Task { pid: u32::MAX >> 1, ..this_process() };
        let mut symbols = Symbols::start(SymbolAccess::Processes).unwrap();
        assert!(symbols.of_process_stack(&ended, &[1])[0].is_empty());
    }

    #[test]
    fn symbols_can_be_sent_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<Symbols>();
    }
}
