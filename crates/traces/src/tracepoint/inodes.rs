//! File identities: which file an inode number denotes, from its allocation or first sight to its
//! end.

use super::{Handle, Inode};
use crate::process::slab::Slab;
use flashsift_events::event::FileId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Type of an inode, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unknown,
    Regular,
    Directory,
    Other,
}

impl Kind {
    /// Returns the type that the mode bits of `st_mode` encode.
    pub(super) fn new(mode: u16) -> Self {
        match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            _ => Self::Other,
        }
    }
}

/// One file identity.
#[derive(Debug)]
pub(super) struct File {
    pub(super) inode: Inode,
    pub(super) kind: Kind,
    /// Number in the trace, assigned when the file is first emitted.
    pub(super) id: Option<FileId>,
    pub(super) handle: Option<Handle>,
    /// The file existed before the trace began.
    pub(super) older: bool,
    /// Time at which the file ended, if it has.
    pub(super) gone_ns: Option<u64>,
    /// Size in bytes; `None` if unknown.
    pub(super) size: Option<u64>,
    /// Size in bytes when the trace first saw the file, for a file older than the trace.
    pub(super) first_size: Option<u64>,
    /// The file may have grown since `size` was known.
    pub(super) may_have_grown: bool,
    /// It was cut to nothing, and no close was seen since.
    pub(super) was_emptied: bool,
    /// The file has, or had, a name.
    pub(super) was_named: bool,
    /// Time at which the file was found to exist.
    pub(super) found_ns: u64,
    /// Inode number of the directory and absolute path, for each name.
    pub(super) names: Vec<(u64, Box<str>)>,
    /// The file is, or was, below the recorded directory; `None` if unknown.
    pub(super) inside: Option<bool>,
    /// Folios of more than one page: the number of pages, by the first.
    pub(super) folios: BTreeMap<u64, u64>,
    /// The page cache may hold other folios, since before the trace or since one was split.
    pub(super) has_unseen_folios: bool,
    /// Windows of pages whose folios were asked for since.
    pub(super) asked: BTreeSet<u64>,
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
            was_emptied: false,
            was_named: false,
            found_ns: 0,
            names: Vec::new(),
            inside: None,
            folios: BTreeMap::new(),
            has_unseen_folios: older,
            asked: BTreeSet::new(),
        }
    }

    /// Sets the initial size of a file that is older than the trace and not yet emitted.
    pub(super) fn has(&mut self, size: u64) {
        if self.older && self.id.is_none() {
            self.first_size.get_or_insert(size);
        }
    }

    /// Raises the size to at least this many bytes.
    pub(super) fn reaches(&mut self, end: u64) {
        self.size = self.size.map(|size| size.max(end));
    }
}

/// All live files, and ended files whose names may still arrive.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: Slab<File>,
    current: HashMap<Inode, u32, foldhash::fast::FixedState>,
    last: Option<(Inode, u32)>,
}

impl Files {
    /// Returns the file that currently has this inode number.
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

    /// Adds a file, which is `older` than the trace or was allocated during it.
    pub(super) fn begin(&mut self, inode: Inode, older: bool) -> u32 {
        let file = self.files.add(File::new(inode, older));
        self.current.insert(inode, file);
        self.last = Some((inode, file));
        file
    }

    /// Ends the file; its inode number is free again.
    pub(super) fn end(&mut self, inode: Inode, at_ns: u64) -> Option<u32> {
        self.last = None;
        let file = self.current.remove(&inode)?;
        self.files[file].gone_ns = Some(at_ns);
        Some(file)
    }

    /// Whether the file with that number in the trace is this one, and has not ended.
    pub(super) fn lives(&self, file: u32, id: FileId) -> bool {
        self.files.get(file).is_some_and(|f| f.id == Some(id) && f.gone_ns.is_none())
    }

    /// Returns the file that ended at that time, if it is still kept.
    pub(super) fn ended(&self, file: u32, at_ns: u64) -> Option<&File> {
        self.files.get(file).filter(|f| f.gone_ns == Some(at_ns))
    }

    /// Iterates over all files.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &File)> {
        self.files.iter()
    }

    /// Drops a file to which no later event can refer.
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
