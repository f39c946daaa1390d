//! Handlers, and the dispatch of records to them by type.

use crate::queue::batch::Batch;
use crate::queue::consumer::Consumer;
use crate::queue::notices::{CpuChange, Dump, Failure, Loss, Malformed, MalformedReason};
use probe_common::limits::KINDS;
use probe_common::record::assert_fits;
use probe_common::{RawRecord, Record, RecordKind};
use std::any::type_name;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref};

/// A record of type `T`, borrowed from the ring. It dereferences to the record.
#[derive(Debug)]
#[non_exhaustive]
pub struct Emitted<'r, T> {
    /// The CPU that emitted it.
    pub cpu: u32,
    /// When it was emitted: `CLOCK_MONOTONIC`, in nanoseconds.
    pub time: u64,
    /// The record.
    pub record: &'r T,
    /// The bytes of the payload after the `T`; empty for types without a tail.
    pub tail: &'r [u8],
}

impl<T> Deref for Emitted<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.record
    }
}

/// The return type of a handler: nothing, or whether to stop the drain.
pub trait Flow {
    /// Returns whether to continue.
    fn into_flow(self) -> ControlFlow<()>;
}

impl Flow for () {
    fn into_flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Flow for ControlFlow<()> {
    fn into_flow(self) -> ControlFlow<()> {
        self
    }
}

/// A handler whose type is erased.
pub trait RecordHandler {
    /// The least size of a payload, in bytes.
    fn needed(&self) -> usize;

