//! Operations on names: create, link, rename, remove and list.
//!
//! A file in RAM is renamed and removed in the table alone, and may hide a file of BACKING under
//! its name. A new directory waits in RAM with its files, as long as nothing else is done with it.
//! All other operations are performed in BACKING at once. If an operation would have to change both
//! together, the file is written back first.

use super::Fs;
use super::backing;
use super::beneath::HIDDEN;
use super::caller::{User, as_caller};
use super::decider::At;
use super::delayed_file::DelayedFile;
use super::descriptors::may_open;
use super::namespace::Namespace;
use super::open_files::asks_for_sync;
use super::residence::{FileState, Residence};
use super::table::{self, InRam, LINKS, Table};
use super::temporary::is_temporary;
use super::types::{Attr, Caller, Entry, Ino, Name, Opened, ROOT};
use flashsift_events::event::{Action, Create, FileId, FileOwner, MaybeOwned, OpenId};
use flashsift_files::sift::{Birth, FILE_COST_BYTES};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::{Errno, Result};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::num::NonZero;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// Directories that have so many others in them get no more in RAM.
const LINKS_IN_RAM: u32 = 60_000;
/// Longest name, bytes: no file system for flash allows more.
const NAME_BYTES: usize = 255;

/// A file that is being created.
#[derive(Clone, Copy)]
struct Created<'a> {
    file: FileId,
    name: (Ino, &'a OsStr),
    sync: bool,
}

impl Created<'_> {
    fn with<'a>(self, name: MaybeOwned<'a, str>, owner: FileOwner, mode: Mode) -> Create<'a> {
        let mode = Some(mode.as_raw_mode() & 0o7777);
        Create { file: self.file, name, owner: Some(owner), mode, sync: self.sync }
    }
}

/// Files on flash of which changes wait, and which a rename would put in the place of another.
fn replaces_while_waiting(
    table: &mut Namespace,
    from: (Ino, &OsStr),
    to: (Ino, &OsStr),
    flags: RenameFlags,
) -> Vec<(Ino, Arc<FileState>)> {
    if table.waiting().is_empty() {
        return Vec::new();
    }
    let [source, target] = [from, to].map(|(dir, name)| match table.in_ram(dir, name) {
        Some(in_ram) => Some(in_ram.ino),
        None if table.new_directory(dir, name).is_some() => None,
        None => {
            let stat = table.in_backing(dir, name).ok()??;
            Some(table.known_as(stat.st_ino))
        }
    });
    let exchanged = target.filter(|_| flags.contains(RenameFlags::EXCHANGE));
    let moved = source.filter(|_| target.is_some()).into_iter().chain(exchanged);
    moved.filter_map(|ino| Some((ino, table.waiting().get(&ino)?.clone()))).collect()
}

/// Checks that this name may be created.
fn permitted(parent: Ino, name: &OsStr) -> Result<()> {
    if name.len() > NAME_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    // Ours. That it is not to be had is better said than found out.
    let ours = (parent == ROOT && name == HIDDEN) || is_temporary(name);
    if ours { Err(Errno::PERM) } else { Ok(()) }
}

impl Fs {
    /// Creates and opens a regular file.
    ///
    /// The kernel asks for this only if it knows no file of that name, so it has not checked
    /// whether the caller may open an existing one. Such a file is therefore not opened here:
    /// `ESTALE` makes the kernel look the name up again, check the permissions and ask for an open.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the name exists, or `EEXIST` with `O_EXCL`; `ENAMETOOLONG`; `EPERM` for the name
    /// of the internal directory; `ENOSPC` if flash has no space or no inode for the file; any
    /// error of BACKING.
    pub fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(Attr, OpenId, Opened)> {
        self.before_name(parent, name)?;
        let at = self.decider.begin_open(caller.tid);
        let opening = OFlags::from_bits_retain(flags as u32);
        may_open(&self.backing.root)?;
        self.make_room_for_file();
        let mut table = self.table();
        match table.find(parent, name) {
            Ok(ino) => {
                table.drop_unused(ino);
                return Err(match opening.contains(OFlags::EXCL) {
                    true => Errno::EXIST,
                    false => Errno::STALE,
                });
            }
            Err(Errno::NOENT) => (),
            Err(error) => return Err(error),
        }
        let (ino, id, file) =
            self.make_file(&mut table, at, caller, parent, name, mode, asks_for_sync(flags))?;
        let file_state = table.share(ino, false).ok_or(Errno::STALE)?;
        if table.is_in_ram(ino) {
            file_state.set_may_wait(self.may_wait(&table, ino, opening));
        }
        file_state.place_to_move().set_file(Some(Arc::new(file)));
        table.count_open(ino);
        let open = self.opened(at, ino, id, file_state.clone(), (true, true));
        file_state.is_created_by(open);
        drop(file_state);
        let attr = table.looked_up(ino)?;
        let opened = match table.is_in_ram(ino) {
            true => Opened::InRam,
            false => Opened::Settled { first: !opening.contains(OFlags::APPEND) },
        };
        Ok((attr, open, opened))
    }

