//! The contents of records.

use super::fields::{Fields, Taken, Thread};
use super::layout::Layout;
use super::sample::{ReadValues, Sample};
use std::ops::Range;

/// The contents of a record, by its type (`enum perf_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nothing is allocated for a record")]
pub enum Body<'r> {
    /// A mapping of code, or of data if that was requested.
    Mmap(Mapping<'r>),
    /// Records before this one were lost.
    Lost {
        /// The id of the event of the next record.
        id: u64,
        /// The number of lost records.
        lost: u64,
    },
    /// The name of a thread changed.
    Comm {
        /// The thread.
        thread: Thread,
        /// The name.
        comm: &'r [u8],
        /// Whether an exec set the name.
        is_exec: bool,
    },
    /// A thread has ended.
    Exit(Task),
    /// The event was too frequent and is throttled for a while.
    Throttle(Throttled),
    /// The event is no longer throttled.
    Unthrottle(Throttled),
    /// A thread or a process was created.
    Fork(Task),
    /// The counters of a thread when it ended.
    Read {
        /// The thread.
        thread: Thread,
        /// The counters.
        values: ReadValues<'r>,
    },
    /// A sample.
    Sample(Sample<'r>),
    /// A mapping and its file.
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
    /// There is new data in the AUX area.
    Aux {
        /// Its offset, in bytes.
        offset: u64,
        /// Its size, in bytes.
        size: u64,
        /// `PERF_AUX_FLAG_*`.
        flags: u64,
    },
    /// The hardware starts to trace a thread.
    ItraceStart(Thread),
    /// The number of samples that were lost in hardware.
    LostSamples(u64),
    /// The thread was scheduled in or out.
    Switch(Switch),
    /// A context switch on a CPU.
    SwitchCpuWide {
        /// The direction.
        switch: Switch,
        /// The next or the previous thread.
        other: Thread,
    },
    /// The namespaces of a thread changed.
    Namespaces {
        /// The thread.
        thread: Thread,
        /// The namespaces: network, UTS, IPC, process ids, users, mounts, cgroups.
        links: Namespaces<'r>,
    },
    /// The kernel added or removed a symbol.
    Ksymbol {
        /// Its address.
        addr: u64,
        /// Its size, in bytes.
        len: u32,
        /// `PERF_RECORD_KSYMBOL_TYPE_*`.
        kind: u16,
        /// Whether the symbol was removed.
        is_removed: bool,
        /// Its name.
        name: &'r [u8],
    },
    /// An eBPF program was loaded or unloaded.
    BpfEvent {
        /// `PERF_BPF_EVENT_PROG_LOAD` is 1, `PERF_BPF_EVENT_PROG_UNLOAD` is 2.
        kind: u16,
        /// Flags; none are defined.
        flags: u16,
        /// The program's id.
        id: u32,
        /// The program's tag.
        tag: [u8; 8],
    },
    /// A cgroup was created.
    Cgroup {
        /// Its id: the inode of its directory.
        id: u64,
        /// Its path, from the root of the hierarchy.
        path: &'r [u8],
    },
    /// Code of the kernel changed.
    TextPoke {
        /// The address.
        addr: u64,
        /// The code before the change.
        old: &'r [u8],
        /// The code after the change.
        new: &'r [u8],
    },
    /// The hardware's id of an event whose data is in the AUX area.
    AuxOutputHwId(u64),
    /// A record of an unknown type.
    Other {
        /// The type.
        kind: u32,
        /// The bytes after the header.
        bytes: &'r [u8],
    },
}

/// A mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping<'r> {
    /// The thread that mapped it.
    pub thread: Thread,
    /// Its address.
    pub addr: u64,
    /// Its size, in bytes.
    pub len: u64,
    /// Its offset in the file, in bytes.
    pub pgoff: u64,
    /// The file, or a name such as `[vdso]` or `//anon`.
    pub filename: &'r [u8],
    /// Whether it maps data, not code.
    pub is_data: bool,
}

impl<'r> Mapping<'r> {
    /// Creates a mapping of code from data of another source. The mapping starts at byte `pgoff` of the file.
    pub fn new(thread: Thread, addresses: Range<u64>, pgoff: u64, filename: &'r [u8]) -> Self {
        let (addr, len) = (addresses.start, addresses.end.saturating_sub(addresses.start));
        Self { thread, addr, len, pgoff, filename, is_data: false }
    }
}

