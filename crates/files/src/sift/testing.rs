//! Random histories of files, for the tests of sifters.

use flashsift_events::{
    dice::Dice,
    event::{Action, Create, FileId, MaybeOwned, Renamed},
};
use std::collections::VecDeque;

/// The state that the history has given a file.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) file: FileId,
    pub(crate) names: Vec<String>,
    pub(crate) opens: u32,
}

/// A random but possible sequence of events: a file has a name or is open, or it is gone.
pub(crate) struct History {
    pub(crate) dice: Dice,
    pub(crate) files: Vec<Made>,
    next: u64,
    /// Actions that follow from the last event.
    next_actions: VecDeque<Action<'static>>,
}

impl History {
    pub(crate) fn new(seed: u64) -> Self {
        let dice = Dice::new(seed);
        Self { dice, files: Vec::new(), next: 0, next_actions: VecDeque::new() }
    }

    /// Returns a name that no other file has.
    fn name(&mut self) -> String {
        let ending =
            ["", "", "", "", ".db", ".db-wal", ".log", ".txt"][self.dice.below(8) as usize];
        self.next += 1;
        format!("/d{}/{}{ending}", self.dice.below(3), self.next)
    }

    /// Creates a file, or uses one that existed before.
    fn file(&mut self) -> Action<'static> {
        let (name, opened) = (self.name(), self.dice.below(20) == 0);
        let file = FileId(self.next);
        let (names, opens) = if opened { (vec![], 1) } else { (vec![name.clone()], 0) };
        self.files.push(Made { file, names, opens });
        if opened {
            self.next_actions.push_back(Action::Open { file, open: None, created: true });
        } else if self.dice.below(5) == 0 {
            self.next_actions.push_back(Action::Size { file, size: 10_000 });
            return Action::Bind { file, name: name.into() };
        }
        let name = if opened { MaybeOwned::owned_str("") } else { name.into() };
        let sync = self.dice.below(20) == 0;
        Action::Create(MaybeOwned::owned(Create { file, name, owner: None, mode: None, sync }))
    }

    /// Returns whether the next action follows from the last one.
    pub(crate) fn goes_on(&self) -> bool {
        !self.next_actions.is_empty()
    }

    pub(crate) fn action(&mut self) -> Action<'static> {
        if let Some(action) = self.next_actions.pop_front() {
            return action;
        }
        if self.files.is_empty() || self.dice.below(6) == 0 {
            return self.file();
        }
        let at = self.dice.below(self.files.len() as u32) as usize;
        let (offset, len) =
            (u64::from(self.dice.below(60_000)), u64::from(self.dice.below(20_000)));
        let what = self.dice.below(18);
        let fresh = self.name();
        let dice = &mut self.dice;
        let made = &mut self.files[at];
        let (file, open, name) = (made.file, None, made.names.first().cloned().unwrap_or_default());
        let action = match what {
            0..=4 => Action::Write { file, open, offset, len, sync: dice.below(20) == 0 },
            5 => Action::Direct { file, open, offset, len, write: true },
            6 => Action::Truncate { file, size: offset },
            7 => Action::Punch { file, offset, len: 2 * len },
            8 => {
                made.opens += 1;
                Action::Open { file, open, created: false }
            }
            9 if made.opens > 0 => {
                made.opens -= 1;
                Action::Close { file, open }
            }
            10 | 11 if !made.names.is_empty() => {
                Action::Unbind { file, name: made.names.remove(0).into() }
            }
            12 if !made.names.is_empty() => {
                made.names.push(fresh.clone());
                Action::Link { file, name: fresh.into() }
            }
            13 if !made.names.is_empty() => {
                made.names[0].clone_from(&fresh);
                Action::Rename { file, names: Renamed::owned(&name, &fresh) }
            }
            14 if dice.below(4) == 0 => {
                Action::Sync { file, offset: 0, len: u64::MAX, data_only: false }
            }
            15 if dice.below(30) == 0 => Action::SyncAll,
            16 if dice.below(20) == 0 => {
                for name in self.files.iter_mut().flat_map(|made| &mut made.names) {
                    if let Some(rest) = name.strip_prefix("/d0/") {
                        *name = format!("/d1/{rest}");
                    }
                }
                Action::RenameDirectory { names: Renamed::owned("/d0", "/d1") }
            }
            17 if dice.below(10) == 0 => {
                let (what, text) = (dice.below(3), MaybeOwned::owned_str("app"));
                match what {
                    0 => Action::MemoryPressure { stalled_ppm: 7 },
                    1 => Action::Foreground { app: text },
                    _ => Action::Meaning { file, what: text, site: 1, url: 2, third_party: true },
                }
            }
            _ => Action::Read { file, open, offset, len },
        };
        let made = &self.files[at];
        if made.names.is_empty() && made.opens == 0 {
            self.next_actions.push_back(Action::Gone { file });
            self.files.remove(at);
        }
        action
    }
}
