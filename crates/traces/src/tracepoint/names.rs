//! Matches file names with file identities.
//!
//! Tracepoints give an inode number. fanotify gives a name with a file handle (inode number and
//! generation). Neither gives the other's key, and ext4 reuses an inode number at once, so the
//! number alone proves nothing. Both report the *creations* of a number in order, though: the n-th
//! allocation of a number and the n-th created handle with that number are the same file. A file
//! made without a name (`O_TMPFILE`) shows as an allocation without a creation; it is recognised by
//! its directory, or by the name `#number` that the kernel gives it.

use super::Inode;
use std::collections::{HashMap, HashSet, VecDeque};

/// One file identity: the generation distinguishes files that had the same inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Device and inode number.
    pub inode: Inode,
    /// Generation of the inode number.
    pub generation: u32,
}

/// A report about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Time of the report in nanoseconds of the tracepoints' clock; the change happened before it.
    pub at_ns: u64,
    /// The thread that made the change, 0 if unknown.
    pub tid: u32,
    /// Handle of the file.
    pub handle: Handle,
    /// Inode number of the directory that holds the name.
    pub dir: u64,
    /// Absolute path.
    pub path: Box<str>,
    /// The name is a directory's.
    pub directory: bool,
    /// The change to the name.
    pub kind: NameKind,
}

/// A change to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// The name existed, for a file of this size.
    Found {
        /// Size in bytes.
        size: u64,
    },
    /// The file was opened by this name.
    Opened,
    /// The name was created, with its file or as a further link.
    Created,
    /// The name was removed.
    Deleted,
    /// The name was moved here.
    Moved {
        /// Inode number of the old directory.
        from_dir: u64,
        /// Old absolute path.
        from: Box<str>,
    },
}

impl Name {
    /// Whether this is the kernel's name for a file that was made without one.
    pub(super) fn is_nameless(&self, ino: u64) -> bool {
        self.path
            .rsplit('/')
            .next()
            .and_then(|name| name.strip_prefix('#'))
            .is_some_and(|n| n.parse() == Ok(ino))
    }
}

/// Result of matching a new name with the identities.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// A known file, by its index.
    Known(u32),
    /// A file that no longer exists.
    Gone,
    /// A file from before the trace that no tracepoint has shown yet.
    Older,
    /// A file whose allocation is still to come: the name is kept until then.
    ToCome,
}

const GONE: u32 = u32::MAX;

/// Associations between handles and files, by their indices.
#[derive(Debug, Default)]
pub(super) struct Binding {
    bound: HashMap<Handle, u32>,
    /// Allocations of a number without a handle yet, in order, with their directories.
    unbound: HashMap<Inode, VecDeque<(u32, Option<u64>)>>,
    /// Handles whose allocation has not been seen yet, in order, with the reports about each.
    waiting: HashMap<Inode, VecDeque<Handle>, foldhash::fast::FixedState>,
    reports: HashMap<Handle, Vec<Name>>,
    /// Handles of ended files, and the times at which they ended.
    gone: VecDeque<(u64, Handle)>,
}

impl Binding {
    /// Finds the file of a handle. `current` is the file that has the inode number now, if that
    /// file has no handle and is from before the trace.
    pub(super) fn whose(&mut self, name: &Name, current: Option<u32>) -> Whose {
        let Handle { inode, .. } = name.handle;
        match self.bound.get(&name.handle) {
            Some(&GONE) => return Whose::Gone,
            Some(&file) => return Whose::Known(file),
            None => {}
        }
        // A handle that is already waiting keeps waiting.
        if self.reports.contains_key(&name.handle) {
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

    /// Associates this file with its handle.
    pub(super) fn bind(&mut self, handle: Handle, file: u32) {
        self.bound.insert(handle, file);
    }

    /// Keeps a name for an allocation to come.
    pub(super) fn wait(&mut self, name: Name) {
        let reports = self.reports.entry(name.handle).or_default();
        if reports.is_empty() {
            self.waiting.entry(name.handle.inode).or_default().push_back(name.handle);
        }
        reports.push(name);
    }

    /// A file was allocated in `dir`: takes the names that waited for it.
    pub(super) fn allocated(&mut self, inode: Inode, file: u32, dir: Option<u64>) -> Vec<Name> {
        if let Some(waiting) = self.waiting.get_mut(&inode)
            && let Some(n) = waiting.iter().position(|handle| fits(&self.reports[handle][0], dir))
            && let Some(handle) = waiting.remove(n)
        {
            if waiting.is_empty() {
                self.waiting.remove(&inode);
            }
            self.bound.insert(handle, file);
            return self.reports.remove(&handle).unwrap_or_default();
        }
        self.unbound.entry(inode).or_default().push_back((file, dir));
        Vec::new()
    }

    /// Takes the names that waited until `at_ns` without an allocation: their files are older than
    /// the trace.
    pub(super) fn given_up(&mut self, at_ns: u64) -> Vec<Name> {
        let mut given_up = Vec::new();
        self.waiting.retain(|_, waiting| {
            while let Some(handle) =
                waiting.pop_front_if(|handle| self.reports[handle][0].at_ns < at_ns)
            {
                given_up.extend(self.reports.remove(&handle).unwrap_or_default());
            }
            !waiting.is_empty()
        });
        given_up
    }

    /// Marks the file with this handle as ended. The handle stays known for a while, so that late
    /// reports about it are not applied to the next file with that number.
    pub(super) fn gone(&mut self, handle: Handle, at_ns: u64) {
        self.bound.insert(handle, GONE);
        self.gone.push_back((at_ns, handle));
    }

    /// Forgets handles that ended before this time, as no further report about them can arrive,
    /// except those that a report in `pending` is about.
    pub(super) fn forget_gone(&mut self, before_ns: u64, pending: &HashSet<Handle>) {
        let Self { gone, bound, .. } = self;
        gone.retain(|(at_ns, handle)| {
            let kept = *at_ns >= before_ns || pending.contains(handle);
            if !kept {
                bound.remove(handle);
            }
            kept
        });
    }

    /// Stops waiting for a handle of this file.
    pub(super) fn nameless(&mut self, inode: Inode, file: u32) {
        if let Some(unbound) = self.unbound.get_mut(&inode) {
            unbound.retain(|(other, _)| *other != file);
        }
    }
}

/// Whether this name can belong to a file allocated in `dir`.
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

    /// The names of a lost allocation are given up, and those of the next file with the same inode
    /// number are kept.
    #[test]
    fn only_the_names_that_waited_longest_are_given_up() {
        let mut binding = Binding::default();
        let deleted = Name { kind: NameKind::Deleted, ..created(11, 1, 2) };
        let names = [created(10, 1, 2), created(20, 2, 3), created(30, 3, 2), deleted.clone()];
        for name in &names {
            assert_eq!(binding.whose(name, None), Whose::ToCome);
            binding.wait(name.clone());
        }
        assert_eq!(binding.given_up(15), [names[0].clone(), deleted]);
        // Names match in order, and only in their directory.
        let inode = names[0].handle.inode;
        assert_eq!(binding.allocated(inode, 5, Some(2)), [names[2].clone()]);
        assert_eq!(binding.allocated(inode, 6, Some(3)), [names[1].clone()]);
        assert_eq!(binding.whose(&created(40, 3, 2), None), Whose::Known(5));
        assert_eq!(binding.given_up(u64::MAX), []);
    }
}
