//! Dumps of a flight recorder.

use super::{EvPipe, Progress};
use crate::consumer::{Consumer, Dump};
use crate::error::PauseError;
use crate::evqueue::{EvQueue, Place};
use crate::pausing::Pausing;
use crate::trigger::Trigger;
use std::ops::ControlFlow;

impl EvPipe {
    /// What asks this pipe for a dump, if it is a flight recorder:
    /// [`Options::overwrite`](crate::Options::overwrite).
    pub fn trigger(&self) -> Option<Trigger> {
        self.flight.as_ref().map(|flight| flight.trigger.clone())
    }

    /// Gives what the rings of a flight recorder have, and what no dump gave before: of each CPU the newest
    /// records, whole ones alone, without a gap; those of all CPUs by time, and those of one time and CPU as
    /// they were emitted. [`Consumer::dump`] comes first, and losses before the records.
    ///
    /// Meanwhile the rings are paused, as for [`Pausing::Output`], for as long as the consumer takes: what is
    /// emitted fails, is counted, and told with the next dump. Records that are packed meanwhile, and whose
    /// block is not full before the dump ends, are kept.
    ///
    /// If the consumer breaks, or panics, what it was not given is given no more.
    ///
    /// Of a pipe that overwrites nothing, this [drains all](Self::drain_all).
    ///
    /// # Errors
    ///
    /// If the kernel refuses to pause a ring. Nothing is given, then, and the next dump has it. And if this
    /// process was forked from the one that opened the pipe.
    pub fn dump<C: Consumer>(&mut self, consumer: &mut C) -> Result<Progress, PauseError> {
        if self.flight.is_none() {
            let before = self.given();
            let flow = self.drain_all(consumer);
            return Ok(Progress { records: self.given() - before, flow, pending: self.pending });
        }
        self.check_rings()?;
        self.follow_cpus(consumer);
        let mut progress = if self.queues.paused().is_some() {
            self.give_tails(consumer)
        } else {
            self.pause(Pausing::Output)?;
            self.pack();
            let paused = Paused { pipe: &mut *self };
            paused.pipe.give_tails(consumer)
        };
        if progress.flow.is_continue() {
            progress.flow = consumer.caught_up();
        }
        Ok(progress)
    }

    /// Gives a dump if somebody has asked for one, and looks for CPUs that come and go.
    pub(super) fn dump_if_asked<C: Consumer>(
        &mut self,
        consumer: &mut C,
    ) -> Result<Progress, PauseError> {
        if self.flight.as_ref().is_some_and(|flight| flight.trigger.take()) {
            return self.dump(consumer);
        }
        self.follow_cpus(consumer);
        Ok(Progress::NONE)
    }

    /// Gives what has come into the rings since the last dump. No program may write there.
    pub(super) fn give_tails<C: Consumer>(&mut self, consumer: &mut C) -> Progress {
        let before = self.given();
        let flow = self.give_all_tails(consumer);
        Progress { records: self.given() - before, flow, pending: false }
    }

    fn given(&self) -> u64 {
        self.queues().iter().map(|queue| queue.counts().records).sum()
    }

    fn give_all_tails<C: Consumer>(&mut self, consumer: &mut C) -> ControlFlow<()> {
        let sent = self.books.as_ref().and_then(|books| books.sent().ok());
        let overwritten = |queues: &[EvQueue]| -> u64 {
            queues.iter().flat_map(|queue| queue.overwritten().iter()).map(|(_, count)| count).sum()
        };
        let before = overwritten(self.queues());
        let mut places = Vec::new();
        for (number, queue) in self.queues.iter_mut().enumerate() {
            let cpu = queue.cpu();
            let sent = |kind| Some(sent.as_ref()?.get(&(cpu, kind)).copied().unwrap_or(0));
            queue.find(number as u32, &mut places, sent, consumer)?;
        }
        // Stable, and fast where there are a few long runs, as there are.
        places.sort_by_key(|place: &Place| place.time);
        let gone = overwritten(self.queues()) - before;
        let number = self.flight.as_mut().map_or(0, |flight| {
            flight.dumps += 1;
            flight.dumps - 1
        });
        let overwritten = sent.is_some().then_some(gone);
        consumer.dump(Dump { number, records: places.len() as u64, overwritten });
        let mut counting = self.told.before(self.books.as_deref(), consumer);
        for queue in self.queues.iter_mut() {
            let cpu = queue.cpu();
            let lost = || self.books.as_ref()?.lost_outputs(cpu);
            queue.settle(lost, &mut counting)?;
        }
        for place in &places {
            self.queues.at(place.queue).give(place, consumer)?;
        }
        self.queues.iter_mut().for_each(EvQueue::end_dump);
        ControlFlow::Continue(())
    }
}

/// A pipe that is paused for as long as this lives, even if a consumer panics.
struct Paused<'p> {
    pipe: &'p mut EvPipe,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // An event that cannot go on is gone.
        let _ = self.pipe.resume();
    }
}
