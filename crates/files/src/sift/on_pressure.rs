//! A sifter that holds droppable files in RAM until RAM is full, and then judges one file at a
//! time: dropped, or written to flash.
//!
//! All other files are created on flash. A droppable file leaves RAM without a judgement if an
//! application syncs it, if it gets a name that is not droppable, if it grows beyond half of the
//! RAM, and when everything has to reach flash. A file that is open or has no name is not dropped;
//! it is moved to flash only if no other file can make space, one without a name last.

use super::{
    Birth, Blocked, Decision, FILE_COST_BYTES, Reason, Sift, SifterSetup,
    droppable::Droppable,
    explanation::{Explained, Explanation, Intent},
    shelf::{Held, HeldChange, Shelf, Shelved, Slot},
};
use flashsift_events::event::{Action, Create, Event, FileId, Micros};
use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// The end of a file's time in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Drop,
    Write,
}

/// A use of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read { bytes: u64 },
    Write { bytes: u64 },
    Cut,
}

/// Decides which file leaves RAM, and how.
pub(super) trait Judge {
    /// The state that it keeps of each file.
    type State: Default;

    /// A file was created in RAM.
    fn created(&mut self, _now: Micros, _slot: Slot, _file: &mut Held<Self::State>) {}

    /// A file in RAM got a name, which is droppable.
    fn named(&mut self, _now: Micros, _file: &mut Held<Self::State>) {}

