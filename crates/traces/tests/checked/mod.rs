//! Invariants that hold for any input. The hostile tests and the fuzz targets share them.

use flashsift_core::event::{About, Action, Event, Space};
use flashsift_traces::{
    Error,
    events::{ACCESS_BYTES_MAX, Sink},
    format::FormatSpec,
    open::{self, Limits, Outcome},
};

/// Checks every event.
#[derive(Default)]
struct Checked {
    about: Option<About>,
    at_us: u64,
    accesses: u64,
}

impl Sink for Checked {
    fn about(&mut self, about: About) -> Result<(), Error> {
        assert!(self.about.replace(about).is_none(), "said twice what it is about");
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        let about = self.about.expect("events before anything is known about them");
        for event in events {
            assert!(event.at_us >= self.at_us, "time went back: {event:?}");
            self.at_us = event.at_us;
            if let Action::Read { offset, len, .. } | Action::Write { offset, len, .. } =
                event.action
            {
                self.accesses += 1;
                assert!(about.space == Space::Objects || len <= ACCESS_BYTES_MAX, "{event:?}");
                assert!(
                    offset.checked_add(len).is_some_and(|end| end <= i64::MAX as u64),
                    "{event:?}"
                );
            }
        }
        Ok(())
    }
}

/// Reads `bytes` and checks the events.
pub(crate) fn read(
    spec: Option<&'static FormatSpec>,
    bytes: &[u8],
    limits: &Limits,
) -> Result<Outcome, Error> {
    let mut sink = Checked::default();
    let result = open::read_stream(bytes, None, spec, &mut sink, limits);
    match &result {
        Ok(outcome) => {
            assert!(sink.accesses > 0 && outcome.accesses == sink.accesses);
            assert_eq!(Some(outcome.about), sink.about);
        }
        Err(error) => assert!(error.to_string().len() > 10, "{error}"),
    }
    result
}
