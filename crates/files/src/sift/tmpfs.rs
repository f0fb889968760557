//! `tmpfs`: the directories of droppable files are in a tmpfs, which is copied to flash at the end.
//!
//! This is what people do today (profile-sync-daemon, log2ram). Only deleting files frees space. A
//! file that is created when the tmpfs is full, and a file that does not fit any more when it
//! grows, goes to flash, and stays there. A real tmpfs fails instead (`ENOSPC`), or is swapped out:
//! then it behaves as `keep` does with a long `lose-at-most`, which moves the oldest files to
//! flash.
//!
//! In a tmpfs a sync does nothing: a crash loses everything since the start. So it keeps files from
//! flash that every other sifter has to write.

use super::{
    Birth, Blocked, Decision, FILE_COST_BYTES, Reason, Sift, SifterSetup, Spec,
    droppable::Droppable,
    explanation::{Explained, Explanation, Intent, seconds},
    shelf::{HeldChange, Shelf, Shelved, Slot},
};
use flashsift_events::{
    event::{Action, Create, Event, FileId, Micros},
    page::PAGE_BYTES,
};
use std::collections::VecDeque;

pub(super) const SPEC: Spec = Spec {
    name: "tmpfs",
    paper: "baseline",
    what: "holds droppable files in RAM while they fit, ignores syncs, and copies them at the end",
    params: &[],
    offline: |_| false,
    build: |setup, _| Ok(Box::new(Tmpfs::new(setup))),
};

struct Tmpfs {
    shelf: Shelf<Copies>,
    budget_bytes: u64,
    droppable: Droppable,
    decisions: VecDeque<Decision>,
    explained: Explained,
}

/// Copies of a file to flash that are in progress while it stays in RAM.
type Copies = u32;

impl Tmpfs {
    fn new(setup: &SifterSetup<'_>) -> Self {
        Self {
            shelf: Shelf::new(setup.knows_opens),
            budget_bytes: setup.budget_bytes,
            droppable: setup.droppable.clone(),
            decisions: VecDeque::new(),
            explained: Explained::default(),
        }
    }

    fn birth_of(&self, create: &Create<'_>) -> Birth {
        let held_bytes = self.shelf.held_bytes() + FILE_COST_BYTES;
        if !self.droppable.has(&create.name) {
            Birth::Flash(Reason::Name)
        } else if held_bytes + PAGE_BYTES > self.budget_bytes {
            Birth::Flash(Reason::Space)
        } else {
            Birth::Ram
        }
    }

    fn explanation(
        &self,
        now: Micros,
        slot: Slot,
        intent: Intent,
        rule: &'static str,
    ) -> Explanation {
        let file = &self.shelf[slot];
        Explanation::new(intent, rule, file.bytes())
            .with("age_s", seconds(now.saturating_sub(file.born_us)))
            .with("held_bytes", self.shelf.held_bytes() as f64)
            .with("budget_bytes", self.budget_bytes as f64)
    }

    fn explain_write(&mut self, now: Micros, slot: Slot, why: Reason) {
        let rule = match why {
            Reason::Space => "The tmpfs is full, and the file grows.",
            why => why.sentence(),
        };
        if self.explained.is_wanted() {
            let explanation = self.explanation(now, slot, Intent::Write, rule);
            self.explained.set(self.shelf[slot].id, || explanation);
        }
    }

    fn leaves(&mut self, now: Micros, slot: Slot, why: Reason) {
        if self.shelf[slot].list() != Shelved::Leaving {
            self.explain_write(now, slot, why);
            let file = self.shelf[slot].id;
            self.shelf.leave(slot);
            self.decisions.push_back(Decision::WriteBack { file, keep_in_ram: false, why });
        }
    }

    fn named(&mut self, now: Micros, slot: Slot) {
        if !self.droppable.has(&self.shelf[slot].name) {
            self.leaves(now, slot, Reason::Name);
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.explained.forget(self.shelf[slot].id);
        self.shelf.remove(slot);
    }

    fn of_file(&mut self, now: Micros, slot: Slot, action: &Action<'_>) {
        match self.shelf.take(slot, action) {
            HeldChange::Grew if self.shelf.held_bytes() > self.budget_bytes => {
                self.leaves(now, slot, Reason::Space);
            }
            HeldChange::Named => self.named(now, slot),
            HeldChange::Ended => self.remove(slot),
            HeldChange::Small | HeldChange::Grew => {}
        }
    }
}

impl Sift for Tmpfs {
    fn birth(&mut self, _: Micros, create: &Create<'_>) -> Birth {
        self.birth_of(create)
    }

