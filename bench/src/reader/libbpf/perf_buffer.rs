//! libbpf's `perf_buffer`.

use super::{Entry, SinkContext, check, made, millis, take_sample};
use crate::reader::{PEER_EVENTS, Reader, Sizes};
use crate::sink::Sink;
use anyhow::{Result, bail};
use aya::maps::Map;
use libbpf_sys as sys;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{NonNull, null};
use std::time::Duration;

/// When the kernel wakes the consumer.
#[derive(Clone, Copy)]
pub(super) enum Wakeup {
    /// After this many records. libbpf's default is 1.
    Every(u32),
    /// When this many bytes are unread.
    Watermark(u32),
}

pub(super) struct PerfBuffer {
    buffer: NonNull<sys::perf_buffer>,
    context: Box<SinkContext>,
    wakeup: Wakeup,
    /// Owns the map that holds the buffer's events.
    _map: Map,
}

// SAFETY: libbpf accepts calls from any thread, one at a time.
unsafe impl Send for PerfBuffer {}

unsafe extern "C" fn perf_sample(context: *mut c_void, _cpu: c_int, data: *mut c_void, size: u32) {
    // SAFETY: libbpf calls this as take_sample() requires.
    unsafe { take_sample(context, data, size as usize) };
}

unsafe extern "C" fn perf_lost(context: *mut c_void, _cpu: c_int, count: u64) {
    // SAFETY: as in take_sample().
    let context = unsafe { &*context.cast::<SinkContext>() };
    // SAFETY: as in take_sample().
    unsafe { (*context.sink).lost += count };
}

/// Does what `perf_buffer__new` does with a record, for a buffer with custom attributes.
unsafe extern "C" fn perf_event(
    context: *mut c_void,
    cpu: c_int,
    event: *mut sys::perf_event_header,
) -> sys::bpf_perf_event_ret {
    const LOST: u32 = 2;
    const SAMPLE: u32 = 9;
    let body = event.cast::<u8>().wrapping_add(size_of::<sys::perf_event_header>());
    // SAFETY: libbpf passes a whole record.
    match unsafe { (*event).type_ } {
        SAMPLE => {
            // SAFETY: `{ u32 size; char data[size]; }`
            let size = unsafe { body.cast::<u32>().read() };
            // SAFETY: as above.
            unsafe { take_sample(context, body.wrapping_add(4).cast(), size as usize) };
        }
        LOST => {
            // SAFETY: `{ u64 id; u64 lost; }`
            let count = unsafe { body.wrapping_add(8).cast::<u64>().read() };
            // SAFETY: the context is the one registered below.
            unsafe { perf_lost(context, cpu, count) };
        }
        _ => {}
    }
    sys::LIBBPF_PERF_EVENT_CONT
}

impl PerfBuffer {
    pub(super) fn open(map: Map, wakeup: Wakeup, sizes: Sizes) -> Result<Self> {
        let Map::PerfEventArray(data) = &map else { bail!("{PEER_EVENTS} has the wrong type") };
        let mut context = SinkContext::new(Entry::Record(sizes.payload));
        let address: *mut SinkContext = &raw mut *context;
        let fd = data.fd().as_fd().as_raw_fd();
        let pages = (sizes.bytes_per_cpu / rustix::param::page_size()) as u64;
        let buffer = match wakeup {
            // SAFETY: the context lives as long as the buffer.
            Wakeup::Every(count) => unsafe {
                let options = sys::perf_buffer_opts {
                    sz: size_of::<sys::perf_buffer_opts>() as _,
                    sample_period: count,
                    ..Default::default()
                };
                let (sample, lost) = (Some(perf_sample as _), Some(perf_lost as _));
                sys::perf_buffer__new(fd, pages, sample, lost, address.cast(), &options)
            },
            Wakeup::Watermark(bytes) => {
                let mut attributes = sys::perf_event_attr {
                    type_: sys::PERF_TYPE_SOFTWARE,
                    size: size_of::<sys::perf_event_attr>() as u32,
                    config: sys::PERF_COUNT_SW_BPF_OUTPUT.into(),
                    sample_type: sys::PERF_SAMPLE_RAW.into(),
                    ..Default::default()
                };
                attributes.__bindgen_anon_1.sample_period = 1;
                attributes.__bindgen_anon_2.wakeup_watermark = bytes;
                attributes.set_watermark(1);
                // SAFETY: as above; the kernel reads as many bytes of the attributes as their size
                // field says.
                unsafe {
                    let event = Some(perf_event as _);
                    let context = address.cast();
                    sys::perf_buffer__new_raw(fd, pages, &mut attributes, event, context, null())
                }
            }
        };
        let buffer = made("perf_buffer__new", buffer)?;
        Ok(Self { buffer, context, wakeup, _map: map })
    }
}

impl Reader for PerfBuffer {
    fn step(&mut self, timeout: Duration, sink: &mut Sink) -> Result<()> {
        self.context.sink = sink;
        let wakes_each = matches!(self.wakeup, Wakeup::Every(1));
        // Records below the watermark send no wakeup.
        let timeout = if wakes_each { millis(timeout) } else { 10 };
        // SAFETY: the buffer is open, and the sink is borrowed during the call.
        let ready = unsafe { sys::perf_buffer__poll(self.buffer.as_ptr(), timeout) };
        if ready == 0 && !wakes_each {
            return self.drain(sink);
        }
        check("perf_buffer__poll", ready)
    }

    fn drain(&mut self, sink: &mut Sink) -> Result<()> {
        self.context.sink = sink;
        // SAFETY: as above.
        check("perf_buffer__consume", unsafe { sys::perf_buffer__consume(self.buffer.as_ptr()) })
    }
}

impl Drop for PerfBuffer {
    fn drop(&mut self) {
        // SAFETY: the buffer is open, and this is its last use.
        unsafe { sys::perf_buffer__free(self.buffer.as_ptr()) };
    }
}
