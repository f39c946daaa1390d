//! One BPF ring buffer per CPU, in an array of maps.

use super::ring_buffer::RingBuffer;
use super::{Entry, check};
use crate::generator::{self, join};
use crate::reader::threads::{Inboxes, Threads};
use crate::reader::{PEER_RINGS, Reader, Sizes};
use crate::sink::Sink;
use anyhow::{Result, bail};
use aya::maps::Map;
use libbpf_sys as sys;
use probe_user::Stop;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null;
use std::sync::Arc;
use std::time::Duration;

/// All rings, read by one consumer.
pub(super) fn open(rings: &Map, sweep: Duration, sizes: Sizes) -> Result<Box<dyn Reader>> {
    let rings = create(rings, sizes)?;
    Ok(Box::new(consumer(&rings, sweep, Entry::Record(sizes.payload))?))
}

/// A consumer of all these rings.
pub(super) fn consumer(
    rings: &[(u32, OwnedFd)],
    sweep: Duration,
    entry: Entry,
) -> Result<RingBuffer> {
    let fds: Vec<BorrowedFd<'_>> = rings.iter().map(|(_, ring)| ring.as_fd()).collect();
    RingBuffer::open(&fds, Some(sweep), entry)
}

/// Each ring read on its own CPU by a real-time consumer.
pub(super) fn open_realtime(
    rings: &Map,
    sweep: Duration,
    sizes: Sizes,
    priority: u32,
) -> Result<Box<dyn Reader>> {
    let consumers = create(rings, sizes)?.into_iter().map(|(cpu, ring)| {
        let ring = RingBuffer::open(&[ring.as_fd()], Some(sweep), Entry::Record(sizes.payload))?;
        Ok(Local { cpu, ring, priority })
    });
    let consumers = consumers.collect::<Result<Vec<_>>>()?;
    let inboxes = Arc::new(Inboxes::new()?);
    let run = {
        let inboxes = Arc::clone(&inboxes);
        move |stop: &Stop| {
            std::thread::scope(|scope| {
                let start = |local: Local| scope.spawn(|| local.run(&inboxes, stop));
                let threads: Vec<_> = consumers.into_iter().map(start).collect();
                threads.into_iter().try_for_each(join)
            })
        }
    };
    Ok(Box::new(Threads::start(inboxes, run)?))
}

/// Creates a ring for each online CPU and stores it in the array that the programs read.
pub(super) fn create(rings: &Map, sizes: Sizes) -> Result<Vec<(u32, OwnedFd)>> {
    let Map::ArrayOfMaps(array) = rings else { bail!("{PEER_RINGS} has the wrong type") };
    let array = array.fd().as_fd().as_raw_fd();
    let bytes = u32::try_from(sizes.bytes_per_cpu)?;
    let create = |cpu: u32| {
        // SAFETY: null is valid for the name and for the options.
        let ring =
            unsafe { sys::bpf_map_create(sys::BPF_MAP_TYPE_RINGBUF, null(), 0, 0, bytes, null()) };
        check("bpf_map_create", ring)?;
        // SAFETY: the kernel has just returned this descriptor.
        let ring = unsafe { OwnedFd::from_raw_fd(ring) };
        let fd = ring.as_raw_fd();
        let (key, value) = ((&raw const cpu).cast(), (&raw const fd).cast());
        // SAFETY: array keys and descriptors are both four bytes long.
        check("bpf_map_update_elem", unsafe { sys::bpf_map_update_elem(array, key, value, 0) })?;
        Ok((cpu, ring))
    };
    probe_user::cpus::online()?.into_iter().map(create).collect()
}

/// The consumer of one CPU.
struct Local {
    cpu: u32,
    ring: RingBuffer,
    priority: u32,
}

impl Local {
    /// Consumes until stopped.
    fn run(mut self, inboxes: &Inboxes, stop: &Stop) -> Result<()> {
        generator::pin(self.cpu)?;
        set_realtime(self.priority)?;
        let mut sink = Sink::default();
        while !stop.is_stopped() {
            sink.time_one_in(inboxes.every());
            self.ring.step(Duration::ZERO, &mut sink)?;
            // The time of a delivery is that of its last record.
            if sink.records > 0 {
                inboxes.put(self.cpu, &mut sink);
            }
        }
        Ok(())
    }
}

/// Gives this thread a real-time priority, so that it preempts producers.
fn set_realtime(priority: u32) -> Result<()> {
    let param = libc::sched_param { sched_priority: priority as i32 };
    // SAFETY: 0 is this thread, and the kernel only reads the parameter.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } != 0 {
        bail!("sched_setscheduler failed: {}", io::Error::last_os_error());
    }
    Ok(())
}
