//! What the eBPF programs log.

use super::error::TraceError;
use super::privileges;
use crate::stop::Stop;
use crate::sys::epoll::Epoll;
use aya::Ebpf;
use aya_log::EbpfLogger;
use std::os::fd::AsFd;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

/// Gives the log of the eBPF programs to the `log` crate, from a thread of its own.
#[derive(Debug)]
pub(super) struct LogReader {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl LogReader {
    pub(super) fn start(mut log: Ebpf) -> Result<Self, TraceError> {
        let mut logger = EbpfLogger::init(&mut log).map_err(TraceError::load)?;
        let stop = Stop::new().map_err(TraceError::load)?;
        let epoll = Epoll::new().map_err(TraceError::load)?;
        epoll.add(logger.as_fd()).map_err(TraceError::load)?;
        epoll.add(stop.as_fd()).map_err(TraceError::load)?;
        let (stopped, begun) = (stop.clone(), Arc::new(Barrier::new(2)));
        let begins = Arc::clone(&begun);
        let read = move || {
            // Its map is mapped: to read it, and to wait, takes no privilege.
            if let Err(error) = privileges::drop_in_thread() {
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
        // It has no privileges from here on.
        begun.wait();
        Ok(Self { stop, thread })
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // It has told its panic already.
            let _ = thread.join();
        }
    }
}
