//! Invariants that hold for any input. The hostile tests and the fuzz targets share them.

use flashsift_events::event::{About, Action, Event, Space};
use flashsift_traces::{
    Error,
    events::{ACCESS_BYTES_MAX, Events, Kept, REQUEST_BYTES_MAX, Sink, Summary},
    format::FormatSpec,
    input::Input,
    open::{self, Limits, Outcome},
};
use std::io::{self, BufRead, Read};

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
            if let Action::Read { offset, len, .. }
            | Action::Write { offset, len, .. }
            | Action::Direct { offset, len, .. } = event.action
            {
                self.accesses += 1;
                let len_max = match about.space {
                    Space::Files => ACCESS_BYTES_MAX,
                    Space::Blocks => REQUEST_BYTES_MAX,
                    Space::Objects => u64::MAX,
                };
                assert!(len <= len_max, "{event:?}");
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

/// Checks that `bytes` give the same, also where the error is, if they come one at a time. Readers
/// of text parse lines that have been read whole in another way than those that have not, so this
/// compares two parsers.
pub(crate) fn same_by_byte(spec: &FormatSpec, options: &str, bytes: &[u8]) {
    let whole = all(spec, options, &mut &bytes[..]);
    let by_byte = all(spec, options, &mut ByByte(bytes));
    assert_eq!(whole, by_byte, "{}: whole on the left, byte by byte on the right", spec.name);
}

type All = (Option<About>, Vec<Event<'static>>, Result<Summary, String>);

fn all(spec: &FormatSpec, options: &str, bytes: &mut dyn BufRead) -> All {
    let mut kept = Kept::default();
    let mut events = Events::new(&mut kept);
    let mut input = Input::new(bytes).with_options(options);
    let result = (spec.read)(&mut input, &mut events).and_then(|()| events.finish());
    (kept.about, kept.events, result.map_err(|error| error.to_string()))
}

struct ByByte<'a>(&'a [u8]);

impl Read for ByByte<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(1);
        self.0.read(&mut into[..most])
    }
}

impl BufRead for ByByte<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(&self.0[..self.0.len().min(1)])
    }

    fn consume(&mut self, bytes: usize) {
        self.0.consume(bytes);
    }
}
