//! `controller`: drops what costs less to fetch again, probably, than to write to flash.
//!
//! When RAM is full, the least recently used file is dropped if its chance of a later use is below
//! a threshold, with which the bytes expected back stay within the share `again`, and if this
//! chance, times `price`, is below its chance of none: a file that comes back is fetched and then
//! written. Otherwise the file that is most likely to be used again goes to flash: the others grow
//! older in RAM, and their chance of a later use falls. The chances are learned from all files
//! ([`chances`]), because uses of files on flash are seen as well, and corrected by what really
//! came back.
//!
//! While a cache is new, nearly all that leaves RAM comes back, and nothing is known yet. So no
//! chance is below that of [`cold`], which falls to 0 as `cold-mib` leave RAM.
//!
//! The share `again` is a ceiling on the bytes that really came back. A file that came back once is
//! written. `cap-mib` bounds the cost of a program that uses at once every dropped file that is
//! remembered.

use super::{
    Spec,
    explanation::{Explanation, Intent, seconds},
    on_pressure::{Judge, OnPressure, Use, Verdict},
    returns::Returns,
    shelf::{Held, Shelf, Slot},
};
use chances::{Chances, Row, level_of};
use cold::Cold;
use flashsift_events::{
    event::{Action, Event, Micros},
    params::{Param, ParamKind},
};
use threshold::Threshold;
use tracked::{Key, Known, Residence, Tracked};

mod chances;
mod cold;
#[cfg(test)]
mod tests;
mod threshold;
mod tracked;

pub(super) const SPEC: Spec = Spec {
    name: "controller",
    paper: "docs/sift.md",
    what: "drops what costs less to fetch again than to write, up to a share of bytes fetched again",
    params: PARAMS,
    offline: |_| false,
    build: |setup, params| {
        let number = |name| params.number(PARAMS, name);
        let settings = Settings {
            again: number("again"),
            price: number("price"),
            cap_bytes: (number("cap-mib") * f64::from(1 << 20)) as u64,
            settle_us: params.duration_us(PARAMS, "settle"),
        };
        let cold_bytes = (number("cold-mib") * f64::from(1 << 20)) as u64;
        let cold = Cold::new(cold_bytes, setup.droppable.clone());
        let controller = Controller::new(settings, cold, number("ghosts") as usize);
        Ok(Box::new(OnPressure::new(setup, controller)))
    },
};

const PARAMS: &[Param] = &[
    Param {
        name: "again",
        what: "most bytes fetched again, as a share of the other bytes that leave RAM",
        kind: ParamKind::Number { default: 0.1, min: 0.0, max: 1.0 },
    },
    Param {
        name: "price",
        what: "bytes of flash writes that one fetched byte is worth; a file is dropped only if its \
               chance of a later use times this is below its chance of none",
        kind: ParamKind::Number { default: 0.25, min: 0.0, max: 1e6 },
    },
    Param {
        name: "cap-mib",
        what: "most bytes of dropped files that may come back, in MiB",
        kind: ParamKind::Number { default: 1024.0, min: 0.0, max: 1e9 },
    },
    Param {
        name: "cold-mib",
        what: "a cache is taken to be new, and its files to come back, until so many MiB of it have \
               left RAM",
        kind: ParamKind::Number { default: 32.0, min: 0.0, max: 1e9 },
    },
    Param {
        name: "settle",
        what: "idle time after which a dropped file is taken not to come back",
        kind: ParamKind::Duration {
            default_us: 30 * DAY_US,
            min_us: 1_000_000,
            max_us: 365 * DAY_US,
        },
    },
    Param {
        name: "ghosts",
        what: "files that have left RAM and are remembered",
        kind: ParamKind::Number { default: 32768.0, min: 0.0, max: 1e8 },
    },
];

const DAY_US: Micros = 86_400_000_000;

/// Time between two looks at the files whose level may have changed.
const TICK_US: Micros = 1_000_000;
/// Files of a row that are passed over because they are in use.
const BUSY_MAX: usize = 16;

/// Factor by which the chances of a later use are taken to be too low before anything is known.
const DOUBT: f64 = 2.0;
/// Bytes that should have come back for which the doubt counts.
const DOUBT_BYTES: f64 = 1_048_576.0;
/// Largest factor; the smallest is its inverse.
const ERROR_MAX: f64 = 8.0;

struct Settings {
    again: f64,
    price: f64,
    cap_bytes: u64,
    settle_us: Micros,
}

