//! A BPF ring buffer for each CPU, in an array of maps.

use super::check;
use super::ring_buffer::RingBuffer;
use crate::generator::{self, join};
use crate::reader::threads::{Desks, Threads};
use crate::reader::{PEER_RINGS, Reader, Shape};
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

/// All of them, read by one consumer.
pub(super) fn open(rings: &Map, sweep: Duration, shape: Shape) -> Result<Box<dyn Reader>> {
    let rings = create(rings, shape)?;
    let fds: Vec<BorrowedFd<'_>> = rings.iter().map(|(_, ring)| ring.as_fd()).collect();
    Ok(Box::new(RingBuffer::open(&fds, Some(sweep), shape)?))
}

/// Each read on its CPU, by a consumer with a real-time priority.
pub(super) fn open_realtime(
    rings: &Map,
    sweep: Duration,
    shape: Shape,
    priority: u32,
) -> Result<Box<dyn Reader>> {
    let consumers = create(rings, shape)?.into_iter().map(|(cpu, ring)| {
        let ring = RingBuffer::open(&[ring.as_fd()], Some(sweep), shape)?;
        Ok(Local { cpu, ring, priority })
    });
    let consumers = consumers.collect::<Result<Vec<_>>>()?;
    let desks = Arc::new(Desks::new()?);
    let run = {
        let desks = Arc::clone(&desks);
        move |stop: &Stop| {
            std::thread::scope(|scope| {
                let start = |local: Local| scope.spawn(|| local.run(&desks, stop));
                let threads: Vec<_> = consumers.into_iter().map(start).collect();
                threads.into_iter().try_for_each(join)
            })
        }
    };
    Ok(Box::new(Threads::start(desks, run)?))
}

/// Makes a ring for each CPU that is online, and puts it into the array that programs find it in.
fn create(rings: &Map, shape: Shape) -> Result<Vec<(u32, OwnedFd)>> {
    let Map::ArrayOfMaps(array) = rings else { bail!("{PEER_RINGS} is another map") };
    let array = array.fd().as_fd().as_raw_fd();
    let bytes = u32::try_from(shape.bytes_per_cpu)?;
    let create = |cpu: u32| {
        // SAFETY: no name and no options are valid ones.
        let ring =
            unsafe { sys::bpf_map_create(sys::BPF_MAP_TYPE_RINGBUF, null(), 0, 0, bytes, null()) };
        check("bpf_map_create", ring)?;
        // SAFETY: the kernel has just given it to us.
        let ring = unsafe { OwnedFd::from_raw_fd(ring) };
        let fd = ring.as_raw_fd();
        let (key, value) = ((&raw const cpu).cast(), (&raw const fd).cast());
        // SAFETY: the keys of an array are four bytes long, and descriptors, too.
        check("bpf_map_update_elem", unsafe { sys::bpf_map_update_elem(array, key, value, 0) })?;
        Ok((cpu, ring))
    };
    probe_user::cpus::online()?.into_iter().map(create).collect()
}

/// One CPU's consumer.
struct Local {
    cpu: u32,
    ring: RingBuffer,
    priority: u32,
}

impl Local {
    /// Consumes until it is to stop.
    fn run(mut self, desks: &Desks, stop: &Stop) -> Result<()> {
        generator::pin(self.cpu)?;
        set_realtime(self.priority)?;
        let mut sink = Sink::default();
        while !stop.is_stopped() {
            sink.time_one_in(desks.every());
            self.ring.step(Duration::ZERO, &mut sink)?;
            desks.put(self.cpu, &mut sink);
        }
        Ok(())
    }
}

/// Has those that emit wait for this thread.
fn set_realtime(priority: u32) -> Result<()> {
    let param = libc::sched_param { sched_priority: priority as i32 };
    // SAFETY: 0 is this thread, and the kernel reads the parameter.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } != 0 {
        bail!("sched_setscheduler failed: {}", io::Error::last_os_error());
    }
    Ok(())
}
