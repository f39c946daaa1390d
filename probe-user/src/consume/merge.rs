//! The merge of the records of all CPUs in time order: which records are held, delivered, or late.

use crate::consume::gaps::Gaps;
use crate::consume::held::Held;
use crate::queue::consumer::Consumer;
use crate::queue::notices::{CpuChange, Dump, Failure, Loss, Malformed};
use probe_common::{RawRecord, RecordKind};
use std::ops::ControlFlow;

/// Holds records until they are released, and delivers them in time order. This is what an
/// [`OrderedPipe`](crate::OrderedPipe) does with the records of a pipe, for records from elsewhere, such as a file.
///
/// The caller passes the time. The merge reads its own clock only for a record that claims to come from the future.
#[derive(Debug)]
pub struct Merge {
    held: Held,
    gaps: Gaps,
    /// In nanoseconds.
    window: u64,
    clock: fn() -> u64,
    /// The latest time that is accepted without reading the clock again.
    believed: u64,
    /// The latest time that was released.
    released: u64,
    records: u64,
    late: u64,
    early: u64,
    /// Whether something was delivered since the consumer last caught up.
    owes_catch_up: bool,
}

impl Merge {
    /// Creates a merge that holds at most `memory` bytes. A record more than `window` nanoseconds ahead of `clock`
    /// counts as `window` ahead.
    pub fn new(window: u64, memory: usize, clock: fn() -> u64) -> Self {
        Self {
            held: Held::new(memory),
            gaps: Gaps::default(),
            window,
            clock,
            believed: 0,
            released: 0,
            records: 0,
            late: 0,
            early: 0,
            owes_catch_up: false,
        }
    }

    pub(crate) fn limit(&mut self, bytes: usize) {
        self.held.limit(bytes);
    }

    /// The number of records held.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The earliest time held.
    pub(crate) fn first(&self) -> Option<u64> {
        self.held.first()
    }

    /// The number of records delivered so far.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// The number of records that arrived after a later one was delivered.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The number of records delivered before their time, for lack of memory.
    pub(crate) fn early(&self) -> u64 {
        self.early
    }

    /// The consumer to drain a pipe into.
    pub fn intake<'m, C: Consumer>(&'m mut self, consumer: &'m mut C) -> Intake<'m, C> {
        Intake { merge: self, consumer, flow: ControlFlow::Continue(()) }
    }

    /// Delivers what is held up to and including the time `until`.
    pub fn release<C: Consumer>(&mut self, until: u64, consumer: &mut C) -> ControlFlow<()> {
        self.report_gaps(consumer)?;
        while self.held.first().is_some_and(|first| first <= until) {
            consumer.accepts()?;
            self.deliver_first(consumer)?;
        }
        ControlFlow::Continue(())
    }

    /// Delivers the losses before which no record is held.
    fn report_gaps<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        while let Some(loss) = self.gaps.pop_before(self.held.first()) {
            consumer.lost(loss)?;
        }
        ControlFlow::Continue(())
    }

    /// Drops what is held, and calls `report` with the CPU and the kind of each record.
    pub(crate) fn abandon(&mut self, mut report: impl FnMut(u32, RecordKind)) {
        while let Some((_, cpu, record)) = self.held.pop() {
            report(cpu, record.kind);
        }
    }

    /// Notifies the consumer that nothing more is due, if it has received anything.
    pub(crate) fn catch_up<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        if std::mem::take(&mut self.owes_catch_up) {
            consumer.caught_up()?;
        }
        ControlFlow::Continue(())
    }

    /// Delivers the first record, and the losses behind it. All state is updated before the consumer sees the record, since it
    /// may panic.
    fn deliver_first<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        let Some((time, cpu, record)) = self.held.pop() else {
            return ControlFlow::Continue(());
        };
        self.released = self.released.max(time);
        self.records += 1;
        self.owes_catch_up = true;
        consumer.record(cpu, record)?;
        self.report_gaps(consumer)
    }

    fn deliver_now<C: Consumer>(
        &mut self,
        cpu: u32,
        record: RawRecord<'_>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        self.records += 1;
        self.owes_catch_up = true;
        consumer.record(cpu, record)
    }

    fn take<C: Consumer>(
        &mut self,
        cpu: u32,
        record: RawRecord<'_>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let time = self.believe(record.time);
        self.gaps.record(cpu, time);
        if time < self.released {
            self.late += 1;
            return self.deliver_now(cpu, record, consumer);
        }
        if !self.held.push(time, cpu, record) {
            // The record is longer than any in a ring can be.
            self.early += 1;
            return self.deliver_now(cpu, record, consumer);
        }
        self.make_room(consumer)
    }

    /// Delivers the oldest records until there is room for any record. Also call this before taking records in, since
    /// a consumer may have stopped the last call.
    pub(crate) fn make_room<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        while !self.held.has_room() {
            consumer.accepts()?;
            self.early += 1;
            self.deliver_first(consumer)?;
        }
        ControlFlow::Continue(())
    }

    /// The time to order by. A time more than a window ahead is not believed: its record would be held for as long as
    /// it claims, and take room from others.
    fn believe(&mut self, time: u64) -> u64 {
        if time > self.believed {
            self.believed = self.believed.max((self.clock)().saturating_add(self.window));
        }
        time.min(self.believed)
    }
}

