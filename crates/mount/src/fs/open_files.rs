//! Open files: reading, writing, syncing.

use super::Fs;
use super::caller::{User, as_user};
use super::decider::At;
use super::delayed_file::{Change, Covered};
use super::descriptors::{may_open, open_share};
use super::mover::{Job, Mover};
use super::namespace::Namespace;
use super::opens::Open;
use super::reservation::EXTENT_BYTES;
use super::residence::{FileState, Place, Residence};
use super::store::Scratch;
use super::table::Node;
use super::types::{Access, Ino, Opened, errno};
use super::waiting::{self, Waiting};
use flashsift_events::event::{Action, FileId, OpenId};
use flashsift_events::names::{is_kept_mapped, is_synced_database};
use flashsift_events::page::PAGE_BYTES;
use flashsift_events::structure::extents::pages_touched;
use flashsift_files::sift::meaning::{self, FileParts};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Fs {
    /// Opens a regular file for reading and writing. The caller checks the permissions.
    ///
    /// # Errors
    ///
    /// `ESTALE`: the file is gone from BACKING. The errors of opening it there.
    pub fn open(&self, tid: u32, ino: Ino) -> Result<(OpenId, Opened)> {
        self.open_as(tid, ino, OFlags::RDWR.bits() as i32)
    }

    /// The same with these flags of `open`.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn open_as(&self, tid: u32, ino: Ino, flags: i32) -> Result<(OpenId, Opened)> {
        let at = self.decider.begin_open(tid);
        may_open(&self.backing.root)?;
        let mut table = self.table();
        let flags = OFlags::from_bits_retain(flags as u32);
        let (file_state, opened) = self.hold(&mut table, ino, flags)?;
        match self.identity(&mut table, at, ino, &file_state) {
            Ok(file) => {
                let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
                Ok((self.opened(at, ino, file, file_state, (false, writes)), opened))
            }
            Err(error) => {
                self.unhold(&mut table, at, ino);
                Err(error)
            }
        }
    }

    /// Registers an open file description; the table must be locked.
    pub(crate) fn opened(
        &self,
        at: At,
        ino: Ino,
        file: FileId,
        file_state: Arc<FileState>,
        (created, writes): (bool, bool),
    ) -> OpenId {
        if writes {
            file_state.count_writer(true);
        }
        let passthrough = AtomicBool::new(false);
        let open = self.opens.insert(Open { ino, file, file_state, writes, passthrough });
        self.decider.emit(at, Action::Open { file, open: Some(open), created });
        open
    }

    /// Its identity in the event stream.
    fn identity(
        &self,
        table: &mut Namespace,
        at: At,
        ino: Ino,
        file_state: &FileState,
    ) -> Result<FileId> {
        if let Some(file) = table.file(ino) {
            return Ok(file);
        }
        let place = file_state.place();
        let size = rustix::fs::fstat(place.file().ok_or(Errno::BADF)?)?.st_size as u64;
        Ok(table.introduce(at, ino, size))
    }

    /// The file is open once more, if only for this program itself.
    fn hold(
        &self,
        table: &mut Namespace,
        ino: Ino,
        flags: OFlags,
    ) -> Result<(Arc<FileState>, Opened)> {
        let file_state = self.delayed.file_state(table, ino)?;
        if table.node(ino).is_some_and(|node| node.opens == 0) {
            file_state.set_may_wait(self.may_wait(table, ino, flags));
        }
        let mut place = file_state.place_to_move();
        let node = table.node(ino).ok_or(Errno::STALE)?;
        let (is, opens) = (node.residence().clone(), node.opens);
        if place.file().is_none() {
            place.set_file(Some(match is {
                Residence::Flash(backing_ino) => Arc::new(table.open_settled(ino, backing_ino)?),
                Residence::Gone(_) => return Err(Errno::STALE),
                _ => self.store.open(ino)?,
            }));
        }
        let opened = if place.residence().is_in_ram()
            || file_state.is_in_group()
            || (opens == 0 && file_state.may_wait(true))
        {
            Opened::InRam
        } else {
            // The kernel's own file would keep O_APPEND when a process clears it.
            let stays = !flags.contains(OFlags::APPEND);
            Opened::Settled { first: opens == 0 && stays && table.names_are_durable(ino) }
        };
        drop(place);
        table.count_open(ino);
        Ok((file_state, opened))
    }

    /// Which writes to a file that is on flash, or gets there while it is open, may wait: appends,
    /// and others. `flags` are those of its first open. If any may, every access to it is to be
    /// seen. A file that is open for reading as well is likely to be read, which the kernel does
    /// faster.
    pub(super) fn may_wait(&self, table: &Namespace, ino: Ino, flags: OFlags) -> [bool; 2] {
        let [appends_wait, others_wait] = self.writes_wait;
        let Some(node) = table.node(ino).filter(|_| appends_wait) else { return [false; 2] };
        let is_mapped = || {
            others_wait
                && node.names.iter().any(|(_, name)| is_kept_mapped(&name.to_string_lossy()))
        };
        if node.residence().is_in_ram()
            || node.file_state().is_some_and(|it| it.waiting().is_some())
        {
            return [true, is_mapped()];
        }
        if self.is_write_through(table, node) {
            return [false; 2];
        }
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let only_writes = flags.contains(OFlags::WRONLY) && !flags.contains(OFlags::APPEND);
        let others = (others_wait && only_writes) || is_mapped();
        [writes && (others || flags.contains(OFlags::APPEND)), writes && others]
    }

    /// Space in RAM for the changes of a file on flash, if they may wait.
    fn begin_waiting(&self, ino: Ino, file: &File) -> Option<Scratch> {
        if !waiting::may_wait(file) || self.backing.is_synchronous() {
            return None;
        }
        let table = self.table();
        let node = table.node(ino)?;
        let is_on_flash = matches!(node.residence(), Residence::Flash(_));
        let may = is_on_flash && !self.is_write_through(&table, node);
        (may && table.waiting().len() < open_share()).then(|| self.store.scratch().ok())?
    }

    /// Whether a file never lives in RAM because of a name.
    fn is_write_through(&self, table: &Namespace, node: &Node) -> bool {
        let mut paths = node.names.iter().map(|(dir, name)| table.path(*dir, name));
        paths.any(|path| is_synced_database(&path) || self.write_through.matches(&path))
    }

    /// Whether an open with these flags of `open` may change its file: BACKING may be read-only, or
    /// the file immutable or append-only. The kernel knows neither. `O_TRUNC` does not matter here,
    /// since the kernel truncates by a request of its own.
    ///
    /// # Errors
    ///
    /// `EROFS` if BACKING is read-only; `EPERM` if the file's flags forbid such an open.
    pub(crate) fn permits(&self, open: OpenId, flags: i32) -> Result<()> {
        let flags = OFlags::from_bits_retain(flags as u32);
        if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return Ok(());
        }
        self.backing.refuse_if_read_only()?;
        let Some(file) = self.settled_file(open) else { return Ok(()) };
        let ours = rustix::fs::fcntl_getfl(&file)?;
        let appends = ours.contains(OFlags::APPEND) && !flags.contains(OFlags::APPEND);
        if !ours.contains(OFlags::RDWR) || appends { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Runs `hand_over`, which gives a file on flash to the kernel, as the user whose space the
    /// kernel then uses for every open of the file: all opens share one descriptor. The space that
    /// file systems keep for root is used only if no other user may write to the file.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the file is not known; the error of `hand_over`.
    pub(crate) fn in_space_of<T>(
        &self,
        ino: Ino,
        (uid, gid): (u32, u32),
        hand_over: impl FnOnce() -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let attr = self.attr(ino)?;
        let only_root = attr.uid == 0 && !attr.permissions().intersects(Mode::WGRP | Mode::WOTH);
        let user = match (uid, attr.uid) {
            (0, _) if only_root => User::ROOT,
            (0, 0) => User::NOBODY,
            (0, owner) => User { uid: owner, gid: attr.gid },
            _ => User { uid, gid },
        };
        as_user(user, || Ok(hand_over()))?
    }

    /// Number of opens of a file.
    pub(crate) fn count_opens(&self, ino: Ino) -> u32 {
        self.table().node(ino).map_or(0, |node| node.opens)
    }

    /// The open file on flash, which the kernel may read and write without us; `None` for a file in
    /// RAM.
    pub fn settled_file(&self, open: OpenId) -> Option<Arc<File>> {
        let open = self.opens.get(open)?;
        let place = open.file_state.place();
        place.file().filter(|_| !place.residence().is_in_ram()).cloned()
    }

    /// Records that this open has passthrough. `writes`: it may write.
    pub(crate) fn set_passed_through(&self, open: OpenId, writes: bool) {
        if writes {
            self.backing.flushes.unseen_open();
        }
        if let Some(open) = self.opens.get(open) {
            open.passthrough.store(true, Ordering::Relaxed);
        }
    }

    /// Ends an open. Returns whether it had passthrough.
    pub fn release(&self, tid: u32, open: OpenId) -> bool {
        let at = self.decider.begin(tid);
        let content = self.file_parts(open);
        let mut table = self.table();
        let Some(ended) = self.opens.get(open) else { return false };
        if let Some(content) = &content
            && self.decider.tells_meaning
            && let Some((dir, name)) = table.node(ended.ino).and_then(|node| node.names.first())
            && let Some(meaning) = meaning::of(&table.path(*dir, name), content)
        {
            self.decider.emit(at, meaning.told(ended.file));
        }
        // The number is free for others after its close.
        self.decider.emit(at, Action::Close { file: ended.file, open: Some(open) });
        drop(self.opens.remove(open));
        ended.file_state.is_closed_by(open);
        if ended.writes {
            ended.file_state.count_writer(false);
        }
        let (ino, passthrough) = (ended.ino, ended.passthrough.load(Ordering::Relaxed));
        let file = ended.file;
        drop(ended);
        self.unhold(&mut table, at, ino);
        drop(table);
        if let Some(content) = content {
            self.decider.closed(file, &content);
        }
        passthrough
    }

    /// The parts of an open file in RAM that tell its content, if someone wants to know them.
    fn file_parts(&self, open: OpenId) -> Option<FileParts> {
        if !self.decider.wants_content() {
            return None;
        }
        let open = self.opens.get(open)?;
        let (file, in_ram) = open.file_state.open().ok()?;
        in_ram.as_ref()?;
        let size = file.metadata().ok()?.len();
        let read = |at, part: &mut [u8]| file.read_exact_at(part, at);
        FileParts::read(size, read).ok().filter(|_| size > 0)
    }

    /// It is open once less.
    fn unhold(&self, table: &mut Namespace, at: At, ino: Ino) {
        if table.count_close(ino) != Some(0) {
            return;
        }
        if let Some(file_state) = table.node(ino).and_then(Node::file_state) {
            let file = file_state.place_to_move().set_file(None);
            table.close_later(file);
        }
        table.end_waiting(ino);
        table.release_unused(ino);
        if table.is_unreachable(ino) {
            self.mover.remove_from_ram(table, at, ino);
        } else {
            if matches!(table.residence(ino), Some(Residence::Gone(_))) {
                table.emit_end(at, ino);
            }
            table.drop_unused(ino);
        }
    }

    fn at_open(&self, open: OpenId) -> Result<Arc<Open>> {
        self.opens.get(open).ok_or(Errno::BADF)
    }

    /// Reads as many bytes as there are, up to the length of `bytes`. Takes no lock that users of
    /// another file take.
    ///
    /// # Errors
    ///
    /// The errors of reading the file: `EIO` and others.
    pub fn read(
        &self,
        access: Access,
        open: OpenId,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize> {
        let at = self.decider.begin(access.tid);
        let it = self.at_open(open)?;
        let (file, stays) = it.file_state.open()?;
        let waiting = it.file_state.waiting().filter(|_| stays.is_none());
        // On flash a read does not wait for a slow write, so a read may follow a truncation that it
        // overlaps.
        let in_order = stays.is_some() || waiting.is_some();
        let _order = in_order.then(|| it.file_state.order.read());
        let delayed = stays.as_ref().and_then(|place| place.residence().delayed().cloned());
        let (mut read, all) = match (&delayed, &waiting) {
            (Some(delayed), _) => (delayed.read(&file, offset, bytes)?, true),
            (None, Some(waiting)) => (waiting.read(offset, bytes)?, true),
            (None, None) => (0, false),
        };
        while !all && read < bytes.len() {
            match file.read_at(&mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
                Err(error) if read == 0 => return Err(errno(&error)),
                Err(_) => break,
            }
        }
        let (file, open, len) = (it.file, Some(open), read as u64);
        self.decider.emit(
            at,
            match access.is_direct() {
                true => Action::Direct { file, open, offset, len, write: false },
                false => Action::Read { file, open, offset, len },
            },
        );
        Ok(read)
    }

    /// Writes as many of the bytes as there is space for, durably if the file is open with `O_SYNC`
    /// or `O_DSYNC`.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such open; `ENOSPC` if flash has no space for the bytes, apart from
    /// what it keeps for root; `EROFS` if BACKING is read-only, unless the kernel had accepted the
    /// bytes before; `EFBIG`; any error of the sync or of BACKING.
    pub fn write(&self, access: Access, open: OpenId, offset: u64, bytes: &[u8]) -> Result<usize> {
        let at = self.decider.begin(access.tid);
        let it = self.at_open(open)?;
        let sync = asks_for_sync(access.flags);
        let user = match access.cached {
            false => User { uid: access.uid, gid: access.gid },
            // The space counts as the owner's: another user who may write is not known here.
            true => self.owner_of(&it)?,
        };
        if !access.cached {
            self.backing.refuse_if_read_only()?;
        }
        let flags = OFlags::from_bits_retain(access.flags as u32);
        let appends = flags.contains(OFlags::APPEND);
        let waits = !sync && !access.is_direct() && it.file_state.may_wait(appends);
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            let offset = offset + written as u64;
            let saw = |_: &File, len: &usize| {
                let (file, open, len) = (it.file, Some(open), *len as u64);
                self.decider.emit(
                    at,
                    match access.is_direct() {
                        true => Action::Direct { file, open, offset, len, write: true },
                        false => Action::Write { file, open, offset, len, sync },
                    },
                );
            };
            let end = offset.saturating_add(rest.len() as u64);
            let write = |file: &File| file.write_at(rest, offset).map_err(|error| errno(&error));
            let change = Change::Write { offset, len: rest.len() as u64 };
            let of = (it.ino, &it.file_state);
            match self.change_bytes(user, of, change, waits, rest.len() as u64, end, write, saw) {
                Ok(more) => written += more,
                Err(Errno::INTR) => (),
                Err(Errno::NOSPC) if self.continues_on_flash(user, &it) => (),
                Err(error) => {
                    if access.cached {
                        it.file_state.loses(error);
                    }
                    match written {
                        0 => return Err(error),
                        _ => break,
                    }
                }
            }
        }
        if sync {
            // `O_SYNC` is `O_DSYNC` and one bit more, which asks for the times, too.
            self.make_durable_now(&it, !flags.contains(OFlags::SYNC))?;
        }
        Ok(written)
    }

    /// Writes root's file back if only the blocks that are kept for root are left: on flash it may
    /// take them. Returns whether the file has moved.
    fn continues_on_flash(&self, user: User, open: &Open) -> bool {
        user.may_use_reserved()
            && open.file_state.is_in_ram()
            && self.reservation.has_space_for_root()
            && self.mover.settle(&[Job::later(open.ino)]).is_ok()
            && !open.file_state.is_in_ram()
    }

    fn owner_of(&self, open: &Open) -> Result<User> {
        let (file, _stays) = open.file_state.open()?;
        let stat = rustix::fs::fstat(&file)?;
        Ok(User { uid: stat.st_uid, gid: stat.st_gid })
    }

    /// Changes a file's bytes where the file is at the moment, and then runs `saw` with the file's
    /// order still held. If RAM is full, the oldest files are written back first; if flash is full,
    /// the change fails. The space on flash is that user's. If the file is on flash, the change
    /// `waits` in RAM, as far as it can.
    #[expect(clippy::too_many_arguments, reason = "a change, and what it needs")]
    fn change_bytes<T: Covered>(
        &self,
        user: User,
        (ino, file_state): (Ino, &Arc<FileState>),
        change: Change,
        mut waits: bool,
        bytes: u64,
        end: u64,
        act: impl Fn(&File) -> Result<T>,
        emit: impl Fn(&File, &T),
    ) -> Result<T> {
        let in_order = |file: &File, place: Option<&Place>| {
            let _order = file_state.order.write();
            let done = match place.and_then(|place| place.residence().delayed()) {
                Some(delayed) => delayed.change(file, change, || act(file)),
                None => act(file),
            };
            if let Ok(done) = &done {
                file_state.reserves(change);
                emit(file, done);
            }
            done
        };
        // `None`: RAM has no space.
        let on_flash = |file: &Arc<File>, waits: bool, ram: Option<Scratch>| {
            let _order = file_state.order.write();
            let mut waiting = file_state.waiting();
            if let (Some(ram), None) = (ram, &waiting) {
                waiting = Waiting::begin(file.clone(), ram).ok().map(Arc::new);
                file_state.set_waiting(waiting.clone());
            }
            let done = match waiting {
                Some(waiting) => waiting.change(change, waits, self.decider.now(), &act),
                None => Some(act(file)),
            };
            if let Some(Ok(done)) = &done {
                emit(file, done);
            }
            done
        };
        if let Change::Write { offset, len } = change {
            self.reserve_extent(ino, file_state, offset, len)?;
        }
        let (mut asked_for_room, mut begins) = (false, false);
        loop {
            self.delayed.join_group(ino, file_state)?;
            let epoch = file_state.is_in_group().then(|| self.delayed.gate.read());
            let gate = file_state.gate.read();
            let (file, stays) = file_state.open()?;
            let Some(stays) = stays else {
                drop(gate);
                if file_state.is_in_group() {
                    // It has just left RAM.
                    continue;
                }
                let is_new = file_state.waiting().is_none();
                let is_write = matches!(change, Change::Write { .. });
                waits = waits
                    && self.backing.holds_file_of(end)?
                    && self.reservation.take(bytes).is_ok();
                let ram = (waits && is_write && is_new).then(|| self.begin_waiting(ino, &file));
                if matches!(ram, Some(None)) {
                    file_state.set_may_wait([false; 2]);
                }
                let ram = ram.flatten();
                begins |= ram.is_some();
                let Some(done) = as_user(user, || Ok(on_flash(&file, waits, ram)))? else {
                    waits = !asked_for_room && self.mover.make_room(bytes).is_ok();
                    asked_for_room = true;
                    continue;
                };
                self.waits_now(ino, file_state, begins);
                return done;
            };
            if !self.backing.holds_file_of(end)? {
                return Err(Errno::FBIG);
            }
            let handed_over = matches!(stays.residence(), Residence::HandedOver);
            if !handed_over {
                if !asked_for_room && self.files_leave_too_little(bytes)? {
                    drop(stays);
                    drop(gate);
                    drop(epoch);
                    asked_for_room = true;
                    // Without success only the kernel's limit counts, which is that of the
                    // content.
                    let _ = self.mover.make_room(bytes);
                    continue;
                }
                self.reservation.take(bytes)?;
            }
            // The bytes of a file that was handed over take blocks of flash at once.
            let done = match handed_over {
                true => as_user(user, || in_order(&file, None)),
                false => in_order(&file, Some(&*stays)),
            };
            file_state.changed();
            if stays.residence().delayed().is_some() {
                self.delayed.delayed_changed();
            }
            if handed_over || !matches!(done, Err(Errno::NOSPC)) {
                return done;
            }
            drop(stays);
            drop(gate);
            drop(epoch);
            // Its pages are free only when it is closed, if it leaves RAM now.
            drop(file);
            self.mover.make_room(bytes)?;
        }
    }

    /// A file on flash has changed: the change may wait, for the first time if it `begins`.
    fn waits_now(&self, ino: Ino, file_state: &Arc<FileState>, begins: bool) {
        let Some(waiting) = file_state.waiting() else { return };
        if begins {
            let mut table = self.table();
            table.begin_waiting(ino, file_state);
            if let Some(file) = table.file(ino) {
                self.decider.is_in_ram(file);
            }
        }
        if let Some(since_us) = waiting.since_us() {
            self.mover.waits_since(since_us);
        }
        let allowed_bytes = self.allowed_bytes.load(Ordering::Relaxed);
        let is_short = allowed_bytes < self.budget_bytes && self.held_bytes() > allowed_bytes;
        if is_short || Mover::is_much_waiting(&waiting, allowed_bytes) {
            // If this fails, they wait on: a sync has the error, or their time.
            let _ = self.mover.write_waiting(&waiting, false);
        }
    }

    /// Reserves space on flash for the extent that a write into a hole may be.
    fn reserve_extent(
        &self,
        ino: Ino,
        file_state: &FileState,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let pages = pages_touched(offset, len);
        if file_state.goes_on(pages.clone()) {
            return Ok(());
        }
        // Else it is on flash.
        let Ok(stat) = self.store.stat(ino) else { return Ok(()) };
        let (size, held) = ((stat.st_size as u64).div_ceil(PAGE_BYTES), stat.st_blocks as u64 / 8);
        let is_dense = held >= size && pages.start <= size;
        if is_dense || !self.table().may_need_extent(ino, held + 1) {
            return Ok(());
        }
        self.reservation.take_exactly(EXTENT_BYTES)?;
        self.table().add_extent(ino);
        Ok(())
    }

    /// Whether these bytes exceed the budget because of what files take besides their content. The
    /// kernel limits the content alone. An eighth of the budget is not worth the question.
    fn files_leave_too_little(&self, bytes: u64) -> Result<bool> {
        if bytes == 0 || !self.do_files_count() {
            return Ok(false);
        }
        let (used, budget) = self.store.usage()?;
        Ok(used + bytes > budget)
    }

    /// Whether what files take besides their content matters for the budget.
    pub(crate) fn do_files_count(&self) -> bool {
        self.store.files_bytes() >= self.budget_bytes / 8
    }

    /// Truncates or extends a file to `size`.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the file is not known; `EFBIG` if flash takes no file of this size; any error of
    /// BACKING or of the store.
    pub(crate) fn resize(&self, at: At, ino: Ino, size: u64) -> Result<()> {
        // The process that has it open may be about to close it.
        let mut table = self.table();
        let (file_state, _) = self.hold(&mut table, ino, OFlags::empty())?;
        let file = self.identity(&mut table, at, ino, &file_state);
        drop(table);
        let done = file.and_then(|file| {
            let cut = |file: &File| {
                if rustix::fs::fstat(file)?.st_size as u64 > size {
                    // Its new content must not be lost for longer than the one that it replaces.
                    file_state.overwrites_go_on();
                }
                rustix::fs::ftruncate(file, size)
            };
            let of = (ino, &file_state);
            self.change_bytes(User::ROOT, of, Change::Resize(size), true, 0, size, cut, |_, ()| {
                self.decider.emit(at, Action::Truncate { file, size })
            })
        });
        if done.is_ok() && size == 0 {
            file_state.emptied();
        }
        drop(file_state);
        self.unhold(&mut self.table(), at, ino);
        done
    }

    /// Makes the file's content and names durable. From now on the file lives on flash.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such open; the error of the write-back or the sync. If the kernel
    /// could not write bytes that were stored through a mapping, the error of that write, until the
    /// file is truncated to nothing or closed by all: the kernel itself reports it only once.
    pub fn fsync(&self, tid: u32, open: OpenId, data_only: bool) -> Result<()> {
        let it = self.at_open(open)?;
        self.decider.emit(
            self.decider.begin(tid),
            Action::Sync { file: it.file, offset: 0, len: u64::MAX, data_only },
        );
        self.make_durable_now(&it, data_only)?;
        it.file_state.check_lost_writes()
    }

    fn make_durable_now(&self, open: &Open, data_only: bool) -> Result<()> {
        let delayed = open.file_state.place().residence().delayed().cloned();
        if let Some(delayed) = delayed {
            self.delayed.note_delayed_sync(open.ino);
            return self.delayed.sync_delayed(&delayed);
        }
        let was_in_ram = open.file_state.is_in_ram();
        self.mover.settle_synced(&[open.ino])?;
        if let Some(waiting) = open.file_state.waiting() {
            self.mover.write_waiting(&waiting, true)?;
        }
        // Not held meanwhile: a sync may take long, and a file on flash does not move.
        let (file, in_ram) = {
            let (file, stays) = open.file_state.open()?;
            (file, stays.is_some())
        };
        match in_ram {
            // The file has no name, so no process can open it after a crash.
            true => Ok(()),
            false => match open.file_state.synced().filter(|_| was_in_ram) {
                // The write-back, which came after this request, has made it durable, or could not.
                Some(done) => done,
                // It makes no name durable.
                None if data_only && self.table().names_are_durable(open.ino) => {
                    self.backing.fdatasync(&file)
                }
                None => self.mover.fsync_settled(open.ino, &file),
            },
        }
    }

    /// Reserves, frees or shifts a part of a file. The flags of `access` do not matter.
    ///
    /// # Errors
    ///
    /// Those of a write; `EOPNOTSUPP` if BACKING does not know `mode`.
    pub fn fallocate(
        &self,
        access: Access,
        open: OpenId,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<()> {
        let at = self.decider.begin(access.tid);
        let user = User { uid: access.uid, gid: access.gid };
        self.backing.refuse_if_read_only()?;
        let it = self.at_open(open)?;
        let flags = FallocateFlags::from_bits_retain(mode);
        let in_ram = it.file_state.is_in_ram() || it.file_state.is_in_group();
        if in_ram && flags.contains(FallocateFlags::ZERO_RANGE) {
            // tmpfs knows only these two. A file of a group would have no other way.
            let keeps = FallocateFlags::KEEP_SIZE;
            let punch = (FallocateFlags::PUNCH_HOLE | keeps).bits();
            self.fallocate(access, open, offset, len, punch)?;
            return self.fallocate(access, open, offset, len, (flags & keeps).bits());
        }
        let takes = if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE)
        {
            0
        } else {
            len
        };
        let end = offset.saturating_add(len);
        let size = |file: &File| -> Result<u64> { Ok(rustix::fs::fstat(file)?.st_size as u64) };
        let allocate = |file: &File| -> Result<[u64; 2]> {
            let before = size(file)?;
            rustix::fs::fallocate(file, flags, offset, len)?;
            Ok([before, size(file)?])
        };
        let saw = |_: &File, sizes: &[u64; 2]| {
            self.emit_allocated(at, it.file, flags, (offset, len), *sizes)
        };
        let change = Change::Allocate { offset, len, flags };
        let of = (it.ino, &it.file_state);
        let done = self.change_bytes(user, of, change, false, takes, end, allocate, saw);
        if done == Err(Errno::OPNOTSUPP) && it.file_state.is_in_ram() {
            // tmpfs knows only some of what BACKING may know.
            self.mover.settle(&[Job::later(it.ino)])?;
            return self.change_bytes(user, of, change, false, takes, end, allocate, saw).map(drop);
        }
        done.map(drop)
    }

    /// Ranges that were freed, zeroed or shifted hold none of the bytes that were written there.
    fn emit_allocated(
        &self,
        at: At,
        file: FileId,
        flags: FallocateFlags,
        (offset, len): (u64, u64),
        [before, after]: [u64; 2],
    ) {
        if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            self.decider.emit(at, Action::Punch { file, offset, len });
        } else if flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
            self.decider
                .emit(at, Action::Punch { file, offset, len: before.saturating_sub(offset) });
        }
        if before != after {
            self.decider.emit(at, Action::Truncate { file, size: after });
        }
    }

    /// Start of the next data or the next hole.
    ///
    /// # Errors
    ///
    /// `ENXIO`: there is no more data or the offset is behind the end.
    pub fn seek(&self, open: OpenId, offset: u64, hole: bool) -> Result<u64> {
        let it = self.at_open(open)?;
        let (file, stays) = it.file_state.open()?;
        let waiting = it.file_state.waiting().filter(|_| stays.is_none());
        let is_delayed = stays.is_some_and(|place| place.residence().delayed().is_some());
        if is_delayed || waiting.is_some() {
            // A hole in RAM may be data in BACKING. Everything counts as data.
            let size = match waiting {
                Some(waiting) => waiting.size(),
                None => rustix::fs::fstat(&file)?.st_size as u64,
            };
            return match offset < size {
                true => Ok(if hole { size } else { offset }),
                false => Err(Errno::NXIO),
            };
        }
        rustix::fs::seek(&file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) })
    }
}

/// Whether the flags of `open` require every write to be durable: one or both bits of `O_SYNC`.
pub(crate) fn asks_for_sync(flags: i32) -> bool {
    OFlags::from_bits_retain(flags as u32).intersects(OFlags::SYNC)
}
