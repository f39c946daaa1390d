//! What records say that are no samples.

use super::fields::{Fields, Taken};
use super::layout::{Layout, Thread};
use super::read::ReadValues;
use super::sample::Sample;

/// Bits of `misc` in `struct perf_event_header`, some of which say another thing for each type.
const PERF_RECORD_MISC_BIT_13: u16 = 1 << 13;
const PERF_RECORD_MISC_BIT_14: u16 = 1 << 14;

/// What a record says, by its type (`enum perf_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nothing is allocated for a record")]
pub enum Body<'r> {
    /// A mapping of code; of data too, if that was asked for.
    Mmap(Mapping<'r>),
    /// So many records were lost before this one.
    Lost {
        /// The event whose record comes next.
        id: u64,
        /// How many.
        lost: u64,
    },
    /// A thread has got a name.
    Comm {
        /// The thread.
        thread: Thread,
        /// The name.
        comm: &'r [u8],
        /// Whether it is that of a program that is executed.
        is_exec: bool,
    },
    /// A thread has ended.
    Exit(Task),
    /// The hardware or the timer was too fast, and is silent for a while.
    Throttle(Throttled),
    /// It is silent no more.
    Unthrottle(Throttled),
    /// A thread or a process was made.
    Fork(Task),
    /// What a thread's counters were when it ended.
    Read {
        /// The thread.
        thread: Thread,
        /// The counters.
        values: ReadValues<'r>,
    },
    /// A sample.
    Sample(Sample<'r>),
    /// A mapping, and which file it is of.
    Mmap2 {
        /// The mapping.
        mapping: Mapping<'r>,
        /// The file.
        file: MappedFile<'r>,
        /// `PROT_*`.
        prot: u32,
        /// `MAP_*`.
        flags: u32,
    },
    /// There is something new in the AUX area.
    Aux {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        size: u64,
        /// `PERF_AUX_FLAG_*`.
        flags: u64,
    },
    /// The hardware traces a thread from now on.
    ItraceStart(Thread),
    /// So many samples were lost in hardware.
    LostSamples(u64),
    /// The thread was switched to, or from.
    Switch(Switch),
    /// The same on a CPU.
    SwitchCpuWide {
        /// Which of the two.
        switch: Switch,
        /// The thread that comes next, or that was there before.
        other: Thread,
    },
    /// A thread has got namespaces.
    Namespaces {
        /// The thread.
        thread: Thread,
        /// Each of them: network, UTS, IPC, process ids, users, mounts, cgroups.
        links: Namespaces<'r>,
    },
    /// The kernel has got a symbol, or lost it.
    Ksymbol {
        /// Its address.
        addr: u64,
        /// Bytes of it.
        len: u32,
        /// `PERF_RECORD_KSYMBOL_TYPE_*`.
        kind: u16,
        /// Whether it is lost.
        is_gone: bool,
        /// Its name.
        name: &'r [u8],
    },
    /// An eBPF program was loaded, or unloaded.
    BpfEvent {
        /// `PERF_BPF_EVENT_PROG_LOAD` is 1, `PERF_BPF_EVENT_PROG_UNLOAD` is 2.
        kind: u16,
        /// None so far.
        flags: u16,
        /// The program's id.
        id: u32,
        /// The program's tag.
        tag: [u8; 8],
    },
    /// A cgroup was made.
    Cgroup {
        /// Its id: the inode of its directory.
        id: u64,
        /// Its path, from the root of the hierarchy.
        path: &'r [u8],
    },
    /// Code of the kernel was changed.
    TextPoke {
        /// Where.
        addr: u64,
        /// The code before.
        old: &'r [u8],
        /// The code from now on.
        new: &'r [u8],
    },
    /// What the hardware calls an event whose data is in the AUX area.
    AuxOutputHwId(u64),
    /// Of a type that is not known here.
    Other {
        /// The type.
        kind: u32,
        /// What stands behind the header.
        bytes: &'r [u8],
    },
}

/// A mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping<'r> {
    /// Whose it is.
    pub thread: Thread,
    /// Its address.
    pub addr: u64,
    /// Bytes of it.
    pub len: u64,
    /// Where in the file it begins, in bytes.
    pub pgoff: u64,
    /// The file, or what it is called without one: `[vdso]`, `//anon`.
    pub filename: &'r [u8],
    /// Whether it is of data, not of code.
    pub is_data: bool,
}

/// The file of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappedFile<'r> {
    /// By its inode.
    Inode {
        /// The major number of the device.
        major: u32,
        /// The minor number of the device.
        minor: u32,
        /// The inode.
        inode: u64,
        /// Which of the files that have had this inode.
        generation: u64,
    },
    /// By its build id: 20 bytes at most.
    BuildId(&'r [u8]),
}

/// A thread that begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Task {
    /// The thread.
    pub thread: Thread,
    /// The one that made it.
    pub parent: Thread,
    /// When, in nanoseconds of the clock of the event.
    pub time: u64,
}

/// An event that is silent, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Throttled {
    /// When, in nanoseconds of the clock of the event.
    pub time: u64,
    /// The event; of a group, its leader.
    pub id: u64,
    /// The event itself.
    pub stream_id: u64,
}

/// A context switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Switch {
    /// To the thread.
    In,
    /// Away from it.
    Out {
        /// Whether it would have gone on. Since 4.17.
        is_preempted: bool,
    },
}

/// Namespaces of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces<'r>(&'r [[[u8; 8]; 2]]);