    /// Handles one record.
    fn one(&mut self, cpu: u32, record: RawRecord<'_>) -> Handled;

    /// Handles the next records of its kind in a batch: one call for all of them, in which the compiler knows the
    /// handler. Also returns the length of the last payload.
    fn run(&mut self, cpu: u32, batch: &mut Batch<'_>) -> (Handled, usize);
}

/// The result of handling.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    Continue,
    Break,
    /// The payload is too short for the type.
    Short,
}

struct Typed<T, H> {
    handler: H,
    record: PhantomData<fn(&T)>,
}

impl<T, F, H> RecordHandler for Typed<T, H>
where
    T: Record,
    F: Flow,
    H: FnMut(Emitted<'_, T>) -> F,
{
    fn needed(&self) -> usize {
        size_of::<T>()
    }

    #[inline]
    fn one(&mut self, cpu: u32, record: RawRecord<'_>) -> Handled {
        let Some((typed, tail)) = record.read::<T>() else { return Handled::Short };
        let emitted = Emitted { cpu, time: record.time, record: typed, tail };
        match (self.handler)(emitted).into_flow() {
            ControlFlow::Continue(()) => Handled::Continue,
            ControlFlow::Break(()) => Handled::Break,
        }
    }

    fn run(&mut self, cpu: u32, batch: &mut Batch<'_>) -> (Handled, usize) {
        let run = batch.take_run(T::KIND, size_of::<T>(), |record| {
            let len = record.payload.len();
            match self.one(cpu, record) {
                Handled::Continue => ControlFlow::Continue(()),
                other => ControlFlow::Break((other, len)),
            }
        });
        run.break_value().unwrap_or((Handled::Continue, 0))
    }
}

/// Where handlers may run: on [`AnyThread`] or on [`OneThread`].
pub trait Threads: sealed::Boxes {}

/// Handlers that may move between threads: each of them is `Send`, and so are the [`EvHandlers`].
#[derive(Debug)]
pub struct AnyThread;

/// Handlers that stay on the thread that registers them, and need not be `Send`.
#[derive(Debug)]
pub struct OneThread;

impl Threads for AnyThread {}
impl Threads for OneThread {}

mod sealed {
    use super::{CpuChange, Dump, Failure, Loss, Malformed, RawRecord, RecordHandler};
    use std::ops::ControlFlow;

    /// The types of boxed handlers.
    pub trait Boxes {
        type OfRecord<'h>: RecordHandler + ?Sized + 'h;
        type OfUnknown<'h>: FnMut(u32, RawRecord<'_>) -> ControlFlow<()> + ?Sized + 'h;
        type OfLoss<'h>: FnMut(Loss) -> ControlFlow<()> + ?Sized + 'h;
        type OfFailure<'h>: FnMut(Failure) -> ControlFlow<()> + ?Sized + 'h;
        type OfMalformed<'h>: FnMut(Malformed) -> ControlFlow<()> + ?Sized + 'h;
        type OfCpuChange<'h>: FnMut(CpuChange<'_>) + ?Sized + 'h;
        type OfDump<'h>: FnMut(Dump) + ?Sized + 'h;
    }
}

/// Handlers by the type of record.
///
/// You may register several handlers for one type. Each sees every record of the type, in the order of registration,
/// until one of them breaks. Handlers may borrow anything that lives as long as `'h`.
///
/// ```
/// use probe_user::EvHandlers;
/// use probe_user::common::{Record, RecordKind};
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Forked {
///     parent: u32,
///     child: u32,
/// }
///
/// impl Record for Forked {
///     const KIND: RecordKind = RecordKind::user(0);
/// }
///
/// let mut forks = 0;
/// let mut handlers = EvHandlers::new();
/// handlers.on::<Forked, _>(|_| forks += 1);
/// ```
///
/// The handlers may move to another thread, as a [`PerCpuPipe`](crate::PerCpuPipe) and `tokio::spawn` require, so each
/// of them has to be `Send`. Those of [`EvHandlers::local`] stay on one thread and need not be.
pub struct EvHandlers<'h, M: Threads = AnyThread> {
    /// Indexed by [`RecordKind::index`].
    by_kind: Box<[Vec<Box<M::OfRecord<'h>>>]>,
    /// The type that each kind stands for, once it has a handler.
    types: Box<[Option<(&'static str, usize)>]>,
    /// The size of the longest of these types, in bytes.
    longest: usize,
    unknown: Option<Box<M::OfUnknown<'h>>>,
    loss: Option<Box<M::OfLoss<'h>>>,
    failure: Option<Box<M::OfFailure<'h>>>,
    malformed: Option<Box<M::OfMalformed<'h>>>,
    cpu_change: Option<Box<M::OfCpuChange<'h>>>,
    dump: Option<Box<M::OfDump<'h>>>,
    /// How many payloads were shorter than their type, by CPU, and were not counted by the pipe yet.
    rejected: Vec<(u32, u64)>,
}

impl<T: Threads> std::fmt::Debug for EvHandlers<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.types.iter().flatten()).finish()
    }
}

impl Default for EvHandlers<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'h> EvHandlers<'h> {
    /// Creates an empty set of handlers: records, losses and malformed bytes are only consumed and counted.
    pub fn new() -> Self {
        Self::empty()
    }
}

impl<'h> EvHandlers<'h, OneThread> {
    /// Creates an empty set of handlers that stay on this thread: they may hold an `Rc`, for instance.
    ///
    /// ```
    /// use probe_user::EvHandlers;
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// let lost = Rc::new(Cell::new(0));
    /// let mut handlers = EvHandlers::local();
    /// handlers.on_loss({
    ///     let lost = Rc::clone(&lost);
    ///     move |loss| lost.set(lost.get() + loss.count)
    /// });
    /// ```
    pub fn local() -> Self {
        Self::empty()
    }
}

impl<'h, M: Threads> EvHandlers<'h, M> {
    fn empty() -> Self {
        Self {
            by_kind: (0..KINDS).map(|_| Vec::new()).collect(),
            types: (0..KINDS).map(|_| None).collect(),
            longest: 0,
            unknown: None,
            loss: None,
            failure: None,
            malformed: None,
            cpu_change: None,
            dump: None,
            rejected: Vec::new(),
        }
    }

