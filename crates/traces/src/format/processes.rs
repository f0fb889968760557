//! Emits the program of each process once.

use crate::{Error, events::Events};
use flashsift_core::event::{Action, Event, MaybeOwned};
use std::collections::HashMap;

/// The processes of a trace whose every line names its process.
#[derive(Default)]
pub(super) struct Processes(HashMap<u32, Box<str>>);

impl Processes {
    /// `pid` runs `name`: emits an event if that is new. 0 is no process.
    pub(super) fn runs(
        &mut self,
        pid: u32,
        name: &str,
        at_us: u64,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        if pid == 0 || self.0.get(&pid).is_some_and(|known| **known == *name) {
            return Ok(());
        }
        self.0.insert(pid, name.into());
        events.push(Event {
            at_us,
            pid,
            tid: pid,
            action: Action::Process { name: MaybeOwned::owned_str(name) },
        })
    }
}
