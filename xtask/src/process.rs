//! Child processes and threads.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use probe_build::process;

pub(crate) use probe_build::process::tail;

use crate::say::Step;

/// Runs a command and hides its output unless it fails.
pub(crate) fn quiet(command: &mut Command) -> Result<()> {
    process::output(command)?;
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    Ok(process::read(command)?)
}

/// Runs a command and shows its output on the step's progress line. The error of a failed command has the last lines.
pub(crate) fn watched(command: &mut Command, step: &Step) -> Result<()> {
    process::watched(command, |line| step.show(line))?;
    Ok(())
}

/// Runs a command that prints to xtask's standard error, standard output included.
pub(crate) fn loud(command: &mut Command) -> Result<()> {
    Ok(process::loud(command)?)
}

/// Waits for a thread and resumes its panic.
pub(crate) fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Works on all items, on `threads` threads at a time. Starts them in order, and returns the results in
/// the same order.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut results = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return results };
            results.push((at, work(item)));
        }
    };
    let mut results = thread::scope(|scope| {
        let threads = (0..threads.min(items.len())).map(|_| scope.spawn(run)).collect::<Vec<_>>();
        let resume = |panic| std::panic::resume_unwind(panic);
        threads.into_iter().flat_map(|one| one.join().unwrap_or_else(resume)).collect::<Vec<_>>()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items() {
        let items = (0..100).collect::<Vec<_>>();
        assert_eq!(in_parallel(&items, 3, |item| item + 1), (1..101).collect::<Vec<_>>());
        assert_eq!(in_parallel(&items[..0], 3, |item| item + 1), [0; 0]);
    }
}
