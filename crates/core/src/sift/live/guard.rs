//! Suspends a sifter whose drops are wrong too often, as CheckStop of CacheSifter does (§5.4 of the
//! paper), on two signals: a dropped name is created again, or a file with the content of a dropped
//! one is closed under another name. A third lowers the bar for these two: write-backs jump.
//!
//! A file that an application replaces by new content was no wrong drop. So a name whose content is
//! known counts when the new file is closed, if it begins as the dropped one did: a cache entry
//! that is fetched again has the same body, and at most other headers behind it. Of a file whose
//! content was not known, the name alone counts.
//!
//! It looks at the last [`WINDOW`] drops. If at least [`WRONG_MIN`] of them were created again, and
//! these had more than [`WRONG_SHARE`] of the bytes, the sifter is suspended for an hour. While
//! more than twice as much is written back as before, [`WRONG_SHARE_AT_JUMP`] is enough. Each
//! further suspension lasts twice as long, up to a day; a window without a cause for one brings the
//! hour back. The memory is fixed.
//!
//! The paper's CheckStop begins to count when write-backs jump, to save time (§5.4). Here names and
//! contents are always counted. A jump alone suspends nothing: a user who begins to work looks the
//! same.

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
/// The same while write-backs jump, in percent.
const WRONG_SHARE_AT_JUMP: u64 = 10;
/// Length of the slices of time in which write-backs are counted, µs, and their number.
const SLICE_US: Micros = 600_000_000;
const SLICES: usize = 7;
/// Least number of files written back in a slice that is a jump.
const JUMP_MIN: u64 = 64;
/// First and longest pause, µs.
const PAUSE_US: [Micros; 2] = [3_600_000_000, 86_400_000_000];

/// Numbers for a file's content: files of equal content have the same, others most probably not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentKey {
    whole: u64,
    /// Of the beginning alone.
    first: u64,
    is_long: bool,
}

impl ContentKey {
    /// Bytes at the beginning and at the end of a file that count.
    pub const PART_BYTES: usize = 4096;

    /// Returns the key of a file of this size by its first and last [`Self::PART_BYTES`] bytes.
    pub fn new(size: u64, first: &[u8], last: &[u8]) -> Self {
        let hasher = FixedState::with_seed(2);
        let is_long = size >= Self::PART_BYTES as u64;
        Self { whole: hasher.hash_one((size, first, last)), first: hasher.hash_one(first), is_long }
    }

    /// Whether files of other names may be known by it: short contents are equal too often.
    fn tells(&self) -> bool {
        self.is_long
    }
}

#[derive(Clone, Copy)]
struct DroppedName {
    name: u64,
    content: Option<ContentKey>,
    bytes: u64,
    wrong: bool,
}

/// Files written back in the last hour, and in the slice of time that runs.
#[derive(Clone, Copy, Debug, Default)]
struct WriteBacks {
    /// Number of the slice that runs.
    slice: u64,
    /// Files in each slice, by its number modulo [`SLICES`].
    files: [u64; SLICES],
}

impl WriteBacks {
    fn add(&mut self, now: Micros) {
        self.advance(now);
        self.files[(self.slice % SLICES as u64) as usize] += 1;
    }

    fn advance(&mut self, now: Micros) {
        let slice = (now / SLICE_US).max(self.slice);
        for passed in (self.slice + 1..=slice).rev().take(SLICES) {
            self.files[(passed % SLICES as u64) as usize] = 0;
        }
        self.slice = slice;
    }

    /// Whether the slice that runs has over twice the files of the mean slice of the hour before.
    fn jump(&self) -> bool {
        let last = self.files[(self.slice % SLICES as u64) as usize];
        let before = self.files.iter().sum::<u64>() - last;
        last >= JUMP_MIN && last * (SLICES as u64 - 1) > 2 * before
    }
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
    write_backs: WriteBacks,
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
            write_backs: WriteBacks::default(),
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
        content.filter(ContentKey::tells).map(|content| self.contents.insert(content, number));
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

    /// A file with this name is created. Returns the bytes that the dropped file of this name had,
    /// if that drop was wrong whatever the content is.
    pub(super) fn created(&mut self, now: Micros, name: &str) -> Option<u64> {
        self.advance(now);
        let number = *self.numbers.get(&self.hasher.hash_one(name))?;
        let content = self.drops[(number - self.first) as usize].content;
        content.is_none().then(|| self.was_wrong(now, number))
    }

