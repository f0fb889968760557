//! Copies that have a temporary name, and the records by which the next start finds them.
//!
//! A rename within one directory costs fewer blocks of the journal than one between two, so a copy
//! gets its temporary name in the directory of its file. Applications neither see nor can use such
//! names. After a kill, the next start has to find what is left of them without a search through
//! BACKING: before the first copy in a directory, its record is made, a link to the directory in
//! BACKING itself, which has a temporary name, too. Of many directories in one, a common record
//! leads to that one. File systems make names durable in order, so a power cut leaves no copy
//! without its record.

use super::backing::{Backing, OpenDir, list, remove_copies};
use super::namespace::Namespace;
use super::table::Table;
use super::temporary::{ALL_INSIDE, Needed};
use super::types::{Ino, ROOT};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Directories with a record. Copies for files in further directories are made in the hidden
/// directory: a record costs an inode.
const RECORDED: usize = 1000;

/// The temporary name of a copy, if it has one.
#[derive(Debug)]
pub(crate) enum Temp {
    Unnamed,
    /// It has the name of its file already: the file did not change after its checkpoint.
    Placed,
    /// It has some of the names of its file: a further one was refused.
    Linked,
    /// In the hidden directory.
    Hidden(String),
    /// In a directory of applications.
    In(Ino, Arc<OpenDir>, String),
}

/// The path of these names; `.` without any.
fn joined(path: &[&[u8]]) -> Vec<u8> {
    if path.is_empty() { b".".to_vec() } else { path.join(&b'/') }
}

