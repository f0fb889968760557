//! Extended attributes, access control lists among them.

use super::Fs;
use super::backing::is_of_overlay;
use super::beneath::{MARK, proc_path};
use super::caller::{User, as_user, keeps_setgid};
use super::copying::{XATTR_BYTES, xattr_names, xattr_value};
use super::mover::Job;
use super::reservation::ATTRIBUTES_BYTES;
use super::table::Node;
use super::types::{Caller, Changes, Ino, ROOT};
use rustix::fs::{FileType, Mode, XattrFlags};
use rustix::io::{Errno, Result};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Limit of the attributes of a file in RAM, bytes, of which each also counts a fixed overhead.
/// ext4 limits them to a block and the rest of the inode; its smallest blocks are 1 KiB.
const BYTES_IN_RAM: usize = 800;
const BYTES_EACH: usize = 24;

/// Length of an access control list that says no more than a mode, which sets that, bytes.
const MODE_AS_LIST_BYTES: usize = 28;

fn bytes_in_use(path: &Path) -> Result<usize> {
    xattr_names(path)?.iter().try_fold(0, |sum, name| {
        Ok(sum + BYTES_EACH + name.count_bytes() + xattr_value(path, name)?.len())
    })
}

/// Whether this is the attribute that a mount gives BACKING.
fn is_ours(ino: Ino, name: &OsStr) -> bool {
    ino == ROOT && name == MARK
}

/// The path of a file's attributes, and the descriptors that must stay open meanwhile.
struct Where {
    path: PathBuf,
    _open: Option<OwnedFd>,
    _handed_over: Option<Arc<File>>,
    in_ram: bool,
}

impl Fs {
    fn attributes(&self, ino: Ino) -> Result<Where> {
        let mut table = self.table();
        let node = table.node(ino).ok_or(Errno::STALE)?;
        let open = node.file_state().and_then(|file_state| file_state.place().file().cloned());
        if node.residence().is_in_ram() || table.is_new_directory(ino) {
            let held = self.store.handed_over(ino);
            let path = self.store.path(ino);
            return Ok(Where { path, _open: None, _handed_over: held, in_ram: true });
        }
        let path = match open {
            Some(file) => file
                .as_ref()
                .try_clone()
                .map(OwnedFd::from)
                .map_err(|error| super::types::errno(&error))?,
            None => table.path_of(ino)?,
        };
        let path_of_it = proc_path(&path);
        Ok(Where { path: path_of_it, _open: Some(path), _handed_over: None, in_ram: false })
    }

    /// The value of an attribute.
    ///
    /// # Errors
    ///
    /// `ENODATA`: there is no such attribute. `EOPNOTSUPP`, `EACCES`.
    pub fn get_xattr(&self, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        if is_ours(ino, name) {
            return Err(Errno::NODATA);
        }
        self.look(ino, |path| xattr_value(path, name))
    }

    /// The names of all attributes, each with a terminating zero byte.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, and the errors of reading the file's attributes.
    pub fn list_xattr(&self, ino: Ino) -> Result<Vec<u8>> {
        self.look(ino, |path| {
            let mut list = vec![0; XATTR_BYTES];
            let len = rustix::fs::listxattr(path, &mut list[..])?;
            list.truncate(len);
            if ino == ROOT {
                let names = list.split_inclusive(|byte| *byte == 0);
                let shown = names.filter(|name| name.strip_suffix(&[0]) != Some(MARK.as_bytes()));
                list = shown.flatten().copied().collect();
            }
            Ok(list)
        })
    }

    /// The file may be written back, and leave RAM, between the lookup and the access.
    fn look<T>(&self, ino: Ino, look: impl Fn(&Path) -> Result<T>) -> Result<T> {
        loop {
            let at = self.attributes(ino)?;
            match look(&at.path) {
                Err(Errno::NOENT) if at.in_ram => (),
                done => return done,
            }
        }
    }

