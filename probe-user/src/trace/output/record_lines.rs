//! What the kernel tells of tasks and of their mappings, a JSON object a line: `docs/aux.md` describes them.

use super::json;
use super::value::Hex;
use crate::perf::AuxFlags;
use crate::perf::record::{Body, MappedFile, Mapping, Record, Switch, Task, Thread};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::io::{self, Write};

/// Writes records of perf events as JSON lines, as those need them who decode what hardware has traced: the tasks, what
/// they have mapped, where they were switched to and from, and what the hardware says of its trace.
///
/// Names are strings, with `\u` escapes for whatever a terminal would not show as itself.
#[derive(Debug)]
pub struct RecordLines<W> {
    writer: W,
    line: Vec<u8>,
}

impl<W: Write> RecordLines<W> {
    /// Writes to this.
    pub fn new(writer: W) -> Self {
        Self { writer, line: Vec::new() }
    }

    /// Writes the line of a record; none of one that is of no use to decoders.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Some(what) = What::of(&record.body, record.ids.thread) else { return Ok(()) };
        let line = Line { what, time: record.ids.time.map(Exact), cpu: record.ids.cpu };
        self.line.clear();
        json::serialize(&mut self.line, &line);
        self.line.push(b'\n');
        self.writer.write_all(&self.line)
    }

    /// Has all that was written arrive.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[derive(Serialize)]
struct Line<'r> {
    #[serde(flatten)]
    what: What<'r>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Exact>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum What<'r> {
    Mmap(MappingLine<'r>),
    Comm { pid: u32, tid: u32, name: Cow<'r, str>, exec: bool },
    Fork(TaskLine),
    Exit(TaskLine),
    ItraceStart { pid: u32, tid: u32 },
    AuxOutputHwId { pid: Option<u32>, tid: Option<u32>, id: String },
    Switch(SwitchLine),
    Aux { offset: Exact, size: Exact, flags: Vec<Cow<'static, str>> },
    Lost { lost: Exact },
}

#[derive(Serialize)]
struct MappingLine<'r> {
    pid: u32,
    tid: u32,
    address: String,
    length: Exact,
    offset: Exact,
    file: Cow<'r, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<Exact>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<Exact>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prot: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u32>,
}

#[derive(Serialize)]
struct TaskLine {
    pid: u32,
    tid: u32,
    parent_pid: u32,
    parent_tid: u32,
}

#[derive(Serialize)]
struct SwitchLine {
    pid: Option<u32>,
    tid: Option<u32>,
    direction: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    preempted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_tid: Option<u32>,
}

/// An integer, as a string if not every parser would read it exactly.
struct Exact(u64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value @ 0..=json::LARGEST => serializer.serialize_u64(value),
            value => serializer.collect_str(&value),
        }
    }
}

impl<'r> What<'r> {
    fn of(body: &Body<'r>, thread: Option<Thread>) -> Option<Self> {
        let (pid, tid) = (thread.map(|thread| thread.pid), thread.map(|thread| thread.tid));
        Some(match *body {
            Body::Mmap(ref mapping) => Self::Mmap(MappingLine::of(mapping)),
            Body::Mmap2 { ref mapping, ref file, prot, flags } => {
                let line = MappingLine::of(mapping).of_file(file);
                Self::Mmap(MappingLine { prot: Some(prot), flags: Some(flags), ..line })
            }
            Body::Comm { thread: Thread { pid, tid }, comm, is_exec: exec } => {
                Self::Comm { pid, tid, name: String::from_utf8_lossy(comm), exec }
            }
            Body::Fork(ref task) => Self::Fork(TaskLine::of(task)),
            Body::Exit(ref task) => Self::Exit(TaskLine::of(task)),
            Body::ItraceStart(Thread { pid, tid }) => Self::ItraceStart { pid, tid },
            Body::AuxOutputHwId(id) => Self::AuxOutputHwId { pid, tid, id: hex(id) },
            Body::Switch(switch) => Self::Switch(SwitchLine::of(switch, thread, None)),
            Body::SwitchCpuWide { switch, other } => {
                Self::Switch(SwitchLine::of(switch, thread, Some(other)))
            }
            Body::Aux { offset, size, flags } => {
                let flags = names(AuxFlags::from_bits_retain(flags));
                Self::Aux { offset: Exact(offset), size: Exact(size), flags }
            }
            Body::Lost { lost, .. } | Body::LostSamples(lost) => Self::Lost { lost: Exact(lost) },
            _ => return None,
        })
    }
}