impl<'r> Namespaces<'r> {
    /// The device and the inode of each.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + use<'r> {
        self.0.iter().map(|link| {
            let [device, inode] = link.map(u64::from_ne_bytes);
            (device, inode)
        })
    }
}

impl<'r> Body<'r> {
    /// Reads what stands between the header and the sample id.
    pub(super) fn take(kind: u32, misc: u16, bytes: &'r [u8], layout: &Layout) -> Taken<Self> {
        let mut fields = Fields::new(bytes);
        let fields = &mut fields;
        let has = |bit| misc & bit != 0;
        let switch = || match has(PERF_RECORD_MISC_BIT_13) {
            true => Switch::Out { is_preempted: has(PERF_RECORD_MISC_BIT_14) },
            false => Switch::In,
        };
        Ok(match kind {
            1 => {
                let mut mapping = mapping(fields, has(PERF_RECORD_MISC_BIT_13))?;
                mapping.filename = fields.text();
                Self::Mmap(mapping)
            }
            2 => Self::Lost { id: fields.named("id").u64()?, lost: fields.named("lost").u64()? },
            3 => Self::Comm {
                thread: thread(fields)?,
                comm: fields.text(),
                is_exec: has(PERF_RECORD_MISC_BIT_13),
            },
            4 => Self::Exit(task(fields)?),
            5 => Self::Throttle(throttled(fields)?),
            6 => Self::Unthrottle(throttled(fields)?),
            7 => Self::Fork(task(fields)?),
            8 => Self::Read {
                thread: thread(fields)?,
                values: ReadValues::take(fields, layout.read_format)?,
            },
            9 => Self::Sample(Sample::take(fields, layout)?),
            10 => {
                let mapping = mapping(fields, has(PERF_RECORD_MISC_BIT_13))?;
                let file = file(fields.named("file"), has(PERF_RECORD_MISC_BIT_14))?;
                let (prot, flags) = (fields.named("prot").u32()?, fields.named("flags").u32()?);
                let mapping = Mapping { filename: fields.text(), ..mapping };
                Self::Mmap2 { mapping, file, prot, flags }
            }
            11 => Self::Aux {
                offset: fields.named("offset").u64()?,
                size: fields.named("size").u64()?,
                flags: fields.named("flags").u64()?,
            },
            12 => Self::ItraceStart(thread(fields)?),
            13 => Self::LostSamples(fields.named("lost").u64()?),
            14 => Self::Switch(switch()),
            15 => Self::SwitchCpuWide { switch: switch(), other: thread(fields)? },
            16 => {
                let thread = thread(fields)?;
                let count = fields.named("namespaces").u64()?;
                Self::Namespaces { thread, links: Namespaces(fields.tuples(count)?) }
            }
            17 => Self::Ksymbol {
                addr: fields.named("address").u64()?,
                len: fields.named("length").u32()?,
                kind: fields.named("type").u16()?,
                is_gone: fields.named("flags").u16()? & 1 != 0,
                name: fields.text(),
            },
            18 => Self::BpfEvent {
                kind: fields.named("type").u16()?,
                flags: fields.named("flags").u16()?,
                id: fields.named("id").u32()?,
                tag: fields.named("tag").tag()?,
            },
            19 => Self::Cgroup { id: fields.named("id").u64()?, path: fields.text() },
            20 => {
                let addr = fields.named("address").u64()?;
                let lens = [fields.named("lengths").u16()?, fields.u16()?];
                let [old, new] = lens.map(|len| fields.named("code").bytes(len.into()));
                Self::TextPoke { addr, old: old?, new: new? }
            }
            21 => Self::AuxOutputHwId(fields.named("id").u64()?),
            _ => Self::Other { kind, bytes },
        })
    }
}

fn thread(fields: &mut Fields<'_>) -> Taken<Thread> {
    fields.named("thread");
    Ok(Thread { pid: fields.u32()?, tid: fields.u32()? })
}

fn task(fields: &mut Fields<'_>) -> Taken<Task> {
    fields.named("task");
    let [pid, ppid, tid, ptid] = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
    let (thread, parent) = (Thread { pid, tid }, Thread { pid: ppid, tid: ptid });
    Ok(Task { thread, parent, time: fields.u64()? })
}

fn throttled(fields: &mut Fields<'_>) -> Taken<Throttled> {
    fields.named("event");
    Ok(Throttled { time: fields.u64()?, id: fields.u64()?, stream_id: fields.u64()? })
}

/// A mapping, as far as its records of both types have the same.
fn mapping<'r>(fields: &mut Fields<'r>, is_data: bool) -> Taken<Mapping<'r>> {
    let thread = thread(fields)?;
    let [addr, len, pgoff] =
        [fields.named("address").u64()?, fields.named("length").u64()?, fields.u64()?];
    Ok(Mapping { thread, addr, len, pgoff, filename: &[], is_data })
}

/// 24 bytes either way.
fn file<'r>(fields: &mut Fields<'r>, is_build_id: bool) -> Taken<MappedFile<'r>> {
    if is_build_id {
        let bytes = fields.bytes(24)?;
        let (head, id) = bytes.split_at(4);
        let len = usize::from(head[0]).min(id.len());
        return Ok(MappedFile::BuildId(&id[..len]));
    }
    Ok(MappedFile::Inode {
        major: fields.u32()?,
        minor: fields.u32()?,
        inode: fields.u64()?,
        generation: fields.u64()?,
    })
}
