//! A lock on a directory that needs no file: records in the kernel's list of locks of its inode.
//!
//! A directory can be opened for reading only, and then only shared locks are granted. But every
//! process may ask whether an exclusive lock would be refused, in every container and namespace. So
//! a record is a shared lock of one byte, and the place of the byte is what it says. Records end
//! with the last descriptor of the process that made them. `flock` has no places, and other
//! programs may hold it on a directory of theirs.

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// An offset has 32 bits on some machines.
type Offset = libc::off_t;

/// More than a process or a minor device number can be.
const NUMBERS: Offset = 1 << 23;
/// The holder's process.
const HOLDER: Range<Offset> = 0x4000_0000..0x4000_0000 + NUMBERS;
/// The minor device number of its mount.
const MOUNTED: Range<Offset> = HOLDER.end..HOLDER.end + NUMBERS;
/// It is unmounted, and ends.
const ENDING: Range<Offset> = MOUNTED.end..MOUNTED.end + 1;
/// Those that take the lock, each with a number of its own.
const TAKING: Range<Offset> = 0x5000_0000..0x7fff_fff0;

/// How long those are waited for that take the lock at the same time, and how often. They do it in
/// microseconds, unless they are stopped.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES: u32 = 10_000;

/// The lock, as long as it is not dropped or released.
#[derive(Debug)]
pub(super) struct DirectoryLock(OwnedFd);

/// The content of the records of a locked directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holder {
    /// As its own namespace numbers it.
    pub(super) pid: Option<u32>,
    pub(super) mounted: Option<u32>,
    pub(super) ending: bool,
}

impl DirectoryLock {
    /// Locks a directory. `None`: it is locked.
    ///
    /// # Errors
    ///
    /// Its file system has no such locks.
    pub(super) fn take(dir: impl AsFd) -> Result<Option<Self>> {
        // The records of one opened file are no hindrance to each other.
        let lock = Self(reopened(dir)?);
        let turn = lock.wait_for_turn()?;
        let free = holder_seen_by(&lock.0)?.is_none();
        if free {
            lock.record(numbered(&HOLDER, std::process::id()))?;
        }
        set(&lock.0, libc::F_UNLCK, turn..turn + 1)?;
        Ok(free.then_some(lock))
    }

    /// Burns and Lynch's one-bit algorithm ("Mutual exclusion using indivisible reads and writes",
    /// Allerton 1980): of those whose records are there at the same time, the lowest goes first.
    fn wait_for_turn(&self) -> Result<Offset> {
        let span = (TAKING.end - TAKING.start) as u64;
        let own = TAKING.start + (RandomState::new().hash_one(0) % span) as Offset;
        let (lower, higher) = (TAKING.start..own, own..TAKING.end);
        let mut pauses = 0;
        let mut until_none = |range: &Range<Offset>| {
            while get(&self.0, range.clone())?.is_some() {
                pauses += 1;
                if pauses > PAUSES {
                    return Err(Errno::TIMEDOUT);
                }
                std::thread::sleep(PAUSE);
            }
            Ok(())
        };
        loop {
            until_none(&lower)?;
            self.record(own)?;
            if get(&self.0, lower.clone())?.is_none() {
                until_none(&higher)?;
                return Ok(own);
            }
            set(&self.0, libc::F_UNLCK, own..own + 1)?;
        }
    }

    /// Records that it is mounted, as the file system with this minor device number.
    pub(super) fn mounted(&self, number: u32) -> Result<()> {
        self.record(numbered(&MOUNTED, number))
    }

    /// Records that it is unmounted and ends.
    pub(super) fn ending(&self) -> Result<()> {
        self.record(ENDING.start)
    }

    /// Removes all records.
    pub(super) fn release(&self) -> Result<()> {
        set(&self.0, libc::F_UNLCK, HOLDER.start..TAKING.end)
    }

    fn record(&self, at: Offset) -> Result<()> {
        set(&self.0, libc::F_RDLCK, at..at + 1)
    }
}

/// A child that another thread makes has the descriptor until it runs its program.
impl Drop for DirectoryLock {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::debug!(
                "the records of a directory stay until their descriptor is closed: {error}"
            );
        }
    }
}

impl AsFd for DirectoryLock {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The holder of the lock of this directory; `None`: it is free.
///
/// # Errors
///
/// Its file system has no such locks.
pub(super) fn holder(dir: impl AsFd) -> Result<Option<Holder>> {
    holder_seen_by(&reopened(dir)?)
}

fn numbered(range: &Range<Offset>, number: u32) -> Offset {
    range.start + (number % NUMBERS as u32) as Offset
}

fn reopened(dir: impl AsFd) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::empty())
}

