//! The loop between schedule and target. No other module of the player reads a clock.

use crate::{
    Error, Op, PIECE_BYTES, Request,
    schedule::{Decision, Schedule, Timing},
    tally::Tally,
    target::{RequestResult, Target},
};
use std::{
    sync::mpsc::{Receiver, TryRecvError, sync_channel},
    time::{Duration, Instant},
};

/// Observes a replay and can stop it.
pub trait Watch {
    /// Called with the number of completed pieces; `true` stops the replay.
    fn stop(&mut self, done: u64) -> bool;
    /// Called for each completed piece with its latency.
    fn done(&mut self, _request: &Request, _took_ns: u64) {}
}

/// The end of a replay.
#[derive(Debug)]
pub enum Ended {
    /// All requests were performed.
    Whole,
    /// [`Watch::stop`] returned `true`. Requests in flight were completed.
    Stopped,
    /// A request or a system call failed. Requests in flight were completed.
    Failed(Error),
}

/// Summary and end of a replay.
#[derive(Debug)]
pub struct Played {
    /// Everything that was performed.
    pub tally: Tally,
    /// The way in which it ended.
    pub ended: Ended,
}

/// The longest wait for a due time or for the log; then [`Watch::stop`] is called again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Performs the requests from `log`, in order, until the channel closes. Their `at_us` start at 0.
pub fn play(
    log: &Receiver<Vec<Request>>,
    target: &mut dyn Target,
    timing: Timing,
    watch: &mut dyn Watch,
) -> Played {
    let mut tally = Tally::default();
    let mut schedule = Schedule::new(timing, target.depth(), target.discards_alone());
    let mut log = Log { batches: log, batch: Vec::new().into_iter(), over: false };
    let (mut head, mut done) = (None, Vec::new());
    let mut ended = Ended::Whole;
    let (mut stopping, mut count) = (false, 0);
    let begun = Instant::now();
    let elapsed_ns = || begun.elapsed().as_nanos() as u64;
    let mut now_ns = 0;
    loop {
        if watch.stop(count) && !stopping {
            (ended, stopping) = (Ended::Stopped, true);
        }
        let mut wait = None;
        if head.is_none() && !stopping {
            head = log.next(schedule.in_flight() > 0);
            now_ns = elapsed_ns();
        }
        while let Some(request) = head.filter(|_| !stopping) {
            match schedule.ask(&request, now_ns) {
                Decision::Start { slot, late_ns } => {
                    if timing == Timing::Recorded {
                        tally.late.add(late_ns);
                    }
                    if let Err(error) = target.start(slot, &request) {
                        return Played { tally, ended: Ended::Failed(error) };
                    }
                    head = log.next(true);
                    now_ns = elapsed_ns();
                }
                Decision::At(due_ns) => {
                    wait = Some(Duration::from_nanos(due_ns - now_ns));
                    break;
                }
                Decision::AfterAnother => break,
            }
        }
        if schedule.in_flight() == 0 && (stopping || (log.over && head.is_none())) {
            break;
        }
        // A completion ends the wait by itself, so no timer is needed unless a request is due or
        // the log is behind. Setting and clearing a timer for each request costs measurable time
        // where a request takes some tens of microseconds.
        let behind = head.is_none() && !log.over && !stopping;
        let at_most = wait.or(behind.then_some(LOOK_AGAIN)).map(|time| time.min(LOOK_AGAIN));
        if let Err(error) = target.wait(at_most, &mut done) {
            return Played { tally, ended: Ended::Failed(error) };
        }
        now_ns = elapsed_ns();
        for (slot, outcome) in done.drain(..) {
            let (request, took_ns) = schedule.done(slot, now_ns);
            match checked(&request, outcome) {
                Ok(()) => {
                    tally.add(&request, took_ns);
                    watch.done(&request, took_ns);
                    tally.elapsed_ns = now_ns;
                    count += 1;
                }
                Err(error) if !matches!(ended, Ended::Failed(_)) => {
                    (ended, stopping) = (Ended::Failed(error), true);
                }
                Err(_) => {}
            }
        }
    }
    Played { tally, ended }
}

