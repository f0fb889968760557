//! The RAM for files while memory is short.
//!
//! Two signals make it smaller than a user allows:
//!
//! - **Stalls**: processes wait for memory. Each report halves the RAM at once, down to a sixteenth
//!   of the whole. After ten seconds without a report it grows by a sixteenth of the whole, and so
//!   on every ten seconds.
//! - **A limit** of the mount's control group (systemd: `MemoryHigh`). The kernel slows a group
//!   above its limit down, so the files and all else in the group stay a sixteenth of the limit
//!   below it.

use flashsift_events::event::Micros;

/// Divisor of the whole: the RAM is never less, and it grows by as much.
const PART: u64 = 16;
/// Time without a stall after which the RAM grows, µs.
const CALM_US: Micros = 10_000_000;

/// Memory that a control group may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// The limit, bytes.
    pub limit_bytes: u64,
    /// Memory in use that the kernel cannot free by itself, bytes.
    pub used_bytes: u64,
}

/// Decides how much RAM files may take.
#[derive(Clone, Copy, Debug)]
pub struct RamBudget {
    whole_bytes: u64,
    /// The part of it that stalls have left, bytes.
    calm_bytes: u64,
    /// Time of the last stall or growth, while `calm_bytes` is less than the whole.
    changed_us: Micros,
}

impl RamBudget {
    /// Returns a budget of this many bytes.
    pub fn new(whole_bytes: u64) -> Self {
        Self { whole_bytes, calm_bytes: whole_bytes, changed_us: 0 }
    }

    /// Takes a report that processes wait for memory.
    pub fn stalled(&mut self, now: Micros) {
        self.calm_bytes = (self.calm_bytes / 2).max(self.whole_bytes / PART);
        self.changed_us = now;
    }

    /// Returns the time at which the RAM grows again.
    pub fn next_deadline(&self) -> Option<Micros> {
        let is_short = self.calm_bytes < self.whole_bytes;
        is_short.then(|| self.changed_us.saturating_add(CALM_US))
    }

    /// Lets the RAM grow if it is time. A call before that does nothing.
    pub fn handle_deadline(&mut self, now: Micros) {
        if self.next_deadline().is_some_and(|due| due <= now) {
            let more = self.calm_bytes + self.whole_bytes.div_ceil(PART);
            self.calm_bytes = more.min(self.whole_bytes);
            self.changed_us = now;
        }
    }

    /// Returns whether stalls have made it smaller.
    pub fn is_short(&self) -> bool {
        self.calm_bytes < self.whole_bytes
    }

    /// Returns the RAM for files, bytes, while they take `held_bytes` of the group's memory.
    pub fn bytes(&self, held_bytes: u64, headroom: Option<Headroom>) -> u64 {
        let Some(Headroom { limit_bytes, used_bytes }) = headroom else { return self.calm_bytes };
        let others = used_bytes.saturating_sub(held_bytes);
        let left = (limit_bytes - limit_bytes / PART).saturating_sub(others);
        self.calm_bytes.min(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::dice::Dice;

    const WHOLE: u64 = 64 << 20;
    const SECOND: Micros = 1_000_000;

    // Promises: Mount 69.
    #[test]
    fn a_stall_halves_it_at_once_and_calm_brings_it_back() {
        let mut budget = RamBudget::new(WHOLE);
        assert_eq!((budget.next_deadline(), budget.bytes(0, None)), (None, WHOLE));
        budget.stalled(5 * SECOND);
        assert_eq!(budget.bytes(WHOLE, None), WHOLE / 2);
        for at_s in 6..60 {
            budget.stalled(at_s * SECOND);
        }
        assert_eq!(budget.bytes(0, None), WHOLE / 16, "never less");
        budget.handle_deadline(68 * SECOND);
        assert_eq!(budget.bytes(0, None), WHOLE / 16, "not yet");
        let mut growths = 0;
        while let Some(due) = budget.next_deadline() {
            budget.handle_deadline(due);
            growths += 1;
        }
        assert_eq!((growths, budget.bytes(0, None)), (15, WHOLE));
    }

    /// The group stays below its limit, regardless of the memory that it has besides the files, if
    /// fewer files can bring that about.
    // Promises: Mount 70.
    #[test]
    fn the_group_stays_below_its_limit() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let mut budget = RamBudget::new(WHOLE);
            for step in 0..50 {
                let now = step * SECOND;
                match dice.below(4) {
                    0 => budget.stalled(now),
                    _ => budget.handle_deadline(now),
                }
                let limit_bytes = u64::from(dice.below(200 << 20)) + 1;
                let (held, others) = (u64::from(dice.below(64 << 20)), dice.below(64 << 20));
                let used_bytes = held + u64::from(others);
                let bytes = budget.bytes(held, Some(Headroom { limit_bytes, used_bytes }));
                let all = bytes + u64::from(others);
                assert!(bytes <= budget.bytes(held, None), "seed {seed}, step {step}");
                assert!(bytes == 0 || all <= limit_bytes, "seed {seed}, step {step}");
            }
        }
    }

    #[test]
    fn a_budget_of_a_few_bytes_grows_back() {
        let mut budget = RamBudget::new(3);
        budget.stalled(0);
        budget.stalled(1);
        assert!(budget.is_short());
        while let Some(due) = budget.next_deadline() {
            budget.handle_deadline(due);
        }
        assert!(!budget.is_short() && budget.bytes(0, None) == 3);
    }
}