struct Controller {
    settings: Settings,
    chances: Chances,
    tracked: Tracked,
    returns: Returns,
    threshold: Threshold,
    cold: Cold,
    /// Time at which the files last passed their levels.
    tick_us: Option<Micros>,
}

impl Controller {
    fn new(settings: Settings, cold: Cold, ghosts: usize) -> Self {
        Self {
            threshold: Threshold::new(settings.again),
            settings,
            cold,
            chances: Chances::new(),
            tracked: Tracked::new(ghosts),
            returns: Returns::new(ghosts),
            tick_us: None,
        }
    }

    /// Lets time pass for all files, at most once in [`TICK_US`].
    fn advance(&mut self, now: Micros) {
        if self.tick_us.is_some_and(|tick_us| now.abs_diff(tick_us) < TICK_US) {
            return;
        }
        self.tick_us = Some(now);
        self.tracked.advance(now, self.settings.settle_us, &mut self.chances);
        self.chances.advance(now);
    }

    /// Returns the number of a file in RAM, or on its way out of it. It is forgotten if many files
    /// have left after it.
    fn known(&self, file: &Held<Known>) -> Option<Known> {
        let known = self.tracked.get(file.state)?;
        (known.id == file.id && known.place() != Residence::Free).then_some(file.state)
    }

    /// Returns the row and the level of a file in RAM.
    fn row_and_level(&self, now: Micros, file: &Held<Known>) -> Option<(Row, u8)> {
        let known = self.known(file).and_then(|known| self.tracked.get(known))?;
        Some((known.row, level_of(now.saturating_sub(known.used_us))))
    }

    /// Returns the probability that a file in RAM is used again.
    fn chance(&mut self, now: Micros, file: &Held<Known>) -> f32 {
        let of = self.row_and_level(now, file);
        of.map_or(1.0, |(row, level)| self.chances.get(row, level).later)
    }

    /// Returns the same, but keeps nothing for later calls.
    fn peek_chance(&self, now: Micros, file: &Held<Known>) -> f32 {
        let of = self.row_and_level(now, file);
        of.map_or(1.0, |(row, level)| self.chances.peek(row, level).later)
    }

    /// Returns the factor by which more came back than the chances had said. Before anything could
    /// come back it is [`DOUBT`].
    fn error(&self) -> f64 {
        let fetched = self.returns.fetched_bytes() as f64 + DOUBT * DOUBT_BYTES;
        (fetched / (self.tracked.due_bytes() + DOUBT_BYTES)).clamp(ERROR_MAX.recip(), ERROR_MAX)
    }

    /// Returns a chance, corrected by what really came back.
    fn corrected(&self, chance: f32) -> f64 {
        (f64::from(chance) * self.error()).min(1.0)
    }

    /// Returns the numbers that decide whether a file with this chance may be dropped.
    fn grounds(&self, file: &Held<Known>, chance: f32) -> Grounds {
        let bytes = file.bytes();
        let chance = self.corrected(chance).max(self.cold.chance(self.returns.left_bytes()));
        let fetched_bytes = self.returns.fetched_bytes();
        let allowed_bytes = self.settings.again * (self.returns.own_bytes() + bytes) as f64;
        Grounds {
            fetched_bytes: fetched_bytes as f64,
            allowed_bytes,
            dropped_bytes: self.tracked.dropped_bytes() + bytes,
            cap_bytes: self.settings.cap_bytes,
            chance,
            threshold: self.threshold.chance(),
            cost: chance * self.settings.price,
            gain: 1.0 - chance,
            came_back: self.returns.has(&file.name),
        }
    }

    /// Returns the row of a file that is back: one with this name was dropped. It counts as fetched
    /// again.
    fn fetched_again(&mut self, now: Micros, name: &str) -> Option<Row> {
        let dropped = self.tracked.find(Key::of_path(name))?;
        let back = self.tracked.returned(now, dropped, &mut self.chances)?;
        self.returns.came_back(name, back.bytes());
        Some(back.row)
    }
}

/// The numbers that decide whether a file may be dropped.
struct Grounds {
    /// Bytes fetched again so far.
    fetched_bytes: f64,
    /// The share `again` of the other bytes that have left RAM.
    allowed_bytes: f64,
    /// Bytes of dropped files that are remembered, with this one.
    dropped_bytes: u64,
    cap_bytes: u64,
    /// Chance of a later use, and what it must be below.
    chance: f64,
    threshold: f64,
    /// Price of the bytes that will probably be fetched again, and bytes that the drop probably
    /// keeps from flash, each for a byte of the file. One that comes back is written then.
    cost: f64,
    gain: f64,
    /// A file of its name was dropped before, and came back.
    came_back: bool,
}

