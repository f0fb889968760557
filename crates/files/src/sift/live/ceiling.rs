//! The price that a mount's sifter may have: a ceiling on the bytes that are fetched again.
//!
//! A drop is refused, and the file is written to flash, unless all of these hold:
//!
//! - The bytes that came back are at most a share of the bytes of droppable files that plain ext4
//!   would have written. Those are the bytes that have left RAM, without the ones fetched again.
//! - The dropped bytes that may still come back are at most [`CAP`] times the RAM that the files of
//!   the sifter may take.
//! - No dropped file came back under this name.
//!
//! Each file is judged anew, so drops resume by themselves when the share has fallen.
//!
//! A dropped file is outstanding at first: it may come back. After each [`HALF_US`] of active time
//! half as many of its bytes count. With nothing to do, an application fetches nothing again.
//!
//! Bytes that are only expected back do not count against the share. When they did, in proportion
//! to those that had come back, the share stayed at two thirds of what was allowed, and
//! `controller` kept up to a half less from flash in simulation.
//!
//! A file that an application replaces by new content has not come back. So a name whose content is
//! known counts when the new file is closed, if it begins as the dropped one did: a cache entry
//! that is fetched again has the same body, and at most other headers behind it. Content also
//! counts under another name. Of a file whose content was not known, the name alone counts. A name
//! that an application deletes is forgotten. The memory is fixed.

use super::Explanation;
use crate::sift::{Intent, meaning::FileParts, returns::Returns};
use flashsift_events::event::Micros;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{collections::VecDeque, hash::BuildHasher};

/// Share of the bytes that may be fetched again, if nothing else is said.
pub const AGAIN: f64 = 0.1;
/// Drops whose names are remembered.
const REMEMBERED: usize = 1 << 15;
/// Most dropped bytes that may still come back, as a multiple of the RAM that its files may take.
const CAP: u64 = 8;
/// Active time in which half of the outstanding bytes stop to be so, µs.
const HALF_US: f64 = 600e6;
/// Time after an event that is active, µs.
const ACTIVE_US: Micros = 60_000_000;

/// Numbers for a file's content: files of equal content have the same, others most probably not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContentKey {
    whole: u64,
    /// Of the beginning alone.
    first: u64,
    is_long: bool,
}

impl ContentKey {
    /// Returns the key of a file with these first and last bytes.
    pub(super) fn of(parts: &FileParts) -> Self {
        let [first, last] = parts.padded();
        Self::new(parts.size(), first, last)
    }

    /// Returns the key of a file of this size by its first and last bytes.
    pub(super) fn new(size: u64, first: &[u8], last: &[u8]) -> Self {
        let hasher = FixedState::with_seed(2);
        let is_long = size >= FileParts::BYTES as u64;
        Self { whole: hasher.hash_one((size, first, last)), first: hasher.hash_one(first), is_long }
    }

    /// Whether files of other names may be known by it: short contents are equal too often.
    fn tells(&self) -> bool {
        self.is_long
    }
}

#[derive(Clone, Copy)]
struct DroppedFile {
    name: u64,
    content: Option<ContentKey>,
    bytes: u64,
    /// Active time at its drop.
    active_us: Micros,
    /// It may still come back.
    is_out: bool,
}

pub(super) struct Ceiling {
    /// Share of the bytes that may be fetched again.
    again: f64,
    /// Most dropped bytes that may still come back.
    cap_bytes: u64,
    most: usize,
    hasher: FixedState,
    returns: Returns,
    /// The drops that are remembered, the oldest first.
    drops: VecDeque<DroppedFile>,
    /// The number of the drop of each name that is out.
    numbers: HashMap<u64, u64, FixedState>,
    /// The number of the last drop of each content that is out.
    contents: HashMap<ContentKey, u64, FixedState>,
    /// The number of the oldest remembered drop.
    first: u64,
    /// Outstanding bytes when the active time was `counted_us`.
    out_bytes: f64,
    counted_us: Micros,
    active_us: Micros,
    now: Option<Micros>,
}

impl Default for Ceiling {
    fn default() -> Self {
        Self::remembering(REMEMBERED)
    }
}

