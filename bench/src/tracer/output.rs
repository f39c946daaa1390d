//! Parsing the tracers' output: events, and reported losses.

use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::io::BufRead;

/// The descriptor that dd writes its data to; its final report goes to another one.
const FD: u64 = 1;

/// How to recognize an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// One JSON object per line.
    Json,
    /// A line that contains this text.
    Text(&'static str),
}

#[derive(Deserialize)]
struct Object {
    time: u64,
    cpu: u32,
    args: HashMap<String, Value>,
}

/// How bpftrace reports losses between its JSON lines. It repeats their sum at the end, on standard error and in other words.
#[derive(Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
enum Notice {
    LostEvents { events: u64 },
}

/// The contents of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Printed {
    /// Writes by dd to its standard output.
    pub(super) events: u64,
    /// How many of them are not younger than the previous event of the same CPU.
    pub(super) out_of_order: u64,
    /// Losses reported between the events.
    pub(super) losses: Option<u64>,
}

impl Lines {
    /// Whether a line is an event.
    pub(super) fn is_event(self, line: &str) -> bool {
        self.read(line).is_some()
    }

    /// Parses a write by dd to its standard output: its CPU and time, if the format has them.
    fn read(self, line: &str) -> Option<Option<(u32, u64)>> {
        match self {
            Self::Json => object(line).map(Some),
            Self::Text(mark) => line.contains(mark).then_some(None),
        }
    }

    /// Counts the events, line by line.
    pub(super) fn count(self, output: impl BufRead) -> std::io::Result<Printed> {
        let mut printed = Printed::default();
        let mut last: HashMap<u32, u64> = HashMap::new();
        for line in output.lines() {
            let line = line?;
            let Some(event) = self.read(&line) else {
                printed.losses = add(printed.losses, losses_in(&line));
                continue;
            };
            printed.events += 1;
            if let Some((cpu, time)) = event {
                let before = last.insert(cpu, time);
                printed.out_of_order += u64::from(before.is_some_and(|before| time <= before));
            }
        }
        Ok(printed)
    }
}

fn object(line: &str) -> Option<(u32, u64)> {
    let Object { time, cpu, args } = serde_json::from_str(line).ok()?;
    (args.get("fd")?.as_u64()? == FD).then_some((cpu, time))
}

/// The losses that a tracer reports on standard error; `None` if it reports nothing.
pub(super) fn own_losses(stderr: &str) -> Option<u64> {
    stderr.lines().map(losses_in).fold(None, add)
}

/// The sum of the known values.
pub(super) fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).reduce(|a, b| a + b)
}

fn losses_in(line: &str) -> Option<u64> {
    if let Ok(Notice::LostEvents { events }) = serde_json::from_str(line) {
        return Some(events);
    }
    // probe's ledger, and perf, which reports chunks of unknown size.
    let inside = [" + lost ", " and lost "].iter().find_map(|words| line.split_once(words));
    let at_start = || ["Lost ", "Possibly lost "].iter().find_map(|word| line.strip_prefix(word));
    let rest = inside.map(|(_, rest)| rest).or_else(at_start)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Whether `probe` accounts for every record, as handled or as lost.
pub(super) fn balances(stderr: &str) -> bool {
    let mut ledgers = stderr.lines().filter(|line| line.starts_with("ledger: "));
    ledgers.any(|line| !line.contains("do not balance"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(cpu: u32, time: u64, fd: u32) -> String {
        format!(
            r#"{{"type":"tracepoint","time":{time},"cpu":{cpu},"pid":7,"comm":"dd","args":{{"fd":{fd},"buf":"0x55","count":1}}}}"#
        )
    }

    #[test]
    fn events_are_counted_strictly_by_line() {
        let output = [
            "Attaching 1 probe...".to_owned(),
            r#"{"type":"trace","version":1,"probes":[{"fields":[{"name":"fd"}]}]}"#.to_owned(),
            line(0, 10, 1),
            line(1, 5, 1),
            line(0, 9, 1),
            line(0, 9, 1),
            line(0, 11, 2),
            line(0, 12, 1) + &line(0, 13, 1),
            line(0, 14, 1).trim_end_matches('}').to_owned(),
            "Lost 5 events".to_owned(),
            String::new(),
            "Lost 7 events".to_owned(),
            r#"{"type":"ledger","events":3,"lost":0,"complete":true}"#.to_owned(),
        ];
        let printed = Lines::Json.count(output.join("\n").as_bytes()).unwrap();
        assert_eq!(printed, Printed { events: 4, out_of_order: 2, losses: Some(12) });
    }

    #[test]
    fn text_is_counted_by_its_mark() {
        let perf = "dd  1016 [000] 15060.594589: syscalls:sys_enter_write: fd: 0x00000001, buf: 0x55, count: 0x00000001\n\
            dd  1016 [000] 15060.594592: syscalls:sys_enter_write: fd: 0x00000002, buf: 0x55, count: 0x00000032\n";
        let printed = Lines::Text(" fd: 0x00000001,").count(perf.as_bytes()).unwrap();
        assert_eq!(printed.events, 1);
        let bcc = "PID     TID     COMM            FUNC             -\n\
            2310    2310    dd              sys_enter_write  fd=1 buf=555dd1ba8000 count=1\n\
            2310    2310    dd              sys_enter_write  fd=2 buf=7ffe6ae1f3a0 count=50\n";
        assert_eq!(Lines::Text(" fd=1 ").count(bcc.as_bytes()).unwrap().events, 1);
    }

    #[test]
    fn reported_losses_are_summed() {
        let ledger = "probe: 9 events\nledger: attempted 12 = handled 9 + lost 3; incomplete\n";
        assert_eq!(own_losses(ledger), Some(3));
        assert!(balances(ledger));
        assert!(!balances(
            "ledger: attempted 12 = handled 9 + lost 2; incomplete, and the counts do not balance: …\n"
        ));
        assert_eq!(own_losses("Lost 5 events\n\nLost 70 events\n"), Some(75));
        let json = r#"{"type": "lost_events", "count": 49063, "data": {"events": 49063}}"#;
        assert_eq!(
            own_losses(&format!("{json}\nWARNING: Total lost event count: 49063\n")),
            Some(49_063)
        );
        assert_eq!(own_losses("Possibly lost 8 samples\n"), Some(8));
        assert_eq!(own_losses("Processed 1237932 events and lost 1 chunks!\n"), Some(1));
        assert_eq!(own_losses("1000000+0 records in\n"), None);
    }
}
