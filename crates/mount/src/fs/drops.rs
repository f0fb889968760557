//! Dropping files, so that it looks like another process's unlink.
//!
//! A drop takes all names of the file from the table at once, under its lock. From then on the file
//! is gone for every request. The kernel still remembers its names, and processes that watch the
//! directory have had no event. Another process of the daemon therefore unlinks each name once
//! more, through the kernel: the kernel forgets the name, and tells the watchers. The request
//! arrives here again. By its process it is known as that one, and removes nothing: if the name has
//! been created again meanwhile, the request fails, and the kernel keeps the new file.
//!
//! The thread that drops must not unlink through the kernel itself: it may answer a request for
//! which the kernel holds the directory's lock.

use super::types::{Attr, Ino};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A name of a dropped file, which the kernel does not know to be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedName {
    /// The directory when the file was dropped, from the mounted directory on.
    pub directory: PathBuf,
    /// The name in it.
    pub name: OsString,
}

/// The names of dropped files that the kernel still remembers.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    unannounced: Mutex<Unannounced>,
    arrived: Condvar,
    /// The process that announces them; 0: there is none yet.
    announcer: AtomicU32,
    /// The process that may become it.
    expected: AtomicU32,
}

#[derive(Debug, Default)]
struct Unannounced {
    queue: VecDeque<DroppedName>,
    /// Attributes of the dropped files by directory and name.
    names: HashMap<(Ino, OsString), Attr>,
    ended: bool,
}

impl Drops {
    /// A file was dropped that had this name, and these attributes.
    pub(super) fn add(&self, parent: Ino, dropped: DroppedName, attr: Attr) {
        let mut unannounced = self.unannounced.lock();
        unannounced.names.insert((parent, dropped.name.clone()), attr);
        unannounced.queue.push_back(dropped);
        self.arrived.notify_one();
    }

    /// Whether the file of this name was dropped, which the announcing process unlinks.
    pub(super) fn take(&self, parent: Ino, name: &OsStr) -> bool {
        self.unannounced.lock().names.remove(&(parent, name.to_owned())).is_some()
    }

    /// Allows this process to announce drops to the kernel, and no other; 0: none.
    pub(crate) fn expect(&self, pid: u32) {
        self.announcer.store(0, Ordering::Relaxed);
        self.expected.store(pid, Ordering::Relaxed);
    }

    /// Makes this process, which has one thread, the one that announces drops to the kernel.
    /// `false`: it is not the expected one.
    pub(crate) fn accept(&self, tid: u32) -> bool {
        let is_expected = tid != 0 && self.expected.load(Ordering::Relaxed) == tid;
        if is_expected {
            self.announcer.store(tid, Ordering::Relaxed);
        }
        is_expected
    }

    /// Whether drops are announced to the kernel.
    pub(crate) fn are_announced(&self) -> bool {
        self.announcer.load(Ordering::Relaxed) != 0
    }

    pub(super) fn is_announcer(&self, tid: u32) -> bool {
        tid != 0 && self.announcer.load(Ordering::Relaxed) == tid
    }

    /// Waits for names that are to be announced. `None` after [`Drops::end`].
    pub(crate) fn wait(&self) -> Option<Vec<DroppedName>> {
        let mut unannounced = self.unannounced.lock();
        while unannounced.queue.is_empty() && !unannounced.ended {
            self.arrived.wait(&mut unannounced);
        }
        let drops: Vec<DroppedName> = unannounced.queue.drain(..).collect();
        (!unannounced.ended).then_some(drops)
    }

    /// Ends the thread that announces drops.
    pub(crate) fn end(&self) {
        self.unannounced.lock().ended = true;
        self.arrived.notify_all();
    }

    /// The attributes of a dropped file whose name the announcing process looks up.
    pub(crate) fn dropped(&self, tid: u32, parent: Ino, name: &OsStr) -> Option<Attr> {
        if !self.is_announcer(tid) {
            return None;
        }
        self.unannounced.lock().names.get(&(parent, name.to_owned())).copied()
    }

    /// Forgets a name that could not be announced.
    pub(crate) fn give_up(&self, dropped: &DroppedName) {
        let mut unannounced = self.unannounced.lock();
        unannounced.names.retain(|(_, name), _| *name != dropped.name);
    }
}
