//! Emits the program of each process once.

use super::quick;
use crate::{Error, events::Events};
use flashsift_events::event::{Action, Event, MaybeOwned};
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// The processes of a trace whose every line names its process.
#[derive(Default)]
pub(super) struct Processes(HashMap<u32, Box<[u8]>, FixedState>);

impl Processes {
    /// `pid` runs `name`, which is UTF-8: emits an event if that is new. 0 is no process. Returns
    /// whether the pid ran another program before.
    pub(super) fn runs(
        &mut self,
        pid: u32,
        name: &[u8],
        at_us: u64,
        events: &mut Events<'_>,
    ) -> Result<bool, Error> {
        if pid == 0 || self.0.get(&pid).is_some_and(|known| quick::equal(known, name)) {
            return Ok(false);
        }
        let before = self.0.insert(pid, name.into());
        let name = MaybeOwned::owned_str(&String::from_utf8_lossy(name));
        events.push(Event { at_us, pid, tid: pid, action: Action::Process { name } })?;
        Ok(before.is_some())
    }

    /// Whether `pid` runs `name`.
    #[cfg(test)]
    pub(super) fn is(&self, pid: u32, name: &[u8]) -> bool {
        self.0.get(&pid).is_some_and(|known| **known == *name)
    }
}