/// Takes records and losses into a [`Merge`], and passes what cannot be held to the consumer.
pub struct Intake<'m, C> {
    merge: &'m mut Merge,
    consumer: &'m mut C,
    /// Whether the consumer broke.
    pub(crate) flow: ControlFlow<()>,
}

impl<C: Consumer> Intake<'_, C> {
    /// Calls `give`, unless the consumer broke before.
    fn pass(
        &mut self,
        give: impl FnOnce(&mut Merge, &mut C) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.flow?;
        self.flow = give(self.merge, self.consumer);
        self.flow
    }
}

impl<C: Consumer> Consumer for Intake<'_, C> {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.pass(|merge, consumer| merge.take(cpu, record, consumer))
    }

    fn accepts(&mut self) -> ControlFlow<()> {
        self.pass(|_, consumer| consumer.accepts())
    }

    /// A loss waits for the records that its CPU had sent before.
    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.merge.gaps.push(loss);
        self.pass(Merge::report_gaps)
    }

    fn failed(&mut self, failure: Failure) -> ControlFlow<()> {
        self.pass(|_, consumer| consumer.failed(failure))
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        self.pass(|_, consumer| consumer.malformed(malformed))
    }

    fn cpu_changed(&mut self, change: CpuChange<'_>) {
        self.consumer.cpu_changed(change);
    }

    fn rejected(&mut self) -> Option<(u32, u64)> {
        self.consumer.rejected()
    }

    /// The records of every dump are in an order of their own.
    fn dump(&mut self, dump: Dump) {
        let flow = self.pass(|merge, consumer| merge.release(u64::MAX, consumer));
        self.merge.released = 0;
        if flow.is_continue() {
            self.consumer.dump(dump);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_common::RecordKind;
    use proptest::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const KIND: RecordKind = RecordKind::user(0);

    /// Logs the CPU, the time and the length of each record, and then breaks or panics as requested.
    #[derive(Default)]
    struct Log {
        given: Vec<(u32, u64, usize)>,
        /// Losses: the CPU, their number, and how many records were given before.
        losses: Vec<(u32, u64, usize)>,
        caught_up: u32,
        accepts: Option<usize>,
        break_at: Option<usize>,
        panic_at: Option<usize>,
    }

    impl Consumer for Log {
        fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
            self.given.push((cpu, record.time, record.payload.len()));
            let count = Some(self.given.len());
            assert!(count != self.panic_at, "on purpose");
            if count == self.break_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }

        fn accepts(&mut self) -> ControlFlow<()> {
            let is_full = self.accepts.is_some_and(|limit| self.given.len() >= limit);
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }

        fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
            self.losses.push((loss.cpu, loss.count, self.given.len()));
            ControlFlow::Continue(())
        }

        fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
            panic!("{malformed}")
        }

        fn caught_up(&mut self) -> ControlFlow<()> {
            self.caught_up += 1;
            ControlFlow::Continue(())
        }
    }

    fn end_of_time() -> u64 {
        u64::MAX
    }

    fn take(merge: &mut Merge, log: &mut Log, cpu: u32, time: u64, len: usize) -> ControlFlow<()> {
        let payload = vec![0; len];
        merge.intake(log).record(cpu, RawRecord { kind: KIND, time, payload: &payload })
    }

    fn times(log: &Log) -> Vec<u64> {
        log.given.iter().map(|(_, time, _)| *time).collect()
    }

    #[test]
    fn nothing_is_delivered_before_it_is_released() {
        let (mut merge, mut log) = (Merge::new(10, 0, end_of_time), Log::default());
        for (cpu, time) in [(0, 50), (0, 70), (1, 40), (1, 60)] {
            assert!(take(&mut merge, &mut log, cpu, time, 0).is_continue());
        }
        assert!(merge.release(39, &mut log).is_continue());
        assert!(log.given.is_empty());
        assert!(merge.release(60, &mut log).is_continue());
        assert_eq!(times(&log), [40, 50, 60]);
        assert_eq!((merge.len(), merge.first(), merge.late()), (1, Some(70), 0));
    }

    #[test]
    fn late_records_are_delivered_at_once_and_counted() {
        let (mut merge, mut log) = (Merge::new(10, 0, end_of_time), Log::default());
        let _ = take(&mut merge, &mut log, 0, 50, 0);
        let _ = merge.release(50, &mut log);
        // A record as old as the last one is still in order.
        let _ = take(&mut merge, &mut log, 1, 50, 0);
        assert_eq!((merge.late(), log.given.len()), (0, 1));
        let _ = take(&mut merge, &mut log, 1, 49, 0);
        assert_eq!((merge.late(), times(&log)), (1, vec![50, 49]));
        let _ = merge.release(50, &mut log);
        assert_eq!(times(&log), [50, 49, 50]);
        assert_eq!(merge.records(), 3);
    }

    #[test]
    fn records_that_the_consumer_does_not_accept_are_held() {
        let mut merge = Merge::new(10, 0, end_of_time);
        let mut log = Log { accepts: Some(1), ..Log::default() };
        for time in [50, 60, 70] {
            let _ = take(&mut merge, &mut log, 0, time, 0);
        }
        for _ in 0..2 {
            assert!(merge.release(70, &mut log).is_break());
            assert_eq!((times(&log), merge.records(), merge.len()), (vec![50], 1, 2));
        }
        assert!(merge.intake(&mut log).accepts().is_break());
    }

    #[test]
    fn a_consumer_that_broke_is_not_called_again() {
        let (mut merge, mut log) = (Merge::new(10, 0, end_of_time), Log::default());
        let mut intake = merge.intake(&mut log);
        intake.flow = ControlFlow::Break(());
        assert!(intake.accepts().is_break());
        assert!(intake.lost(Loss { cpu: 0, count: 1, records: None }).is_break());
        assert!(log.losses.is_empty());
    }

    fn lose(merge: &mut Merge, log: &mut Log, cpu: u32, count: u64) {
        assert!(merge.intake(log).lost(Loss { cpu, count, records: None }).is_continue());
    }

    #[test]
    fn losses_wait_for_the_records_before_them() {
        let (mut merge, mut log) = (Merge::new(10, 0, end_of_time), Log::default());
        let _ = take(&mut merge, &mut log, 0, 50, 0);
        lose(&mut merge, &mut log, 1, 1);
        assert_eq!(log.losses, [(1, 1, 0)], "CPU 1 had sent nothing before");
        let _ = take(&mut merge, &mut log, 1, 40, 0);
        lose(&mut merge, &mut log, 0, 2);
        lose(&mut merge, &mut log, 1, 3);
        let _ = take(&mut merge, &mut log, 1, 60, 0);
        let _ = take(&mut merge, &mut log, 0, 70, 0);
        lose(&mut merge, &mut log, 0, 4);
        assert_eq!(log.losses.len(), 1);
        let _ = merge.release(60, &mut log);
        assert_eq!(times(&log), [40, 50, 60]);
        assert_eq!(log.losses[1..], [(1, 3, 1), (0, 2, 2)]);
        let _ = merge.release(70, &mut log);
        assert_eq!(log.losses[3..], [(0, 4, 4)]);
        lose(&mut merge, &mut log, 0, 5);
        assert_eq!(log.losses[4..], [(0, 5, 4)], "nothing is held");
    }

    #[test]
    fn the_consumer_catches_up_once_per_delivery() {
        let (mut merge, mut log) = (Merge::new(10, 0, end_of_time), Log::default());
        let _ = take(&mut merge, &mut log, 0, 50, 0);
        let _ = merge.catch_up(&mut log);
        assert_eq!(log.caught_up, 0);
        let _ = merge.release(50, &mut log);
        let _ = merge.catch_up(&mut log);
        let _ = merge.catch_up(&mut log);
        assert_eq!(log.caught_up, 1);
    }

    #[test]
    fn a_time_far_ahead_is_not_believed() {
        fn clock() -> u64 {
            100
        }
        let (mut merge, mut log) = (Merge::new(10, 0, clock), Log::default());
        let _ = take(&mut merge, &mut log, 0, u64::MAX, 0);
        let _ = take(&mut merge, &mut log, 0, 109, 0);
        let _ = merge.release(110, &mut log);
        assert_eq!(times(&log), [109, u64::MAX]);
        let _ = take(&mut merge, &mut log, 0, 110, 0);
        assert_eq!(merge.late(), 0, "what it claims makes nobody late");
    }

    #[test]
    fn a_record_longer_than_any_ring_is_delivered_at_once() {
        let (mut merge, mut log) = (Merge::new(10, 0, end_of_time), Log::default());
        let _ = take(&mut merge, &mut log, 0, 50, 1 << 20);
        assert_eq!((log.given.len(), merge.early(), merge.len()), (1, 1, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take { cpu: u32, time: u64, len: usize },
        Release { until: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0u32..4, 0u64..1000, prop_oneof![0usize..100, 0usize..60_000])
                .prop_map(|(cpu, time, len)| Step::Take { cpu, time, len }),
            1 => (0u64..1200).prop_map(|until| Step::Release { until }),
        ]
    }

    proptest! {
        /// Tries any records in any order, with a consumer that breaks or panics at any point.
        #[test]
        fn everything_is_delivered_once_and_in_order(
            steps in prop::collection::vec(step(), 1..200),
            stops in prop::collection::vec((1usize..200, any::<bool>()), 0..20),
        ) {
            let (mut merge, mut log) = (Merge::new(10, 1 << 18, end_of_time), Log::default());
            let mut taken = Vec::new();
            // The latest time delivered in order, and how many records were late or delivered early.
            let (mut released, mut late, mut not_due) = (0, 0, 0);
            for step in &steps {
                let before = log.given.len();
                let next = stops.iter().filter(|(at, _)| *at > before).min();
                log.break_at = next.filter(|(_, panics)| !panics).map(|(at, _)| *at);
                log.panic_at = next.filter(|(_, panics)| *panics).map(|(at, _)| *at);
                let mut is_late = false;
                let outcome = catch_unwind(AssertUnwindSafe(|| match *step {
                    Step::Take { cpu, time, len } => {
                        // As the pipe does: without room, there is no drain.
                        merge.make_room(&mut log)?;
                        taken.push((cpu, time, len));
                        is_late = time < merge.released;
                        take(&mut merge, &mut log, cpu, time, len)
                    }
                    Step::Release { until } => merge.release(until, &mut log),
                }));
                let stopped = log.break_at == Some(log.given.len())
                    || log.panic_at == Some(log.given.len());
                prop_assert_eq!(outcome.is_err(), log.given.len() > before
                    && log.panic_at == Some(log.given.len()));
                if let Ok(flow) = outcome {
                    prop_assert_eq!(flow.is_break(), log.given.len() > before && stopped);
                }
                for (at, &(_, time, _)) in log.given.iter().enumerate().skip(before) {
                    if is_late && at + 1 == log.given.len() {
                        prop_assert!(time < released);
                        late += 1;
                    } else {
                        prop_assert!(time >= released, "{time} after {released}");
                        released = time;
                        let is_due = matches!(step, Step::Release { until } if time <= *until);
                        not_due += u64::from(!is_due);
                    }
                }
                prop_assert_eq!((merge.late(), merge.early()), (late, not_due));
                prop_assert_eq!(merge.len() + log.given.len(), taken.len());
                prop_assert!(merge.held.memory() <= (1 << 18) + (1 << 16));
            }
            (log.break_at, log.panic_at) = (None, None);
            let rest = log.given.len();
            prop_assert!(merge.release(u64::MAX, &mut log).is_continue());
            // Equal times are in the order of arrival, since the sort is stable.
            let mut given = log.given.clone();
            prop_assert!(given[rest..].is_sorted_by_key(|(_, time, _)| *time));
            given.sort();
            taken.sort();
            prop_assert_eq!(given, taken);
        }

        /// Each CPU's records and losses keep their order, with little memory, too.
        #[test]
        fn losses_are_where_their_cpu_had_them(
            steps in prop::collection::vec((0u32..4, 0u64..20, any::<bool>()), 1..300),
            memory in prop_oneof![Just(0usize), Just(1 << 22)],
            releases in prop::collection::vec(0u64..1000, 0..20),
        ) {
            let (mut merge, mut log) = (Merge::new(10, memory, end_of_time), Log::default());
            let (mut now, mut expected) = ([0; 4], Vec::new());
            let mut releases = releases.into_iter();
            for (cpu, passed, is_loss) in steps {
                let before = now.into_iter().map(|time: u64| (time > 0).then_some(time));
                if is_loss {
                    let loss = expected.len() as u64;
                    expected.push((cpu, None, loss));
                    lose(&mut merge, &mut log, cpu, loss);
                } else {
                    // Nothing is late: times are behind what was released.
                    let time = before.flatten().max().unwrap_or(0).max(merge.released) + passed + 1;
                    now[cpu as usize] = time;
                    expected.push((cpu, Some(time), 0));
                    let _ = take(&mut merge, &mut log, cpu, time, 3_000);
                    if passed == 0 && let Some(until) = releases.next() {
                        let _ = merge.release(until, &mut log);
                    }
                }
            }
            let _ = merge.release(u64::MAX, &mut log);
            let mut given = Vec::new();
            let mut losses = log.losses.iter().peekable();
            for at in 0..=log.given.len() {
                while let Some((cpu, loss, _)) = losses.next_if(|(.., before)| *before == at) {
                    given.push((*cpu, None, *loss));
                }
                given.extend(log.given.get(at).map(|(cpu, time, _)| (*cpu, Some(*time), 0)));
            }
            for cpu in 0..4 {
                let of = |all: &[(u32, Option<u64>, u64)]| {
                    all.iter().copied().filter(|one| one.0 == cpu).collect::<Vec<_>>()
                };
                prop_assert_eq!(of(&given), of(&expected));
            }
        }

        /// With enough memory, the merge is a stable sort.
        #[test]
        fn records_of_one_time_keep_their_order_of_arrival(
            records in prop::collection::vec((0u32..4, 0u64..20), 1..300)
        ) {
            let (mut merge, mut log) = (Merge::new(10, 1 << 22, end_of_time), Log::default());
            for (arrival, (cpu, time)) in records.iter().enumerate() {
                let _ = take(&mut merge, &mut log, *cpu, *time, arrival);
            }
            let _ = merge.release(u64::MAX, &mut log);
            let mut expected: Vec<_> =
                records.iter().enumerate().map(|(at, (cpu, time))| (*cpu, *time, at)).collect();
            expected.sort_by_key(|(_, time, _)| *time);
            prop_assert_eq!(&log.given, &expected);
        }
    }
}
