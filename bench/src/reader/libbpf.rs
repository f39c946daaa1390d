//! libbpf's `perf_buffer` and `ring_buffer`.

mod packed;
mod perf_buffer;
mod ring_buffer;
mod ring_per_cpu;

use self::perf_buffer::{PerfBuffer, Wakeup};
use self::ring_buffer::RingBuffer;
use super::{
    PEER_EVENTS, PEER_RING, PEER_RINGS, REALTIME_PRIORITY, Reader, Sizes, realtime_part, take,
};
use crate::contender::Contender;
use crate::sink::Sink;
use anyhow::{Context, Result, bail};
use aya::Ebpf;
use aya::maps::Map;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

/// Poll interval of rings whose records send no wakeup.
const SWEEP: Duration = Duration::from_millis(1);

/// The same for the [`realtime_part`] of an 8 MiB ring: slightly shorter than the time it takes to
/// fill.
const REALTIME_SWEEP: Duration = Duration::from_micros(400);

pub(super) fn open(
    contender: Contender,
    object: &mut Ebpf,
    sizes: Sizes,
) -> Result<Box<dyn Reader>> {
    let mut perf_buffer = |wakeup| {
        let reader = PerfBuffer::open(take(object, PEER_EVENTS)?, wakeup, sizes)?;
        Ok(Box::new(reader) as Box<dyn Reader>)
    };
    match contender {
        Contender::LibbpfPerf => perf_buffer(Wakeup::Every(1)),
        Contender::LibbpfPerfEvery64 => perf_buffer(Wakeup::Every(64)),
        Contender::LibbpfPerfTuned => {
            perf_buffer(Wakeup::Watermark(sizes.bytes_per_cpu as u32 / 4))
        }
        Contender::LibbpfRingbufPercpu => {
            ring_per_cpu::open(&take(object, PEER_RINGS)?, SWEEP, sizes)
        }
        Contender::LibbpfRingbufPercpuPacked => packed::open(object, SWEEP, sizes),
        Contender::LibbpfRingbufPercpuRealtime => {
            let (rings, sizes) = (take(object, PEER_RINGS)?, realtime_part(sizes));
            ring_per_cpu::open_realtime(&rings, REALTIME_SWEEP, sizes, REALTIME_PRIORITY)
        }
        _ => {
            let Map::RingBuf(ring) = take(object, PEER_RING)? else {
                bail!("{PEER_RING} has the wrong type")
            };
            let sweep = (contender != Contender::LibbpfRingbuf).then_some(SWEEP);
            let entry = Entry::Record(sizes.payload);
            Ok(Box::new(RingBuffer::open(&[ring.fd().as_fd()], sweep, entry)?))
        }
    }
}

/// The context of the callbacks: the sink that currently receives records. Boxed, because libbpf
/// keeps its address.
struct SinkContext {
    sink: *mut Sink,
    entry: Entry,
}

/// What an entry of the ring holds.
#[derive(Clone, Copy)]
enum Entry {
    /// A record with a payload of this many bytes.
    Record(usize),
    /// A block of records, after a word that aligns them.
    Block,
}

impl SinkContext {
    /// No sink yet.
    fn new(entry: Entry) -> Box<Self> {
        Box::new(Self { sink: null_mut(), entry })
    }
}

/// # Safety
///
/// libbpf calls this with the registered context, whose sink outlives the call into libbpf, and
/// with a record of `size` bytes.
unsafe fn take_sample(context: *mut c_void, data: *mut c_void, size: usize) {
    // SAFETY: as above.
    let context = unsafe { &*context.cast::<SinkContext>() };
    // SAFETY: as above.
    let sink = unsafe { &mut *context.sink };
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast(), size) };
    match context.entry {
        Entry::Record(payload) => sink.framed(bytes, payload),
        Entry::Block => sink.block(bytes.get(size_of::<u32>()..).unwrap_or_default()),
    }
}

fn millis(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX)
}

/// The object that a libbpf call created, or the error.
fn made<T>(call: &str, pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).with_context(|| format!("{call} failed: {}", io::Error::last_os_error()))
}

fn check(call: &str, result: c_int) -> Result<()> {
    if result >= 0 || result == -libc::EINTR {
        return Ok(());
    }
    bail!("{call} failed: {}", io::Error::from_raw_os_error(-result))
}
