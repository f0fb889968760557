//! The last name of each file.

use flashsift_events::event::{Action, FileId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Names by file, from the events so far.
#[derive(Default)]
pub(super) struct FileNames {
    names: HashMap<FileId, Box<str>, FixedState>,
    text_bytes: usize,
}

impl FileNames {
    pub(super) fn push(&mut self, action: &Action<'_>) {
        match action {
            Action::Create(create) if !create.name.is_empty() => {
                self.set(create.file, &create.name);
            }
            Action::Bind { file, name } | Action::Link { file, name } => self.set(*file, name),
            Action::Rename { file, names } => self.set(*file, &names.to),
            Action::RenameDirectory { names } => self.moved(&names.from, &names.to),
            _ => {}
        }
    }

    /// Returns the last name of a file.
    pub(super) fn get(&self, file: FileId) -> Option<&str> {
        self.names.get(&file).map(AsRef::as_ref)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.names.capacity() * (size_of::<(FileId, Box<str>)>() + 1) + self.text_bytes
    }

    fn set(&mut self, file: FileId, name: &str) {
        self.text_bytes += name.len();
        let before = self.names.insert(file, name.into());
        self.text_bytes -= before.map_or(0, |before| before.len());
    }

    /// A directory has another path now, and so has each file below it. Directories are renamed
    /// seldom, so all files are looked at.
    fn moved(&mut self, from: &str, to: &str) {
        for name in self.names.values_mut() {
            let rest = name.strip_prefix(from).filter(|rest| rest.starts_with('/'));
            if let Some(rest) = rest {
                let moved: Box<str> = format!("{to}{rest}").into();
                self.text_bytes = self.text_bytes - name.len() + moved.len();
                *name = moved;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::{MaybeOwned, Renamed};

    // Promises: Read-ahead 11.
    #[test]
    fn the_last_name_counts() {
        let file = FileId(1);
        let name = MaybeOwned::owned_str;
        let mut names = FileNames::default();
        names.push(&Action::Bind { file, name: name("/a/x.tmp") });
        names.push(&Action::Rename { file, names: Renamed::owned("/a/x.tmp", "/a/x") });
        names.push(&Action::Bind { file: FileId(2), name: name("/ab/x") });
        assert_eq!(names.get(file), Some("/a/x"));
        // `/ab` is another directory.
        names.push(&Action::RenameDirectory { names: Renamed::owned("/a", "/longer") });
        assert_eq!((names.get(file), names.get(FileId(2))), (Some("/longer/x"), Some("/ab/x")));
        assert_eq!(names.get(FileId(3)), None);
        assert_eq!(names.text_bytes, "/longer/x/ab/x".len());
    }
}
