//! The thread that looks names up.

use super::{Address, ElfFile, Frame, Owner, Whose};
use crate::trace::capabilities::Capabilities;
use crate::trace::privileges;
use blazesym::symbolize::cache::{self, Cache};
use blazesym::symbolize::evict::{self, Evict};
use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{Input, Sym, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// What is asked for: the addresses, and where they are.
struct Question {
    space: Space,
    addresses: Vec<Address>,
    answer: Sender<Answer>,
}

/// What has addresses.
enum Space {
    Kernel,
    Process(Owner),
    /// They are places in it, in bytes.
    File(Arc<ElfFile>),
}

/// For each address, the functions that it is in, from the innermost on.
type Answer = Vec<Arc<[Frame]>>;

/// So many processes are remembered at a time.
const PROCESSES: usize = 1024;

/// A thread that looks names up, until this is dropped.
#[derive(Debug)]
pub(super) struct Service {
    questions: Sender<Question>,
}

impl Service {
    /// Starts it, and waits until it has read the kernel's symbols and given up what it does not need.
    pub(super) fn start(whose: Whose) -> io::Result<Self> {
        let (questions, asked) = channel();
        let (begins, begun) = channel();
        let run = move || {
            let mut names = Names::new();
            // What is read once is there afterwards, whatever this thread may do then.
            names.of_kernel(&[Address { at: u64::MAX, is_return: false }]);
            let kept = match whose {
                Whose::Kernel => Capabilities::NONE,
                Whose::Processes => {
                    Capabilities::SYS_PTRACE
                        | Capabilities::DAC_READ_SEARCH
                        | Capabilities::CHECKPOINT_RESTORE
                }
            };
            if let Err(error) = privileges::keep_in_thread(kept) {
                log::warn!("the thread that looks symbols up keeps its privileges: {error}");
            }
            // Nobody waits if the other end is gone.
            let _ = begins.send(());
            names.answer(asked);
        };
        thread::Builder::new().name("symbols".into()).spawn(run)?;
        // It fails only if the thread has panicked, which it has told.
        let _ = begun.recv();
        Ok(Self { questions })
    }

    /// `None` without the thread.
    pub(super) fn of_kernel(&self, addresses: &[Address]) -> Option<Answer> {
        self.ask(Space::Kernel, addresses)
    }

    /// The same of a process.
    pub(super) fn of_process(&self, whose: Owner, addresses: &[Address]) -> Option<Answer> {
        self.ask(Space::Process(whose), addresses)
    }

    /// The same of places in a file.
    pub(super) fn of_file(&self, file: &Arc<ElfFile>, places: &[Address]) -> Option<Answer> {
        self.ask(Space::File(Arc::clone(file)), places)
    }

    fn ask(&self, space: Space, addresses: &[Address]) -> Option<Answer> {
        let (answer, answered) = channel();
        let question = Question { space, addresses: addresses.to_vec(), answer };
        self.questions.send(question).ok()?;
        answered.recv().ok()
    }
}

struct Names {
    symbolizer: Symbolizer,
    /// Processes of which it is remembered what they have mapped.
    remembered: HashMap<u32, Owner>,
}

impl Names {
    fn new() -> Self {
        // A file that is replaced has another inode, which is another file.
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
        Self { symbolizer, remembered: HashMap::new() }
    }

    fn answer(&mut self, asked: Receiver<Question>) {
        for Question { space, addresses, answer } in asked {
            let found = match space {
                Space::Kernel => self.of_kernel(&addresses),
                Space::Process(owner) => self.of_process(owner, &addresses),
                Space::File(file) => self.of_file(&file, &addresses),
            };
            // Nobody may wait for it any more.
            let _ = answer.send(found);
        }
    }

    fn of_kernel(&self, addresses: &[Address]) -> Answer {
        let kernel = Kernel { vmlinux: MaybeDefault::None, ..Kernel::default() };
        self.look_up(&Source::Kernel(kernel), addresses)
    }

    fn of_process(&mut self, owner: Owner, addresses: &[Address]) -> Answer {
        self.remember(owner);
        let by_file = Process::new(Pid::from(owner.pid));
        let found = self.look_up(&Source::Process(by_file.clone()), addresses);
        if found.iter().any(|frames| !frames.is_empty()) {
            return found;
        }
        // To open the very files that are mapped takes a privilege (5.9+), and their paths none.
        let by_path = Process { map_files: false, ..by_file };
        self.look_up(&Source::Process(by_path), addresses)
    }

    fn of_file(&self, file: &ElfFile, places: &[Address]) -> Answer {
        match file.is_replaced() {
            Ok(false) => self.look_up(&Source::Elf(Elf::new(&file.path)), places),
            is_replaced => {
                log::debug!("no names of {}, replaced: {is_replaced:?}", file.path.display());
                vec![Arc::default(); places.len()]
            }
        }
    }

    /// Reads what a process has mapped, which is remembered when it has ended.
    fn remember(&mut self, owner: Owner) {
        let pid = Pid::from(owner.pid);
        let mapped = cache::Process { cache_perf_map: false, ..cache::Process::new(pid) };
        let is_read = self.symbolizer.cache(&Cache::Process(mapped)).is_ok();
        if !is_read && self.remembered.get(&owner.pid) == Some(&owner) {
            return;
        }
        if self.remembered.len() >= PROCESSES {
            self.remembered.keys().for_each(|&pid| forget(&mut self.symbolizer, pid));
            self.remembered.clear();
            return self.remember(owner);
        }
        match is_read {
            true => drop(self.remembered.insert(owner.pid, owner)),
            // It was another one's.
            false => forget(&mut self.symbolizer, owner.pid),
        }
    }

    fn look_up(&self, source: &Source<'_>, addresses: &[Address]) -> Answer {
        let calls: Vec<u64> =
            addresses.iter().map(|address| address.at.saturating_sub(back(address))).collect();
        let input = match source {
            Source::Elf(_) => Input::FileOffset(calls.as_slice()),
            _ => Input::AbsAddr(calls.as_slice()),
        };
        let found = match self.symbolizer.symbolize(source, input) {
            Ok(found) => found,
            Err(error) => {
                log::debug!("addresses without names: {error}");
                return vec![Arc::default(); addresses.len()];
            }
        };
        let frames = |(address, one): (&Address, &Symbolized<'_>)| match one {
            Symbolized::Sym(symbol) => frames(symbol, back(address)),
            Symbolized::Unknown(_) => Arc::default(),
        };
        addresses.iter().zip(&found).map(frames).collect()
    }
}

fn forget(symbolizer: &mut Symbolizer, pid: u32) {
    // There is nothing in it that could fail.
    let _ = symbolizer.evict(&Evict::Process(evict::Process::new(Pid::from(pid))));
}

/// How far before an address one looks: where a call returns to, its instruction has ended.
fn back(address: &Address) -> u64 {
    u64::from(address.is_return)
}

/// The functions that a symbol stands for, from the innermost on. It was looked up so far before what was
/// asked for.
fn frames(symbol: &Sym<'_>, back: u64) -> Arc<[Frame]> {
    let module = symbol.module.as_ref().map(|module| module.to_string_lossy().into_owned());
    let inlined = symbol.inlined.iter().map(|inlined| Frame {
        name: inlined.name.to_string(),
        offset: None,
        module: module.clone(),
        source: inlined.code_info.as_ref().map(source_of),
    });
    let outer = Frame {
        name: symbol.name.to_string(),
        offset: Some(symbol.offset as u64 + back),
        module: module.clone(),
        source: symbol.code_info.as_deref().map(source_of),
    };
    let mut frames: Vec<Frame> = [outer].into_iter().chain(inlined).collect();
    frames.reverse();
    frames.into()
}

fn source_of(info: &blazesym::symbolize::CodeInfo<'_>) -> (String, Option<u32>) {
    (info.to_path().to_string_lossy().into_owned(), info.line)
}
