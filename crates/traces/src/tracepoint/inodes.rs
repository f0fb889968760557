//! Files: what has an inode's number from its allocation, or its first sight, to its end.

use super::{Handle, Inode};
use crate::process::slab::Slab;
use flashsift_core::event::FileId;
use std::collections::HashMap;

/// What kind of inode it is, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unknown,
    Regular,
    Directory,
    Other,
}

impl Kind {
    /// From `st_mode`.
    pub(super) fn of(mode: u16) -> Self {
        match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            _ => Self::Other,
        }
    }
}

/// One identity.
#[derive(Debug)]
pub(super) struct File {
    pub(super) inode: Inode,
    pub(super) kind: Kind,
    /// Given when it is first told.
    pub(super) id: Option<FileId>,
    pub(super) handle: Option<Handle>,
    /// It was there before the trace.
    pub(super) older: bool,
    /// When it ended, if it has.
    pub(super) gone_ns: Option<u64>,
    /// Where it ends, in bytes; `None`: not known.
    pub(super) size: Option<u64>,
    /// Where it ended when the trace met it, for a file that is older than the trace.
    pub(super) first_size: Option<u64>,
    /// It may have grown since.
    pub(super) may_have_grown: bool,
    /// It has, or had, a name.
    pub(super) was_named: bool,
    /// When it was found to be there.
    pub(super) found_ns: u64,
    /// Its directory's inode number and its absolute path, for each name.
    pub(super) names: Vec<(u64, Box<str>)>,
    /// It is, or was, where the recording listens; `None`: not known.
    pub(super) inside: Option<bool>,
}

impl File {
    fn new(inode: Inode, older: bool) -> Self {
        Self {
            inode,
            kind: Kind::Unknown,
            id: None,
            handle: None,
            older,
            gone_ns: None,
            size: (!older).then_some(0),
            first_size: None,
            may_have_grown: false,
            was_named: false,
            found_ns: 0,
            names: Vec::new(),
            inside: None,
        }
    }

    /// It has this size, and nothing of it has been told so far.
    pub(super) fn has(&mut self, size: u64) {
        if self.older && self.id.is_none() {
            self.first_size.get_or_insert(size);
        }
    }

    /// It reaches at least so far.
    pub(super) fn reaches(&mut self, end: u64) {
        self.size = self.size.map(|size| size.max(end));
    }
}

/// All files that live, or whose names are still to come.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: Slab<File>,
    current: HashMap<Inode, u32, foldhash::fast::FixedState>,
    last: Option<(Inode, u32)>,
}

impl Files {
    /// The file that has this number now.
    pub(super) fn current(&mut self, inode: Inode) -> Option<u32> {
        if let Some((last, file)) = self.last
            && last == inode
        {
            return Some(file);
        }
        let file = *self.current.get(&inode)?;
        self.last = Some((inode, file));
        Some(file)
    }

    /// A file begins: `older` than the trace, or allocated in it.
    pub(super) fn begin(&mut self, inode: Inode, older: bool) -> u32 {
        let file = self.files.add(File::new(inode, older));
        self.current.insert(inode, file);
        self.last = Some((inode, file));
        file
    }

    /// The number is free again.
    pub(super) fn end(&mut self, inode: Inode, at_ns: u64) -> Option<u32> {
        self.last = None;
        let file = self.current.remove(&inode)?;
        self.files[file].gone_ns = Some(at_ns);
        Some(file)
    }

    /// Whether this is the file that is told under that number, and it has not ended.
    pub(super) fn lives(&self, file: u32, id: FileId) -> bool {
        self.files.get(file).is_some_and(|f| f.id == Some(id) && f.gone_ns.is_none())
    }

    /// The file that ended then, if it has not been forgotten.
    pub(super) fn ended(&self, file: u32, at_ns: u64) -> Option<&File> {
        self.files.get(file).filter(|f| f.gone_ns == Some(at_ns))
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &File)> {
        self.files.iter()
    }

    /// Nobody will ask for it any more.
    pub(super) fn forget(&mut self, file: u32) {
        self.files.remove(file);
    }
}

impl std::ops::Index<u32> for Files {
    type Output = File;
    fn index(&self, file: u32) -> &File {
        &self.files[file]
    }
}

impl std::ops::IndexMut<u32> for Files {
    fn index_mut(&mut self, file: u32) -> &mut File {
        &mut self.files[file]
    }
}