    fn handle(&mut self, now: Micros, event: &Event<'_>) {
        match &event.action {
            Action::Create(create) => {
                if self.birth_of(create) == Birth::Ram && self.shelf.find(create.file).is_none() {
                    self.shelf.insert(create.file, now, &create.name);
                }
            }
            // Of an application, `sync` does nothing to a tmpfs.
            Action::SyncAll if event.pid == 0 => {
                for slot in self.shelf.all_named() {
                    let file = &mut self.shelf[slot];
                    if file.list() != Shelved::Leaving {
                        file.state += 1;
                        let (file, why) = (file.id, Reason::All);
                        self.explain_write(now, slot, why);
                        let copy = Decision::WriteBack { file, keep_in_ram: true, why };
                        self.decisions.push_back(copy);
                    }
                }
            }
            Action::RenameDirectory { names } => {
                self.shelf.moved(names).into_iter().for_each(|slot| self.named(now, slot));
            }
            action => {
                if let Some(slot) = action.file().and_then(|file| self.shelf.find(file)) {
                    self.of_file(now, slot, action);
                }
            }
        }
    }

    fn done(&mut self, _: Micros, file: FileId, result: Result<(), Blocked>) {
        let Some(slot) = self.shelf.find(file) else { return };
        if self.shelf[slot].state > 0 {
            self.shelf[slot].state -= 1;
        } else if result.is_ok() {
            return self.remove(slot);
        } else {
            self.shelf.stay(slot);
        }
        self.explained.forget(file);
    }

    /// Frees no space: the file that needs it goes to flash.
    fn need_space(&mut self, _: Micros, _: u64) {}

    fn resize(&mut self, now: Micros, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
        for slot in self.shelf.all_named() {
            if self.shelf.held_bytes() > budget_bytes {
                self.leaves(now, slot, Reason::Space);
            }
        }
    }

    fn held_bytes(&self) -> u64 {
        self.shelf.held_bytes()
    }

    fn oldest_us(&self, _: Micros) -> Option<Micros> {
        None
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
        let rule = "It stays until it is deleted, or no space is left for it to grow.";
        let stays = || self.explanation(now, slot, Intent::Stay, rule);
        Some(self.explained.get(file).cloned().unwrap_or_else(stays))
    }

    fn record_explanations(&mut self) {
        self.explained.record();
    }