impl Namespace {
    pub(crate) fn create_temp_in(
        &mut self,
        ino: Ino,
        dir: &Arc<OpenDir>,
    ) -> Result<(String, File)> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC | self.backing.without_atime();
        self.with_temp_in(ino, dir, |name| {
            rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
        })
    }

    /// Makes a temporary name in a directory of applications, which does not get a new time.
    fn with_temp_in<T>(
        &mut self,
        ino: Ino,
        dir: &Arc<OpenDir>,
        make: impl Fn(&str) -> Result<T>,
    ) -> Result<(String, T)> {
        if !dir.takes_temps {
            return Err(Errno::PERM);
        }
        self.record(ino)?;
        let was = self.attr_of(ino)?;
        let made = loop {
            let name = self.backing.next_temporary();
            match make(&name) {
                Err(Errno::EXIST) => (),
                made => break made.map(|made| (name, made)),
            }
        };
        self.keep_times_of(ino, dir, &was);
        if made.is_ok()
            && let Some(copies) = self.temps.dirs.get_mut(&ino)
        {
            *copies += 1;
        }
        made
    }

    /// Records the path of a directory, once.
    fn record(&mut self, dir: Ino) -> Result<()> {
        if self.temps.dirs.contains_key(&dir) {
            return Ok(());
        }
        if self.temps.dirs.len() >= RECORDED {
            let dirs = self.temps.dirs.keys();
            let parents: HashMap<Ino, Ino> =
                dirs.filter_map(|dir| Some((*dir, self.parent(*dir)?))).collect();
            self.temps.forget_covered(|dir| parents.get(&dir).copied());
        }
        if self.temps.dirs.len() >= RECORDED {
            return Err(Errno::NOSPC);
        }
        let parent = match dir {
            ROOT => None,
            _ => Some(self.parent(dir).ok_or(Errno::STALE)?),
        };
        match parent.map(|parent| (parent, self.temps.needed_in(parent))) {
            None => self.backing.record(None)?,
            Some((_, Needed::Nothing)) => (),
            Some((parent, needed)) => {
                // A record takes no inode that a file in RAM will need.
                self.backing.spare_files(self.inodes_in_ram() + 1)?;
                let of = if needed == Needed::All { parent } else { dir };
                let mut path = joined(&self.names_between(ROOT, of).ok_or(Errno::STALE)?);
                if needed == Needed::All {
                    path.extend(ALL_INSIDE);
                }
                self.record_path(&path)?;
                self.temps.recorded_in(parent);
            }
        }
        self.temps.dirs.insert(dir, 0);
        Ok(())
    }

    fn parent(&self, dir: Ino) -> Option<Ino> {
        self.node(dir)?.names.first().map(|(parent, _)| *parent)
    }

    fn record_path(&mut self, path: &[u8]) -> Result<()> {
        let was = self.attr_of(ROOT)?;
        let backing = self.backing.clone();
        let recorded = backing.record(Some(path));
        self.keep_times_of(ROOT, &backing.root, &was);
        recorded
    }

    /// Gives a file a name that may be in use, by a temporary name in the same directory if the
    /// directory takes one.
    pub(crate) fn link_over(
        &mut self,
        file: &File,
        (ino, dir): (Ino, &Arc<OpenDir>),
        name: &OsStr,
    ) -> Result<()> {
        match self.backing.link_file(file, dir, name) {
            Err(Errno::EXIST) => (),
            done => return done,
        }
        let backing = self.backing.clone();
        let link = |temp: &str| backing.link_file(file, dir, OsStr::new(temp));
        let temp = match self.with_temp_in(ino, dir, link) {
            Ok((temp, ())) => Temp::In(ino, dir.clone(), temp),
            Err(_) => Temp::Hidden(self.backing.link_to_temp(file)?),
        };
        self.rename_temp(&temp, dir, name).inspect_err(|_| self.remove_temp(&temp))
    }

    /// Renames a copy to the name of its file, and replaces the file that has it.
    pub(crate) fn rename_temp(&mut self, temp: &Temp, dir: &OpenDir, name: &OsStr) -> Result<()> {
        match temp {
            Temp::Unnamed | Temp::Placed | Temp::Linked => return Err(Errno::NOENT),
            Temp::Hidden(temp) => self.backing.place_temp(temp, dir, name)?,
            Temp::In(ino, from, temp) => {
                rustix::fs::renameat(from, temp, dir, name)?;
                ends(self, *ino);
            }
        }
        Ok(())
    }

    /// Removes a copy. If this fails, the next start removes it.
    pub(crate) fn remove_temp(&mut self, temp: &Temp) {
        match temp {
            Temp::Unnamed | Temp::Placed | Temp::Linked => (),
            Temp::Hidden(name) => {
                let _ = self.backing.remove_temp(name);
            }
            Temp::In(ino, dir, name) => {
                let was = self.attr_of(*ino);
                let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
                if let Ok(was) = was {
                    self.keep_times_of(*ino, dir, &was);
                }
                ends(self, *ino);
            }
        }
    }

    /// Before a directory is renamed: the records of the directories in it follow, or are made anew
    /// before the next copy there.
    pub(crate) fn records_follow(&mut self, moved: Ino, to: (Ino, &OsStr)) {
        let above = self.names_between(ROOT, to.0).map(|names| joined(&names)).unwrap_or_default();
        let path = |(dir, copies): (&Ino, &u32)| {
            let below = self.names_between(moved, *dir)?;
            let names: Vec<&[u8]> = [&above, to.1.as_bytes()].into_iter().chain(below).collect();
            Some((*dir, *copies, joined(&names)))
        };
        let inside: Vec<(Ino, u32, Vec<u8>)> = self.temps.dirs.iter().filter_map(path).collect();
        let mut parents = self.temps.parents();
        parents.retain(|dir| self.names_between(moved, *dir).is_some());
        parents.into_iter().for_each(|dir| self.temps.moved(dir));
        for (dir, copies, path) in inside {
            if copies == 0 {
                self.temps.forget(dir);
                continue;
            }
            // Without the record, what a crash leaves now stays.
            if let Err(errno) = self.record_path(&path) {
                tracing::warn!(errno = errno.raw_os_error(), "recording a directory: {errno}");
            }
        }
    }
}

/// One copy less has a name there.
fn ends(table: &mut Table, dir: Ino) {
    if let Some(copies) = table.temps.dirs.get_mut(&dir) {
        *copies = copies.saturating_sub(1);
    }
}

