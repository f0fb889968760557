//! A sink that keeps everything.

use flashsift_core::event::{About, Event};
use flashsift_traces::{Error, events::Sink};

/// Keeps all events.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) Vec<Event<'static>>);

impl Sink for Kept {
    fn about(&mut self, _: About) -> Result<(), Error> {
        Ok(())
    }
    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.0.extend_from_slice(events);
        Ok(())
    }
}
