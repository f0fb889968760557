//! The tree that the events of a history describe: names, files, opens. An event that contradicts
//! the ones before it is an error.

use flashsift_events::event::{Action, Event, FileId, OpenId};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct File {
    /// By byte, whether it was written and not cut or punched since.
    pub(crate) written: Vec<bool>,
    /// Bytes that were read.
    pub(crate) read: u64,
    pub(crate) syncs: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    pub(crate) names: BTreeMap<String, FileId>,
    pub(crate) files: BTreeMap<FileId, File>,
    pub(crate) opens: BTreeMap<OpenId, FileId>,
    last_us: u64,
}

fn expect(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

impl Replayed {
    fn file(&mut self, file: FileId) -> Result<&mut File, String> {
        self.files.get_mut(&file).ok_or_else(|| "the file was never met, or is gone".to_owned())
    }

    fn opened(&mut self, file: FileId, open: Option<OpenId>) -> Result<&mut File, String> {
        let open = open.ok_or("the open is not named")?;
        expect(self.opens.get(&open) == Some(&file), "the file is not open by this number")?;
        self.file(file)
    }

    fn lose(&mut self, name: &str, file: FileId) -> Result<(), String> {
        expect(self.names.remove(name) == Some(file), "the name is not the file's")
    }

    fn gain(&mut self, name: &str, file: FileId) -> Result<(), String> {
        expect(self.names.insert(name.to_owned(), file).is_none(), "the name is another's")
    }

    pub(crate) fn apply(&mut self, event: &Event<'_>) -> Result<(), String> {
        expect(event.at_us >= self.last_us, "time goes back")?;
        self.last_us = event.at_us;
        match &event.action {
            Action::Read { file, open, len, .. } => self.opened(*file, *open)?.read += len,
            Action::Write { file, open, offset, len, .. } => {
                let (start, end) = (*offset as usize, (offset + len) as usize);
                let written = &mut self.opened(*file, *open)?.written;
                if written.len() < end {
                    written.resize(end, false);
                }
                written[start..end].fill(true);
            }
            Action::Truncate { file, size } => {
                self.file(*file)?.written.resize(*size as usize, false)
            }
            Action::Punch { file, offset, len } => {
                let written = &mut self.file(*file)?.written;
                let end = written.len().min((offset + len) as usize);
                written[end.min(*offset as usize)..end].fill(false);
            }
            Action::Sync { file, .. } => self.file(*file)?.syncs += 1,
            Action::Create(create) => {
                expect(
                    create.owner.is_some() && create.mode.is_some(),
                    "owner and mode are known",
                )?;
                self.gain(&create.name, create.file)?;
                let before = self.files.insert(create.file, File::default());
                expect(before.is_none(), "the file was there before")?;
            }
            Action::Open { file, open, .. } => {
                self.file(*file)?;
                let open = open.ok_or("the open is not named")?;
                expect(self.opens.insert(open, *file).is_none(), "the number is another open's")?;
            }
            Action::Close { file, open } => {
                let open = open.ok_or("the open is not named")?;
                expect(self.opens.remove(&open) == Some(*file), "it is not open")?;
            }
            // A name that was forgotten and found again.
            Action::Bind { file, name } => {
                expect(
                    self.names.get(&**name) == Some(file),
                    "every name was given by the history",
                )?;
            }
            Action::Link { file, name } => {
                self.file(*file)?;
                self.gain(name, *file)?;
            }
            Action::Rename { file, names } => {
                self.lose(&names.from, *file)?;
                self.gain(&names.to, *file)?;
            }
            Action::RenameDirectory { names } => {
                let below = format!("{}/", &*names.from);
                let moved: Vec<_> =
                    self.names.keys().filter(|name| name.starts_with(&below)).cloned().collect();
                for name in moved {
                    let file = self.names.remove(&name).ok_or("it was listed")?;
                    self.gain(&format!("{}/{}", &*names.to, &name[below.len()..]), file)?;
                }
            }
            Action::Unbind { file, name } => self.lose(name, *file)?,
            Action::Gone { file } => {
                let named = self.names.values().any(|named| named == file);
                expect(
                    !named && !self.opens.values().any(|open| open == file),
                    "it is still in use",
                )?;
                expect(self.files.remove(file).is_some(), "it was gone before")?;
            }
            Action::SyncAll | Action::Process { .. } => {}
            other => return Err(format!("not what a mount sees: {other:?}")),
        }
        Ok(())
    }

    /// The tree without times, for comparisons.
    pub(crate) fn without_time(&self) -> Replayed {
        Replayed { last_us: 0, ..self.clone() }
    }

    /// Files without a name and without an open are gone.
    pub(crate) fn check(&self) {
        for file in self.files.keys() {
            let used = self.names.values().chain(self.opens.values()).any(|used| used == file);
            assert!(used, "{file:?} has no end");
        }
    }
}