    /// Sets an extended attribute. An access list clears setgid unless the caller could have set
    /// that bit; the kernel serialises this with other changes of the mode.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the file is not known; `EROFS` if BACKING is read-only; `ENOSPC` if flash has no
    /// space for the attribute; any error of BACKING.
    pub fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        let user = User { uid: caller.uid, gid: caller.gid };
        self.set_any_xattr(user, ino, name, value, flags)?;
        if is_of_overlay(name.as_bytes()) && self.attr(ino)?.kind() == FileType::Directory {
            let mut table = self.table();
            table.keep_below(ino);
            let held = table.in_ram_below(ino);
            drop(table);
            self.mover.settle_now(&held)?;
        }
        if name == "system.posix_acl_access" {
            let attr = self.attr(ino)?;
            if attr.permissions().contains(Mode::SGID) && !keeps_setgid(caller, attr.gid) {
                let mode = (attr.permissions() - Mode::SGID).as_raw_mode();
                self.set_attr(
                    caller.tid,
                    ino,
                    &Changes { mode: Some(mode), ..Changes::default() },
                )?;
            }
        }
        Ok(())
    }

    fn set_any_xattr(
        &self,
        user: User,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        if is_ours(ino, name) {
            return Err(Errno::PERM);
        }
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let adds = BYTES_EACH + name.len() + value.len();
        if name == "security.capability"
            && let Some(file_state) = self.table().node(ino).and_then(Node::file_state)
        {
            // BACKING removes it when the file is written to.
            file_state.set_may_wait([false; 2]);
        }
        let is_mode = name == "system.posix_acl_access" && value.len() == MODE_AS_LIST_BYTES;
        let in_ram = is_mode && geteuid().is_root();
        self.change_xattr(user, ino, adds, in_ram, |path| {
            rustix::fs::setxattr(path, name, value, flags)
        })
    }

    /// Removes an attribute.
    ///
    /// # Errors
    ///
    /// `ENODATA` if there is none; `ESTALE` if the file is not known; `EROFS` if BACKING is
    /// read-only; any error of BACKING.
    pub fn remove_xattr(&self, ino: Ino, name: &OsStr) -> Result<()> {
        if is_ours(ino, name) {
            return Err(Errno::NODATA);
        }
        self.change_xattr(User::ROOT, ino, 0, true, |path| rustix::fs::removexattr(path, name))
    }

    /// `in_ram`: a directory that waits in RAM needs none for this.
    fn change_xattr(
        &self,
        user: User,
        ino: Ino,
        adds: usize,
        in_ram: bool,
        change: impl Fn(&Path) -> Result<()>,
    ) -> Result<()> {
        self.backing.refuse_if_read_only()?;
        let file_state = {
            let mut table = self.table();
            if in_ram && table.is_new_directory(ino) {
                match change(&self.store.path(ino)) {
                    Err(Errno::OPNOTSUPP) => (),
                    done => return done,
                }
            }
            // Those in it must not inherit an access control list that it gets now.
            table.make_directories_in(ino)?;
            self.delayed.file_state(&mut table, ino)?
        };
        self.mover.write_waiting_first(ino, &file_state)?;
        let done = loop {
            let epoch = file_state.is_in_group().then(|| self.delayed.gate.read());
            let gate = file_state.gate.read();
            let at = self.attributes(ino)?;
            if at.in_ram && adds > 0 && !self.table().has_space_for_attributes(ino) {
                self.reservation.take_exactly(ATTRIBUTES_BYTES)?;
                self.table().add_attributes(ino);
            }
            let place = file_state.place();
            if at.in_ram && !place.residence().is_in_ram() {
                // The file was written back just now.
                continue;
            }
            if at.in_ram && adds > 0 && bytes_in_use(&at.path)? + adds > BYTES_IN_RAM {
                drop(place);
                drop(gate);
                if epoch.is_some() {
                    drop(epoch);
                    self.delayed.leave_group(ino, &file_state)?;
                    continue;
                }
                // Only BACKING knows its limit for attributes, also for a file without a name.
                self.mover.settle(&[Job::later(ino)])?;
                continue;
            }
            // Attributes are no part of epochs: the file in BACKING gets them as well.
            let base = place.residence().delayed().and_then(|delayed| delayed.base_file());
            if let Some(base) = base {
                as_user(user, || change(&proc_path(&base)))?;
            }
            let done = match at.in_ram {
                true => change(&at.path),
                false => as_user(user, || change(&at.path)),
            };
            file_state.changed();
            if let Some(delayed) = place.residence().delayed() {
                delayed.extended();
            }
            drop(place);
            drop(gate);
            let in_group = epoch.is_some();
            drop(epoch);
            // Not every tmpfs supports every attribute, and its limit is lower.
            match done {
                Err(Errno::OPNOTSUPP | Errno::NOSPC) if at.in_ram && in_group => {
                    self.delayed.leave_group(ino, &file_state)?;
                }
                Err(Errno::OPNOTSUPP | Errno::NOSPC) if at.in_ram => {
                    self.mover.settle(&[Job::later(ino)])?
                }
                done => break done,
            }
        };
        let mut table = self.table();
        table.close_dir(ino);
        table.release(ino, file_state);
        done
    }
}
