//! Restores pauses that were shortened while recording.
//!
//! A workload that stands for a day of use takes hours if its pauses are cut short. Its driver
//! writes down how much it cut out of each pause, and [`Restore`] puts that back: each event gets
//! the time at which it would have come.

use crate::{Error, annotations::Restored, events::Sink};
use flashsift_events::event::{About, Event, Micros};
use std::io::BufRead;

/// The first line of the file.
const HEADER: &str = "at_us,cut_us";

/// One shortened pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// CLOCK_BOOTTIME at its end, microseconds.
    pub at_us: Micros,
    /// Time that was cut out of it, microseconds.
    pub cut_us: Micros,
}

/// Reads shortened pauses: CSV with the header `at_us,cut_us`, both in whole microseconds, each
/// pause later than the one before. Empty lines are ignored.
///
/// # Errors
///
/// The file cannot be read, or a line is not as described. The error names the line.
pub fn parse(file: impl BufRead) -> Result<Vec<Cut>, Error> {
    let mut cuts: Vec<Cut> = Vec::new();
    let mut header = false;
    for (n, line) in (1..).zip(file.lines()) {
        let at = |what: String| Error::Lacks(format!("line {n}: {what}"));
        let line = line.map_err(|error| at(error.to_string()))?;
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if !header {
            if line != HEADER {
                return Err(at(format!("the header is not `{HEADER}`")));
            }
            header = true;
            continue;
        }
        let number = |text: &str| {
            let text = text.trim();
            text.parse::<u64>()
                .map_err(|_| at(format!("\"{text}\" is not a whole number of microseconds from 0")))
        };
        let Some((at_us, cut_us)) = line.split_once(',') else {
            return Err(at("not two numbers with a comma between them".to_owned()));
        };
        let cut = Cut { at_us: number(at_us)?, cut_us: number(cut_us)? };
        if cuts.last().is_some_and(|last| last.at_us >= cut.at_us) {
            return Err(at("the pause does not end later than the one before".to_owned()));
        }
        cuts.push(cut);
    }
    match header {
        true => Ok(cuts),
        false => Err(Error::Lacks(format!("there is no header `{HEADER}`"))),
    }
}

/// Raises the time of each event by all cuts up to its time, and passes it on.
///
/// The end of a pause belongs to the time after it: an event at that very time is raised. A pause
/// that ended at the trace's time 0 or before lies outside the trace and changes nothing.
pub struct Restore<'a> {
    sink: &'a mut dyn Sink,
    cuts: std::iter::Peekable<std::vec::IntoIter<Cut>>,
    boot_us: Micros,
    restored: Restored,
    events: Vec<Event<'static>>,
}

impl<'a> Restore<'a> {
    /// Returns a sink that passes events on to `sink`. `cuts` are in the order of their times.
    pub fn new(cuts: Vec<Cut>, sink: &'a mut dyn Sink) -> Self {
        let cuts = cuts.into_iter().peekable();
        Self { sink, cuts, boot_us: 0, restored: Restored::default(), events: Vec::new() }
    }

    /// Returns the restored pauses, after the last event.
    pub fn finish(self) -> Restored {
        let later = self.cuts.len() as u64;
        Restored { outside: self.restored.outside + later, ..self.restored }
    }

    fn raise(&mut self, at_us: Micros) -> Option<Micros> {
        let boot_us = self.boot_us.checked_add(at_us)?;
        while let Some(Cut { cut_us, .. }) = self.cuts.next_if(|cut| cut.at_us <= boot_us) {
            self.restored.pauses += 1;
            self.restored.restored_us = self.restored.restored_us.checked_add(cut_us)?;
        }
        at_us.checked_add(self.restored.restored_us)
    }
}