impl Ceiling {
    /// Returns a ceiling of which nothing came back, and which remembers this many drops.
    fn remembering(most: usize) -> Self {
        Self {
            again: AGAIN,
            cap_bytes: 0,
            most,
            hasher: FixedState::with_seed(1),
            returns: Returns::new(most),
            drops: VecDeque::new(),
            numbers: HashMap::default(),
            contents: HashMap::default(),
            first: 0,
            out_bytes: 0.0,
            counted_us: 0,
            active_us: 0,
            now: None,
        }
    }

    /// Sets the share of the bytes that may be fetched again, and the RAM that the
    /// sifter's files may take.
    pub(super) fn set(&mut self, again: f64, ram_bytes: u64) {
        (self.again, self.cap_bytes) = (again, CAP.saturating_mul(ram_bytes));
    }

    /// Forgets what came back, and what was dropped.
    pub(super) fn reset(&mut self) {
        *self = Self { again: self.again, cap_bytes: self.cap_bytes, ..Self::default() };
    }

    /// Returns the share of the bytes that came back.
    pub(super) fn share(&self) -> f64 {
        self.returns.fetched_bytes() as f64 / self.returns.own_bytes().max(1) as f64
    }

    /// Something happens now.
    pub(super) fn advance(&mut self, now: Micros) {
        let idle_us = now.saturating_sub(self.now.unwrap_or(now));
        self.active_us += idle_us.min(ACTIVE_US);
        self.now = Some(now);
    }

    /// Returns the part of the bytes that is still outstanding, this active time after a drop.
    fn part(active_us: Micros) -> f64 {
        (-(active_us as f64) / HALF_US).exp2()
    }

    fn outstanding(&self) -> f64 {
        self.out_bytes * Self::part(self.active_us - self.counted_us)
    }

    /// Adds to the outstanding bytes.
    fn count(&mut self, bytes: f64) {
        self.out_bytes = (self.outstanding() + bytes).max(0.0);
        self.counted_us = self.active_us;
    }

    /// Returns the conditions of the drop of this file.
    pub(super) fn judge(&self, name: &str, bytes: u64) -> Explanation {
        let fetched = self.returns.fetched_bytes() as f64;
        let allowed = self.again * (self.returns.own_bytes() + bytes) as f64;
        let out_bytes = self.outstanding() + bytes as f64;
        let rule = "The sifter would drop it, but the ceiling on bytes fetched again does not \
                    allow that.";
        Explanation::new(Intent::Write, rule, bytes)
            .at_most("fetched again, bytes", fetched, allowed)
            .at_most("dropped and outstanding, bytes", out_bytes, self.cap_bytes as f64)
            .below("times it came back", u8::from(self.returns.has(name)).into(), 1.0)
    }

    /// A file left RAM for flash.
    pub(super) fn written(&mut self, bytes: u64) {
        self.returns.left(bytes);
    }

    /// A file was dropped.
    pub(super) fn dropped(&mut self, name: &str, content: Option<ContentKey>, bytes: u64) {
        // An application has replaced the one before.
        self.deleted(name);
        self.returns.left(bytes);
        self.count(bytes as f64);
        let (name, active_us) = (self.hasher.hash_one(name), self.active_us);
        let number = self.first + self.drops.len() as u64;
        self.drops.push_back(DroppedFile { name, content, bytes, active_us, is_out: true });
        self.numbers.insert(name, number);
        content.filter(ContentKey::tells).map(|content| self.contents.insert(content, number));
        if self.drops.len() > self.most {
            self.settle(self.first);
            self.drops.pop_front();
            self.first += 1;
        }
    }

    /// An application deletes or replaces the file of this name.
    pub(super) fn deleted(&mut self, name: &str) {
        if let Some(number) = self.numbers.get(&self.hasher.hash_one(name)) {
            self.settle(*number);
        }
    }

    /// A file gets this name. Returns the bytes that the dropped file of this name had, if it is
    /// back whatever the content is.
    pub(super) fn named(&mut self, name: &str) -> Option<u64> {
        let number = *self.numbers.get(&self.hasher.hash_one(name))?;
        let content = self.drops[(number - self.first) as usize].content;
        content.is_none().then(|| self.came_back(name, number))
    }