    /// Adds a handler for the records of type `T`.
    fn push<T: Record>(&mut self, handler: Box<M::OfRecord<'h>>) {
        let () = const { assert_fits::<T>() };
        let index = T::KIND.index().expect("asserted above") as usize;
        // Types of one name may differ: each block of a function can have its own.
        let this = (type_name::<T>(), size_of::<T>());
        let other = *self.types[index].get_or_insert(this);
        assert!(other == this, "{} and {} have the same kind, {}", this.0, other.0, T::KIND);
        self.by_kind[index].push(handler);
        self.longest = self.longest.max(size_of::<T>());
    }

    fn handlers_of(&mut self, kind: RecordKind) -> &mut [Box<M::OfRecord<'h>>] {
        match kind.index() {
            Some(index) => &mut self.by_kind[index as usize],
            None => &mut [],
        }
    }

    /// Reports a payload that is shorter than its type.
    #[cold]
    fn short(&mut self, cpu: u32, kind: RecordKind, len: usize, needed: usize) -> ControlFlow<()> {
        match self.rejected.iter_mut().find(|(of, _)| *of == cpu) {
            Some((_, records)) => *records += 1,
            None => self.rejected.push((cpu, 1)),
        }
        let reason = MalformedReason::Payload { kind, len, needed };
        self.malformed(Malformed { cpu, bytes: len as u64, reason })
    }
}

/// The code that differs between [`AnyThread`] and [`OneThread`]: whether a handler must be `Send`.
macro_rules! registering {
    ($threads:ty $(, $send:ident)?) => {
        impl sealed::Boxes for $threads {
            type OfRecord<'h> = dyn RecordHandler $(+ $send)? + 'h;
            type OfUnknown<'h> = dyn FnMut(u32, RawRecord<'_>) -> ControlFlow<()> $(+ $send)? + 'h;
            type OfLoss<'h> = dyn FnMut(Loss) -> ControlFlow<()> $(+ $send)? + 'h;
            type OfFailure<'h> = dyn FnMut(Failure) -> ControlFlow<()> $(+ $send)? + 'h;
            type OfMalformed<'h> = dyn FnMut(Malformed) -> ControlFlow<()> $(+ $send)? + 'h;
            type OfCpuChange<'h> = dyn FnMut(CpuChange<'_>) $(+ $send)? + 'h;
            type OfDump<'h> = dyn FnMut(Dump) $(+ $send)? + 'h;
        }

        impl<'h> EvHandlers<'h, $threads> {
            /// Registers a handler for the records of type `T`.
            ///
            /// # Panics
            ///
            /// If another type with the same [`Record::KIND`] already has a handler.
            pub fn on<T, F>(&mut self, handler: impl FnMut(Emitted<'_, T>) -> F $(+ $send)? + 'h) -> &mut Self
            where
                T: Record,
                F: Flow,
            {
                self.push::<T>(Box::new(Typed { handler, record: PhantomData::<fn(&T)> }));
                self
            }

            /// Registers the handler for records without another handler, and for all records of a raw pipe
            /// ([`Options::raw`](crate::Options::raw)). It receives the CPU and the record.
            pub fn on_unknown<F: Flow>(
                &mut self,
                mut handler: impl FnMut(u32, RawRecord<'_>) -> F $(+ $send)? + 'h,
            ) -> &mut Self {
                self.unknown = Some(Box::new(move |cpu, record| handler(cpu, record).into_flow()));
                self
            }

            /// Registers the handler for records that failed for another reason than a full ring: see
            /// [`Consumer::failed`].
            pub fn on_failure<F: Flow>(
                &mut self,
                mut handler: impl FnMut(Failure) -> F $(+ $send)? + 'h,
            ) -> &mut Self {
                self.failure = Some(Box::new(move |failure| handler(failure).into_flow()));
                self
            }

            /// Registers the handler for losses: records that found a full ring.
            pub fn on_loss<F: Flow>(
                &mut self,
                mut handler: impl FnMut(Loss) -> F $(+ $send)? + 'h,
            ) -> &mut Self {
                self.loss = Some(Box::new(move |loss| handler(loss).into_flow()));
                self
            }

            /// Registers the handler for malformed bytes.
            pub fn on_malformed<F: Flow>(
                &mut self,
                mut handler: impl FnMut(Malformed) -> F $(+ $send)? + 'h,
            ) -> &mut Self {
                self.malformed = Some(Box::new(move |malformed| handler(malformed).into_flow()));
                self
            }

            /// Registers the handler for CPUs that go online or offline, or that another consumer takes over.
            pub fn on_cpu_change(&mut self, handler: impl FnMut(CpuChange<'_>) $(+ $send)? + 'h) -> &mut Self {
                self.cpu_change = Some(Box::new(handler));
                self
            }

            /// Registers the handler for the dumps of a flight recorder. It is called once for each
            /// [dump](crate::EvPipe::dump), before the losses and records of that dump.
            pub fn on_dump(&mut self, handler: impl FnMut(Dump) $(+ $send)? + 'h) -> &mut Self {
                self.dump = Some(Box::new(handler));
                self
            }
        }
    };
}

registering!(AnyThread, Send);
registering!(OneThread);

impl<M: Threads> Consumer for EvHandlers<'_, M> {
    fn longest(&self) -> usize {
        self.longest
    }

