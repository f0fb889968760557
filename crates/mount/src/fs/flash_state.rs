//! Changes that the file system of BACKING allows at the moment.
//!
//! It may turn read-only, by a remount or after an error of its own. From then on files in RAM
//! cannot be written back, so the mount must accept no more of them. ext4 does not show in `statfs`
//! that an error made it read-only (since Linux 6.12), but it refuses to open a file for writing.
//! Opening one changes nothing on flash and waits for nothing, also while the file system is
//! frozen. The lock file is opened, if there is one. If not, the options of the mount say the same:
//! a file of ours could make inodes of applications cross a block of ext4's table, which would cost
//! a block in each commit.

use super::beneath::LOCK;
use super::volume::Volume;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the answer, beside the time of the question.
const READ_ONLY: u64 = 1;
const SYNCHRONOUS: u64 = 2;

/// Asks the file system, at most once a tick of the kernel's clock (1 to 10 ms).
#[derive(Debug, Default)]
pub(crate) struct FlashState {
    /// Time of the last question, ns, with the answer in its lowest bits.
    answered: AtomicU64,
}

impl FlashState {
    /// Whether the file system is read-only.
    pub(crate) fn is_read_only(
        &self,
        root: &OwnedFd,
        hidden: Option<&OwnedFd>,
        volume: &Volume,
    ) -> bool {
        self.ask(root, hidden, volume) & READ_ONLY != 0
    }

    /// Whether it is mounted with `sync`: every write is durable when it returns.
    pub(crate) fn is_synchronous(
        &self,
        root: &OwnedFd,
        hidden: Option<&OwnedFd>,
        volume: &Volume,
    ) -> bool {
        self.ask(root, hidden, volume) & SYNCHRONOUS != 0
    }

    fn ask(&self, root: &OwnedFd, hidden: Option<&OwnedFd>, volume: &Volume) -> u64 {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        let now = (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) & !3 | 4;
        let answered = self.answered.load(Ordering::Relaxed);
        if answered & !3 == now {
            return answered;
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut answer = now;
        let open = |dir| rustix::fs::openat(dir, LOCK, flags, Mode::empty());
        let refuses = match hidden {
            Some(hidden) => open(hidden).err() == Some(Errno::ROFS),
            None => volume.has_failed(),
        };
        if refuses {
            answer |= READ_ONLY;
        }
        let flash = rustix::fs::fstatvfs(root).map(|flash| flash.f_flag);
        let flash = flash.unwrap_or(StatVfsMountFlags::empty());
        if flash.contains(StatVfsMountFlags::RDONLY) {
            answer |= READ_ONLY;
        }
        if flash.contains(StatVfsMountFlags::SYNCHRONOUS) {
            answer |= SYNCHRONOUS;
        }
        self.answered.store(answer, Ordering::Relaxed);
        answer
    }
}
