//! The names of files, and the programs that processes run.

use crate::{
    describe::program_name,
    event::{Action, Event, FileId},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Last names by file and process.
#[derive(Default)]
pub(super) struct Names {
    files: HashMap<FileId, Box<str>, FixedState>,
    programs: HashMap<u32, Box<str>, FixedState>,
    bytes: usize,
}

impl Names {
    pub(super) fn take(&mut self, event: &Event<'_>) {
        match &event.action {
            Action::Create(create) if !create.name.is_empty() => {
                self.name(create.file, &create.name);
            }
            Action::Bind { file, name } => self.name(*file, name),
            Action::Rename { file, names } => self.name(*file, &names.to),
            Action::RenameDirectory { names } => {
                for name in self.files.values_mut() {
                    if let Some(moved) = names.moved(name) {
                        *name = moved.into();
                    }
                }
            }
            Action::Process { name } => {
                let name: &str = name;
                self.bytes += name.len();
                self.programs.insert(event.pid, name.into());
            }
            _ => {}
        }
    }

    fn name(&mut self, file: FileId, name: &str) {
        self.bytes += name.len();
        self.files.insert(file, name.into());
    }

    pub(super) fn get(&self, file: FileId) -> Option<&str> {
        self.files.get(&file).map(|name| &**name)
    }

    /// Returns the name of the program that a process runs now.
    pub(super) fn program_of(&self, pid: u32) -> Box<str> {
        program_name(self.programs.get(&pid).map(|name| &**name).ok_or(pid))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (FileId, &str)> {
        self.files.iter().map(|(file, name)| (*file, &**name))
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.files.allocation_size() + self.programs.allocation_size() + self.bytes
    }
}