    fn batch(&mut self, cpu: u32, batch: &mut Batch<'_>) -> ControlFlow<()> {
        while let Some(kind) = batch.next_kind() {
            match self.handlers_of(kind) {
                [only] => match only.run(cpu, batch) {
                    (Handled::Continue, _) => {}
                    (Handled::Break, _) => return ControlFlow::Break(()),
                    (Handled::Short, len) => {
                        let needed = only.needed();
                        self.short(cpu, kind, len, needed)?;
                    }
                },
                _ => match batch.next() {
                    Some(record) => self.record(cpu, record)?,
                    None => break,
                },
            }
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        let handlers = self.handlers_of(record.kind);
        if handlers.is_empty() {
            return match &mut self.unknown {
                Some(handler) => handler(cpu, record),
                None => ControlFlow::Continue(()),
            };
        }
        for handler in handlers {
            match handler.one(cpu, record) {
                Handled::Continue => {}
                Handled::Break => return ControlFlow::Break(()),
                // All handlers of a kind have the same type.
                Handled::Short => {
                    let needed = handler.needed();
                    return self.short(cpu, record.kind, record.payload.len(), needed);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        match &mut self.loss {
            Some(handler) => handler(loss),
            None => ControlFlow::Continue(()),
        }
    }

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        match &mut self.failure {
            Some(handler) => handler(failure),
            None => ControlFlow::Continue(()),
        }
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        match &mut self.malformed {
            Some(handler) => handler(malformed),
            None => ControlFlow::Continue(()),
        }
    }

    fn rejected(&mut self) -> Option<(u32, u64)> {
        self.rejected.pop()
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        if let Some(handler) = &mut self.cpu_change {
            handler(change);
        }
    }

    fn dump(&mut self, dump: Dump) {
        if let Some(handler) = &mut self.dump {
            handler(dump);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::counts::KindCounts;
    use probe_common::BlockWriter;
    use probe_common::Records;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    struct Pair {
        a: u32,
        b: u32,
    }

    impl Record for Pair {
        const KIND: RecordKind = RecordKind::user(7);
    }

    /// Passes one record of `kind` to `handlers`, aligned as in a ring.
    fn give(handlers: &mut EvHandlers<'_>, kind: RecordKind, payload: &[u8]) -> ControlFlow<()> {
        let mut words = [0u64; 64];
        let bytes = &mut words.as_mut_bytes()[4..];
        let mut writer = BlockWriter::new(bytes, 0).unwrap();
        assert!(writer.push(kind, 42, payload));
        let record = Records::new(writer.finish()).unwrap().next().unwrap().unwrap();
        handlers.record(3, record)
    }

    #[test]
    fn every_handler_of_a_type_sees_its_record_and_its_tail() {
        let (mut first, mut second) = (Vec::new(), 0);
        let mut handlers = EvHandlers::new();
        handlers
            .on::<Pair, _>(|e| first.push((e.cpu, e.time, e.a, e.b, e.tail.to_vec())))
            .on::<Pair, _>(|e| second += e.b);
        let payload = [&1u32.to_ne_bytes()[..], &2u32.to_ne_bytes(), b"tail"].concat();
        assert_eq!(give(&mut handlers, Pair::KIND, &payload), ControlFlow::Continue(()));
        drop(handlers);
        assert_eq!(first, [(3, 42, 1, 2, b"tail".to_vec())]);
        assert_eq!(second, 2);
    }

    #[test]
    fn a_batch_is_delivered_in_order_across_kinds_and_lengths() {
        let written: [(RecordKind, &[u8]); 7] = [
            (Pair::KIND, b"12345671"),
            (Pair::KIND, b"12345672"),
            (RecordKind::user(8), b"12345673"),
            (Pair::KIND, b"12345674"),
            (Pair::KIND, b"12345675tail"),
            (Pair::KIND, b"12345676"),
            (Pair::KIND, b"12345677"),
        ];
        let mut words = [0u64; 64];
        let mut writer = BlockWriter::new(&mut words.as_mut_bytes()[4..], 0).unwrap();
        for (kind, payload) in written {
            assert!(writer.push(kind, 0, payload));
        }
        let block = writer.finish();
        let seen = std::sync::Mutex::new(Vec::new());
        let note = |payload: &[u8]| seen.lock().unwrap().push(payload.to_vec());
        let given = KindCounts::default();
        {
            let mut handlers = EvHandlers::new();
            handlers
                .on::<Pair, _>(|e| note(&[e.record.as_bytes(), e.tail].concat()))
                .on_unknown(|_, record| note(record.payload));
            let mut batch = Batch::of_block(Records::new(block).unwrap(), 0, block.len(), &given);
            assert_eq!(handlers.batch(3, &mut batch), ControlFlow::Continue(()));
            assert_eq!(batch.close(), 7);
        }
        assert_eq!(seen.into_inner().unwrap(), written.map(|(_, payload)| payload.to_vec()));
    }

    #[test]
    fn a_break_ends_the_round() {
        let mut later = 0;
        let mut handlers = EvHandlers::new();
        handlers.on::<Pair, _>(|_| ControlFlow::Break(())).on::<Pair, _>(|_| later += 1);
        assert_eq!(give(&mut handlers, Pair::KIND, &[0; 8]), ControlFlow::Break(()));
        drop(handlers);
        assert_eq!(later, 0);
    }

    #[test]
    fn unknown_kinds_fall_back() {
        let mut kinds = Vec::new();
        let mut handlers = EvHandlers::new();
        handlers.on::<Pair, _>(|_| ()).on_unknown(|_, record| kinds.push(record.kind.0));
        for kind in [RecordKind(0), RecordKind::user(8), RecordKind(u32::MAX)] {
            let _ = give(&mut handlers, kind, b"");
        }
        drop(handlers);
        assert_eq!(kinds, [0, 0x1008, u32::MAX]);
    }

    #[test]
    fn a_short_payload_is_malformed_once() {
        let mut seen = Vec::new();
        let mut handlers = EvHandlers::new();
        handlers
            .on::<Pair, ()>(|_| panic!("there is no Pair"))
            .on::<Pair, ()>(|_| panic!("there is no Pair"))
            .on_malformed(|m| seen.push(m.reason));
        let _ = give(&mut handlers, Pair::KIND, &[0; 7]);
        drop(handlers);
        assert_eq!(seen, [MalformedReason::Payload { kind: Pair::KIND, len: 7, needed: 8 }]);
    }

    #[test]
    #[should_panic = "have the same kind, 0x1007"]
    fn one_kind_is_one_type() {
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        struct Other(u8);
        impl Record for Other {
            const KIND: RecordKind = Pair::KIND;
        }
        EvHandlers::new().on::<Pair, _>(|_| ()).on::<Other, _>(|_| ());
    }
}
