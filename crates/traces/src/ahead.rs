//! A reader on a thread of its own, some batches ahead of the consumer of its events.

use crate::{Error, events::Sink};
use flashsift_events::event::{About, Event};
use std::{
    panic,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    thread,
};

/// Events that are passed on at once.
const BATCH: usize = 2048;
const BATCHES_AHEAD: usize = 8;

enum Message {
    /// With the place for the consumer's answer: the reader goes on once the consumer takes it.
    About(About, SyncSender<()>),
    Events(Vec<Event<'static>>),
}

/// Runs `read` on another thread with a sink whose events `sink` gets on this one, in order.
///
/// # Errors
///
/// The thread cannot be started, or what `read` or `sink` returned. If `sink` failed, the next
/// events of `read` are refused.
pub(crate) fn read<T: Send>(
    sink: &mut dyn Sink,
    read: impl FnOnce(&mut dyn Sink) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let (to, from) = sync_channel(BATCHES_AHEAD);
    let (back, used) = channel();
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("reader".to_owned());
        let reader = reader.spawn_scoped(scope, move || {
            let mut ahead = Ahead { to, used, batch: Vec::with_capacity(BATCH) };
            let outcome = read(&mut ahead);
            // Events from before an error count as well.
            let last = ahead.pass_on();
            outcome.and_then(|outcome| last.map(|()| outcome))
        });
        let reader = reader.map_err(|source| Error::Io { offset: 0, source })?;
        let taken = take(sink, &from, &back);
        drop(from);
        let outcome = reader.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        taken.and(outcome)
    })
}

fn take(
    sink: &mut dyn Sink,
    from: &Receiver<Message>,
    back: &Sender<Vec<Event<'static>>>,
) -> Result<(), Error> {
    for message in from {
        match message {
            Message::About(about, taken) => {
                sink.about(about)?;
                // The reader waits for it.
                let _ = taken.send(());
            }
            Message::Events(mut events) => {
                sink.events(&events)?;
                events.clear();
                // The reader may have ended.
                let _ = back.send(events);
            }
        }
    }
    Ok(())
}

/// The reader's end.
struct Ahead {
    to: SyncSender<Message>,
    /// Batches to use again.
    used: Receiver<Vec<Event<'static>>>,
    batch: Vec<Event<'static>>,
}

impl Ahead {
    fn pass_on(&mut self) -> Result<(), Error> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let next = self.used.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let batch = std::mem::replace(&mut self.batch, next);
        self.to.send(Message::Events(batch)).map_err(|_| ended())
    }
}

/// The consumer has failed, and its own error is the one to show.
fn ended() -> Error {
    Error::Sink("the events are not wanted any more".to_owned())
}

impl Sink for Ahead {
    fn about(&mut self, about: About) -> Result<(), Error> {
        let (answer, taken) = sync_channel(1);
        self.to.send(Message::About(about, answer)).map_err(|_| ended())?;
        taken.recv().map_err(|_| ended())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.batch.extend_from_slice(events);
        if self.batch.len() < BATCH { Ok(()) } else { self.pass_on() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Kept;
    use flashsift_events::event::{Action, FileId, Knows, Side, Space};

    const ABOUT: About = About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Files,
        knows: Knows::NOTHING,
    };

    fn event(n: u64) -> Event<'static> {
        let action = Action::Read { file: FileId(0), open: None, offset: n, len: 1 };
        Event { at_us: n, pid: 0, tid: 0, action }
    }

    /// Passes `many` events on, some at a time, and then ends so.
    fn numbers(many: u64, end: Result<u64, Error>) -> impl Fn(&mut dyn Sink) -> Result<u64, Error> {
        let end = std::sync::Mutex::new(Some(end));
        move |sink| {
            sink.about(ABOUT)?;
            for n in 0..many {
                sink.events(&[event(n)])?;
            }
            end.lock().unwrap().take().unwrap()
        }
    }

    #[test]
    fn all_events_arrive_in_order_before_an_error_too() {
        for many in [0, 1, BATCH as u64 - 1, BATCH as u64, 10 * BATCH as u64 + 7, 100_000] {
            for fails in [false, true] {
                let mut kept = Kept::default();
                let end = if fails { Err(Error::Empty) } else { Ok(many) };
                let outcome = read(&mut kept, numbers(many, end));
                assert!(matches!(&outcome, Err(Error::Empty)) == fails, "{outcome:?}");
                assert_eq!(kept.about, Some(ABOUT));
                assert!(kept.events.into_iter().eq((0..many).map(event)), "{many}");
            }
        }
    }

    /// Fails when it gets this event, or the description.
    struct Fails(Option<u64>);

    impl Sink for Fails {
        fn about(&mut self, _: About) -> Result<(), Error> {
            self.0.map(drop).ok_or_else(|| Error::Sink("about".to_owned()))
        }
        fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
            match events.iter().any(|event| Some(event.at_us) == self.0) {
                true => Err(Error::Sink("events".to_owned())),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn an_error_of_the_consumer_ends_the_reader() {
        for (at, error) in [(None, "about"), (Some(0), "events"), (Some(50_000), "events")] {
            // It would never end by itself.
            let outcome = read(&mut Fails(at), |sink| {
                sink.about(ABOUT)?;
                for n in 0.. {
                    sink.events(&[event(n)])?;
                }
                Ok(())
            });
            assert!(matches!(&outcome, Err(Error::Sink(what)) if what == error), "{outcome:?}");
        }
    }

    #[test]
    #[should_panic(expected = "of the reader")]
    fn a_panic_of_the_reader_reaches_the_caller() {
        let _ = read(&mut Kept::default(), |_| -> Result<(), Error> { panic!("of the reader") });
    }
}