impl Backing {
    /// Removes the copies in a directory that is to be removed. Returns whether there were any; the
    /// write-back that loses its copy makes another.
    pub(crate) fn remove_copies_in(&self, parent: impl AsFd, name: &OsStr) -> bool {
        let Ok((dir, _)) = self.open_dir(parent, name) else { return false };
        list(&dir).is_ok_and(|names| remove_copies(&dir, &names).is_ok_and(|removed| removed > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::backing::{MakeHidden, is_marked};
    use crate::fs::beneath::MARK;
    use crate::fs::temporary::{is_temporary, temporary};
    use crate::{Caller, Config, Fs, Store};
    use rustix::fs::RenameFlags;
    use std::path::Path;

    fn caller() -> Caller {
        let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Caller { uid: us.0, gid: us.1, tid: 0, umask: 0 }
    }

    fn start(folder: &Path) -> Fs {
        for name in ["backing", "store"] {
            let _ = std::fs::create_dir(folder.join(name));
        }
        let backing = File::open(folder.join("backing")).unwrap();
        let store = Store::in_dir(&folder.join("store")).unwrap();
        Fs::new(backing.into(), store, Config::default()).unwrap()
    }

    /// The same, without a file of ours in BACKING; `None` where the file system needs one.
    fn start_without_files(folder: &Path) -> Option<Fs> {
        for name in ["backing", "store"] {
            let _ = std::fs::create_dir(folder.join(name));
        }
        let backing = File::open(folder.join("backing")).unwrap();
        let store = Store::in_dir(&folder.join("store")).unwrap();
        let none = MakeHidden(Box::new(|| Err(Errno::NOSPC)));
        let fs = Fs::lazy(backing.into(), none, store, Config::default()).unwrap();
        fs.backing.volume.shows_errors().then_some(fs)
    }

    /// A copy in a directory of applications; `None` where BACKING's file system takes none there.
    fn copy_in(fs: &Fs, dir: Ino) -> Option<String> {
        match fs.mover.create_copy(Some(dir), true).unwrap().0 {
            Temp::In(_, _, name) => Some(name),
            other => {
                println!("SKIPPED: copies are made in the hidden directory: {other:?}");
                fs.table().remove_temp(&other);
                None
            }
        }
    }

    /// A kill leaves a copy in a directory that was renamed while the copy was made. The next start
    /// finds it by its record, and removes nothing else.
    // Promises: Mount 8.
    #[test]
    fn the_next_start_removes_what_a_kill_left() {
        for start in [|folder: &Path| Some(start(folder)), start_without_files] {
            removes_what_a_kill_left(start);
        }
    }

    fn removes_what_a_kill_left(start: fn(&Path) -> Option<Fs>) {
        let folder = tempfile::tempdir().unwrap();
        let Some(fs) = start(folder.path()) else {
            println!("SKIPPED: only ext4 needs no file");
            return;
        };
        let dir = fs.mkdir(&caller(), ROOT, OsStr::new("dir"), 0o755).unwrap().ino;
        let inner = fs.mkdir(&caller(), dir, OsStr::new("inner"), 0o755).unwrap().ino;
        let Some(copy) = copy_in(&fs, inner) else { return };
        let beside = copy_in(&fs, ROOT).unwrap();
        let (from, to) = ((ROOT, OsStr::new("dir")), (ROOT, OsStr::new("renamed")));
        fs.rename(0, from, to, RenameFlags::empty()).unwrap();
        drop(fs);
        let backing = folder.path().join("backing");
        let inner = backing.join("renamed/inner");
        assert!(inner.join(&copy).exists(), "the copy is there after the kill");
        assert!(backing.join(&beside).exists(), "and the one in BACKING itself");
        std::fs::write(inner.join("other"), "").unwrap();
        let fs = start(folder.path()).unwrap();
        assert!(!inner.join(&copy).exists() && inner.join("other").exists());
        assert!(!backing.join(&beside).exists());
        fs.tidy().unwrap();
        let left: Vec<_> = std::fs::read_dir(&backing).unwrap().flatten().collect();
        let left: Vec<_> = left.iter().map(std::fs::DirEntry::file_name).collect();
        assert!(!left.iter().any(|name| is_temporary(name)), "records: {left:?}");
    }

    /// Directories in one share a record after the first few. A kill leaves a copy in each of them;
    /// the next start finds those, and those that were made after the one above was renamed.
    // Promises: Mount 8.
    #[test]
    fn directories_in_one_share_a_record() {
        let folder = tempfile::tempdir().unwrap();
        let fs = start(folder.path());
        let above = fs.mkdir(&caller(), ROOT, OsStr::new("above"), 0o755).unwrap().ino;
        let copy = |number: u32| {
            let name = number.to_string();
            let dir = fs.mkdir(&caller(), above, OsStr::new(&name), 0o755).unwrap().ino;
            Some(format!("{name}/{}", copy_in(&fs, dir)?))
        };
        let backing = folder.path().join("backing");
        let records = || {
            let all = std::fs::read_dir(&backing).unwrap().flatten();
            all.filter(|entry| is_temporary(&entry.file_name())).count()
        };
        let Some(mut copies) = (0..20).map(copy).collect::<Option<Vec<String>>>() else { return };
        assert!(records() < 10, "{} records", records());
        let (from, to) = ((ROOT, OsStr::new("above")), (ROOT, OsStr::new("renamed")));
        fs.rename(0, from, to, RenameFlags::empty()).unwrap();
        copies.extend((20..40).map(|number| copy(number).unwrap()));
        drop(fs);
        let left = |copy: &String| backing.join("renamed").join(copy).exists();
        assert!(copies.iter().all(left), "the copies are there after the kill");
        let fs = start(folder.path());
        assert!(!copies.iter().any(left));
        fs.tidy().unwrap();
        assert_eq!(records(), 0);
    }

    /// A record is not followed out of BACKING, whatever stands there since.
    // Promises: Mount 8.
    #[test]
    fn a_record_leads_nowhere_outside() {
        let folder = tempfile::tempdir().unwrap();
        drop(start(folder.path()));
        let (backing, outside) = (folder.path().join("backing"), folder.path().join("outside"));
        std::fs::create_dir(&outside).unwrap();
        let copy = outside.join(temporary(1));
        std::fs::write(&copy, "").unwrap();
        std::os::unix::fs::symlink(&outside, backing.join("link")).unwrap();
        // As an earlier version left them.
        std::fs::create_dir(backing.join(".flashsift/places")).unwrap();
        let absolute = outside.to_str().unwrap();
        for (number, target) in (0..).zip(["../outside", "link", "link/.", absolute, "gone"]) {
            let earlier = format!(".flashsift/places/{number}");
            for record in [earlier, temporary(number)] {
                std::os::unix::fs::symlink(target, backing.join(record)).unwrap();
            }
        }
        start(folder.path()).tidy().unwrap();
        assert!(copy.exists());
        assert!(!backing.join(".flashsift/places").exists());
        assert!(std::fs::symlink_metadata(backing.join(temporary(0))).is_err());
    }

    /// A mount on ext4 gives BACKING an attribute instead of a file. Applications do not see it,
    /// and the end removes it.
    // Promises: Mount 83.
    #[test]
    fn the_mark_of_a_mount_is_invisible_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let Some(fs) = start_without_files(folder.path()) else {
            println!("SKIPPED: only ext4 needs no file");
            return;
        };
        let backing = folder.path().join("backing");
        let marked = || is_marked(File::open(&backing).unwrap());
        assert!(!marked());
        fs.mkdir(&caller(), ROOT, OsStr::new("dir"), 0o755).unwrap();
        assert!(marked());
        let name = OsStr::new(MARK);
        assert_eq!(fs.get_xattr(ROOT, name), Err(Errno::NODATA));
        assert_eq!(fs.set_xattr(&caller(), ROOT, name, b"2", 0), Err(Errno::PERM));
        assert_eq!(fs.remove_xattr(ROOT, name), Err(Errno::NODATA));
        fs.set_xattr(&caller(), ROOT, OsStr::new("user.a"), b"b", 0).unwrap();
        let listed = fs.list_xattr(ROOT).unwrap();
        assert!(!listed.windows(MARK.len()).any(|part| part == MARK.as_bytes()));
        assert!(listed.ends_with(b"user.a\0"));
        fs.tidy().unwrap();
        assert!(!marked());
    }

    /// Applications neither see nor use the name of a copy, and can remove its directory.
    // Promises: Mount 8.
    #[test]
    fn copies_are_invisible() {
        let folder = tempfile::tempdir().unwrap();
        let fs = start(folder.path());
        let dir = fs.mkdir(&caller(), ROOT, OsStr::new("dir"), 0o755).unwrap().ino;
        let before = fs.attr(dir).unwrap().mtime;
        let Some(copy) = copy_in(&fs, dir) else { return };
        let name = OsStr::new(&copy);
        assert_eq!(fs.attr(dir).unwrap().mtime, before, "the directory keeps its time");
        assert!(fs.list(dir).unwrap().1.is_empty());
        assert_eq!(fs.lookup(dir, name), Err(Errno::NOENT));
        assert_eq!(fs.unlink(0, dir, name), Err(Errno::NOENT));
        assert_eq!(fs.create(&caller(), dir, name, 0o644, 0).unwrap_err(), Errno::PERM);
        assert_eq!(fs.mkdir(&caller(), dir, name, 0o755), Err(Errno::PERM));
        fs.mkdir(&caller(), ROOT, OsStr::new("other"), 0o755).unwrap();
        let (from, to) = ((ROOT, OsStr::new("other")), (ROOT, OsStr::new("dir")));
        fs.rename(0, from, to, RenameFlags::empty()).unwrap();
        let dir = fs.lookup(ROOT, OsStr::new("dir")).unwrap().ino;
        copy_in(&fs, dir).unwrap();
        fs.rmdir(ROOT, OsStr::new("dir")).unwrap();
        fs.tidy().unwrap();
        fs.check();
    }
}