    /// In RAM, unless something wants it in BACKING from the start.
    #[expect(clippy::too_many_arguments, reason = "what an application asks for, and when")]
    fn make_file(
        &self,
        table: &mut Namespace,
        at: At,
        caller: &Caller,
        parent: Ino,
        name: &OsStr,
        mode: u32,
        sync: bool,
    ) -> Result<(Ino, FileId, File)> {
        self.backing.refuse_if_read_only()?;
        let dir = table.made_dir(parent)?;
        let number = table.next_number();
        let masked = Mode::from_raw_mode(mode & !caller.umask & 0o7777);
        let gid = dir.as_ref().and_then(|dir| dir.gid).unwrap_or(caller.gid);
        let synchronous = dir.as_ref().is_some_and(|dir| dir.synchronous);
        let sync = sync || synchronous || self.backing.is_synchronous();
        let created = Created { file: table::file_id(number), name: (parent, name), sync };
        let owner = FileOwner { uid: caller.uid, gid };
        let delay_us = self
            .delayed
            .delay_us(table, parent, name)
            .filter(|_| masked.bits() & 0o6000 == 0 && self.delayed.admits(caller.uid))
            .filter(|_| self.delayed.may_log());
        let birth = match delay_us {
            Some(_) => Birth::Ram,
            None => self
                .decider
                .birth(at, table.writes(created.name), |name| created.with(name, owner, masked)),
        };
        // An inherited access control list or flag is BACKING's to make.
        let special = dir.as_ref().is_some_and(|dir| dir.default_acl || dir.apart || dir.inherits);
        let in_ram = birth == Birth::Ram && !special;
        if in_ram {
            table.permits(parent, false)?;
        }
        let in_ram = in_ram && self.has_room_for_file() && !self.mover.lacks_space(table);
        if in_ram && self.reserve_file(table, caller, created.name)? {
            let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            let uid = (caller.uid != own.0).then_some(caller.uid);
            match self.store.create(number, masked, uid, (gid != own.1).then_some(gid)) {
                Ok(file) => {
                    table.born(number);
                    table.name_delayed(number, (parent, name))?;
                    if let Some(delay_us) = delay_us {
                        table.join(number, Arc::new(DelayedFile::new(delay_us, 0)));
                        self.decider.ignore(created.file);
                        self.delayed.delayed_changed();
                    }
                    table.dir_changed(parent);
                    self.counters.lock().born += 1;
                    self.decider.is_in_ram(created.file);
                    self.decider.emit_create(at, table.writes(created.name), |name| {
                        created.with(name, owner, masked)
                    });
                    return Ok((number, created.file, file));
                }
                // The store cannot hold it; or we may not give it to its owner.
                Err(Errno::NOSPC | Errno::PERM) => (),
                Err(error) => return Err(error),
            }
        }
        if table.is_whiteout(parent, name) {
            // BACKING still has another file of this name, and RAM has no space for this one.
            return Err(Errno::NOSPC);
        }
        self.spare_file(table)?;
        self.delayed.direct_change(parent);
        let dir = table.dir(parent)?;
        let mode = if dir.default_acl { Mode::from_raw_mode(mode & 0o7777) } else { masked };
        let flags = OFlags::CREATE
            | OFlags::EXCL
            | OFlags::RDWR
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | self.backing.without_atime();
        let file = as_caller(caller, || rustix::fs::openat(&dir, name, flags, mode))?;
        let stat = rustix::fs::fstat(&file)?;
        let ino = table.settled(stat.st_ino);
        table.name(ino, parent, &Name::from(name));
        self.counters.lock().born_settled += 1;
        table.identify_as(ino, number);
        let owner = FileOwner { uid: stat.st_uid, gid: stat.st_gid };
        let mode = Mode::from_raw_mode(stat.st_mode);
        let path = table.writes(created.name);
        self.decider.emit_create(at, path, |name| created.with(name, owner, mode));
        if birth == Birth::Ram && delay_us.is_none() {
            self.decider.is_on_flash(created.file);
        }
        Ok((ino, created.file, File::from(file)))
    }