impl Grounds {
    fn allow_drop(&self) -> bool {
        self.fetched_bytes <= self.allowed_bytes
            && self.dropped_bytes <= self.cap_bytes
            && self.chance < self.threshold
            && self.cost < self.gain
            && !self.came_back
    }

    fn add_to(&self, explanation: Explanation) -> Explanation {
        explanation
            .at_most("fetched again, bytes", self.fetched_bytes, self.allowed_bytes)
            .at_most(
                "dropped and remembered, bytes",
                self.dropped_bytes as f64,
                self.cap_bytes as f64,
            )
            .below("corrected chance", self.chance, self.threshold)
            .below("chance times price", self.cost, self.gain)
            .below("times it came back", u8::from(self.came_back).into(), 1.0)
    }
}

/// Returns the idle file that is most likely to be used again. In a row that is the one used last,
/// but for the few that are in use now.
fn most_likely(
    now: Micros,
    tracked: &Tracked,
    shelf: &Shelf<Known>,
    mut chance: impl FnMut(Row, u8) -> f32,
) -> Option<Slot> {
    let mut best: Option<(f32, Slot)> = None;
    for row in Row::all() {
        let idle = |(slot, _): &(Slot, &tracked::File)| shelf.is_idle(*slot, now);
        let newest = tracked.newest_first(row).take(BUSY_MAX).find(idle);
        let Some((slot, file)) = newest else { continue };
        let chance = chance(row, level_of(now.saturating_sub(file.used_us)));
        if best.is_none_or(|(most, _)| chance > most) {
            best = Some((chance, slot));
        }
    }
    best.map(|(_, slot)| slot)
}

impl Judge for Controller {
    type State = Known;

    fn created(&mut self, now: Micros, slot: Slot, file: &mut Held<Known>) {
        let row = self.fetched_again(now, &file.name).unwrap_or_else(|| Row::new(&file.name));
        self.chances.begins(row);
        file.state = self.tracked.hold(now, file.id, slot, row);
    }

    fn used(&mut self, now: Micros, file: &mut Held<Known>, _: Use) -> bool {
        if let Some(known) = self.known(file) {
            self.tracked.used(now, known, &mut self.chances);
        }
        true
    }

    fn named(&mut self, now: Micros, file: &mut Held<Known>) {
        let back = self.fetched_again(now, &file.name);
        let Some(known) = self.known(file) else { return };
        let Some(row) = self.tracked.get(known).map(|known| known.row) else { return };
        let row = back.unwrap_or_else(|| row.moved(&file.name));
        self.tracked.moved(known, row, &mut self.chances);
    }

    fn judge(&mut self, now: Micros, shelf: &Shelf<Known>) -> Option<(Slot, Verdict)> {
        self.advance(now);
        let oldest = shelf.idle(now).next()?;
        let chance = self.chance(now, &shelf[oldest]);
        let grounds = self.grounds(&shelf[oldest], chance);
        if grounds.allow_drop() {
            return Some((oldest, Verdict::Drop));
        }
        if grounds.came_back {
            return Some((oldest, Verdict::Write));
        }
        let Self { tracked, chances, .. } = self;
        let likely = most_likely(now, tracked, shelf, |row, level| chances.get(row, level).later);
        Some((likely.unwrap_or(oldest), Verdict::Write))
    }

