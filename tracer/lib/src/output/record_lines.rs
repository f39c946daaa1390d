//! Kernel records about tasks and their mappings, one JSON object on each line. `docs/aux.md` describes them.

use super::json::{self, Exact};
use super::value::Hex;
use probe_perf::AuxFlags;
use probe_perf::record::{Body, MappedFile, Mapping, Record, Switch, Task, Thread};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};

/// Writes records of perf events as JSON lines, with what decoders of hardware traces need: tasks, their
/// mappings, context switches, and what the hardware reports about its trace.
///
/// Names are strings; characters that a terminal would not print as themselves are written as `\u` escapes.
#[derive(Debug)]
pub struct RecordLines<W> {
    writer: W,
    line: Vec<u8>,
}

impl<W: Write> RecordLines<W> {
    /// Writes to `writer`.
    pub fn new(writer: W) -> Self {
        Self { writer, line: Vec::new() }
    }

    /// Writes the line of a record. Records that decoders do not need are ignored.
    ///
    /// # Errors
    ///
    /// Returns errors of the writer.
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Some(what) = What::of(&record.body, record.ids.thread) else { return Ok(()) };
        let line = Line { what, time: record.ids.time.map(Exact), cpu: record.ids.cpu };
        self.line.clear();
        json::line(&mut self.line, &line);
        self.writer.write_all(&self.line)
    }

    /// Flushes the writer.
    ///
    /// # Errors
    ///
    /// Returns errors of the writer.
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
    Mmap {
        pid: u32,
        tid: u32,
        address: String,
        length: Exact,
        offset: Exact,
        file: Cow<'r, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_bytes: Option<String>,
        #[serde(flatten)]
        identity: Option<FileLine>,
        #[serde(flatten)]
        access: Option<AccessLine>,
    },
    Comm {
        pid: u32,
        tid: u32,
        name: Cow<'r, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name_bytes: Option<String>,
        exec: bool,
    },
    Fork(TaskLine),
    Exit(TaskLine),
    ItraceStart {
        pid: u32,
        tid: u32,
    },
    AuxOutputHwId {
        pid: Option<u32>,
        tid: Option<u32>,
        id: String,
    },
    Switch {
        pid: Option<u32>,
        tid: Option<u32>,
        direction: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        preempted: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        other_pid: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        other_tid: Option<u32>,
    },
    Aux {
        offset: Exact,
        size: Exact,
        flags: Vec<Cow<'static, str>>,
    },
    Lost {
        lost: Exact,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum FileLine {
    Inode { device: String, inode: Exact, generation: Exact },
    BuildId { build_id: String },
}

#[derive(Serialize)]
struct AccessLine {
    prot: u32,
    flags: u32,
}

#[derive(Serialize)]
struct TaskLine {
    pid: u32,
    tid: u32,
    parent_pid: u32,
    parent_tid: u32,
}

impl<'r> What<'r> {
    fn of(body: &Body<'r>, thread: Option<Thread>) -> Option<Self> {
        let (pid, tid) = ids(thread);
        Some(match *body {
            Body::Mmap(mapping) => Self::mmap(mapping, None, None),
            Body::Mmap2 { mapping, file, prot, flags } => {
                Self::mmap(mapping, FileLine::of(file), Some(AccessLine { prot, flags }))
            }
            Body::Comm { thread: Thread { pid, tid }, comm, is_exec: exec } => {
                let (name, name_bytes) = text(comm);
                Self::Comm { pid, tid, name, name_bytes, exec }
            }
            Body::Fork(task) => Self::Fork(TaskLine::of(task)),
            Body::Exit(task) => Self::Exit(TaskLine::of(task)),
            Body::ItraceStart(Thread { pid, tid }) => Self::ItraceStart { pid, tid },
            Body::AuxOutputHwId(id) => Self::AuxOutputHwId { pid, tid, id: hex(id) },
            Body::Switch(switch) => Self::switch(switch, thread, None),
            Body::SwitchCpuWide { switch, other } => Self::switch(switch, thread, Some(other)),
            Body::Aux { offset, size, flags } => {
                let flags = names(AuxFlags::from_bits_retain(flags));
                Self::Aux { offset: Exact(offset), size: Exact(size), flags }
            }
            Body::Lost { lost, .. } | Body::LostSamples(lost) => Self::Lost { lost: Exact(lost) },
            _ => return None,
        })
    }

    fn mmap(
        Mapping { thread: Thread { pid, tid }, addr, len, pgoff, filename, .. }: Mapping<'r>,
        identity: Option<FileLine>,
        access: Option<AccessLine>,
    ) -> Self {
        let (address, (file, file_bytes)) = (hex(addr), text(filename));
        let (length, offset) = (Exact(len), Exact(pgoff));
        Self::Mmap { pid, tid, address, length, offset, file, file_bytes, identity, access }
    }

    fn switch(switch: Switch, thread: Option<Thread>, other: Option<Thread>) -> Self {
        let (direction, preempted) = match switch {
            Switch::In => ("in", None),
            Switch::Out { is_preempted } => ("out", Some(is_preempted)),
            _ => ("out", None),
        };
        let ((pid, tid), (other_pid, other_tid)) = (ids(thread), ids(other));
        Self::Switch { pid, tid, direction, preempted, other_pid, other_tid }
    }
}

impl FileLine {
    fn of(file: MappedFile<'_>) -> Option<Self> {
        match file {
            MappedFile::Inode { major, minor, inode, generation } => Some(Self::Inode {
                device: format!("{major}:{minor}"),
                inode: Exact(inode),
                generation: Exact(generation),
            }),
            MappedFile::BuildId(id) => Some(Self::BuildId { build_id: Hex(id).to_string() }),
            _ => None,
        }
    }
}

impl TaskLine {
    fn of(Task { thread, parent, .. }: Task) -> Self {
        let (parent_pid, parent_tid) = (parent.pid, parent.tid);
        Self { pid: thread.pid, tid: thread.tid, parent_pid, parent_tid }
    }
}

/// The ids of a thread; none if it has exited but is still running in the kernel.
fn ids(thread: Option<Thread>) -> (Option<u32>, Option<u32>) {
    let id = |id| (id != u32::MAX).then_some(id);
    thread.map_or((None, None), |Thread { pid, tid }| (id(pid), id(tid)))
}

/// A text, and its bytes if they are not UTF-8.
fn text(bytes: &[u8]) -> (Cow<'_, str>, Option<String>) {
    let text = String::from_utf8_lossy(bytes);
    let other = matches!(text, Cow::Owned(_)).then(|| Hex(bytes).to_string());
    (text, other)
}

/// The names of flags. Flags without a name are combined into one number.
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
    use probe_perf::record::SampleId;

    fn line(body: Body<'_>) -> String {
        let thread = Some(Thread { pid: 7, tid: 8 });
        let mut ids = SampleId::default();
        (ids.thread, ids.time, ids.cpu) = (thread, Some(12), Some(3));
        let mut out = Vec::new();
        RecordLines::new(&mut out).write(&Record::new(body, ids)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_record_is_one_line_of_harmless_json() {
        let (thread, other) = (Thread { pid: 7, tid: 8 }, Thread { pid: 0, tid: 0 });
        let switch = Switch::Out { is_preempted: true };
        for (body, expected) in [
            (
                Body::Comm { thread, comm: b"a\"\x1b[2J\n\xff", is_exec: true },
                "\"comm\",\"pid\":7,\"tid\":8,\"name\":\"a\\\"\\u001b[2J\\n\u{fffd}\",\
                 \"name_bytes\":\"61221b5b324a0aff\",\"exec\":true",
            ),
            // Integers are exact for every parser.
            (
                Body::Aux { offset: u64::MAX, size: json::LARGEST, flags: 0x10d },
                "\"aux\",\"offset\":\"18446744073709551615\",\"size\":9007199254740991,\
                 \"flags\":[\"truncated\",\"partial\",\"collision\",\"0x100\"]",
            ),
            (
                Body::SwitchCpuWide { switch, other },
                "\"switch\",\"pid\":7,\"tid\":8,\"direction\":\"out\",\"preempted\":true,\
                 \"other_pid\":0,\"other_tid\":0",
            ),
            (Body::AuxOutputHwId(0x12), "\"aux_output_hw_id\",\"pid\":7,\"tid\":8,\"id\":\"0x12\""),
        ] {
            assert_eq!(line(body), format!("{{\"type\":{expected},\"time\":12,\"cpu\":3}}\n"));
        }
        assert_eq!(line(Body::Cgroup { id: 1, path: b"/" }), "");
    }

    #[test]
    fn a_thread_that_has_exited_has_no_id() {
        let other = Thread { pid: u32::MAX, tid: u32::MAX };
        let line = line(Body::SwitchCpuWide { switch: Switch::In, other });
        assert!(!line.contains("other_pid") && !line.contains("4294967295"), "{line}");
    }

    #[test]
    fn a_mapping_has_its_file_and_access_where_they_are_known() {
        let (file, file_bytes) = text(b"/a\xff");
        let what = What::Mmap {
            pid: 7,
            tid: 8,
            address: hex(16),
            length: Exact(32),
            offset: Exact(0),
            file,
            file_bytes,
            identity: FileLine::of(MappedFile::BuildId(&[1, 0xab])),
            access: Some(AccessLine { prot: 5, flags: 2 }),
        };
        let mut out = Vec::new();
        json::line(&mut out, &Line { what, time: None, cpu: None });
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"type\":\"mmap\",\"pid\":7,\"tid\":8,\"address\":\"0x10\",\"length\":32,\"offset\":0,\
             \"file\":\"/a\u{fffd}\",\"file_bytes\":\"2f61ff\",\"build_id\":\"01ab\",\"prot\":5,\"flags\":2}\n"
        );
    }
}
