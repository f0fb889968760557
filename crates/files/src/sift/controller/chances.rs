//! How likely a file is to be used again, learned from what became of other files.
//!
//! Idle time is cut into levels, two for each doubling. For each directory and number of uses, a
//! row counts how many files reached a level, and how many of them were used or deleted in it. The
//! chance of a later use follows from the shares of all levels from the file's own on (Kaplan and
//! Meier, "Nonparametric estimation from incomplete observations", 1958): files that are still idle
//! count in the levels that they have passed.
//!
//! A row that has seen little leans on all directories with the same number of uses, and these on
//! all files. A level that most files have not left yet has the mean share of the levels below it.
//! Levels beyond four times the time since the start do not count: nothing is known about them.

use flashsift_events::event::Micros;
use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hasher};

/// Levels of idle time. Level 0 is less than 1 s; each doubling from there on has two levels; the
/// last one has no end.
pub(super) const LEVELS: usize = 46;
/// Classes of directories. Class 0 is all of them; the others are chosen by a hash of the path.
const CLASSES: u8 = 64;
/// Numbers of uses that have rows of their own: none, one, more.
const USES: u8 = 3;
/// Rows of the table.
pub(super) const ROWS: usize = CLASSES as usize * USES as usize;
/// Files that the estimate of the next wider group counts for.
const PRIOR_FILES: f64 = 8.0;
/// Share of files used in a level, before anything is known.
const FIRST_SHARE: f64 = 0.025;
/// Weight of a level beside the next one in the mean that replaces a share that is not known yet.
const FADE: f64 = 0.8;
/// Levels above that of the time since the start which count: two doublings.
pub(super) const AHEAD: usize = 4;
/// Observations after which the chances are computed anew.
const NEWS: u32 = 64;
/// Files after which a row is halved, so that it follows a change of habits.
const REACHED_MAX: u32 = 1 << 14;

/// The row of the files of a class of directories with the same number of uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row(u8);

impl Row {
    /// Returns the row of a new file with this path. Components of a path that are numbers count as
    /// equal: applications spread the files of one kind over such directories.
    pub(super) fn new(path: &str) -> Self {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut hasher = FixedState::with_seed(0).build_hasher();
        for part in directory.split('/') {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            hasher.write(if is_number { b"#" } else { part.as_bytes() });
            hasher.write_u8(b'/');
        }
        let class = 1 + (hasher.finish() % u64::from(CLASSES - 1)) as u8;
        Self(class * USES)
    }

    /// Returns the row of the same file with one more use.
    pub(super) fn used(self) -> Self {
        if self.uses() + 1 < USES { Self(self.0 + 1) } else { self }
    }

    /// Returns the number of uses; the largest stands for more.
    pub(super) fn uses(self) -> u8 {
        self.0 % USES
    }

    /// Returns the number of the class of directories.
    pub(super) fn class(self) -> u8 {
        self.0 / USES
    }

    /// Returns this path's row with this row's number of uses.
    pub(super) fn moved(self, path: &str) -> Self {
        Self(Self::new(path).0 + self.uses())
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }

    /// Returns the row of all directories with this number of uses.
    fn of_all(uses: u8) -> Self {
        Self(uses)
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES * USES).map(Self)
    }
}

/// Returns the level of an idle time.
pub(super) fn level_of(idle_us: Micros) -> u8 {
    // The highest bit of the seconds, and the one below it.
    let Some(octave) = (idle_us / 1_000_000).checked_ilog2() else { return 0 };
    let halves = idle_us / (500_000 << octave);
    (2 * octave + halves as u32 - 1).min(LEVELS as u32 - 1) as u8
}

/// The files that were seen in a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    reached: u32,
    used: u32,
    died: u32,
    passed: u32,
}

impl Count {
    fn known(self) -> u32 {
        self.used + self.died + self.passed
    }

    fn plus(self, other: Self) -> Self {
        Self {
            reached: self.reached + other.reached,
            used: self.used + other.used,
            died: self.died + other.died,
            passed: self.passed + other.passed,
        }
    }

    fn halved(self) -> Self {
        let Self { reached, used, died, passed } = self;
        Self { reached: reached / 2, used: used / 2, died: died / 2, passed: passed / 2 }
    }
}

/// Shares of the files of a level.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    used: f64,
    died: f64,
}

/// The end of a file's time in a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Used,
    Died,
    Passed,
}

/// Probabilities for a file that has reached a level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chance {
    /// It is used in this level or a later one.
    pub(super) later: f32,
    /// It is used in this level.
    pub(super) now: f32,
}

/// The counts, and the chances that follow from them.
#[derive(Clone)]
pub(super) struct Chances {
    counts: Vec<[Count; LEVELS]>,
    /// Chances by row and level, and the generation that each row is of.
    chances: Vec<(u32, [Chance; LEVELS])>,
    /// Shares of all files, of this generation.
    of_all: [Shares; LEVELS],
    generation: u32,
    news: u32,
    start_us: Option<Micros>,
    /// The highest level that counts.
    top: usize,
}