/// The file of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappedFile<'r> {
    /// Identified by its inode.
    Inode {
        /// The major number of the device.
        major: u32,
        /// The minor number of the device.
        minor: u32,
        /// The inode.
        inode: u64,
        /// The generation of the inode.
        generation: u64,
    },
    /// Identified by its build id, of at most 20 bytes.
    BuildId(&'r [u8]),
}

/// A thread that started or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Task {
    /// The thread.
    pub thread: Thread,
    /// The thread that created it.
    pub parent: Thread,
    /// The time, in nanoseconds of the event's clock.
    pub time: u64,
}

/// An event that is throttled, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Throttled {
    /// The time, in nanoseconds of the event's clock.
    pub time: u64,
    /// The id of the event, or of the event that it was inherited from.
    pub id: u64,
    /// The id of the event itself.
    pub stream_id: u64,
}

/// A context switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Switch {
    /// The thread was scheduled in.
    In,
    /// The thread was scheduled out.
    Out {
        /// Whether it was preempted while it could still run. Since 4.17.
        is_preempted: bool,
    },
}

/// The namespaces of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces<'r>(&'r [[[u8; 8]; 2]]);

impl<'r> Namespaces<'r> {
    /// Returns the device and the inode of each.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + use<'r> {
        self.0.iter().map(|link| {
            let [device, inode] = link.map(u64::from_ne_bytes);
            (device, inode)
        })
    }
}

impl<'r> Body<'r> {
    /// Reads the bytes between the header and the sample id.
    pub(super) fn take(kind: u32, misc: u16, bytes: &'r [u8], layout: &Layout) -> Taken<Self> {
        let mut fields = Fields::new(bytes);
        let fields = &mut fields;
        // The meaning of these bits depends on the type of the record.
        let [bit13, bit14] = [13, 14].map(|bit| misc & 1 << bit != 0);
        let switch = if bit13 { Switch::Out { is_preempted: bit14 } } else { Switch::In };
        Ok(match kind {
            1 => {
                let mapping = mapping(fields, bit13)?;
                Self::Mmap(Mapping { filename: fields.text(), ..mapping })
            }
            2 => Self::Lost { id: fields.named("id").u64()?, lost: fields.named("lost").u64()? },
            3 => {
                Self::Comm { thread: fields.thread("thread")?, comm: fields.text(), is_exec: bit13 }
            }
            4 => Self::Exit(task(fields)?),
            5 => Self::Throttle(throttled(fields)?),
            6 => Self::Unthrottle(throttled(fields)?),
            7 => Self::Fork(task(fields)?),
            8 => Self::Read {
                thread: fields.thread("thread")?,
                values: ReadValues::take(fields, layout.read_format)?,
            },
            9 => Self::Sample(Sample::take(fields, layout)?),
            10 => {
                let mapping = mapping(fields, bit13)?;
                let file = file(fields.named("file"), bit14)?;
                let (prot, flags) = (fields.named("prot").u32()?, fields.named("flags").u32()?);
                let mapping = Mapping { filename: fields.text(), ..mapping };
                Self::Mmap2 { mapping, file, prot, flags }
            }
            11 => Self::Aux {
                offset: fields.named("offset").u64()?,
                size: fields.named("size").u64()?,
                flags: fields.named("flags").u64()?,
            },
            12 => Self::ItraceStart(fields.thread("thread")?),
            13 => Self::LostSamples(fields.named("lost").u64()?),
            14 => Self::Switch(switch),
            15 => Self::SwitchCpuWide { switch, other: fields.thread("thread")? },
            16 => {
                let thread = fields.thread("thread")?;
                let count = fields.named("namespaces").u64()?;
                Self::Namespaces { thread, links: Namespaces(fields.tuples(count)?) }
            }
            17 => Self::Ksymbol {
                addr: fields.named("address").u64()?,
                len: fields.named("length").u32()?,
                kind: fields.named("type").u16()?,
                is_removed: fields.named("flags").u16()? & 1 != 0,
                name: fields.text(),
            },
            18 => Self::BpfEvent {
                kind: fields.named("type").u16()?,
                flags: fields.named("flags").u16()?,
                id: fields.named("id").u32()?,
                tag: fields.named("tag").array()?,
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

/// Reads the part of a mapping that both types of records share.
fn mapping<'r>(fields: &mut Fields<'r>, is_data: bool) -> Taken<Mapping<'r>> {
    let thread = fields.thread("thread")?;
    let [addr, len, pgoff] =
        [fields.named("address").u64()?, fields.named("length").u64()?, fields.u64()?];
    Ok(Mapping { thread, addr, len, pgoff, filename: &[], is_data })
}

/// Reads the file of a mapping, which takes 24 bytes in either form.
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