    fn check(&self) {
        self.shelf.check();
        let copies = |file| self.decisions.iter().filter(|one| one.file() == Some(file)).count();
        for slot in self.shelf.all() {
            let file = &self.shelf[slot];
            let leaves = usize::from(file.list() == Shelved::Leaving);
            assert!(copies(file.id) <= file.state as usize + leaves, "{:?}", file.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sift::{SelectedSifter, Selection, simulate::Sifted};
    use flashsift_events::{
        dice::Dice,
        event::{Knows, MaybeOwned, Renamed},
    };
    use std::collections::BTreeMap;

    /// A rename of the directory gave an open file back the name that it had lost, and it was
    /// copied to flash at the end.
    #[test]
    fn a_file_without_a_name_is_not_copied_after_a_rename_of_its_directory() {
        let setup = SifterSetup {
            budget_bytes: 1 << 20,
            patterns: &[],
            droppable: &Droppable::matching(&["/d/*".into()]),
            knows_opens: true,
            last_uses: None,
            models: &[],
        };
        let mut tmpfs = Tmpfs::new(&setup);
        let (file, name) = (FileId(1), || MaybeOwned::owned_str("/d/a/x"));
        let create = Create { file, name: name(), owner: None, mode: None, sync: false };
        for action in [
            Action::Create(MaybeOwned::owned(create)),
            Action::Open { file, open: None, created: true },
            Action::Unbind { file, name: name() },
            Action::RenameDirectory { names: Renamed::owned("/d/a", "/d/b") },
            Action::SyncAll,
        ] {
            tmpfs.handle(0, &Event { at_us: 0, pid: 0, tid: 0, action });
            tmpfs.check();
        }
        assert_eq!(tmpfs.poll(), None);
    }

    /// With files that are written, synced and deleted, those are in RAM that fitted when they were
    /// created and whenever they grew; and only they are written at the end.
    // Promises: Sift 11.
    #[test]
    fn files_stay_in_ram_that_a_plain_list_has_room_for() {
        let (mut full, mut grown) = (0, 0);
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let budget_bytes = 30 * PAGE_BYTES;
            let setup = SifterSetup {
                budget_bytes,
                patterns: &[],
                droppable: &Droppable::matching(&["/d0/*".into()]),
                knows_opens: true,
                last_uses: None,
                models: &[],
            };
            let sifter = Selection::parse("tmpfs").unwrap().build(&setup).unwrap();
            let knows = Knows { times: true, creations: true, opens: true, ..Knows::NOTHING };
            let mut sifted = Sifted::new(sifter, budget_bytes, knows);
            let (mut in_ram, mut on_flash) = (BTreeMap::new(), BTreeMap::new());
            let mut written: BTreeMap<FileId, u64> = BTreeMap::new();
            for at_us in 0..200 {
                let file = FileId(u64::from(dice.below(20)));
                let name = || MaybeOwned::owned_str(&format!("/d0/{}", file.0));
                let exists = in_ram.contains_key(&file) || on_flash.contains_key(&file);
                let pages = 1 + u64::from(dice.below(6));
                let held = |in_ram: &BTreeMap<FileId, u64>| -> u64 {
                    in_ram.values().map(|pages| FILE_COST_BYTES + pages * PAGE_BYTES).sum()
                };
                let action = match dice.below(5) {
                    _ if !exists => {
                        let room = held(&in_ram) + FILE_COST_BYTES + PAGE_BYTES <= budget_bytes;
                        full += u32::from(!room);
                        if room { &mut in_ram } else { &mut on_flash }.insert(file, 0);
                        let (owner, mode, sync) = (None, None, false);
                        let create = Create { file, name: name(), owner, mode, sync };
                        Action::Create(MaybeOwned::owned(create))
                    }
                    0 => {
                        in_ram.remove(&file);
                        on_flash.remove(&file);
                        written.remove(&file);
                        Action::Unbind { file, name: name() }
                    }
                    1 => Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
                    2 => Action::SyncAll,
                    _ => {
                        if let Some(known) = in_ram.get_mut(&file) {
                            *known = pages.max(*known);
                            if held(&in_ram) > budget_bytes {
                                on_flash.insert(file, in_ram.remove(&file).unwrap());
                                grown += 1;
                            }
                        }
                        let len = pages * PAGE_BYTES;
                        Action::Write { file, open: None, offset: 0, len, sync: false }
                    }
                };
                let gone = matches!(action, Action::Unbind { .. });
                let mut below = |event: &Event<'_>| {
                    if let Action::Write { file, len, .. } = event.action {
                        let known = written.entry(file).or_default();
                        *known = len.max(*known);
                    }
                };
                sifted.event(&Event { at_us, pid: 1, tid: 1, action }, &mut below);
                if gone {
                    let gone = Event { at_us, pid: 1, tid: 1, action: Action::Gone { file } };
                    sifted.event(&gone, &mut below);
                }
                sifted.check();
                for file in in_ram.keys() {
                    assert!(!written.contains_key(file), "seed {seed}, at {at_us}: {file:?}");
                }
            }
            sifted.finish(&mut |event| {
                if let Action::Write { file, len, .. } = event.action {
                    assert_eq!(in_ram.get(&file), Some(&(len / PAGE_BYTES)), "seed {seed}");
                    written.insert(file, len);
                }
            });
            for (file, pages) in &in_ram {
                let found = written.get(file).copied().unwrap_or(0);
                assert_eq!(found, pages * PAGE_BYTES, "seed {seed}: {file:?}");
            }
        }
        assert!(full > 500 && grown > 500, "{full} did not fit, {grown} grew");
    }
}