    /// A file with this name and content is closed. Returns the bytes of the dropped file that had
    /// the content, or the name and such a beginning.
    pub(super) fn closed(&mut self, name: &str, content: ContentKey) -> Option<u64> {
        let named = self.numbers.get(&self.hasher.hash_one(name)).copied();
        let same = named.filter(|number| {
            let drop = &self.drops[(number - self.first) as usize];
            drop.content.is_none_or(|dropped| dropped.first == content.first)
        });
        if same.is_none() {
            self.deleted(name);
        }
        let number = same.or_else(|| self.contents.get(&content).copied())?;
        Some(self.came_back(name, number))
    }

    /// A dropped file is back under this name. Returns its bytes.
    fn came_back(&mut self, name: &str, number: u64) -> u64 {
        let bytes = self.settle(number);
        self.returns.came_back(name, bytes);
        bytes
    }

    /// The drop of this number is outstanding no more. Returns its bytes.
    fn settle(&mut self, number: u64) -> u64 {
        let drop = &mut self.drops[(number - self.first) as usize];
        let was_out = std::mem::take(&mut drop.is_out);
        let drop = *drop;
        if was_out {
            self.count(-(drop.bytes as f64) * Self::part(self.active_us - drop.active_us));
            self.numbers.remove(&drop.name);
        }
        if let Some(content) = drop.content.filter(|it| self.contents.get(it) == Some(&number)) {
            self.contents.remove(&content);
        }
        drop.bytes
    }

