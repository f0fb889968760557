//! Names in the answers to other users: each gets those that it could list itself.
//!
//! The status and the decisions of a sifter name files. Root and the user of the mount get all of
//! them; another user those in directories that it may list, as their modes say. In a directory
//! with an access control list, the mode says nothing of single users and groups: there the rights
//! of all others count.

use super::Fs;
use super::beneath::open_beneath;
use super::types::Status;
use flashsift_events::names::unescape;
use flashsift_files::sift::live::LiveDecision;
use rustix::fs::{OFlags, Stat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

const READ: u32 = 4;
const SEARCH: u32 = 1;
/// The attribute that an access control list is.
const ACL: &str = "system.posix_acl_access";

/// A user that asks for names.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    uid: u32,
    groups: Vec<u32>,
}

impl Reader {
    /// The user of the thread that asks; 0: it is in another pid namespace.
    pub(crate) fn new(uid: u32, gid: u32, tid: u32) -> Reader {
        let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let groups = groups.unwrap_or_default().split_whitespace();
        Reader { uid, groups: groups.filter_map(|one| one.parse().ok()).chain([gid]).collect() }
    }

    fn may(&self, stat: &Stat, has_acl: bool, wanted: u32) -> bool {
        let class = match (stat.st_uid == self.uid, self.groups.contains(&stat.st_gid)) {
            (true, _) => 6,
            (_, true) if !has_acl => 3,
            _ => 0,
        };
        (stat.st_mode >> class) & wanted == wanted
    }
}

/// The directories that were looked at for one answer.
struct Listable<'a> {
    fs: &'a Fs,
    reader: &'a Reader,
    known: HashMap<Vec<u8>, bool>,
}

impl Listable<'_> {
    /// Whether the reader may list the directory that has this name, which is escaped.
    fn shows(&mut self, path: &str) -> bool {
        let path = unescape(path);
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let dir = path[..end].to_vec();
        match self.known.get(&dir) {
            Some(known) => *known,
            None => {
                let found = self.lists(&dir).unwrap_or(false);
                *self.known.entry(dir).or_insert(found)
            }
        }
    }

    fn lists(&self, dir: &[u8]) -> rustix::io::Result<bool> {
        let mut parts = dir.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).peekable();
        let mut open: Option<OwnedFd> = None;
        loop {
            let is_last = parts.peek().is_none();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let here = match &open {
                Some(open) => open,
                None => &open_beneath(&self.fs.backing.root, OsStr::new("."), flags)?,
            };
            let has_acl = rustix::fs::fgetxattr(here, ACL, &mut [0_u8; 0][..]).is_ok();
            let wanted = if is_last { READ | SEARCH } else { SEARCH };
            if !self.reader.may(&rustix::fs::fstat(here)?, has_acl, wanted) {
                return Ok(false);
            }
            match parts.next() {
                None => return Ok(true),
                Some(part) => open = Some(open_beneath(here, OsStr::from_bytes(part), flags)?),
            }
        }
    }
}

impl Fs {
    fn listable<'a>(&'a self, reader: &'a Reader) -> Listable<'a> {
        Listable { fs: self, reader, known: HashMap::new() }
    }

    /// The state of the mount with the names that this reader may know; `None`: all.
    pub(crate) fn status_for(&self, reader: Option<&Reader>) -> Status {
        let mut status = self.status();
        let Some(reader) = reader else { return status };
        let mut listable = self.listable(reader);
        let shown = status.failures.first().is_none_or(|first| listable.shows(&first.path));
        if !shown {
            status.failing = "files of other users".to_owned();
        }
        status.failures.retain(|failure| listable.shows(&failure.path));
        if let Some(sift) = &mut status.sift {
            sift.directories.retain(|of| listable.shows(&of.name));
        }
        status
    }

    /// The last decisions of the sifter on files whose names this reader may know, the newest
    /// first; `None`: all.
    pub(crate) fn decisions_for(&self, reader: Option<&Reader>) -> Vec<LiveDecision> {
        let mut all = self.decider.last_decisions();
        if let Some(reader) = reader {
            let mut listable = self.listable(reader);
            all.retain(|decision| listable.shows(&decision.name));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Store};
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    /// Each user of the machine read the names in a directory of root's with mode 0700, from the
    /// decisions of the sifter.
    // Promises: Mount 34.
    #[test]
    fn a_reader_gets_the_names_that_it_could_list() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [
            ("backing", 0o755),
            ("backing/closed", 0o700),
            ("backing/group", 0o750),
            ("store", 0o700),
        ] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(mode)).unwrap();
        }
        for (name, mode) in [("closed/in", 0o777), ("search", 0o711), ("search/in", 0o755)] {
            let path = folder.path().join("backing").join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("search/in", folder.path().join("backing/link")).unwrap();
        let backing = File::open(folder.path().join("backing")).unwrap();
        let store = Store::in_dir(&folder.path().join("store")).unwrap();
        let fs = Fs::new(backing.into(), store, Config::default()).unwrap();
        let us = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let stranger = Reader { uid: us + 7, groups: vec![group + 7] };
        let member = Reader { groups: vec![group + 7, group], ..stranger.clone() };
        let owner = Reader { uid: us, ..stranger.clone() };
        for (path, may) in [
            ("/a", [true; 3]),
            ("/closed", [true; 3]),
            ("/closed/a", [false, false, true]),
            ("/closed/in/a", [false, false, true]),
            ("/group/a", [false, true, true]),
            ("/search/a", [false, false, true]),
            ("/search/in/a", [true; 3]),
            ("/link/a", [false; 3]),
            ("/gone/a", [false; 3]),
            ("/../a", [false; 3]),
        ] {
            let shows = [&stranger, &member, &owner].map(|of| fs.listable(of).shows(path));
            assert_eq!(shows, may, "{path}");
        }
    }
}