    /// A file with this name and content is closed. Returns the bytes of the dropped file that had
    /// the content, or the name and such a beginning.
    pub(super) fn closed(&mut self, now: Micros, name: &str, content: ContentKey) -> Option<u64> {
        self.advance(now);
        let name = self.hasher.hash_one(name);
        let named = self.numbers.get(&name).copied();
        let same = named.filter(|number| {
            let drop = &self.drops[(number - self.first) as usize];
            drop.content.is_none_or(|dropped| dropped.first == content.first)
        });
        if same.is_none() {
            self.numbers.remove(&name);
        }
        let number = same.or_else(|| self.contents.get(&content).copied())?;
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

    /// A file reached flash.
    pub(super) fn written_back(&mut self, now: Micros) {
        self.write_backs.add(now);
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
        self.write_backs.advance(now);
        let share = if self.write_backs.jump() { WRONG_SHARE_AT_JUMP } else { WRONG_SHARE };
        let is_cause = count >= WRONG_MIN && bytes * 100 > all * share;
        if self.until_us.is_none() && is_cause {
            self.until_us = Some(now.saturating_add(self.pause_us));
            self.pause_us = (self.pause_us * 2).min(PAUSE_US[1]);
            self.since = 0;
        }
    }

    pub(super) fn check(&self) {
        assert!(self.drops.len() <= REMEMBERED && self.numbers.len() <= self.drops.len());
        assert!(self.contents.len() <= self.drops.len());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::conformance::Dice;

    const MINUTE_US: Micros = 60_000_000;

    /// A guard whose sifter dropped 100 files of equal size, of which `wrong` came back. Before,
    /// `before` files a minute were written back for an hour, and `last` a minute for five minutes.
    fn suspends(wrong: usize, before: usize, last: usize) -> bool {
        let mut guard = Guard::default();
        for minute in 0..60 {
            (0..before).for_each(|_| guard.written_back(minute * MINUTE_US));
        }
        for minute in 60..65 {
            (0..last).for_each(|_| guard.written_back(minute * MINUTE_US));
        }
        let now = 65 * MINUTE_US;
        (0..100).for_each(|n| guard.dropped(now, &n.to_string(), None, 1000));
        for n in 0..wrong {
            guard.created(now, &n.to_string());
            guard.check();
        }
        guard.is_suspended()
    }

    // Promises: Mount 65.
    #[test]
    fn a_jump_in_write_backs_lowers_the_bar() {
        assert!(!suspends(20, 10, 10), "20 % of the drops were wrong");
        assert!(suspends(40, 10, 10));
        assert!(suspends(20, 10, 50), "and write-backs jump");
        assert!(!suspends(9, 10, 50), "a jump alone is no cause");
        assert!(!suspends(20, 0, 10), "50 files are too few for a jump");
        assert!(suspends(20, 0, 20));
        assert!(!suspends(20, 10, 30), "150 in five minutes are not twice 100 in ten");
    }

    /// The slices equal counts over a list of all write-backs, with pauses of any length between.
    #[test]
    fn slices_of_write_backs_equal_a_list() {
        for seed in 0..50 {
            let mut dice = Dice::new(seed);
            let (mut slices, mut list, mut now) = (WriteBacks::default(), Vec::new(), 0);
            for _ in 0..3000 {
                let reach = if dice.below(20) == 0 { 100 } else { 2 };
                now += Micros::from(dice.below(reach)) * MINUTE_US / 10 * Micros::from(reach);
                slices.add(now);
                list.push(now / SLICE_US);
                let count = |wanted: std::ops::Range<u64>| {
                    list.iter().filter(|slice| wanted.contains(slice)).count() as u64
                };
                let this = now / SLICE_US;
                let (last, before) = (count(this..this + 1), count(this.saturating_sub(6)..this));
                let jump = last >= JUMP_MIN && last as f64 > 2.0 * before as f64 / 6.0;
                assert_eq!(slices.jump(), jump, "seed {seed}: {last} after {before}");
            }
        }
    }
}