    /// Reserves space on flash for one more file in RAM. `false` if only root may use what is left:
    /// root's file is then created on flash.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there is no space or no inode for it.
    fn reserve_file(
        &self,
        table: &Table,
        caller: &Caller,
        (dir, name): (Ino, &OsStr),
    ) -> Result<bool> {
        let space = table.space_for_name(dir, name);
        let user = User { uid: caller.uid, gid: caller.gid };
        match self.reservation.take_file(table.inodes_in_ram(), space) {
            Err(Errno::NOSPC)
                if user.may_use_reserved() && self.reservation.has_space_for_root() =>
            {
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Whether one more file fits into the budget, also an empty one.
    fn has_room_for_file(&self) -> bool {
        !self.do_files_count()
            || self.store.usage().is_ok_and(|(used, budget)| used + FILE_COST_BYTES <= budget)
    }

    /// Writes the oldest files back if RAM has no space for one more. If that fails, the new file
    /// is created on flash.
    fn make_room_for_file(&self) {
        if !self.has_room_for_file() {
            let _ = self.mover.make_room(FILE_COST_BYTES);
        }
    }

    /// Checks that BACKING has an inode to spare that no file in RAM will need.
    fn spare_file(&self, table: &Table) -> Result<()> {
        match table.inodes_in_ram() {
            0 => Ok(()),
            in_ram => self.backing.spare_files(in_ram).map(drop),
        }
    }

    /// Creates a regular file, a FIFO, a socket or a device.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `ENAMETOOLONG`, `ENOSPC`, and the errors of BACKING's file system.
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &OsStr,
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        let kind = FileType::from_raw_mode(mode);
        let device = rustix::fs::makedev(rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xfff00);
        if kind != FileType::RegularFile {
            return self.make(caller, parent, name, mode, |dir, mode| {
                rustix::fs::mknodat(dir, name, kind, mode, device)
            });
        }
        self.before_name(parent, name)?;
        self.make_room_for_file();
        let mut table = self.table();
        if let Ok(ino) = table.find(parent, name) {
            table.drop_unused(ino);
            return Err(Errno::EXIST);
        }
        let at = self.decider.begin_open(caller.tid);
        let (ino, ..) = self.make_file(&mut table, at, caller, parent, name, mode, false)?;
        table.looked_up(ino)
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// `EEXIST`, and the errors of BACKING's file system.
    pub fn mkdir(&self, caller: &Caller, parent: Ino, name: &OsStr, mode: u32) -> Result<Attr> {
        self.before_name(parent, name)?;
        self.make_room_for_file();
        let mut table = self.table();
        if let Some(ino) = self.mkdir_in_ram(&mut table, caller, (parent, name), mode)? {
            return table.looked_up(ino);
        }
        drop(table);
        self.make(caller, parent, name, mode, |dir, mode| rustix::fs::mkdirat(dir, name, mode))
    }

    /// Creates a directory that waits in RAM. `None`: it is to be made in BACKING at once.
    fn mkdir_in_ram(
        &self,
        table: &mut Namespace,
        caller: &Caller,
        (parent, name): (Ino, &OsStr),
        mode: u32,
    ) -> Result<Option<Ino>> {
        let may_wait = self.writes_wait[0]
            && self.backing.volume.directories_may_wait()
            && !self.backing.is_synchronous()
            && !self.delayed.is_used()
            && (table.new_directories().len() as u64) < self.mover.directories_in_ram()
            && self.has_room_for_file()
            && !self.mover.lacks_space(table);
        if !may_wait {
            return Ok(None);
        }
        match table.find(parent, name) {
            Ok(ino) => {
                table.drop_unused(ino);
                return Err(Errno::EXIST);
            }
            Err(Errno::NOENT) => (),
            Err(error) => return Err(error),
        }
        self.backing.refuse_if_read_only()?;
        if !self.takes_new_directory(table, parent, name)? {
            return Ok(None);
        }
        table.permits(parent, false)?;
        let space = table.space_for_directory(name);
        match self.reservation.take_file(table.inodes_in_ram(), space) {
            Err(Errno::NOSPC) => return Ok(None),
            taken => taken?,
        }
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let uid = (caller.uid != own.0).then_some(caller.uid);
        let gid = (caller.gid != own.1).then_some(caller.gid);
        let mode = Mode::from_raw_mode(mode & !caller.umask & 0o1777);
        let ino = table.next_directory_number();
        match self.store.create_directory(ino, mode, uid, gid) {
            // The store cannot hold it; or we may not give it to its owner.
            Err(Errno::NOSPC | Errno::PERM) => return Ok(None),
            made => made?,
        }
        table.born_directory(ino, (parent, &Name::from(name)));
        table.dir_changed(parent);
        self.mover.directory_waits(ino, table.new_directories().len() as u64);
        Ok(Some(ino))
    }

    /// Whether a directory may wait in RAM under this name.
    fn takes_new_directory(&self, table: &mut Namespace, into: Ino, name: &OsStr) -> Result<bool> {
        if self.write_through.matches(&table.path(into, name)) {
            return Ok(false);
        }
        let Some(dir) = table.made_dir(into)? else { return Ok(true) };
        let special = dir.default_acl || dir.apart || dir.inherits || dir.synchronous;
        // Only BACKING knows how many directories another may have in it.
        Ok(!special && dir.gid.is_none() && table.attr_of(into)?.nlink < LINKS_IN_RAM)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    ///
    /// `EEXIST`, and the errors of BACKING's file system.
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &OsStr,
        target: &OsStr,
    ) -> Result<Attr> {
        self.make(caller, parent, name, 0o777, |dir, _| rustix::fs::symlinkat(target, dir, name))
    }

    /// Creates an object that lives in BACKING from the start.
    fn make(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &OsStr,
        mode: u32,
        make: impl FnOnce(&backing::OpenDir, Mode) -> Result<()>,
    ) -> Result<Attr> {
        self.before_name(parent, name)?;
        let mut table = self.table();
        let closer = match table.is_whiteout(parent, name) {
            true => {
                drop(table);
                let closer = self.delayed.fence()?;
                table = self.table();
                Some(closer)
            }
            false => None,
        };
        let dir = table.dir(parent)?;
        let in_ram = table.in_ram(parent, name).is_some();
        if in_ram || table.new_directory(parent, name).is_some() {
            return Err(Errno::EXIST);
        }
        self.spare_file(&table)?;
        self.delayed.direct_change(parent);
        let mode = Mode::from_raw_mode(if dir.default_acl {
            mode & 0o7777
        } else {
            mode & !caller.umask & 0o7777
        });
        as_caller(caller, || make(&dir, mode))?;
        drop(closer);
        let ino = table.find(parent, name)?;
        table.looked_up(ino)
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the file is no symbolic link. `ESTALE`: it is gone from BACKING.
    pub fn readlink(&self, ino: Ino) -> Result<OsString> {
        let mut table = self.table();
        let path = table.path_of(ino)?;
        Ok(OsString::from_vec(rustix::fs::readlinkat(&path, "", Vec::new())?.into_bytes()))
    }

    /// Creates a further name for a file.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `EMLINK`, and the errors of BACKING's file system.
    pub fn link(&self, tid: u32, ino: Ino, parent: Ino, name: &OsStr) -> Result<Attr> {
        self.before_name(parent, name)?;
        let at = self.decider.begin(tid);
        self.delayed.bound_open_files();
        loop {
            let mut table = self.table();
            table.make_directory(ino)?;
            let dir = table.made_dir(parent)?;
            if table.in_ram(parent, name).is_some() || table.in_backing(parent, name)?.is_some() {
                return Err(Errno::EXIST);
            }
            let in_group = !table.has_many_names(ino)
                && self.delayed.delay_us(&mut table, parent, name).is_some();
            if self.delayed.is_whiteout_or_crosses(&mut table, ino, (parent, name), in_group)? {
                drop(table);
                match self.links_between_epochs(at, ino, (parent, name))? {
                    Some(linked) => return Ok(linked),
                    None => continue,
                }
            }
            let node = table.node(ino).ok_or(Errno::STALE)?;
            match node.residence() {
                Residence::Gone(_) => return Err(Errno::NOENT),
                Residence::Flash(_) => {
                    return self.link_in_backing(&mut table, at, ino, (parent, name));
                }
                _ if node.names.is_empty() => return Err(Errno::NOENT),
                _ if node.names.len() >= LINKS || dir.is_some_and(|dir| dir.decides()) => {
                    drop(table);
                    self.mover.settle_now(&[ino])?;
                    continue;
                }
                _ => {
                    self.backing.refuse_if_read_only()?;
                    table.permits(parent, false)?;
                    self.reserve_name(&table, (parent, name))?;
                    table.is_renamed(ino);
                    table.name_delayed(ino, (parent, name))?;
                    if let Some(file) = table.delayed_file(ino) {
                        file.touched();
                        self.delayed.delayed_changed();
                    }
                    table.dir_changed(parent);
                    self.store.touch(ino)?;
                }
            }
            table.emit_link(at, ino, (parent, name));
            return table.looked_up(ino);
        }
    }

    /// Answers an unlink by the announcing process; `None`: another thread asks.
    fn announced(&self, tid: u32, parent: Ino, name: &OsStr) -> Option<Result<()>> {
        if !self.mover.drops.is_announcer(tid) {
            return None;
        }
        let mut table = self.table();
        let gone = self.mover.drops.take(parent, name)
            && table.in_ram(parent, name).is_none()
            && matches!(table.in_backing(parent, name), Ok(None));
        Some(if gone { Ok(()) } else { Err(Errno::BUSY) })
    }

    /// Removes the name of a file that is no directory.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `EISDIR`, and the errors of BACKING's file system.
    pub fn unlink(&self, tid: u32, parent: Ino, name: &OsStr) -> Result<()> {
        if let Some(answer) = self.announced(tid, parent, name) {
            return answer;
        }
        let at = self.decider.begin(tid);
        let mut table = self.table();
        if self.unlink_delayed(&mut table, at, parent, name)? {
            return Ok(());
        }
        if table.in_ram(parent, name).is_some() {
            self.backing.refuse_if_read_only()?;
            table.permits(parent, true)?;
            return self.mover.unlink_in_ram(&mut table, at, parent, name);
        }
        let stat = table.in_backing(parent, name)?.ok_or(Errno::NOENT)?;
        let dir = table.dir(parent)?;
        self.delayed.direct_change(parent);
        rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
        table.lost_name(at, parent, name, &stat);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// `ENOTEMPTY`: names in RAM count too. `ENOENT`, `ENOTDIR`, and the errors of BACKING's file
    /// system.
    pub fn rmdir(&self, parent: Ino, name: &OsStr) -> Result<()> {
        let mut table = self.table();
        if let Some(ino) = table.new_directory(parent, name) {
            return self.rmdir_in_ram(&mut table, parent, ino);
        }
        let stat = table.in_backing(parent, name)?;
        let below = stat.map(|stat| table.known_as(stat.st_ino));
        let mut closer = None;
        if let Some(below) = below.filter(|below| table.has_whiteouts(*below)) {
            if self.removes_later(&mut table, (parent, name), below)? {
                return Ok(());
            }
            drop(table);
            closer = Some(self.delayed.fence()?);
            table = self.table();
        }
        self.delayed.direct_change(parent);
        let dir = table.dir(parent)?;
        if table.in_ram(parent, name).is_some() {
            return Err(Errno::NOTDIR);
        }
        let stat = table.in_backing(parent, name)?.ok_or(Errno::NOENT)?;
        if table.has_names_in_ram(table.known_as(stat.st_ino)) {
            return Err(Errno::NOTEMPTY);
        }
        let remove = || rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR);
        match remove() {
            Err(Errno::NOTEMPTY | Errno::EXIST)
                if table.temps.may_be_in(table.known_as(stat.st_ino))
                    && self.backing.remove_copies_in(&dir, name) =>
            {
                remove()?;
            }
            done => done?,
        }
        table.lost_name(self.decider.begin(0), parent, name, &stat);
        drop(closer);
        Ok(())
    }

    /// Hides a directory in which BACKING has names that are gone, until an epoch has removed them.
    /// False: BACKING has to see it now.
    fn removes_later(
        &self,
        table: &mut Namespace,
        (parent, name): (Ino, &OsStr),
        below: Ino,
    ) -> Result<bool> {
        if !table.dir(parent)?.takes_temps {
            return Ok(false);
        }
        let inside = table.dir(below)?;
        self.backing.refuse_if_read_only()?;
        table.permits(parent, true)?;
        let is_left = |(_, kind, name): &(u64, FileType, Box<OsStr>)| {
            let is_copy = is_temporary(name) && *kind != FileType::Directory;
            !is_copy && !table.is_whiteout(below, name)
        };
        if table.has_names_in_ram(below) || backing::list(&*inside)?.iter().any(is_left) {
            return Err(Errno::NOTEMPTY);
        }
        table.remove_dir_later(below, (parent, name));
        table.dir_changed(parent);
        Ok(true)
    }

    /// Before a program gives this name to another file: BACKING may still have a directory there.
    fn before_name(&self, parent: Ino, name: &OsStr) -> Result<()> {
        permitted(parent, name)?;
        let hides = self.table().hides_removed_dir(parent, name);
        if hides { self.delayed.fence().map(drop) } else { Ok(()) }
    }

    /// Removes a directory that BACKING never had.
    fn rmdir_in_ram(&self, table: &mut Namespace, parent: Ino, ino: Ino) -> Result<()> {
        if table.has_names_in_ram(ino) {
            return Err(Errno::NOTEMPTY);
        }
        self.backing.refuse_if_read_only()?;
        table.permits(parent, true)?;
        let attr = table.attr_of(ino)?;
        table.remove_new_directory(ino);
        for (dir, name) in table.node(ino).map(|node| node.names.clone()).unwrap_or_default() {
            table.unname(ino, dir, &name);
        }
        table.vanish(ino, None, attr, None);
        table.dir_changed(parent);
        self.store.remove_directory(ino)
    }

    /// Moves a name, over another where `flags` do not forbid it; or exchanges two.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `ENOTEMPTY`, `ENOENT`, `EINVAL` for unknown flags, and the errors of BACKING's
    /// file system.
    pub fn rename(
        &self,
        tid: u32,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        flags: RenameFlags,
    ) -> Result<()> {
        self.before_name(to.0, to.1)?;
        let at = self.decider.begin(tid);
        self.delayed.bound_open_files();
        let mut has_written = false;
        loop {
            let mut table = self.table();
            // A crash must not leave the name to a part of the file's content.
            if !has_written {
                has_written = true;
                let waiting = replaces_while_waiting(&mut table, from, to, flags);
                drop(table);
                for (ino, file_state) in waiting {
                    let done = self.mover.write_waiting_first(ino, &file_state);
                    self.table().release(ino, file_state);
                    done?;
                }
                table = self.table();
            }
            if self.rename_delayed(&mut table, at, from, to, flags)? {
                return Ok(());
            }
            if self.delayed.crosses_group(&mut table, &[from, to])? {
                let others = [from, to].map(|(dir, name)| table.in_ram(dir, name));
                let others: Vec<Ino> = others.into_iter().flatten().map(|it| it.ino).collect();
                drop(table);
                self.mover.settle_now(&others)?;
                let done = self.delayed.between_epochs(&[from, to], |table| {
                    let in_ram = |(dir, name)| table.in_ram(dir, name).is_some();
                    match in_ram(from) || in_ram(to) {
                        true => Err(Errno::AGAIN),
                        false => self.rename_in_backing(table, at, from, to, flags),
                    }
                });
                if done == Err(Errno::AGAIN) {
                    continue;
                }
                return done;
            }
            if let Some(ino) = table.new_directory(from.0, from.1)
                && self.rename_new_directory(&mut table, at, ino, from, to, flags)?
            {
                return Ok(());
            }
            let (source, target) = (table.in_ram(from.0, from.1), table.in_ram(to.0, to.1));
            let apart = source.is_some() && table.made_dir(to.0)?.is_some_and(|dir| dir.decides());
            let mut first = Vec::new();
            if flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT) {
                first.extend(source.iter().chain(&target).map(|in_ram| in_ram.ino));
            } else if let Some(InRam { ino, .. }) = source
                && apart
            {
                // BACKING decides whether the file may be renamed to there.
                first.push(ino);
            } else if let Some(InRam { ino, hides: Some(_) }) = source {
                // The file that it hides must neither reappear nor be deleted before this one is in
                // BACKING.
                first.push(ino);
            }
            if first.is_empty() {
                return match source {
                    Some(source) => self.rename_in_ram(&mut table, at, source, from, to, flags),
                    None => self.rename_in_backing(&mut table, at, from, to, flags),
                };
            }
            drop(table);
            self.mover.settle_now(&first)?;
        }
    }

    /// Renames a directory that waits in RAM, where it stays with all that is in it. `false`:
    /// BACKING has to rename it.
    fn rename_new_directory(
        &self,
        table: &mut Namespace,
        at: At,
        ino: Ino,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        flags: RenameFlags,
    ) -> Result<bool> {
        let no_replace = flags == RenameFlags::NOREPLACE;
        if !(flags.is_empty() || no_replace) || !self.takes_new_directory(table, to.0, to.1)? {
            return Ok(false);
        }
        let replaced = table.new_directory(to.0, to.1);
        let is_taken = replaced.is_some()
            || table.in_ram(to.0, to.1).is_some()
            || table.in_backing(to.0, to.1)?.is_some();
        match replaced {
            _ if is_taken && no_replace => return Err(Errno::EXIST),
            Some(replaced) if replaced == ino => return Ok(true),
            Some(replaced) if table.has_names_in_ram(replaced) => return Err(Errno::NOTEMPTY),
            None if is_taken => return Ok(false),
            _ => {}
        }
        self.backing.refuse_if_read_only()?;
        table.permits(from.0, true)?;
        table.permits(to.0, replaced.is_some())?;
        if self.reservation.take_exactly(table.space_for_directory(to.1)).is_err() {
            return Ok(false);
        }
        if let Some(replaced) = replaced {
            self.rmdir_in_ram(table, to.0, replaced)?;
        }
        self.decider.emit_rename(at, None, table.writes(from), table.writes(to));
        table.move_new_directory(ino, (to.0, &Name::from(to.1)));
        table.dir_changed(from.0);
        table.dir_changed(to.0);
        self.store.touch(ino)?;
        Ok(true)
    }

    fn rename_in_ram(
        &self,
        table: &mut Namespace,
        at: At,
        source: InRam,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        flags: RenameFlags,
    ) -> Result<()> {
        // The directory has to be there.
        let new_dir = table.made_dir(to.0)?;
        let target = table.in_ram(to.0, to.1);
        let hidden = table.in_backing(to.0, to.1)?;
        if flags.contains(RenameFlags::NOREPLACE) && (target.is_some() || hidden.is_some()) {
            return Err(Errno::EXIST);
        }
        if target.is_some_and(|target| target.ino == source.ino) {
            return Ok(());
        }
        self.backing.refuse_if_read_only()?;
        table.permits(from.0, true)?;
        table.permits(to.0, target.is_some() || hidden.is_some())?;
        if hidden.is_some()
            && let Some(new_dir) = new_dir
        {
            // The write-back could not replace it.
            new_dir.permits_removal_of(to.1)?;
        }
        if target.is_none() {
            self.reserve_name(table, to)?;
        }
        if target.is_some() {
            self.mover.remove_name_in_ram(table, at, to.0, to.1)?;
        } else if let Some(stat) = &hidden {
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                return Err(Errno::ISDIR);
            }
            // The file stays in BACKING, but it is hidden from now on.
            table.lost_name(at, to.0, to.1, stat);
        }
        let file = table.file(source.ino);
        self.decider.emit_rename(at, file, table.writes(from), table.writes(to));
        table.is_renamed(source.ino);
        table.remove_in_ram(from.0, from.1);
        table.unname(source.ino, from.0, from.1);
        let hides = hidden.and_then(|stat| NonZero::new(stat.st_ino));
        table.insert_in_ram(to.0, &Name::from(to.1), InRam { ino: source.ino, hides });
        table.dir_changed(from.0);
        table.dir_changed(to.0);
        self.store.touch(source.ino)
    }

    fn rename_in_backing(
        &self,
        table: &mut Namespace,
        at: At,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        flags: RenameFlags,
    ) -> Result<()> {
        let (dir, new_dir) = (table.dir(from.0)?, table.dir(to.0)?);
        let source = table.in_backing(from.0, from.1)?.ok_or(Errno::NOENT)?;
        let target = table.in_ram(to.0, to.1);
        let there = table.in_backing(to.0, to.1)?;
        let is_directory =
            |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if flags.contains(RenameFlags::NOREPLACE) && (target.is_some() || there.is_some()) {
            return Err(Errno::EXIST);
        }
        if target.is_some() {
            if is_directory(&source) {
                return Err(Errno::NOTDIR);
            }
            // Two names of one file: nothing would be renamed, but what hides one has to go.
            if there.as_ref().is_some_and(|there| there.st_ino == source.st_ino) {
                table.remove_hidden(to.0, to.1)?;
            }
        } else if let Some(there) = &there {
            if there.st_ino == source.st_ino && !flags.contains(RenameFlags::EXCHANGE) {
                return Ok(());
            }
            let replaced = table.known_as(there.st_ino);
            if is_directory(there)
                && !flags.contains(RenameFlags::EXCHANGE)
                && table.has_names_in_ram(replaced)
            {
                return Err(if is_directory(&source) { Errno::NOTEMPTY } else { Errno::ISDIR });
            }
        }
        if is_directory(&source) {
            table.records_follow(table.known_as(source.st_ino), to);
        }
        if let Some(there) = &there
            && flags.contains(RenameFlags::EXCHANGE)
            && is_directory(there)
        {
            table.records_follow(table.known_as(there.st_ino), from);
        }
        self.delayed.direct_change(from.0);
        self.delayed.direct_change(to.0);
        let rename = || rustix::fs::renameat_with(&dir, from.1, &new_dir, to.1, flags);
        match rename() {
            Err(Errno::NOTEMPTY | Errno::EXIST)
                if there.as_ref().is_some_and(|there| {
                    is_directory(there) && table.temps.may_be_in(table.known_as(there.st_ino))
                }) && !flags.contains(RenameFlags::NOREPLACE)
                    && self.backing.remove_copies_in(&new_dir, to.1) =>
            {
                rename()?;
            }
            done => done?,
        }
        if target.is_some() {
            self.mover.remove_name_in_ram(table, at, to.0, to.1)?;
        }
        let known = |table: &Table, backing_ino| {
            let ino = table.known_as(backing_ino);
            let known = table.residence(ino).and_then(Residence::backing_ino);
            (known == Some(backing_ino)).then_some(ino)
        };
        match &there {
            Some(there) if flags.contains(RenameFlags::EXCHANGE) => {
                table.emit_exchange(at, (&source, from), (there, to));
                if let Some(ino) = known(table, there.st_ino) {
                    table.unname(ino, to.0, to.1);
                    table.name(ino, from.0, &Name::from(from.1));
                }
            }
            Some(there) if target.is_none() => table.lost_name(at, to.0, to.1, there),
            _ => (),
        }
        if !flags.contains(RenameFlags::EXCHANGE) {
            table.emit_moved(at, &source, from, to);
        }
        if let Some(ino) = known(table, source.st_ino) {
            table.unname(ino, from.0, from.1);
            table.name(ino, to.0, &Name::from(to.1));
        }
        Ok(())
    }

    /// All names in a directory, without `.` and `..`; and the number of the one it is in.
    ///
    /// # Errors
    ///
    /// The directory cannot be read, or is gone from BACKING (`ESTALE`).
    pub fn list(&self, ino: Ino) -> Result<(Ino, Vec<Entry>)> {
        let mut table = self.table();
        let dir = table.made_dir(ino)?;
        let parent =
            table.node(ino).and_then(|node| node.names.first()).map_or(ROOT, |(parent, _)| *parent);
        let mut entries = Vec::new();
        let in_backing = dir.map_or(Ok(Vec::new()), backing::list)?;
        for (backing_ino, kind, name) in in_backing {
            let ours = (ino == ROOT && *name == *HIDDEN) || is_temporary(&name);
            let hidden = table.in_ram(ino, &name).is_some() || table.is_whiteout(ino, &name);
            if ours || hidden {
                continue;
            }
            entries.push(Entry { ino: table.known_as(backing_ino), kind, name: name.into() });
        }
        entries.extend(table.all_in_ram(ino).map(|(name, in_ram)| Entry {
            ino: in_ram.ino,
            kind: FileType::RegularFile,
            name: name.as_ref().into(),
        }));
        entries.extend(table.new_directories_in(ino).map(|(name, ino)| Entry {
            ino: *ino,
            kind: FileType::Directory,
            name: name.as_ref().into(),
        }));
        Ok((parent, entries))
    }

    /// Makes the names in this directory durable, and the files in RAM under them with their
    /// content; but those that are still being written are as they were when they were created.
    ///
    /// # Errors
    ///
    /// A file in RAM below it cannot be written back, or the directory cannot be made or synced.
    pub fn fsync_dir(&self, tid: u32, ino: Ino) -> Result<()> {
        let at = self.decider.begin(tid);
        self.backing.flushes.directory_synced();
        let (dir, mut in_ram, waits) = {
            let mut table = self.table();
            if table.removed_directory(ino).is_some() {
                return Ok(());
            }
            if table.removed_dirs_in(ino) > 0 {
                drop(table);
                drop(self.delayed.fence()?);
                table = self.table();
            }
            table.make_directories_in(ino)?;
            let waits = self.delayed.is_delayed_directory(&table, ino);
            let in_ram: Vec<Ino> = table.all_in_ram(ino).map(|(_, in_ram)| in_ram.ino).collect();
            (table.dir(ino)?, in_ram, waits)
        };
        in_ram.retain(|file| !self.mover.place_name_alone(*file));
        for file in in_ram.iter().filter_map(|ino| self.table().file(*ino)) {
            self.decider
                .emit(at, Action::Sync { file, offset: 0, len: u64::MAX, data_only: false });
        }
        let (delayed, in_ram) = self.delayed.partition_delayed(in_ram, |ino| *ino);
        for ino in delayed {
            let file = self.table().delayed_file(ino);
            file.map_or(Ok(()), |file| self.delayed.sync_delayed(&file))?;
        }
        if waits {
            return self.delayed.sync_removals(ino);
        }
        self.delayed.forget_direct_changes(ino);
        self.mover.settle_synced(&in_ram)?;
        self.mover.keep_times(|_, dir| dir == ino);
        if !self.backing.volume.one_sync_covers_earlier() && self.table().has_new_names() {
            // The names could become durable without the content of their files.
            self.backing.sync_all(true)?;
        }
        self.backing.fsync_dir(&dir, true)
    }
}

#[cfg(test)]
mod tests;
