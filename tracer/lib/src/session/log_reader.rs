//! The log of the eBPF programs.

use crate::error::TraceError;
use crate::kernel::confinement::deny_files_in_thread;
use crate::kernel::identity::leave_all_in_thread;
use aya::Ebpf;
use aya_log::EbpfLogger;
use probe_sys::epoll::Epoll;
use probe_user::Stop;
use std::os::fd::AsFd;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

/// Forwards the log of the eBPF programs to the `log` crate, in a thread of its own.
#[derive(Debug)]
pub(crate) struct LogReader {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl LogReader {
    pub(crate) fn start(mut log: Ebpf) -> Result<Self, TraceError> {
        let mut logger = EbpfLogger::init(&mut log).map_err(TraceError::load)?;
        let stop = Stop::new().map_err(TraceError::load)?;
        let epoll = Epoll::new().map_err(TraceError::load)?;
        epoll.add(logger.as_fd()).map_err(TraceError::load)?;
        epoll.add(stop.as_fd()).map_err(TraceError::load)?;
        let (stopped, begun) = (stop.clone(), Arc::new(Barrier::new(2)));
        let begins = Arc::clone(&begun);
        let read = move || {
            // The log is mapped, so that reading it and waiting for it take no privilege.
            if let Err(error) = leave_all_in_thread().and_then(|()| deny_files_in_thread()) {
                log::warn!("the log's reader keeps its privileges: {error}");
            }
            begins.wait();
            while !stopped.is_stopped() && epoll.wait(None).is_ok() {
                logger.flush();
            }
            logger.flush();
        };
        let thread = std::thread::Builder::new().name("bpf-log".into()).spawn(read);
        let thread = Some(thread.map_err(TraceError::load)?);
        // From here on, the thread has no privileges.
        begun.wait();
        Ok(Self { stop, thread })
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic already.
            let _ = thread.join();
        }
    }
}
