//! SIGHUP, SIGINT and SIGTERM: passed to the running machines, or fatal to xtask if none runs.

use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

type Handler = dyn Fn(i32) + Send + Sync;

static HANDLERS: Mutex<Vec<Weak<Handler>>> = Mutex::new(Vec::new());

/// Passes signals to a handler until the result is dropped.
pub(crate) fn watch(handler: impl Fn(i32) + Send + Sync + 'static) -> Result<Arc<Handler>> {
    static LISTENING: Once = Once::new();
    let mut listening = Ok(());
    LISTENING.call_once(|| listening = listen());
    listening?;
    let handler: Arc<Handler> = Arc::new(handler);
    handlers().push(Arc::downgrade(&handler));
    Ok(handler)
}

fn handlers() -> MutexGuard<'static, Vec<Weak<Handler>>> {
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen() -> Result<()> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot listen for signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            let handlers = handlers().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
            handlers.iter().for_each(|handler| handler(signal));
            if handlers.is_empty() {
                // The default action ends the process.
                drop(emulate_default_handler(signal));
            }
        }
    });
    Ok(())
}