impl Chances {
    pub(super) fn new() -> Self {
        Self {
            counts: vec![[Count::default(); LEVELS]; ROWS],
            chances: vec![(0, [Chance::default(); LEVELS]); ROWS],
            of_all: [Shares::default(); LEVELS],
            generation: 1,
            news: 0,
            start_us: None,
            top: 1,
        }
    }

    /// Takes the time. Returns whether the chances have changed since the last call.
    pub(super) fn advance(&mut self, now: Micros) -> bool {
        let start_us = *self.start_us.get_or_insert(now);
        let top = (usize::from(level_of(now.saturating_sub(start_us))) + AHEAD).min(LEVELS - 1);
        let is_new = top > self.top || self.news >= NEWS;
        if is_new {
            self.top = self.top.max(top);
            self.news = 0;
            self.generation = self.generation.wrapping_add(1);
            self.of_all = self.shares_of_all();
        }
        is_new
    }

    /// A file begins to be idle.
    pub(super) fn begins(&mut self, row: Row) {
        for row in [row, Row::of_all(row.uses())] {
            let counts = &mut self.counts[row.index()];
            counts[0].reached += 1;
            if counts[0].reached >= REACHED_MAX {
                counts.iter_mut().for_each(|count| *count = count.halved());
            }
        }
    }

    /// A file that is still in level 0 does not belong to the row.
    pub(super) fn withdraw(&mut self, row: Row) {
        for row in [row, Row::of_all(row.uses())] {
            let reached = &mut self.counts[row.index()][0].reached;
            *reached = reached.saturating_sub(1);
        }
    }

    /// A file's time in a level ends.
    pub(super) fn ends(&mut self, row: Row, level: u8, fate: Fate) {
        let level = usize::from(level);
        for row in [row, Row::of_all(row.uses())] {
            let counts = &mut self.counts[row.index()];
            match fate {
                Fate::Used => counts[level].used += 1,
                Fate::Died => counts[level].died += 1,
                Fate::Passed => {
                    counts[level].passed += 1;
                    counts[level + 1].reached += 1;
                }
            }
        }
        self.news += 1;
    }

    /// Returns what probably becomes of a file of this row and level.
    pub(super) fn get(&mut self, row: Row, level: u8) -> Chance {
        if self.chances[row.index()].0 != self.generation {
            self.chances[row.index()] = (self.generation, self.computed(row));
        }
        self.chances[row.index()].1[usize::from(level)]
    }

    /// Returns the same, but keeps nothing for later calls.
    pub(super) fn peek(&self, row: Row, level: u8) -> Chance {
        let (generation, chances) = &self.chances[row.index()];
        match *generation == self.generation {
            true => chances[usize::from(level)],
            false => self.computed(row)[usize::from(level)],
        }
    }

    fn computed(&self, row: Row) -> [Chance; LEVELS] {
        let shares = self.shares(row);
        let mut chances = [Chance::default(); LEVELS];
        let mut later = 0.0;
        for level in (0..=self.top).rev() {
            let Shares { used, died } = shares[level];
            later = used + (1.0 - used - died).max(0.0) * later;
            chances[level] = Chance { later: later as f32, now: used as f32 };
        }
        let highest = chances[self.top];
        chances[self.top + 1..].fill(highest);
        chances
    }

    fn shares(&self, row: Row) -> [Shares; LEVELS] {
        let wider = &self.counts[Row::of_all(row.uses()).index()];
        let own = &self.counts[row.index()];
        std::array::from_fn(|level| refined(refined(self.of_all[level], wider[level]), own[level]))
    }

    fn shares_of_all(&self) -> [Shares; LEVELS] {
        let mut shares = [Shares::default(); LEVELS];
        // Sums in which a level counts FADE times as much as the next one.
        let (mut sum, mut weights) = (Shares::default(), 0.0);
        for (level, known) in shares.iter_mut().enumerate().take(self.top + 1) {
            let before = match weights > 0.0 {
                true => Shares { used: sum.used / weights, died: sum.died / weights },
                false => Shares { used: FIRST_SHARE, died: 0.0 },
            };
            let rows = (0..USES).map(|uses| self.counts[Row::of_all(uses).index()][level]);
            *known = refined(before, rows.fold(Count::default(), Count::plus));
            sum.used = FADE * sum.used + known.used;
            sum.died = FADE * sum.died + known.died;
            weights = FADE * weights + 1.0;
        }
        shares
    }

    pub(super) fn check(&self) {
        for (_, chances) in &self.chances {
            for Chance { later, now } in chances {
                assert!(0.0 <= *now && now <= later && *later <= 1.0, "{now} of {later}");
            }
        }
    }
}

/// Returns the shares of a group that is counted here within one that has the shares `wider`.
fn refined(wider: Shares, count: Count) -> Shares {
    let known = count.known();
    if known * 2 < count.reached {
        return wider;
    }
    let share = |part: u32, wider: f64| {
        (f64::from(part) + PRIOR_FILES * wider) / (f64::from(known) + PRIOR_FILES)
    };
    Shares { used: share(count.used, wider.used), died: share(count.died, wider.died) }
}
