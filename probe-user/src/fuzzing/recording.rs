//! Recordings, as somebody else may have made them.

use crate::consumer::{Consumer, CpuChange, Loss, Malformed};
use crate::trace::TraceEvent;
use crate::trace::output::schema::valid;
use crate::trace::output::{Format, Printer};
use crate::trace::recording::{Recorder, Recording, RecordingError};
use probe_common::RawRecord;
use std::io::{self, Write};
use std::ops::ControlFlow;

/// The input: a recording. It is read, and printed, in JSON lines as the published schema describes them;
/// and what is recorded of it is the same again.
pub fn recording(data: &[u8]) {
    let Some((given, end)) = read(data) else { return };
    match end {
        Ok(()) => {}
        Err(RecordingError::Cut { at }) => {
            assert_eq!(at, data.len() as u64, "it is cut off at its end")
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
    lines.lines().for_each(|line| drop(valid(line)));
    let (again, end) = read(&record(data)).expect("it was recorded");
    assert!(matches!(end, Err(RecordingError::Cut { .. })), "it has no ledger");
    assert_eq!(given, again, "what is recorded is given");
}

/// What is given to a consumer, as text.
#[derive(Default)]
struct Log(Vec<String>);

impl Consumer for Log {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        assert!(record.payload.as_ptr().addr().is_multiple_of(8), "payloads are aligned");
        let _ = TraceEvent::decode(cpu, record);
        self.0.push(format!("{cpu} {record:?}"));
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.0.push(format!("{loss:?}"));
        ControlFlow::Continue(())
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.0.push(format!("{malformed:?}"));
        ControlFlow::Continue(())
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        self.0.push(format!("{change:?}"));
    }
}

/// What is given, and how it ends. `None` if it does not begin as a recording.
fn read(data: &[u8]) -> Option<(Vec<String>, Result<(), RecordingError>)> {
    let mut recording = Recording::open(data).ok()?;
    let mut log = Log::default();
    let end = recording.replay(&mut log).map(drop);
    Some((log.0, end))
}

fn print(data: &[u8], format: Format, to: impl Write) {
    let Ok(mut recording) = Recording::open(data) else { return };
    let mut printer = Printer::new(to, format, recording.probes().to_vec())
        .origin(recording.origin().clone())
        .symbols(recording.symbols());
    printer.start().expect("it takes everything");
    let end = recording.replay_by_time(&mut printer).and_then(|_| recording.close());
    // Of a recording that is cut off, too.
    let _ = printer.caught_up();
    let _ = end.map(|ledger| printer.finish(ledger));
}

/// Records what is given.
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
