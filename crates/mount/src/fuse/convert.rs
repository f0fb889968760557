//! Conversions between the types of fuser and ours.

use crate::fs::types::{Attr, Caller, Time};
use fuser::{Errno, FileAttr, FileType, INodeNo, Request};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn number(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

pub(super) fn system_time(time: Time) -> SystemTime {
    let ns = Duration::from_nanos(u64::from(time.ns));
    match u64::try_from(time.s) {
        Ok(s) => UNIX_EPOCH + Duration::from_secs(s) + ns,
        Err(_) => UNIX_EPOCH - Duration::from_secs(time.s.unsigned_abs()) + ns,
    }
}

pub(super) fn time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { s: since.as_secs() as i64, ns: since.subsec_nanos() },
        // fuser, up to 0.18.0, subtracts the nanoseconds of times before 1970 instead of adding
        // them.
        Err(before) => {
            let before = before.duration();
            Time { s: 0i64.wrapping_sub_unsigned(before.as_secs()), ns: before.subsec_nanos() }
        }
    }
}

pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Kind;
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::RegularFile | Kind::Unknown => FileType::RegularFile,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attr.kind()),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

/// The answer that a name does not exist, which the kernel may cache too.
pub(super) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

pub(super) fn caller(request: &Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), tid: request.pid(), umask }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time -1.5 s is half a second after -2 s. fuser made -2.5 s of it, and `stat` showed
    /// that.
    #[test]
    fn times_before_1970_keep_their_sign() {
        let as_fuser_has_it = |s: i64, ns| match u64::try_from(s) {
            Ok(s) => UNIX_EPOCH + Duration::new(s, ns),
            Err(_) => UNIX_EPOCH - Duration::new(s.unsigned_abs(), ns),
        };
        for (s, ns) in
            [(-2, 500_000_000), (-1, 0), (-1, 999_999_999), (0, 1), (7, 3), (i64::MIN, 0)]
        {
            assert_eq!(time(as_fuser_has_it(s, ns)), Time { s, ns });
        }
        assert_eq!(
            system_time(Time { s: -2, ns: 500_000_000 }),
            UNIX_EPOCH - Duration::from_millis(1500)
        );
    }
}
