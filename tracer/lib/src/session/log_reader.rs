//! The log of the eBPF programs.

use crate::error::TraceError;
use crate::kernel::identity::{leave_all_in_thread, start_without_files};
use aya::Ebpf;
use aya_log::EbpfLogger;
use probe_sys::epoll::Epoll;
use probe_user::Stop;
use std::os::fd::AsFd;
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
        let stopped = stop.clone();
        let read = move || {
            while !stopped.is_stopped() && epoll.wait(None).is_ok() {
                logger.flush();
            }
            logger.flush();
        };
        // The log is mapped, so that reading it and waiting for it take no privilege.
        let thread = start_without_files("bpf-log", "the log's reader", leave_all_in_thread, read);
        Ok(Self { stop, thread: Some(thread.map_err(TraceError::load)?) })
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
