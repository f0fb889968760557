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
    /// Handles whose allocation has not been seen yet, in order; and what was told of each.
    waiting: HashMap<Inode, VecDeque<Handle>>,
    told: HashMap<Handle, Vec<Name>>,
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
        if self.told.contains_key(&name.handle) {
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
        let told = self.told.entry(name.handle).or_default();
        if told.is_empty() {
            self.waiting.entry(name.handle.inode).or_default().push_back(name.handle);
        }
        told.push(name);
    }

    /// A file was allocated in `dir`: the names that waited for it.
    pub(super) fn allocated(&mut self, inode: Inode, file: u32, dir: Option<u64>) -> Vec<Name> {
        if let Some(waiting) = self.waiting.get_mut(&inode)
            && let Some(n) = waiting.iter().position(|handle| fits(&self.told[handle][0], dir))
            && let Some(handle) = waiting.remove(n)
        {
            if waiting.is_empty() {
                self.waiting.remove(&inode);
            }
            self.bound.insert(handle, file);
            return self.told.remove(&handle).unwrap_or_default();
        }
        self.unbound.entry(inode).or_default().push_back((file, dir));
        Vec::new()
    }

    /// Names that waited until `at_ns` and whose allocation never came: their files are older than the trace.
    pub(super) fn given_up(&mut self, at_ns: u64) -> Vec<Name> {
        let mut given_up = Vec::new();
        self.waiting.retain(|_, waiting| {
            while let Some(handle) = waiting.pop_front_if(|handle| self.told[handle][0].at_ns < at_ns) {
                given_up.extend(self.told.remove(&handle).unwrap_or_default());
            }
            !waiting.is_empty()
        });
        given_up
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

#[cfg(test)]
mod tests {
    use super::super::Dev;
    use super::*;

    fn created(at_ns: u64, generation: u32, dir: u64) -> Name {
        let handle = Handle { inode: Inode { dev: Dev::new(8, 1), ino: 100 }, generation };
        let path = format!("/{dir}/{generation}").into();
        Name { at_ns, tid: 7, handle, dir, path, directory: false, kind: NameKind::Created }
    }

    /// An allocation that was lost leaves its names waiting; those of the next file with that number are not given up with them.
    #[test]
    fn who_waits_longest_is_given_up_alone() {
        let mut binding = Binding::default();
        let deleted = Name { kind: NameKind::Deleted, ..created(11, 1, 2) };
        let names = [created(10, 1, 2), created(20, 2, 3), created(30, 3, 2), deleted.clone()];
        for name in &names {
            assert_eq!(binding.whose(name, None), Whose::ToCome);
            binding.wait(name.clone());
        }
        assert_eq!(binding.given_up(15), [names[0].clone(), deleted]);
        // In order, and in its directory.
        let inode = names[0].handle.inode;
        assert_eq!(binding.allocated(inode, 5, Some(2)), [names[2].clone()]);
        assert_eq!(binding.allocated(inode, 6, Some(3)), [names[1].clone()]);
        assert_eq!(binding.whose(&created(40, 3, 2), None), Whose::Known(5));
        assert_eq!(binding.given_up(u64::MAX), []);
    }
}
