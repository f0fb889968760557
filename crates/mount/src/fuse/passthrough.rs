//! Files on flash that the kernel reads and writes itself (passthrough), and which of their
//! attributes it may cache.

use super::REMEMBER;
use crate::fs::Fs;
use crate::fs::types::{Ino, Opened};
use flashsift_events::event::OpenId;
use fuser::{BackingId, INodeNo};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Passthrough {
    allowed: AtomicBool,
    /// Files with passthrough, and the number of opens of each.
    passed_through: Mutex<HashMap<Ino, (Arc<BackingId>, u32)>>,
    /// Files that a process may write to through passthrough, if only by a mapping that outlives
    /// the descriptor: the kernel may not cache their times.
    written_past_us: Mutex<HashSet<Ino>>,
    pub(crate) notifier: Arc<OnceLock<fuser::Notifier>>,
}

impl Passthrough {
    /// Enables passthrough; the kernel supports it.
    pub(super) fn allow(&self, fs: &Fs) {
        self.allowed.store(true, Ordering::Relaxed);
        fs.set_passthrough(true);
    }

    /// Decides whether a file that was just opened gets passthrough. All opens of a file at one
    /// time must have the same answer, or the kernel refuses one of them: while the file has
    /// passthrough, every further open gets it too, and a file that is open without passthrough
    /// never gets it.
    pub(super) fn pass_through(
        &self,
        fs: &Fs,
        ino: Ino,
        open: OpenId,
        opened: Opened,
        open_backing: impl FnOnce(&std::fs::File) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        if opened == Opened::InRam {
            return None;
        }
        let mut passed_through = self.passed_through.lock();
        if let Some((backing, count)) = passed_through.get_mut(&ino) {
            *count += 1;
            return Some(backing.clone());
        }
        if opened != (Opened::Settled { first: true })
            || !self.allowed.load(Ordering::Relaxed)
            // Another open may have come since, which was not the first and so did not get
            // passthrough.
            || fs.count_opens(ino) != 1
        {
            return None;
        }
        // A write by a process without the right to keep setuid must clear it, and only we can do
        // that.
        if fs.attr(ino).ok()?.mode & 0o6000 != 0 {
            return None;
        }
        let file = fs.settled_file(open)?;
        // The kernel opens the file again with the flags of the user's open, without checking
        // whether ours allow them.
        let may = rustix::fs::fcntl_getfl(&file).ok()?;
        if !may.contains(rustix::fs::OFlags::RDWR) || may.contains(rustix::fs::OFlags::APPEND) {
            return None;
        }
        match open_backing(&file) {
            Ok(backing) => {
                let backing = Arc::new(backing);
                passed_through.insert(ino, (backing.clone(), 1));
                Some(backing)
            }
            Err(error) => {
                // The kernel refuses us or this file system: passthrough is off from now on.
                tracing::warn!(
                    "no passthrough: {error}; this process reads and writes the files on flash \
                     instead of the kernel"
                );
                self.allowed.store(false, Ordering::Relaxed);
                fs.set_passthrough(false);
                None
            }
        }
    }

    /// Ends one open with passthrough.
    pub(super) fn give_back(&self, ino: Ino) {
        let mut passed_through = self.passed_through.lock();
        if let Some((_, count)) = passed_through.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                passed_through.remove(&ino);
            }
        }
    }

    /// How long the kernel may cache the attributes of a file.
    pub(super) fn remember(&self, ino: Ino) -> Duration {
        if self.written_past_us.lock().contains(&ino) { Duration::ZERO } else { REMEMBER }
    }

    /// Records that the file is written to through passthrough from now on.
    pub(super) fn writes_past_us(&self, ino: Ino) {
        if self.written_past_us.lock().insert(ino)
            && let Some(notifier) = self.notifier.get()
        {
            // Drops the cached attributes only. If that fails, the kernel has none.
            let _ = notifier.inval_inode(INodeNo(ino), -1, 0);
        }
    }

    /// Forgets a file that the kernel no longer uses.
    pub(super) fn forget(&self, ino: Ino) {
        self.written_past_us.lock().remove(&ino);
    }
}