    /// An event of a file in RAM, before anything else hears of it.
    fn event(&mut self, _file: &mut Held<Self::State>, _event: &Event<'_>) {}

    /// A file in RAM is used; its `used_us` is still the time of the use before. Returns whether it
    /// becomes the newest of its list.
    fn used(&mut self, now: Micros, file: &mut Held<Self::State>, how: Use) -> bool;

    /// Chooses one of the [idle](Shelf::idle) files. `None`: there is none.
    fn judge(&mut self, now: Micros, shelf: &Shelf<Self::State>) -> Option<(Slot, Verdict)>;

    /// Explains what becomes of an idle file, by the same rules as [`Judge::judge`]. Right after
    /// that has chosen the file, this is the explanation of its verdict.
    fn explain(&self, now: Micros, shelf: &Shelf<Self::State>, slot: Slot) -> Explanation;

    /// A file leaves RAM by a verdict.
    fn leaves(&mut self, _now: Micros, _file: &Held<Self::State>, _verdict: Verdict) {}

    /// A file stays in RAM: flash did not take it.
    fn stays(&mut self, _slot: Slot, _file: &mut Held<Self::State>) {}

    /// A file is no longer in RAM: it was deleted (`died`), or a decision on it is done.
    fn removed(&mut self, _now: Micros, _file: &Held<Self::State>, _died: bool) {}

    /// An event of a file that is not in RAM.
    fn observe_outside_ram(&mut self, _now: Micros, _event: &Event<'_>) {}

    /// Re-derives every invariant.
    fn check(&self, _shelf: &Shelf<Self::State>) {}
}

/// Divisor of the RAM: a larger file is handed to the page cache.
const LARGE: u64 = 2;

/// The sifter that a [`Judge`] makes.
pub(super) struct OnPressure<J: Judge> {
    judge: J,
    shelf: Shelf<J::State>,
    budget_bytes: u64,
    droppable: Droppable,
    decisions: VecDeque<Decision>,
    explained: Explained,
}

impl<J: Judge> OnPressure<J> {
    pub(super) fn new(setup: &SifterSetup<'_>, judge: J) -> Self {
        Self {
            judge,
            shelf: Shelf::new(setup.knows_opens),
            budget_bytes: setup.budget_bytes,
            droppable: setup.droppable.clone(),
            decisions: VecDeque::new(),
            explained: Explained::default(),
        }
    }

    fn birth_of(&self, create: &Create<'_>) -> Birth {
        if create.sync {
            Birth::Flash(Reason::Sync)
        } else if !self.droppable.has(&create.name) || FILE_COST_BYTES > self.budget_bytes {
            Birth::Flash(Reason::Name)
        } else {
            Birth::Ram
        }
    }

    fn write_back(&mut self, now: Micros, slot: Slot, why: Reason) {
        let file = self.shelf[slot].id;
        self.explained.set(file, || {
            Explanation::of_held(now, &self.shelf[slot], Intent::Write, why.sentence())
        });
        self.leave(slot, Decision::WriteBack { file, keep_in_ram: false, why });
    }

    fn leave(&mut self, slot: Slot, decision: Decision) {
        self.shelf.leave(slot);
        self.decisions.push_back(decision);
    }

    /// Moves one more file out of RAM. Returns its bytes; `None` if no file is left.
    fn free_one(&mut self, now: Micros) -> Option<u64> {
        if let Some((slot, verdict)) = self.judge.judge(now, &self.shelf) {
            let bytes = self.shelf[slot].cost_bytes();
            debug_assert!(self.shelf.is_idle(slot, now));
            // Flash did not take the file: it can only be dropped.
            let verdict = if self.shelf[slot].refused { Verdict::Drop } else { verdict };
            let (file, why) = (self.shelf[slot].id, Reason::Space);
            self.explained.set(file, || Self::verdict_on(&self.judge, now, &self.shelf, slot));
            self.judge.leaves(now, &self.shelf[slot], verdict);
            self.leave(
                slot,
                match verdict {
                    Verdict::Write => Decision::WriteBack { file, keep_in_ram: false, why },
                    Verdict::Drop => Decision::Drop { file, why },
                },
            );
            return Some(bytes);
        }
        let may_leave =
            |slot: &Slot| !self.shelf[*slot].refused && self.shelf[*slot].used_us != now;
        let named = |slot: &Slot| self.shelf[*slot].links().is_named();
        let busy = || self.shelf.oldest_first(Shelved::Busy).filter(may_leave);
        let slot = busy().find(named).or_else(|| busy().next())?;
        let bytes = self.shelf[slot].cost_bytes();
        self.write_back(now, slot, Reason::Space);
        Some(bytes)
    }

    /// Explains what becomes of an idle file.
    fn verdict_on(judge: &J, now: Micros, shelf: &Shelf<J::State>, slot: Slot) -> Explanation {
        let explanation = judge.explain(now, shelf, slot);
        match shelf[slot].refused {
            false => explanation,
            true => Explanation {
                intent: Intent::Drop,
                rule: "Flash refused it: it can only be dropped.".into(),
                criteria: Vec::new(),
                ..explanation
            },
        }
    }

    fn keep_within_budget(&mut self, now: Micros) {
        while self.shelf.held_bytes() > self.budget_bytes && self.free_one(now).is_some() {}
    }

    fn used(&mut self, now: Micros, slot: Slot, how: Use) {
        let file = &mut self.shelf[slot];
        let renewed = self.judge.used(now, file, how);
        file.used_us = now;
        if renewed {
            self.shelf.renew(slot);
        }
    }

    fn wrote(&mut self, now: Micros, slot: Slot, len: u64, sync: bool) {
        self.used(now, slot, Use::Write { bytes: len });
        let file = &self.shelf[slot];
        let stays = file.list() != Shelved::Leaving && file.links().is_named();
        if sync && stays {
            self.write_back(now, slot, Reason::Sync);
        } else if stays && file.bytes() > self.budget_bytes / LARGE && !file.refused {
            self.write_back(now, slot, Reason::Large);
        }
        self.keep_within_budget(now);
    }

    /// Handles a new name.
    fn named(&mut self, now: Micros, slot: Slot) {
        let file = &mut self.shelf[slot];
        if self.droppable.has(&file.name) {
            self.judge.named(now, file);
        } else if file.list() != Shelved::Leaving {
            self.write_back(now, slot, Reason::Name);
        }
    }

    fn remove(&mut self, now: Micros, slot: Slot, died: bool) {
        self.judge.removed(now, &self.shelf[slot], died);
        self.explained.forget(self.shelf[slot].id);
        self.shelf.remove(slot);
    }

    fn of_file(&mut self, now: Micros, slot: Slot, event: &Event<'_>) {
        self.judge.event(&mut self.shelf[slot], event);
        match self.shelf.take(slot, &event.action) {
            HeldChange::Named => self.named(now, slot),
            HeldChange::Ended => return self.remove(now, slot, true),
            HeldChange::Small | HeldChange::Grew => {}
        }
        match event.action {
            Action::Read { len, .. } | Action::Direct { len, write: false, .. } => {
                self.used(now, slot, Use::Read { bytes: len });
            }
            Action::Write { len, sync, .. } => self.wrote(now, slot, len, sync),
            Action::Direct { len, .. } => self.wrote(now, slot, len, false),
            Action::Truncate { .. } | Action::Punch { .. } => self.used(now, slot, Use::Cut),
            // Each sync has a decision of its own. Without a name, a crash loses the file.
            Action::Sync { .. } if self.shelf[slot].links().is_named() => {
                self.write_back(now, slot, Reason::Sync);
            }
            _ => {}
        }
    }
}

impl<J: Judge> Sift for OnPressure<J> {
    fn birth(&mut self, _: Micros, create: &Create<'_>) -> Birth {
        self.birth_of(create)
    }

    fn handle(&mut self, now: Micros, event: &Event<'_>) {
        match &event.action {
            Action::Create(create) => {
                if self.birth_of(create) == Birth::Ram && self.shelf.find(create.file).is_none() {
                    let slot = self.shelf.insert(create.file, now, &create.name);
                    self.judge.created(now, slot, &mut self.shelf[slot]);
                    self.keep_within_budget(now);
                } else {
                    self.judge.observe_outside_ram(now, event);
                }
            }
            Action::SyncAll => {
                let all = self.shelf.all_named().into_iter();
                all.for_each(|slot| self.write_back(now, slot, Reason::All));
            }
            Action::RenameDirectory { names } => {
                self.shelf.moved(names).into_iter().for_each(|slot| self.named(now, slot));
            }
            action => match action.file().and_then(|file| self.shelf.find(file)) {
                Some(slot) => self.of_file(now, slot, event),
                None => self.judge.observe_outside_ram(now, event),
            },
        }
    }

    fn done(&mut self, now: Micros, file: FileId, result: Result<(), Blocked>) {
        let Some(slot) = self.shelf.find(file) else { return };
        match result {
            Ok(()) => self.remove(now, slot, false),
            Err(why) => {
                // A file that was only in use was not refused by flash.
                self.shelf[slot].refused |= why != Blocked::InUse;
                self.explained.forget(file);
                self.shelf.stay(slot);
                self.judge.stays(slot, &mut self.shelf[slot]);
            }
        }
    }

    fn need_space(&mut self, now: Micros, bytes: u64) {
        let mut freed = 0;
        while freed < bytes {
            let Some(more) = self.free_one(now) else { return };
            freed += more - FILE_COST_BYTES;
        }
    }

    fn resize(&mut self, now: Micros, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
        self.keep_within_budget(now);
    }

    fn held_bytes(&self) -> u64 {
        self.shelf.held_bytes()
    }

    fn oldest_us(&self, now: Micros) -> Option<Micros> {
        self.shelf.idle(now).next().map(|slot| self.shelf[slot].used_us)
    }

    fn next_deadline(&self) -> Option<Micros> {
        None
    }

    fn handle_deadline(&mut self, _: Micros) {}

    fn poll(&mut self) -> Option<Decision> {
        std::iter::from_fn(|| self.decisions.pop_front())
            .find(|decision| decision.file().is_none_or(|file| self.shelf.find(file).is_some()))
    }

    fn explain(&self, now: Micros, file: FileId) -> Option<Explanation> {
        let slot = self.shelf.find(file)?;
        let decided = self.explained.get(file).cloned();
        let kept = || self.shelf[slot].is_kept(now);
        let judged = || Self::verdict_on(&self.judge, now, &self.shelf, slot);
        Some(decided.or_else(kept).unwrap_or_else(judged))
    }

    fn record_explanations(&mut self) {
        self.explained.record();
    }

    fn check(&self) {
        self.shelf.check();
        self.judge.check(&self.shelf);
        for slot in self.shelf.all() {
            let file = &self.shelf[slot];
            let decided =
                self.decisions.iter().filter(|decision| decision.file() == Some(file.id)).count();
            assert!(decided == 0 || file.list() == Shelved::Leaving, "{:?}", file.id);
        }
    }
}