    pub(super) fn check(&self) {
        self.returns.check();
        let out = self.drops.iter().filter(|drop| drop.is_out);
        assert!(self.drops.len() <= self.most && self.numbers.len() == out.clone().count());
        assert!(self.returns.fetched_bytes() <= self.returns.left_bytes());
        for (name, number) in &self.numbers {
            let drop = &self.drops[(number - self.first) as usize];
            assert!(drop.name == *name && drop.is_out);
        }
        for (content, number) in &self.contents {
            let drop = &self.drops[(number - self.first) as usize];
            assert!(drop.content == Some(*content) && drop.is_out);
        }
        let left =
            |drop: &DroppedFile| drop.bytes as f64 * Self::part(self.active_us - drop.active_us);
        let sum: f64 = out.map(left).sum();
        assert!((sum - self.outstanding()).abs() <= 1.0, "{sum} {}", self.outstanding());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::dice::Dice;

    const MOST: usize = 20;

    /// A list of all drops, searched from its end.
    #[derive(Default)]
    struct Naive {
        drops: Vec<(String, DroppedFile)>,
        came_back: Vec<String>,
        active_us: Micros,
        left_bytes: u64,
        fetched_bytes: u64,
    }

    impl Naive {
        fn settle(&mut self, at: Option<usize>) -> Option<u64> {
            let (_, drop) = &mut self.drops[at?];
            drop.is_out = false;
            Some(drop.bytes)
        }

        fn of_name(&self, name: &str) -> Option<usize> {
            self.drops.iter().rposition(|(known, drop)| drop.is_out && known == name)
        }

        fn of_content(&self, content: ContentKey) -> Option<usize> {
            let last = self.drops.iter().rposition(|(_, drop)| drop.content == Some(content));
            last.filter(|at| content.tells() && self.drops[*at].1.is_out)
        }

        fn dropped(&mut self, name: &str, content: Option<ContentKey>, bytes: u64) {
            self.settle(self.of_name(name));
            let active_us = self.active_us;
            let drop = DroppedFile { name: 0, content, bytes, active_us, is_out: true };
            self.drops.push((name.to_owned(), drop));
            self.left_bytes += bytes;
            self.settle(self.drops.len().checked_sub(MOST + 1));
        }

        fn named(&mut self, name: &str) -> Option<u64> {
            let at = self.of_name(name).filter(|at| self.drops[*at].1.content.is_none());
            self.came_back(name, at)
        }

        fn closed(&mut self, name: &str, content: ContentKey) -> Option<u64> {
            let named = self.of_name(name);
            let begins = |at: &usize| {
                self.drops[*at].1.content.is_none_or(|known| known.first == content.first)
            };
            let same = named.filter(begins);
            if same.is_none() {
                self.settle(named);
            }
            self.came_back(name, same.or_else(|| self.of_content(content)))
        }

        fn came_back(&mut self, name: &str, at: Option<usize>) -> Option<u64> {
            let bytes = self.settle(at)?;
            self.fetched_bytes += bytes;
            self.came_back.push(name.to_owned());
            Some(bytes)
        }

        /// The score and the threshold of each condition of a drop.
        fn judge(&self, again: f64, name: &str, bytes: u64) -> [(f64, f64); 3] {
            let part = |drop: &DroppedFile| {
                let halves = (self.active_us - drop.active_us) as f64 / HALF_US;
                drop.bytes as f64 * 0.5_f64.powf(halves)
            };
            let out = || self.drops.iter().map(|(_, drop)| drop).filter(|drop| drop.is_out);
            let out_bytes: f64 = out().map(part).sum();
            let fetched = self.fetched_bytes as f64;
            let own = self.left_bytes as f64 - fetched + bytes as f64;
            let times = f64::from(u8::from(self.came_back.iter().any(|known| known == name)));
            [(fetched, again * own), (out_bytes + bytes as f64, 8e6), (times, 1.0)]
        }
    }

    /// Files are dropped, written, deleted, named and closed in any order, with pauses of any
    /// length: every answer and every condition of a drop is that of a list.
    // Promises: Mount 65.
    #[test]
    fn the_ceiling_equals_a_list_of_all_drops() {
        let mut returned = [0; 3];
        for seed in 0..60 {
            let mut dice = Dice::new(seed);
            let again = f64::from(dice.below(11)) / 10.0;
            let (mut fast, mut slow) = (Ceiling::remembering(MOST), Naive::default());
            fast.set(again, 1_000_000);
            let mut now = 0;
            for step in 0..1500 {
                let pause_us = [0, 1_000_000, 40_000_000, 200_000_000][dice.below(4) as usize];
                let pause_us = Micros::from(dice.below(pause_us + 1));
                now += pause_us;
                slow.active_us += if step == 0 { 0 } else { pause_us.min(ACTIVE_US) };
                fast.advance(now);
                let name = format!("/d{}", dice.below(8));
                let bytes = [100_u64, 5000, 400_000][dice.below(3) as usize];
                let [first, last] = [3, 2].map(|most| [dice.below(most) as u8]);
                let content = ContentKey::new(bytes, &first, &last);
                let at = format!("seed {seed}, step {step}: {name}");
                match dice.below(6) {
                    0 | 1 => {
                        let content = (dice.below(4) > 0).then_some(content);
                        fast.dropped(&name, content, bytes);
                        slow.dropped(&name, content, bytes);
                    }
                    2 => {
                        fast.written(bytes);
                        slow.left_bytes += bytes;
                    }
                    3 => {
                        fast.deleted(&name);
                        slow.settle(slow.of_name(&name));
                    }
                    4 => {
                        let answer = slow.named(&name);
                        returned[0] += u32::from(answer.is_some());
                        assert_eq!(fast.named(&name), answer, "{at}");
                    }
                    _ => {
                        let by_name = slow.of_name(&name).is_some();
                        let answer = slow.closed(&name, content);
                        returned[1 + usize::from(by_name)] += u32::from(answer.is_some());
                        assert_eq!(fast.closed(&name, content), answer, "{at}");
                    }
                }
                fast.check();
                let expected = slow.judge(again, &name, bytes);
                for (criterion, (score, most)) in
                    fast.judge(&name, bytes).criteria.iter().zip(expected)
                {
                    let near = |one: f64, other: f64| (one - other).abs() <= 1.0;
                    assert!(near(criterion.value, score), "{at}: {criterion:?} {score}");
                    assert!(near(criterion.threshold, most), "{at}: {criterion:?} {most}");
                }
            }
        }
        assert!(returned.iter().all(|times| *times > 500), "{returned:?}");
    }
}