fn holder_seen_by(dir: &OwnedFd) -> Result<Option<Holder>> {
    let number = |found: Option<Offset>, range: Range<Offset>| {
        found.filter(|at| range.contains(at)).and_then(|at| u32::try_from(at - range.start).ok())
    };
    let Some(found) = get(dir, HOLDER)? else { return Ok(None) };
    Ok(Some(Holder {
        pid: number(Some(found), HOLDER),
        mounted: number(get(dir, MOUNTED)?, MOUNTED),
        ending: get(dir, ENDING)?.is_some(),
    }))
}

fn bytes(kind: libc::c_int, range: &Range<Offset>) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start,
        l_len: range.end - range.start,
        l_pid: 0,
    }
}

/// Begins or ends shared locks of these bytes.
#[expect(unsafe_code, reason = "rustix has no locks of open file descriptions")]
fn set(dir: &OwnedFd, kind: libc::c_int, range: Range<Offset>) -> Result<()> {
    let ask = bytes(kind, &range);
    // SAFETY: the call reads this structure, and the descriptor is open meanwhile.
    match unsafe { libc::fcntl(dir.as_raw_fd(), libc::F_OFD_SETLK, &ask) } {
        -1 => Err(crate::fs::types::errno(&std::io::Error::last_os_error())),
        _ => Ok(()),
    }
}

/// The begin of a lock of others on these bytes.
#[expect(unsafe_code, reason = "rustix has no locks of open file descriptions")]
fn get(dir: &OwnedFd, range: Range<Offset>) -> Result<Option<Offset>> {
    let mut ask = bytes(libc::F_WRLCK, &range);
    // SAFETY: the call reads and writes this structure, and the descriptor is open meanwhile.
    match unsafe { libc::fcntl(dir.as_raw_fd(), libc::F_OFD_GETLK, &mut ask) } {
        -1 => Err(crate::fs::types::errno(&std::io::Error::last_os_error())),
        _ => Ok((ask.l_type != libc::F_UNLCK as libc::c_short).then_some(ask.l_start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_lock_says_whose_it_is_and_ends_with_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let dir = File::open(folder.path()).unwrap();
        assert_eq!(holder(&dir).unwrap(), None);
        let lock = DirectoryLock::take(&dir).unwrap().unwrap();
        assert!(DirectoryLock::take(&dir).unwrap().is_none());
        let pid = Some(std::process::id());
        let expected = Holder { pid, ..Holder::default() };
        assert_eq!(holder(&dir).unwrap(), Some(expected));
        lock.mounted(1 << 20).unwrap();
        lock.ending().unwrap();
        let expected = Holder { pid, mounted: Some(1 << 20), ending: true };
        assert_eq!(holder(&dir).unwrap(), Some(expected));
        lock.release().unwrap();
        assert_eq!(holder(&dir).unwrap(), None);
        let other = DirectoryLock::take(&dir).unwrap().unwrap();
        assert!(DirectoryLock::take(&dir).unwrap().is_none());
        drop(other);
        assert!(DirectoryLock::take(&dir).unwrap().is_some());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file was made");
    }

    /// Once a lock stayed as long as a child had its descriptor that another thread had just made:
    /// no thread got it in one of a few thousand runs of the next test.
    #[test]
    fn a_lock_ends_though_a_child_has_its_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let dir = File::open(folder.path()).unwrap();
        let lock = DirectoryLock::take(&dir).unwrap().unwrap();
        let _in_a_child = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(DirectoryLock::take(&dir).unwrap().is_some());
    }

    /// Of many that take a lock at once, one gets it.
    #[test]
    fn one_of_many_gets_it() {
        const MANY: usize = 8;
        let folder = tempfile::tempdir().unwrap();
        let dir = File::open(folder.path()).unwrap();
        for round in 0..50 {
            let (start, end, got) = (Barrier::new(MANY), Barrier::new(MANY), AtomicU32::new(0));
            std::thread::scope(|scope| {
                for _ in 0..MANY {
                    scope.spawn(|| {
                        start.wait();
                        let lock = DirectoryLock::take(&dir).unwrap();
                        got.fetch_add(u32::from(lock.is_some()), Ordering::SeqCst);
                        end.wait();
                    });
                }
            });
            assert_eq!(got.into_inner(), 1, "round {round}");
        }
    }
}