fn checked(request: &Request, outcome: RequestResult) -> Result<(), Error> {
    let moves = matches!(request.op, Op::Read | Op::Write | Op::WriteSync);
    let why = match outcome {
        Ok(bytes) if moves && bytes != request.len => {
            std::io::Error::other(format!("only {bytes} bytes were moved"))
        }
        Ok(_) => return Ok(()),
        Err(why) => why,
    };
    Err(Error::Request { number: request.number, what: request.in_words(), why })
}

/// The incoming requests.
struct Log<'a> {
    batches: &'a Receiver<Vec<Request>>,
    batch: std::vec::IntoIter<Request>,
    over: bool,
}

impl Log<'_> {
    /// Returns the next request; `None` at the end of the log, or if there is `other_work` and no
    /// request has arrived yet.
    fn next(&mut self, other_work: bool) -> Option<Request> {
        loop {
            if let Some(request) = self.batch.next() {
                return Some(request);
            }
            let next = match other_work {
                true => self.batches.try_recv(),
                false => self.batches.recv().map_err(|_| TryRecvError::Disconnected),
            };
            match next {
                Ok(batch) => self.batch = batch.into_iter(),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {
                    self.over = true;
                    return None;
                }
            }
        }
    }
}

/// Writes the first `bytes` of a target once, in order, so that later reads reach written data.
pub fn fill(bytes: u64, target: &mut dyn Target, watch: &mut dyn Watch) -> Played {
    let (to, from) = sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let pieces =
                (0..bytes.div_ceil(PIECE_BYTES)).map(|n| n * PIECE_BYTES).map(|offset| Request {
                    number: 0,
                    at_us: 0,
                    op: Op::Write,
                    offset,
                    len: (bytes - offset).min(PIECE_BYTES),
                });
            let sync = Request { number: 0, at_us: 0, op: Op::Sync, offset: 0, len: 0 };
            for request in pieces.chain([sync]) {
                // The receiving side stopped.
                if to.send(vec![request]).is_err() {
                    break;
                }
            }
        });
        let played = play(&from, target, Timing::Asap, watch);
        drop(from);
        played
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that completes one request after the other at any depth and records how it was
    /// waited for.
    #[derive(Default)]
    struct Slow {
        started: std::collections::VecDeque<(u32, u64)>,
        waits: Vec<(usize, Option<Duration>)>,
    }

    impl Target for Slow {
        fn depth(&self) -> u32 {
            2
        }
        fn discards_alone(&self) -> bool {
            false
        }
        fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error> {
            self.started.push_back((slot, request.len));
            Ok(())
        }
        fn wait(
            &mut self,
            at_most: Option<Duration>,
            done: &mut Vec<(u32, RequestResult)>,
        ) -> Result<(), Error> {
            self.waits.push((self.started.len(), at_most));
            done.extend(self.started.pop_front().map(|(slot, len)| (slot, Ok(len))));
            Ok(())
        }
    }

    struct Never;

    impl Watch for Never {
        fn stop(&mut self, _: u64) -> bool {
            false
        }
    }

    fn waits(timing: Timing, last_at_us: u64) -> Vec<(usize, Option<Duration>)> {
        let request = |number| {
            let at_us = if number == 3 { last_at_us } else { 0 };
            Request { number, at_us, op: Op::Read, offset: number * 4096, len: 4096 }
        };
        let (to, log) = sync_channel(1);
        to.send((1..=3).map(request).collect()).unwrap();
        drop(to);
        let mut target = Slow::default();
        let played = play(&log, &mut target, timing, &mut Never);
        assert!(matches!(played.ended, Ended::Whole) && played.tally.count() == 3, "{played:?}");
        target.waits
    }

    /// A timer was once set for each request and cleared 50 µs later.
    #[test]
    fn only_a_later_due_time_needs_a_timer() {
        assert_eq!(waits(Timing::Asap, 0), [(2, None), (2, None), (1, None)]);
        // With nothing in flight, only a timer ends the wait.
        let waits = waits(Timing::Recorded, 2_000);
        assert!(
            waits.iter().all(|(in_flight, at_most)| *in_flight > 0 || at_most.is_some()),
            "{waits:?}"
        );
    }
}
