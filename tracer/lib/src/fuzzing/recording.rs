//! Untrusted recordings.

use crate::TraceEvent;
use crate::output::{Format, Printer};
use crate::recording::{Recorder, Recording, RecordingError};
use probe_common::RawRecord;
use probe_user::flight::Dump;
use probe_user::{Consumer, CpuChange, Failure, Loss, Malformed};
use std::io::{self, Write};
use std::ops::ControlFlow;

/// The input is a recording. It is read, printed as JSON lines, each of which `check` compares with the
/// published schema, and recorded again, which must yield the same events.
pub fn recording(data: &[u8], check: fn(&str)) {
    if Recording::open(data).is_err() {
        return;
    }
    let (delivered, end) = replayed(data);
    match end {
        Ok(()) => {}
        Err(RecordingError::Cut { at }) => {
            assert_eq!(at, data.len() as u64, "a truncated file ends at the fault")
        }
        Err(RecordingError::Malformed { at, .. }) => assert!(at <= data.len() as u64),
        Err(error) => panic!("{error}"),
    }
    for format in [Format::Table, Format::Perfetto] {
        print(data, format, io::sink());
    }
    let mut lines = Vec::new();
    print(data, Format::Jsonl, &mut lines);
    let lines = String::from_utf8(lines).expect("JSON is UTF-8");
    lines.lines().for_each(check);
    let (again, end) = replayed(&record(data));
    assert!(matches!(end, Err(RecordingError::Cut { .. })), "it has no ledger");
    assert_eq!(delivered, again, "a replay equals what was recorded");
}

/// Everything that a consumer receives, as text.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) lines: Vec<String>,
    /// Breaks at this number of lines.
    pub(crate) break_at: Option<usize>,
}

impl Log {
    fn add(&mut self, line: String) -> ControlFlow<()> {
        self.lines.push(line);
        if self.break_at == Some(self.lines.len()) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl Consumer for Log {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        assert!(record.payload.as_ptr().addr().is_multiple_of(8), "payloads are aligned");
        let _ = TraceEvent::decode(cpu, record);
        self.add(format!("{cpu} {record:?}"))
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.add(format!("{loss:?}"))
    }

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        self.add(format!("{failure:?}"))
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.add(format!("{malformed:?}"))
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        let _ = self.add(change.to_string());
    }

    fn dump(&mut self, dump: Dump) {
        let _ = self.add(format!("{dump:?}"));
    }
}

/// Everything that is replayed, and how it ends.
pub(crate) fn replayed(data: &[u8]) -> (Vec<String>, Result<(), RecordingError>) {
    let mut log = Log::default();
    let end = Recording::open(data).and_then(|mut recording| recording.replay(&mut log));
    (log.lines, end.map(drop))
}

fn print(data: &[u8], format: Format, to: impl Write) {
    let Ok(mut recording) = Recording::open(data) else { return };
    let mut printer = Printer::new(to, format, recording.probes().to_vec())
        .origin(recording.origin().clone())
        .symbols(recording.symbols());
    printer.start().expect("the writer takes everything");
    let end = recording.replay_by_time(&mut printer).and_then(|_| recording.close());
    // The outcome does not matter: the recording may be truncated.
    let _ = printer.caught_up();
    let _ = end.map(|ledger| printer.finish(ledger));
}

/// Records what is replayed.
fn record(data: &[u8]) -> Vec<u8> {
    let mut again = Vec::new();
    let Ok(mut recording) = Recording::open(data) else { return again };
    let (probes, symbols) = (recording.probes().to_vec(), recording.symbols());
    let mut recorder =
        Recorder::new(&mut again, probes, symbols).origin(recording.origin().clone());
    recorder.start().expect("a Vec takes everything");
    let _ = recording.replay(&mut recorder);
    let _ = recorder.caught_up();
    again
}
