//! SIGHUP, SIGINT and SIGTERM: they go to the machines that run, and end xtask when none does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

type Handler = Box<dyn Fn(i32) + Send>;

static HANDLERS: Mutex<Vec<(u64, Handler)>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Hands signals to a handler as long as it lives.
pub(crate) struct Watch(u64);

impl Watch {
    pub(crate) fn begin(handler: impl Fn(i32) + Send + 'static) -> Result<Self> {
        static LISTENING: Once = Once::new();
        let mut listening = Ok(());
        LISTENING.call_once(|| listening = listen());
        listening?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        handlers().push((id, Box::new(handler)));
        Ok(Self(id))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        handlers().retain(|(id, _)| *id != self.0);
    }
}

fn handlers() -> MutexGuard<'static, Vec<(u64, Handler)>> {
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen() -> Result<()> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot listen for signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            let handlers = handlers();
            handlers.iter().for_each(|(_, handler)| handler(signal));
            if handlers.is_empty() {
                // The default ends the process.
                drop(emulate_default_handler(signal));
            }
        }
    });
    Ok(())
}
