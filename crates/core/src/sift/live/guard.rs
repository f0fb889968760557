//! Suspends a sifter whose drops are wrong too often, as CheckStop of CacheSifter does (§5.4 of the
//! paper), on the one signal that every mount sees: a dropped name is created again.
//!
//! It looks at the last [`WINDOW`] drops. If at least [`WRONG_MIN`] of them were created again, and
//! these had more than [`WRONG_SHARE`] of the bytes, the sifter is suspended for an hour. Each
//! further suspension lasts twice as long, up to a day; a window without a cause for one brings the
//! hour back. The memory is fixed.

use crate::event::Micros;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{collections::VecDeque, hash::BuildHasher};

/// Drops that count for a suspension.
const WINDOW: usize = 256;
/// Drops whose names are remembered.
const REMEMBERED: usize = 1 << 15;
/// Least number of wrong drops for a suspension.
const WRONG_MIN: usize = 16;
/// Share of the bytes in the window above which the sifter is suspended, in percent.
const WRONG_SHARE: u64 = 30;
/// First and longest pause, µs.
const PAUSE_US: [Micros; 2] = [3_600_000_000, 86_400_000_000];

struct DroppedName {
    name: u64,
    bytes: u64,
    wrong: bool,
}

pub(super) struct Guard {
    hasher: FixedState,
    /// The drops that are remembered, the oldest first.
    drops: VecDeque<DroppedName>,
    /// The number of each remembered name's last drop.
    numbers: HashMap<u64, u64, FixedState>,
    /// The number of the oldest remembered drop.
    first: u64,
    /// Drops since the window began: it begins anew with each suspension.
    since: usize,
    until_us: Option<Micros>,
    pause_us: Micros,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            hasher: FixedState::with_seed(1),
            drops: VecDeque::new(),
            numbers: HashMap::default(),
            first: 0,
            since: 0,
            until_us: None,
            pause_us: PAUSE_US[0],
        }
    }
}

impl Guard {
    pub(super) fn is_suspended(&self) -> bool {
        self.until_us.is_some()
    }

    pub(super) fn suspended_until(&self, now: Micros) -> Option<Micros> {
        self.until_us.filter(|until| *until > now)
    }

    /// Ends a pause that is over.
    pub(super) fn advance(&mut self, now: Micros) {
        if self.until_us.is_some_and(|until| until <= now) {
            self.until_us = None;
            self.since = 0;
        }
    }

    pub(super) fn dropped(&mut self, now: Micros, name: &str, bytes: u64) {
        self.advance(now);
        let name = self.hasher.hash_one(name);
        let number = self.first + self.drops.len() as u64;
        self.drops.push_back(DroppedName { name, bytes, wrong: false });
        self.numbers.insert(name, number);
        self.since += 1;
        if self.drops.len() > REMEMBERED
            && let Some(oldest) = self.drops.pop_front()
        {
            if self.numbers.get(&oldest.name) == Some(&self.first) {
                self.numbers.remove(&oldest.name);
            }
            self.first += 1;
        }
        if self.since >= WINDOW && self.since.is_multiple_of(WINDOW) {
            self.pause_us = PAUSE_US[0];
        }
    }

    /// A file with this name is created. Returns the bytes that the dropped file of this name had.
    pub(super) fn created(&mut self, now: Micros, name: &str) -> Option<u64> {
        self.advance(now);
        let number = self.numbers.remove(&self.hasher.hash_one(name))?;
        let drop = &mut self.drops[(number - self.first) as usize];
        drop.wrong = true;
        let bytes = drop.bytes;
        self.judge(now);
        Some(bytes)
    }

    fn judge(&mut self, now: Micros) {
        let window = || self.drops.iter().rev().take(self.since.min(WINDOW));
        let wrong = window().filter(|drop| drop.wrong);
        let (count, bytes) =
            wrong.fold((0, 0), |(count, bytes), drop| (count + 1, bytes + drop.bytes));
        let all: u64 = window().map(|drop| drop.bytes).sum();
        let is_cause = count >= WRONG_MIN && bytes * 100 > all * WRONG_SHARE;
        if self.until_us.is_none() && is_cause {
            self.until_us = Some(now.saturating_add(self.pause_us));
            self.pause_us = (self.pause_us * 2).min(PAUSE_US[1]);
            self.since = 0;
        }
    }

    pub(super) fn check(&self) {
        assert!(self.drops.len() <= REMEMBERED && self.numbers.len() <= self.drops.len());
        for (name, number) in &self.numbers {
            let drop = &self.drops[(number - self.first) as usize];
            assert!(drop.name == *name && !drop.wrong);
        }
    }
}
