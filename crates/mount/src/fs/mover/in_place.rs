//! Files that get their name in BACKING before their content.
//!
//! On F2FS, the first fsync after a rename or a link writes a checkpoint of the whole file system.
//! A new file that an application syncs is therefore created under its name, as without the mount,
//! and its fsync follows. Until the fsync returns, a crash may leave a part of the file, also as
//! without the mount. Meanwhile the table is locked: no application reaches the name.

use super::{Batch, Job, Mover, Outcome};
use crate::fs::copying::copy;
use crate::fs::failures::{Failed, In, Step};
use crate::fs::residence::Residence;
use crate::fs::volume::Kind;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;

/// Bytes of the largest file that is written so, since other requests wait meanwhile.
const LARGEST_BYTES: i64 = 256 << 10;

impl Mover {
    /// Creates the file under its name, if its name is new and no other way costs less.
    pub(super) fn settle_in_place(&self, job: Job, batch: &mut Batch) -> Result<Outcome, Failed> {
        let ino = job.ino;
        if self.backing.volume.kind != Kind::F2fs || !job.durable {
            return Ok(Outcome::Nothing);
        }
        let mut table = self.table();
        let Some(node) = table.node(ino) else { return Ok(Outcome::Nothing) };
        if !matches!(node.residence(), Residence::Ram(_)) {
            return Ok(Outcome::Nothing);
        }
        let [(parent, name)] = &node.names[..] else { return Ok(Outcome::Nothing) };
        let (parent, name) = (*parent, name.clone());
        let is_new = table.in_ram(parent, &name).is_some_and(|in_ram| in_ram.hides.is_none());
        if !is_new {
            return Ok(Outcome::Nothing);
        }
        let dir = table.dir(parent).step(Step::Open)?;
        let of_parent = table.attr_of(parent).step(Step::Open)?;
        let Ok(file_state) = self.delayed.file_state(&mut table, ino) else {
            return Ok(Outcome::Nothing);
        };
        let stat = self.store.stat(ino).step(Step::Open)?;
        if !dir.takes_temps || stat.st_size > LARGEST_BYTES {
            return Ok(Outcome::Nothing);
        }
        // Writers wait for this lock, so the copy is complete.
        let mut place = file_state.place_to_move();
        let source = self.store.open_to_copy(ino).step(Step::Open)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC | self.backing.without_atime();
        let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
        let file = match rustix::fs::openat(&dir, &*name, flags, mode) {
            // Another program has created it in BACKING.
            Err(Errno::EXIST) => return Ok(Outcome::Nothing),
            opened => Arc::new(opened.map(File::from).step(Step::Open)?),
        };
        let copied = copy(&source, &file, &file_state.reserved()).step(Step::Copy);
        let done = copied.and_then(|bytes| Ok((bytes, self.copy_times(ino, &file)?)));
        if done.is_err() {
            // If it cannot be removed, the file in RAM hides it.
            let _ = rustix::fs::unlinkat(&dir, &*name, AtFlags::empty());
        }
        table.keep_times_of(parent, &dir, &of_parent);
        let (bytes, was) = done?;
        self.delayed.direct_change(parent);
        self.settles(&mut table, (job, &file_state), &mut place, &file, &was, batch)?;
        drop(place);
        self.decider.copied(bytes, job.durable);
        let mut counters = self.counters.lock();
        counters.settled += 1;
        counters.settled_bytes += bytes;
        drop(counters);
        table.release(ino, file_state);
        table.drop_unused(ino);
        Ok(Outcome::Settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::backing::Backing;
    use crate::{Access, Caller, Config, Fs, Ino, ROOT, Store};
    use std::ffi::OsStr;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    /// Pretends that the file system of this folder is F2FS.
    fn start(folder: &Path) -> Fs {
        for name in ["backing", "store"] {
            std::fs::create_dir(folder.join(name)).unwrap();
        }
        let backing = File::open(folder.join("backing")).unwrap();
        let store = Store::in_dir(&folder.join("store")).unwrap();
        let mut backing = Backing::new(backing.into(), false).unwrap();
        backing.volume.kind = Kind::F2fs;
        Fs::over(backing, store, Config::default()).unwrap()
    }

    fn create(fs: &Fs, name: &str, bytes: &[u8]) -> Ino {
        let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let caller = Caller { uid: us.0, gid: us.1, tid: 0, umask: 0 };
        let (attr, open, _) = fs.create(&caller, ROOT, OsStr::new(name), 0o640, 0).unwrap();
        assert_eq!(fs.write(Access::default(), open, 0, bytes).unwrap(), bytes.len());
        fs.fsync(0, open, false).unwrap();
        fs.release(0, open);
        attr.ino
    }

    /// The file gets its name without a rename or a link.
    // Promises: Mount 4.
    #[test]
    fn a_synced_file_is_created_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let fs = start(folder.path());
        let ino = create(&fs, "a", b"content");
        let found = std::fs::metadata(folder.path().join("backing/a")).unwrap();
        let shown = fs.attr(ino).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (shown.mtime.s, shown.mtime.ns.into()));
        assert_eq!(found.permissions().mode() & 0o7777, 0o640);
        assert_eq!(std::fs::read(folder.path().join("backing/a")).unwrap(), b"content");
        let places = folder.path().join("backing/.flashsift/places");
        assert!(!places.exists(), "no copy was made whose directory had to be recorded");
        assert_eq!(fs.status().settled, 1);
        fs.check();
    }

    /// A file in BACKING that another program has given the same name meanwhile is replaced as a
    /// whole, as by any other write-back.
    // Promises: Mount 4.
    #[test]
    fn a_name_that_is_taken_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let fs = start(folder.path());
        let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let caller = Caller { uid: us.0, gid: us.1, tid: 0, umask: 0 };
        let (_, open, _) = fs.create(&caller, ROOT, OsStr::new("a"), 0o640, 0).unwrap();
        fs.write(Access::default(), open, 0, b"ours").unwrap();
        let path = folder.path().join("backing/a");
        std::fs::write(&path, b"of another program").unwrap();
        let before = std::fs::metadata(&path).unwrap().ino();
        fs.fsync(0, open, false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ours");
        assert_ne!(std::fs::metadata(&path).unwrap().ino(), before);
        fs.check();
    }
}
