//! When epochs end.

use flashsift_events::event::Micros;

/// The first and the longest pause after an epoch that failed, µs.
const PAUSE_US: [Micros; 2] = [1_000_000, 60_000_000];
/// Divisor of the window of changes without a sync: the epoch ends one such part before its end.
const PART: u64 = 16;

/// The reason why an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A sync is as old as may be.
    Synced,
    /// A change is old that no application synced: the epoch contains everything.
    Aged,
    /// Someone waits for it: the epoch contains everything, pages that only the log has go to their
    /// place, and files leave RAM.
    Asked,
}

impl Ending {
    /// Returns whether the epoch contains everything.
    pub fn is_whole(self) -> bool {
        self != Self::Synced
    }
}

/// Decides when an epoch is to end.
#[derive(Clone, Debug)]
pub struct Schedule {
    lose_at_most_us: Micros,
    /// When the first sync of this epoch has waited for as long as it may.
    synced_by: Option<Micros>,
    /// The same for the first change.
    changed_by: Option<Micros>,
    /// After a failure, the time of the next attempt.
    retry_us: Option<Micros>,
    pause_us: Micros,
}

impl Schedule {
    /// Returns a schedule by which a change without a sync waits for at most this long, µs.
    pub fn new(lose_at_most_us: Micros) -> Self {
        let (synced_by, changed_by, retry_us) = (None, None, None);
        Self { lose_at_most_us, synced_by, changed_by, retry_us, pause_us: PAUSE_US[0] }
    }

    /// A file was changed.
    pub fn changed(&mut self, now: Micros) {
        let window = self.lose_at_most_us - self.lose_at_most_us / PART;
        self.changed_by.get_or_insert(now.saturating_add(window));
    }

    /// A file was synced whose syncs may be delayed for this long, µs.
    pub fn synced(&mut self, now: Micros, delay_us: Micros) {
        let by = now.saturating_add(delay_us);
        self.synced_by = Some(self.synced_by.map_or(by, |known| known.min(by)));
    }

    /// Returns whether the last attempt failed.
    pub fn is_failing(&self) -> bool {
        self.retry_us.is_some()
    }

    /// Returns when the epoch is to end.
    pub fn deadline(&self) -> Option<Micros> {
        let by = self.synced_by.into_iter().chain(self.changed_by).min();
        match self.retry_us {
            Some(retry_us) => by.map(|by| by.max(retry_us)),
            None => by,
        }
    }

    /// Returns whether the epoch is to end now.
    pub fn due(&self, now: Micros) -> Option<Ending> {
        if self.deadline().is_none_or(|by| by > now) {
            return None;
        }
        match self.changed_by.is_some_and(|by| by <= now) {
            true => Some(Ending::Aged),
            false => Some(Ending::Synced),
        }
    }

    /// The state of the group was taken at this time; what changes from now on belongs to the next
    /// epoch. `rest`: changes were left out. Returns the schedule to go back to after a failure.
    #[must_use]
    pub fn taken(&mut self, rest: bool) -> Self {
        let before = self.clone();
        self.synced_by = None;
        if !rest {
            self.changed_by = None;
        }
        before
    }

    /// The epoch is durable.
    pub fn succeeded(&mut self) {
        (self.retry_us, self.pause_us) = (None, PAUSE_US[0]);
    }

    /// The epoch that was taken with this schedule failed.
    pub fn failed(&mut self, now: Micros, before: &Self) {
        let earlier =
            |one: Option<Micros>, other: Option<Micros>| one.into_iter().chain(other).min();
        self.synced_by = earlier(self.synced_by, before.synced_by);
        self.changed_by = earlier(self.changed_by, before.changed_by);
        self.retry_us = Some(now.saturating_add(self.pause_us));
        self.pause_us = (self.pause_us * 2).min(PAUSE_US[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Mount 72, Mount 73.
    #[test]
    fn an_epoch_ends_with_its_first_sync_or_its_oldest_change() {
        let mut schedule = Schedule::new(1600);
        schedule.changed(10);
        assert_eq!(schedule.deadline(), Some(1510));
        schedule.synced(20, 300);
        schedule.synced(30, 100);
        schedule.synced(200, 300);
        assert_eq!((schedule.deadline(), schedule.due(129)), (Some(130), None));
        assert_eq!(schedule.due(130), Some(Ending::Synced));
        let _ = schedule.taken(true);
        schedule.succeeded();
        assert_eq!(schedule.deadline(), Some(1510), "no sync waits any more");
        assert_eq!(schedule.due(1510), Some(Ending::Aged));
        let _ = schedule.taken(false);
        assert_eq!(schedule.deadline(), None);
    }

    // Promises: Mount 75.
    #[test]
    fn a_failed_epoch_is_tried_again_with_growing_pauses() {
        let mut schedule = Schedule::new(1_000_000_000);
        schedule.synced(0, 10);
        let before = schedule.taken(false);
        schedule.synced(5, 500);
        schedule.failed(20, &before);
        assert!(schedule.is_failing());
        assert_eq!(schedule.deadline(), Some(20 + PAUSE_US[0]));
        let before = schedule.taken(false);
        schedule.failed(2_000_000, &before);
        assert_eq!(schedule.deadline(), Some(2_000_000 + 2 * PAUSE_US[0]));
        let _ = schedule.taken(false);
        schedule.succeeded();
        assert_eq!((schedule.deadline(), schedule.is_failing()), (None, false));
    }
}
