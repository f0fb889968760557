//! Which name belongs to which identity.
//!
//! Tracepoints give an inode's number, fanotify gives a handle (number and generation) with a name, and neither gives the
//! other's. ext4 uses a number again at once, so that the number alone proves nothing. Both tell the *creations* of a
//! number in order, though: the n-th allocation of a number and the n-th handle that fanotify sees created with it are the
//! same file. What is made without a name (`O_TMPFILE`) shows as an allocation that no creation follows; it is told apart
//! by its directory, or by the name `#number` that the kernel gives it.

use super::Inode;
use std::collections::{HashMap, VecDeque};

/// One identity: generations tell files apart that had the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Where.
    pub inode: Inode,
    /// Which of the files with this number.
    pub generation: u32,
}

/// Something about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// When it was known, in nanoseconds of the tracepoints' clock; it happened before.
    pub at_ns: u64,
    /// The thread that did it, 0 if nobody knows.
    pub tid: u32,
    /// Whose.
    pub handle: Handle,
    /// Inode number of the directory it stands in.
    pub dir: u64,
    /// Absolute path.
    pub path: Box<str>,
    /// It is a directory's.
    pub directory: bool,
    /// What happened to it.
    pub kind: NameKind,
}

/// What happened to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// It was there, and its file so big, in bytes.
    Found {
        /// Bytes.
        size: u64,
    },
    /// The file was opened by it.
    Opened,
    /// It was made, with its file or as a further link.
    Created,
    /// It is gone.
    Deleted,
    /// It was another before.
    Moved {
        /// Inode number of the directory it stood in.
        from_dir: u64,
        /// Absolute path before.
        from: Box<str>,
    },
}

impl Name {
    /// The kernel's name for a file that is made without one.
    pub(super) fn is_nameless(&self, ino: u64) -> bool {
        self.path
            .rsplit('/')
            .next()
            .and_then(|name| name.strip_prefix('#'))
            .is_some_and(|n| n.parse() == Ok(ino))
    }
}

/// What a new name says about identities.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// This file, by its index.
    Known(u32),
    /// A file that is no more.
    Gone,
    /// A file that was there before the trace and that no tracepoint has shown yet.
    Older,
    /// A file whose allocation is still to come: kept until then.
    ToCome,
}

const GONE: u32 = u32::MAX;

/// What ties handles to files, by their indices.
#[derive(Debug, Default)]
pub(super) struct Binding {
    bound: HashMap<Handle, u32>,
    /// Allocations of a number that no handle has been found for, in order; and their directories.
    unbound: HashMap<Inode, VecDeque<(u32, Option<u64>)>>,
    /// Names whose allocation has not been seen yet, in order.
    waiting: HashMap<Inode, VecDeque<Name>>,
    /// Handles of files that are gone, and since when.
    gone: VecDeque<(u64, Handle)>,
}

impl Binding {
    /// Whose name this is. `current`: the file that has the number now and no handle, if it is from before the trace.
    pub(super) fn whose(&mut self, name: &Name, current: Option<u32>) -> Whose {
        let Handle { inode, .. } = name.handle;
        match self.bound.get(&name.handle) {
            Some(&GONE) => return Whose::Gone,
            Some(&file) => return Whose::Known(file),
            None => {}
        }
        // A handle that waits already waits on.
        if self.waiting.get(&inode).is_some_and(|w| w.iter().any(|n| n.handle == name.handle)) {
            return Whose::ToCome;
        }
        if !matches!(name.kind, NameKind::Found { .. })
            && let Some(unbound) = self.unbound.get_mut(&inode)
            && let Some(n) = unbound.iter().position(|&(_, dir)| fits(name, dir))
        {
            let (file, _) = unbound[n];
            unbound.drain(..=n);
            self.bound.insert(name.handle, file);
            return Whose::Known(file);
        }
        if let Some(file) = current {
            self.bound.insert(name.handle, file);
            return Whose::Known(file);
        }
        match name.kind {
            NameKind::Created => Whose::ToCome,
            _ if name.is_nameless(inode.ino) => Whose::ToCome,
            _ => Whose::Older,
        }
    }

    /// This file's handle is known.
    pub(super) fn bind(&mut self, handle: Handle, file: u32) {
        self.bound.insert(handle, file);
    }

    /// Keeps a name for an allocation to come.
    pub(super) fn wait(&mut self, name: Name) {
        self.waiting.entry(name.handle.inode).or_default().push_back(name);
    }

    /// A file was allocated in `dir`: the names that waited for it.
    pub(super) fn allocated(&mut self, inode: Inode, file: u32, dir: Option<u64>) -> Vec<Name> {
        if let Some(waiting) = self.waiting.get_mut(&inode)
            && let Some(handle) = waiting.iter().find(|name| fits(name, dir)).map(|name| name.handle)
        {
            let (mine, others) = waiting.drain(..).partition(|name| name.handle == handle);
            *waiting = others;
            if waiting.is_empty() {
                self.waiting.remove(&inode);
            }
            self.bound.insert(handle, file);
            return Vec::from_iter::<VecDeque<Name>>(mine);
        }
        self.unbound.entry(inode).or_default().push_back((file, dir));
        Vec::new()
    }

    /// Names that waited until `at_ns` and whose allocation never came: their files are older than the trace.
    pub(super) fn given_up(&mut self, at_ns: u64) -> Vec<Name> {
        let late = |w: &VecDeque<Name>| w.front().is_some_and(|name| name.at_ns < at_ns);
        let inodes: Vec<_> = self.waiting.iter().filter(|(_, w)| late(w)).map(|(&inode, _)| inode).collect();
        inodes.into_iter().flat_map(|inode| self.waiting.remove(&inode).unwrap_or_default()).collect()
    }

    /// The file with this handle is gone. The handle stays known for a while, lest what is told late of it be taken for the
    /// next file's that has the number.
    pub(super) fn gone(&mut self, handle: Handle, at_ns: u64) {
        self.bound.insert(handle, GONE);
        self.gone.push_back((at_ns, handle));
    }

    /// Nothing more is told of what was gone before.
    pub(super) fn forget_gone(&mut self, before_ns: u64) {
        while let Some((_, handle)) = self.gone.pop_front_if(|(at_ns, _)| *at_ns < before_ns) {
            self.bound.remove(&handle);
        }
    }

    /// No handle will be found for this file.
    pub(super) fn nameless(&mut self, inode: Inode, file: u32) {
        if let Some(unbound) = self.unbound.get_mut(&inode) {
            unbound.retain(|(other, _)| *other != file);
        }
    }
}

/// Can this name be the one of a file allocated in `dir`?
fn fits(name: &Name, dir: Option<u64>) -> bool {
    match name.kind {
        NameKind::Created => dir.is_none_or(|dir| dir == name.dir),
        _ => true,
    }
}
