//! Suspends a sifter whose drops are wrong too often, as CheckStop of CacheSifter does (§5.4 of the
//! paper), on two signals: a dropped name is created again, or a file with the content of a dropped
//! one is closed under another name.
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

/// A number for a file's content: files of equal content have the same, others most probably not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentKey(u64);

impl ContentKey {
    /// Bytes at the beginning and at the end of a file that count.
    pub const PART_BYTES: usize = 4096;

    /// Returns the key of a file of this size by its first and last [`Self::PART_BYTES`] bytes.
    /// `None` for a smaller file: short contents are equal too often.
    pub fn of(size: u64, first: &[u8], last: &[u8]) -> Option<Self> {
        let is_long = size >= Self::PART_BYTES as u64;
        is_long.then(|| Self(FixedState::with_seed(2).hash_one((size, first, last))))
    }
}

#[derive(Clone, Copy)]
struct DroppedName {
    name: u64,
    content: Option<ContentKey>,
    bytes: u64,
    wrong: bool,
}

pub(super) struct Guard {
    hasher: FixedState,
    /// The drops that are remembered, the oldest first.
    drops: VecDeque<DroppedName>,
    /// The number of each remembered name's last drop.
    numbers: HashMap<u64, u64, FixedState>,
    /// The number of each remembered content's last drop.
    contents: HashMap<ContentKey, u64, FixedState>,
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
            contents: HashMap::default(),
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

    pub(super) fn dropped(
        &mut self,
        now: Micros,
        name: &str,
        content: Option<ContentKey>,
        bytes: u64,
    ) {
        self.advance(now);
        let name = self.hasher.hash_one(name);
        let number = self.first + self.drops.len() as u64;
        self.drops.push_back(DroppedName { name, content, bytes, wrong: false });
        self.numbers.insert(name, number);
        content.map(|content| self.contents.insert(content, number));
        self.since += 1;
        if self.drops.len() > REMEMBERED
            && let Some(oldest) = self.drops.pop_front()
        {
            self.forget(&oldest, self.first);
            self.first += 1;
        }
        if self.since >= WINDOW && self.since.is_multiple_of(WINDOW) {
            self.pause_us = PAUSE_US[0];
        }
    }

    /// A file with this name is created. Returns the bytes that the dropped file of this name had.
    pub(super) fn created(&mut self, now: Micros, name: &str) -> Option<u64> {
        self.advance(now);
        let number = *self.numbers.get(&self.hasher.hash_one(name))?;
        Some(self.was_wrong(now, number))
    }

    /// A file with this content is closed. Returns the bytes of the dropped file that had it.
    pub(super) fn closed(&mut self, now: Micros, content: ContentKey) -> Option<u64> {
        self.advance(now);
        let number = *self.contents.get(&content)?;
        Some(self.was_wrong(now, number))
    }

    /// A drop was wrong. Returns its bytes.
    fn was_wrong(&mut self, now: Micros, number: u64) -> u64 {
        let drop = &mut self.drops[(number - self.first) as usize];
        drop.wrong = true;
        let drop = *drop;
        self.forget(&drop, number);
        self.judge(now);
        drop.bytes
    }

    /// Forgets by which name and content the drop of this number is found.
    fn forget(&mut self, drop: &DroppedName, number: u64) {
        if self.numbers.get(&drop.name) == Some(&number) {
            self.numbers.remove(&drop.name);
        }
        if let Some(content) = drop.content.filter(|it| self.contents.get(it) == Some(&number)) {
            self.contents.remove(&content);
        }
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
        for (content, number) in &self.contents {
            let drop = &self.drops[(number - self.first) as usize];
            assert!(drop.content == Some(*content) && !drop.wrong);
        }
    }
}