    fn explain(&self, now: Micros, shelf: &Shelf<Known>, slot: Slot) -> Explanation {
        let file = &shelf[slot];
        let grounds = |file: &Held<Known>| self.grounds(file, self.peek_chance(now, file));
        let likely = || {
            let chance = |row, level| self.chances.peek(row, level).later;
            most_likely(now, &self.tracked, shelf, chance)
        };
        let (mut judged, mut oldest) = (grounds(file), None);
        let (intent, rule) = match shelf.idle(now).next() {
            None => (Intent::Stay, "It is in use."),
            Some(first) if grounds(&shelf[first]).allow_drop() => match first == slot {
                true => (Intent::Drop, "It was used least recently, and the budget allows a drop."),
                false => {
                    (Intent::Stay, "Another file was used less recently: it is dropped first.")
                }
            },
            Some(first) if grounds(&shelf[first]).came_back => match first == slot {
                true => (Intent::Write, "It was dropped before, and came back."),
                false => {
                    (Intent::Stay, "Another file was used less recently: it is written first.")
                }
            },
            Some(first) if likely().unwrap_or(first) == slot => {
                (judged, oldest) = (grounds(&shelf[first]), Some(&shelf[first]));
                let rule = "The file used least recently may not be dropped, and of all files this \
                            one is the most likely to be used again.";
                (Intent::Write, rule)
            }
            Some(_) => {
                let rule = "The file used least recently may not be dropped: the most likely to be \
                            used again is written first.";
                (Intent::Stay, rule)
            }
        };
        let chance = f64::from(self.peek_chance(now, file));
        let error = self.error();
        let (row, level) = self.row_and_level(now, file).unwrap_or_default();
        let own = judged
            .add_to(Explanation::of_held(now, file, intent, rule))
            .chance(chance, (chance * error).min(1.0) * self.settings.price * file.bytes() as f64)
            .with("class", row.class().into())
            .with("uses", row.uses().into())
            .with("level", level.into())
            .with("correction_factor", error)
            .with("price", self.settings.price)
            .with("fetched_again_bytes", self.returns.fetched_bytes() as f64)
            .with("left_ram_bytes", self.returns.left_bytes() as f64)
            .with("again_share", self.settings.again)
            .with("cold_chance", self.cold.chance(self.returns.left_bytes()));
        match oldest {
            None => own,
            Some(oldest) => own
                .with("oldest_bytes", oldest.bytes() as f64)
                .with("oldest_idle_s", seconds(now.saturating_sub(oldest.used_us)))
                .with("oldest_chance", self.peek_chance(now, oldest).into()),
        }
    }

    fn leaves(&mut self, now: Micros, file: &Held<Known>, verdict: Verdict) {
        let chance = self.peek_chance(now, file);
        self.threshold.left(self.corrected(chance), file.bytes());
        self.returns.left(file.bytes());
        let key = match verdict {
            Verdict::Drop => Key::of_path(&file.name),
            Verdict::Write => Key::Written(file.id),
        };
        if let Some(known) = self.known(file) {
            self.tracked.leave(known, key, file.pages());
        }
    }

    fn stays(&mut self, slot: Slot, file: &mut Held<Known>) {
        let place = |known| self.tracked.get(known).map(|known| known.place());
        match self.known(file).map(|known| (known, place(known))) {
            // It was to be written for another reason than space.
            Some((_, Some(Residence::Ram(_)))) => return,
            Some((known, _)) => self.tracked.stay(known, slot),
            None => {
                let row = Row::new(&file.name);
                self.chances.begins(row);
                file.state = self.tracked.hold(file.used_us, file.id, slot, row);
            }
        }
        self.returns.stays(file.bytes());
    }

    fn removed(&mut self, now: Micros, file: &Held<Known>, died: bool) {
        let Some(known) = self.known(file) else { return };
        match self.tracked.get(known).map(|known| known.place()) {
            _ if died => self.tracked.died(now, known, &mut self.chances),
            // Written for another reason than space.
            Some(Residence::Ram(_)) => {
                self.returns.left(file.bytes());
                self.tracked.leave(known, Key::Written(file.id), file.pages());
            }
            _ => {}
        }
    }

    fn observe_outside_ram(&mut self, now: Micros, event: &Event<'_>) {
        let file = event.action.file().and_then(|file| self.tracked.find(Key::Written(file)));
        if file.is_none() {
            self.cold.observe(event, self.returns.left_bytes());
        }
        match (&event.action, file) {
            // Of a dropped file, an application deletes the name in vain.
            (Action::Unbind { name, .. }, None) => {
                if let Some(dropped) = self.tracked.find(Key::of_path(name)) {
                    self.tracked.died(now, dropped, &mut self.chances);
                }
            }
            (Action::Unbind { .. } | Action::Gone { .. }, Some(file)) => {
                self.tracked.died(now, file, &mut self.chances);
            }
            (
                Action::Read { .. }
                | Action::Write { .. }
                | Action::Direct { .. }
                | Action::Truncate { .. }
                | Action::Punch { .. },
                Some(file),
            ) => {
                self.tracked.used(now, file, &mut self.chances);
            }
            _ => {}
        }
    }

    fn check(&self, shelf: &Shelf<Known>) {
        self.chances.check();
        self.tracked.check();
        self.returns.check();
        self.threshold.check();
        for slot in shelf.all() {
            let file = &shelf[slot];
            if file.list() != super::shelf::Shelved::Leaving {
                let known = self.known(file).and_then(|known| self.tracked.get(known));
                let known = known.expect("a file in RAM is tracked");
                assert_eq!(known.place(), Residence::Ram(slot), "{:?}", file.id);
                assert_eq!(known.used_us, file.used_us, "{:?}", file.id);
            }
        }
    }
}
