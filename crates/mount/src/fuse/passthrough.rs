//! Settled files that the kernel reads and writes itself (passthrough), and what it may remember of them.

use super::REMEMBER;
use crate::fs::Fs;
use crate::fs::types::{Ino, Opened};
use flashsift_core::event::OpenId;
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
    /// And how often each is open.
    lent: Mutex<HashMap<Ino, (Arc<BackingId>, u32)>>,
    /// Those that somebody may write to without us, if only through a mapping that outlives the descriptor: the kernel may not remember
    /// their times.
    written_past_us: Mutex<HashSet<Ino>>,
    pub(crate) notifier: Arc<OnceLock<fuser::Notifier>>,
}

impl Passthrough {
    /// The kernel can.
    pub(super) fn allow(&self, fs: &Fs) {
        self.allowed.store(true, Ordering::Relaxed);
        fs.set_passthrough(true);
    }

    /// A file that was just opened: may the kernel have it? For all that have it open the answer is the same, or the kernel refuses one of
    /// them: who comes while it is lent gets it too, and nobody is lent what somebody has open otherwise.
    pub(super) fn lend(
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
        let mut lent = self.lent.lock();
        if let Some((backing, count)) = lent.get_mut(&ino) {
            *count += 1;
            return Some(backing.clone());
        }
        if opened != (Opened::Settled { first: true })
            || !self.allowed.load(Ordering::Relaxed)
            // Another may have come since, and been told that he is not the first.
            || fs.count_opens(ino) != 1
        {
            return None;
        }
        // Who writes without the right to keep setuid has to take it away: that is for us to see to.
        if fs.attr(ino).ok()?.mode & 0o6000 != 0 {
            return None;
        }
        let file = fs.settled_file(open)?;
        // The kernel opens it once more, as the user asked for, and does not look whether that is forbidden.
        let may = rustix::fs::fcntl_getfl(&file).ok()?;
        if !may.contains(rustix::fs::OFlags::RDWR) || may.contains(rustix::fs::OFlags::APPEND) {
            return None;
        }
        match open_backing(&file) {
            Ok(backing) => {
                let backing = Arc::new(backing);
                lent.insert(ino, (backing.clone(), 1));
                Some(backing)
            }
            Err(error) => {
                // Not for us, or not for this file system: then nothing is handed over.
                tracing::warn!(
                    "no passthrough: {error}; settled files are read and written through this process"
                );
                self.allowed.store(false, Ordering::Relaxed);
                fs.set_passthrough(false);
                None
            }
        }
    }

    /// One who had it so is done.
    pub(super) fn give_back(&self, ino: Ino) {
        let mut lent = self.lent.lock();
        if let Some((_, count)) = lent.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                lent.remove(&ino);
            }
        }
    }

    /// How long the attributes of a file may be remembered.
    pub(super) fn remember(&self, ino: Ino) -> Duration {
        if self.written_past_us.lock().contains(&ino) { Duration::ZERO } else { REMEMBER }
    }

    /// From now on it is written to without us.
    pub(super) fn writes_past_us(&self, ino: Ino) {
        if self.written_past_us.lock().insert(ino)
            && let Some(notifier) = self.notifier.get()
        {
            // Only the attributes. Where that fails, the kernel knows none.
            let _ = notifier.inval_inode(INodeNo(ino), -1, 0);
        }
    }

    /// Nobody asks for it any more.
    pub(super) fn forget(&self, ino: Ino) {
        self.written_past_us.lock().remove(&ino);
    }
}
