//! Commands that are observed from their first instruction on.

use probe_user::perf::record::Record;
use probe_user::perf::{Flags, Next, SamplerBuilder, Scope};
use probe_user::trace::TracedCommand;
use std::ffi::OsString;
use std::time::Duration;

/// More than a command takes: nothing waits that long unless something is wrong.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// Runs a command to its end, and gives each record that there is of it, and of its children. How many were samples.
pub fn sampled(
    builder: SamplerBuilder,
    command: &[&str],
    mut each: impl FnMut(&Record<'_>),
) -> u64 {
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    let held = TracedCommand::hold(&command).unwrap();
    let scope = Scope::ProcessAndChildren(held.pid());
    let mut sampler = builder.scope(scope).flags(Flags::ENABLE_ON_EXEC).open().unwrap();
    let mut child = held.release().unwrap();
    loop {
        match sampler.next_blocking(LONG).unwrap() {
            Next::Record(record) => each(&record),
            Next::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(child.wait().unwrap().success());
    let counts = sampler.counts().unwrap();
    assert_eq!((counts.lost, counts.malformed), (0, 0));
    counts.samples
}