impl<'r> MappingLine<'r> {
    fn of(mapping: &Mapping<'r>) -> Self {
        Self {
            pid: mapping.thread.pid,
            tid: mapping.thread.tid,
            address: hex(mapping.addr),
            length: Exact(mapping.len),
            offset: Exact(mapping.pgoff),
            file: String::from_utf8_lossy(mapping.filename),
            device: None,
            inode: None,
            generation: None,
            build_id: None,
            prot: None,
            flags: None,
        }
    }

    fn of_file(self, file: &MappedFile<'_>) -> Self {
        match *file {
            MappedFile::Inode { major, minor, inode, generation } => Self {
                device: Some(format!("{major}:{minor}")),
                inode: Some(Exact(inode)),
                generation: Some(Exact(generation)),
                ..self
            },
            MappedFile::BuildId(id) => Self { build_id: Some(Hex(id).to_string()), ..self },
        }
    }
}

impl TaskLine {
    fn of(Task { thread, parent, .. }: &Task) -> Self {
        let (parent_pid, parent_tid) = (parent.pid, parent.tid);
        Self { pid: thread.pid, tid: thread.tid, parent_pid, parent_tid }
    }
}

impl SwitchLine {
    fn of(switch: Switch, thread: Option<Thread>, other: Option<Thread>) -> Self {
        let (direction, preempted) = match switch {
            Switch::In => ("in", None),
            Switch::Out { is_preempted } => ("out", Some(is_preempted)),
        };
        Self {
            pid: thread.map(|thread| thread.pid),
            tid: thread.map(|thread| thread.tid),
            direction,
            preempted,
            other_pid: other.map(|other| other.pid),
            other_tid: other.map(|other| other.tid),
        }
    }
}

/// The names of flags; those that have none, as one number.
fn names(flags: AuxFlags) -> Vec<Cow<'static, str>> {
    let known = [
        (AuxFlags::TRUNCATED, "truncated"),
        (AuxFlags::OVERWRITE, "overwrite"),
        (AuxFlags::PARTIAL, "partial"),
        (AuxFlags::COLLISION, "collision"),
    ];
    let named = known.iter().filter(|(flag, _)| flags.contains(*flag));
    let others = known.iter().fold(flags.bits(), |bits, (flag, _)| bits & !flag.bits());
    let others = (others != 0).then(|| Cow::Owned(hex(others)));
    named.map(|(_, name)| Cow::Borrowed(*name)).chain(others).collect()
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::SampleId;

    fn line(body: Body<'_>) -> String {
        let thread = Some(Thread { pid: 7, tid: 8 });
        let ids = SampleId { thread, time: Some(12), cpu: Some(3), ..SampleId::default() };
        let mut out = Vec::new();
        RecordLines::new(&mut out).write(&Record { misc: 0, body, ids }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_are_strings_that_do_nothing_to_a_terminal() {
        let thread = Thread { pid: 7, tid: 8 };
        let told = line(Body::Comm { thread, comm: b"a\"\x1b[2J\n\xff", is_exec: true });
        assert_eq!(
            told,
            "{\"type\":\"comm\",\"pid\":7,\"tid\":8,\"name\":\"a\\\"\\u001b[2J\\n\u{fffd}\",\
             \"exec\":true,\"time\":12,\"cpu\":3}\n"
        );
    }

    #[test]
    fn integers_are_read_exactly_by_every_parser() {
        let told = line(Body::Aux { offset: u64::MAX, size: json::LARGEST, flags: 0x10d });
        assert_eq!(
            told,
            "{\"type\":\"aux\",\"offset\":\"18446744073709551615\",\"size\":9007199254740991,\
             \"flags\":[\"truncated\",\"partial\",\"collision\",\"0x100\"],\"time\":12,\"cpu\":3}\n"
        );
    }

    #[test]
    fn a_switch_tells_of_both() {
        let other = Thread { pid: 0, tid: 0 };
        let switch = Switch::Out { is_preempted: true };
        let told = line(Body::SwitchCpuWide { switch, other });
        assert_eq!(
            told,
            "{\"type\":\"switch\",\"pid\":7,\"tid\":8,\"direction\":\"out\",\"preempted\":true,\
             \"other_pid\":0,\"other_tid\":0,\"time\":12,\"cpu\":3}\n"
        );
        assert_eq!(line(Body::Cgroup { id: 1, path: b"/" }), "");
    }

    #[test]
    fn what_the_hardware_calls_an_event_is_told() {
        let id = "{\"type\":\"aux_output_hw_id\",\"pid\":7,\"tid\":8,\"id\":\"0x12\",\"time\":12,\"cpu\":3}\n";
        assert_eq!(line(Body::AuxOutputHwId(0x12)), id);
    }
}