impl Sink for Restore<'_> {
    fn about(&mut self, about: About) -> Result<(), Error> {
        let Some(boot_us) = about.boot_us.filter(|_| about.knows.times) else {
            return Err(Error::Lacks(
                "the trace does not hold CLOCK_BOOTTIME at its beginning, so pauses cannot be \
                 placed in it: record it with this version of flashsift record (not --strace)"
                    .to_owned(),
            ));
        };
        self.boot_us = boot_us;
        while self.cuts.next_if(|cut| cut.at_us <= boot_us).is_some() {
            self.restored.outside += 1;
        }
        self.sink.about(about)
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.events.clear();
        for event in events {
            let Some(at_us) = self.raise(event.at_us) else {
                return Err(Error::TooLarge("with these pauses, times exceed 64 bits".to_owned()));
            };
            self.events.push(Event { at_us, ..event.clone() });
        }
        self.sink.events(&self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Kept;
    use flashsift_events::event::{Action, Knows, Side, Space};
    use proptest::prelude::*;

    fn about(boot_us: Option<u64>) -> About {
        let knows = Knows { times: true, ..Knows::NOTHING };
        About { epoch_us: None, boot_us, side: Side::Before, space: Space::Files, knows }
    }

    fn events(times: &[u64]) -> Vec<Event<'static>> {
        let event = |&at_us| Event { at_us, pid: 0, tid: 0, action: Action::SyncAll };
        times.iter().map(event).collect()
    }

    /// The restored times, and what is noted.
    fn restored(boot_us: u64, cuts: &[Cut], times: &[u64]) -> (Vec<u64>, Restored) {
        let mut kept = Kept::default();
        let mut restore = Restore::new(cuts.to_vec(), &mut kept);
        restore.about(about(Some(boot_us))).unwrap();
        // Batches of any size give the same.
        times.chunks(3).for_each(|times| restore.events(&events(times)).unwrap());
        let restored = restore.finish();
        (kept.events.iter().map(|event| event.at_us).collect(), restored)
    }

    // Promises: Traces 24.
    #[test]
    fn lines_are_checked() {
        let of = |text: &str| parse(text.as_bytes()).map_err(|error| error.to_string());
        let cut = |at_us, cut_us| Cut { at_us, cut_us };
        assert_eq!(of("at_us,cut_us\n10,5\r\n\n 20 , 0\n"), Ok(vec![cut(10, 5), cut(20, 0)]));
        assert_eq!(of("at_us,cut_us\n"), Ok(vec![]));
        for (text, error) in [
            ("", "there is no header"),
            ("10,5\n", "line 1: the header is not"),
            ("at_us,cut_us\n10\n", "line 2: not two numbers"),
            ("at_us,cut_us\n10,-5\n", "line 2: \"-5\" is not a whole number"),
            ("at_us,cut_us\n10,5.5\n", "line 2: \"5.5\" is not a whole number"),
            ("at_us,cut_us\n10,5,6\n", "line 2: \"5,6\" is not a whole number"),
            ("at_us,cut_us\nx,5\n", "line 2: \"x\" is not a whole number"),
            ("at_us,cut_us\n10,99999999999999999999\n", "line 2: \"99"),
            ("at_us,cut_us\n10,5\n9,5\n", "line 3: the pause does not end later"),
            ("at_us,cut_us\n10,5\n10,5\n", "line 3: the pause does not end later"),
        ] {
            assert!(of(text).unwrap_err().contains(error), "{text:?}: {:?}", of(text));
        }
    }

    #[test]
    fn events_after_a_pause_are_raised() {
        let cut = |at_us, cut_us| Cut { at_us, cut_us };
        let cuts =
            [cut(90, 1), cut(100, 2), cut(105, 1000), cut(107, 0), cut(110, 50), cut(112, 7)];
        let (times, noted) = restored(100, &cuts, &[0, 4, 5, 6, 9, 11]);
        assert_eq!(times, [0, 4, 1005, 1006, 1009, 1061]);
        assert_eq!(noted, Restored { pauses: 3, restored_us: 1050, outside: 3 });
    }

    // Promises: Traces 24.
    #[test]
    fn a_trace_without_a_clock_and_times_beyond_all_are_errors() {
        let mut kept = Kept::default();
        let error = Restore::new(Vec::new(), &mut kept).about(about(None)).unwrap_err();
        assert!(error.to_string().contains("record it with"), "{error}");
        let cuts = [1, 2].map(|at_us| Cut { at_us, cut_us: u64::MAX - 1 });
        let mut restore = Restore::new(cuts.to_vec(), &mut kept);
        restore.about(about(Some(0))).unwrap();
        assert!(restore.events(&events(&[1])).is_ok());
        let error = restore.events(&events(&[2])).unwrap_err();
        assert!(error.to_string().contains("64 bits"), "{error}");
    }

    proptest! {
        /// Compares with a sum over all cuts for each event.
        // Promises: Traces 24.
        #[test]
        fn agrees_with_a_sum_for_each_event(
            boot_us in 0..50u64,
            cuts in prop::collection::btree_map(0..150u64, 0..1000u64, 0..20),
            mut times in prop::collection::vec(0..120u64, 0..40),
        ) {
            times.sort_unstable();
            let cuts: Vec<_> = cuts.iter().map(|(&at_us, &cut_us)| Cut { at_us, cut_us }).collect();
            let (found, noted) = restored(boot_us, &cuts, &times);
            let within = |end: u64| {
                cuts.iter().filter(move |cut| cut.at_us > boot_us && cut.at_us <= boot_us + end)
            };
            let sum = |end| within(end).map(|cut| cut.cut_us).sum::<u64>();
            let expected: Vec<_> = times.iter().map(|&at_us| at_us + sum(at_us)).collect();
            prop_assert_eq!(found, expected);
            let end = times.last().copied().unwrap_or(0);
            let pauses = within(end).count() as u64;
            prop_assert_eq!(noted, Restored {
                pauses,
                restored_us: sum(end),
                outside: cuts.len() as u64 - pauses,
            });
        }
    }
}
