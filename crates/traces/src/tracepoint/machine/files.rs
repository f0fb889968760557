//! The life of files: creation, truncation, sync, deletion.

use super::{
    super::{EnteredCall, Handle, Inode, Name, NameKind, What, inodes::Kind},
    Host, NoHost, TracepointMachine,
};
use crate::events::Skip;
use flashsift_events::{
    event::{Action, Event, FileId},
    page::PAGE_BYTES,
};

const SHIFTED: Skip =
    Skip::Note("collapse or insert of a range: all pages behind it are taken as gone");

impl TracepointMachine {
    pub(super) fn synced(&mut self, tid: u32, inode: Inode, data_only: bool, host: &mut dyn Host) {
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = self.file(inode);
        if !self.is_in_scope(tid, file) {
            return;
        }
        // No report of a name gives the kind of a directory from before the trace.
        if self.files[file].kind == Kind::Unknown
            && let Some(is_directory) = host.is_directory(inode)
        {
            let kind = if is_directory { Kind::Directory } else { Kind::Regular };
            self.files[file].kind = kind;
        }
        if self.files[file].kind == Kind::Directory {
            let known = self.files[file].names.first().map(|(_, path)| path.to_string());
            let path = known.or_else(|| host.path(inode)).unwrap_or_default();
            return self.emit(tid, Action::SyncDirectory { path: path.into() });
        }
        let file = self.id(tid, file);
        // The write to which the sync belongs (O_SYNC) was emitted just before.
        if matches!(
            self.thread(tid).call,
            Some(EnteredCall::Write { .. } | EnteredCall::Copy { .. })
        ) && let Some(Event { action: Action::Write { file: of, sync, .. }, tid: by, .. }) =
            self.out.last_mut()
            && (*of, *by) == (file, tid)
        {
            *sync = true;
            return;
        }
        self.emit(tid, Action::Sync { file, offset: 0, len: u64::MAX, data_only });
    }

    pub(super) fn allocated(
        &mut self,
        tid: u32,
        inode: Inode,
        dir: Option<u64>,
        mode: Option<u16>,
        host: &mut dyn Host,
    ) {
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = match self.files.current(inode) {
            // A scan of the directory after this point had already found it.
            Some(file) if self.files[file].older && self.files[file].found_ns > self.now_ns => {
                self.files[file].older = false;
                file
            }
            Some(_) => {
                // The end of the previous file was lost.
                self.gone(tid, inode);
                self.files.begin(inode, false)
            }
            None => self.files.begin(inode, false),
        };
        let f = &mut self.files[file];
        f.kind = mode.map_or(Kind::Unknown, Kind::new);
        if self.under.is_some() {
            let inside = dir.map(|ino| self.dirs.contains(&Inode { dev: inode.dev, ino }));
            f.inside = inside;
            if inside == Some(true) && f.kind == Kind::Directory {
                self.dirs.insert(inode);
            }
        }
        let names = match self.files[file].handle {
            Some(_) => Vec::new(),
            None => self.binding.allocated(inode, file, dir),
        };
        let mut names = names.into_iter();
        if let Some(first) = names.next() {
            self.files[file].handle = Some(first.handle);
            self.named(file, &first);
            // The report about that name comes later, in the order of the reports.
            for name in names {
                let queue = match name.kind {
                    NameKind::Deleted => &mut self.deleted,
                    _ => &mut self.later,
                };
                let at = queue.partition_point(|other| other.at_ns <= name.at_ns);
                queue.insert(at, name);
            }
        }
        if matches!(self.files[file].kind, Kind::Regular | Kind::Unknown)
            && self.is_in_scope(tid, file)
        {
            self.emit_creation(tid, file, host);
        }
    }

    /// The kernel lets go of an inode: to free memory, or because its last name is gone.
    pub(super) fn inactive(&mut self, inode: Inode) {
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let Some(file) = self.files.current(inode) else { return };
        let handle = self.files[file].handle;
        let is_it = |name: &Name| Some(name.handle) == handle;
        while let Some(n) = self.deleted.iter().position(is_it) {
            let name = self.deleted.remove(n).expect("it is there");
            self.went(&name);
        }
        while let Some((_, path)) = self.files[file].names.first().cloned() {
            let over =
                |name: &Name| matches!(name.kind, NameKind::Moved { .. }) && name.path == path;
            if !self.catch_up(over) {
                break;
            }
        }
        // A kernel thread may do it, long after the last close.
        if self.files[file].was_named && self.files[file].names.is_empty() {
            self.gone(0, inode);
        }
    }

    /// A file begins with its first name.
    pub(super) fn begins_named(&mut self, name: &Name) -> u32 {
        let Handle { inode, .. } = name.handle;
        if self.files.current(inode).is_some() {
            // The end of the previous file was not reported.
            self.gone(0, inode);
        }
        let file = self.files.begin(inode, false);
        self.binding.bind(name.handle, file);
        self.files[file].handle = Some(name.handle);
        self.files[file].kind = if name.directory { Kind::Directory } else { Kind::Regular };
        self.named(file, name);
        if !name.directory && self.is_in_scope(name.tid, file) {
            self.emit_creation(name.tid, file, &mut NoHost);
        }
        file
    }

    pub(super) fn gone(&mut self, tid: u32, inode: Inode) {
        if let Some(file) = self.files.current(inode) {
            // The name was perhaps replaced by a rename.
            while let Some((_, path)) = self.files[file].names.first().cloned() {
                let over =
                    |name: &Name| matches!(name.kind, NameKind::Moved { .. }) && name.path == path;
                if !self.catch_up(over) {
                    break;
                }
            }
        }
        let Some(file) = self.files.end(inode, self.now_ns) else { return };
        for (_, path) in std::mem::take(&mut self.files[file].names) {
            self.unbound(tid, file, path);
        }
        if let Some(file) = self.files[file].id {
            self.emit(tid, Action::Gone { file });
        }
        match self.files[file].handle {
            Some(handle) => {
                self.binding.gone(handle, self.now_ns);
                self.files.forget(file);
            }
            None => self.nameless.push_back((self.now_ns, file)),
        }
    }

    pub(super) fn unlinked(&mut self, tid: u32, inode: Inode, dir: Option<u64>) {
        if self.block_bytes(inode.dev).is_none() {
            return;
        }
        let file = self.file(inode);
        if self.is_in_scope(tid, file) {
            self.id(tid, file);
        }
        let handle = self.files[file].handle;
        let deleted = self
            .deleted
            .iter()
            .position(|name| Some(name.handle) == handle && dir.is_none_or(|dir| dir == name.dir));
        if let Some(name) = deleted.and_then(|n| self.deleted.remove(n)) {
            if !self.files[file].names.iter().any(|(_, path)| *path == name.path) {
                let along = |came: &Name| {
                    came.directory
                        && name
                            .path
                            .strip_prefix(&*came.path)
                            .is_some_and(|rest| rest.starts_with('/'))
                };
                self.catch_up(|came| came.path == name.path || along(came));
            }
            if self.files[file].names.len() == 1 {
                // Only a file with a name can get another: a link that is still to be reported came
                // before.
                self.catch_up(|came| Some(came.handle) == handle && came.kind == NameKind::Created);
            }
            return self.went(&name);
        }
        // The name is not reported yet. A single known name must be the removed one.
        let mut names = self.files[file]
            .names
            .iter()
            .filter(|(d, _)| dir.is_none_or(|dir| *d == dir || *d == 0));
        if let (Some((_, path)), None) = (names.next(), names.next()) {
            let path = path.clone();
            self.files[file].names.retain(|(_, p)| *p != path);
            self.unbound(tid, file, path);
        }
    }

    pub(super) fn resizes(&mut self, tid: u32, what: &What, host: &mut dyn Host) {
        match *what {
            What::Resize { inode } => {
                let thread = self.thread(tid);
                (thread.resized, thread.wrote) = (Some(inode), Some(inode));
                if let Some(file) = self.files.current(inode) {
                    self.files[file].may_have_grown = true;
                }
            }
            What::TruncateBegin { inode, size: Some(size) } => {
                let thread = self.thread(tid);
                let is_asked = thread.set_attr.take() == Some(inode);
                (thread.cut, thread.wrote) = (Some(inode), Some(inode));
                if let Some(file) = self.life_of(tid, inode) {
                    match is_asked {
                        true => self.truncated(tid, file, size),
                        false => self.resized(tid, file, size),
                    }
                }
            }
            What::Grows { inode, size } => {
                let thread = self.thread(tid);
                if thread.set_attr.take() == Some(inode) {
                    thread.wrote = Some(inode);
                    if let Some(file) = self.life_of(tid, inode) {
                        self.truncated(tid, file, size);
                    }
                }
            }
            What::SetAttr { inode } => self.thread(tid).set_attr = Some(inode),
            What::Asks { size } => {
                let thread = self.thread(tid);
                (thread.asked_size, thread.hurried) = (size, false);
            }
            What::CutInPage { inode, start } => {
                let thread = self.thread(tid);
                let in_page = |size: &u64| size / PAGE_BYTES == start / PAGE_BYTES;
                let asked = thread.asked_size.filter(in_page);
                let hurried = std::mem::take(&mut thread.hurried);
                if let Some(file) = self.life_of(tid, self.on_btrfs(inode)) {
                    let size = asked.unwrap_or(start);
                    // Sizes are known to the page that became dirty. A cut inside the last page
                    // would have written that page: the file has this size already.
                    let pages = self.files[file].size.map(|size| size.div_ceil(PAGE_BYTES));
                    let is_same = size > 0 && pages == Some(size.div_ceil(PAGE_BYTES));
                    if hurried || !is_same {
                        self.truncated(tid, file, size);
                    }
                }
            }
            What::TruncateBegin { inode, size: None } => {
                let thread = self.thread(tid);
                thread.wrote = Some(inode);
                if thread.cut != Some(inode) {
                    thread.cutting = Some(inode);
                }
            }
            What::Cut { inode, block, blocks } => {
                // A punched hole frees some blocks, a truncation all blocks to the end.
                if blocks < u64::from(u32::MAX >> 1)
                    || self.thread(tid).cutting.take_if(|of| *of == inode).is_none()
                {
                    return;
                }
                let Some(block_bytes) = self.block_bytes(inode.dev) else { return };
                let size = block.saturating_mul(block_bytes);
                if let Some(file) = self.life_of(tid, inode) {
                    match self.files[file].size {
                        Some(old) if old <= size => {
                            // Cut inside its last block or, as journald does to show that it has
                            // written, to the size that it has.
                            if size == 0 {
                                self.emptied(tid, file);
                            } else if old.saturating_add(block_bytes) > size {
                                self.tell_size(tid, file, old);
                            }
                        }
                        _ => self.resized(tid, file, size),
                    }
                }
            }
            What::TruncateEnd { inode } => {
                let thread = self.thread(tid);
                thread.cut = None;
                if thread.cutting.take().is_some()
                    && let Some(file) = self.files.current(inode)
                {
                    let f = &self.files[file];
                    if f.size == Some(0) && !f.may_have_grown {
                        self.emptied(tid, file);
                    } else if let Some(size) = f.handle.and_then(|handle| host.size(handle)) {
                        self.resized(tid, file, size);
                    }
                }
            }
            _ => unreachable!("the caller distinguishes the kinds"),
        }
    }

    /// A file is truncated, perhaps to the size that it has: file systems write data then, too.
    fn truncated(&mut self, tid: u32, file: u32, size: u64) {
        match self.files[file].size == Some(size) {
            true => self.tell_size(tid, file, size),
            false => self.resized(tid, file, size),
        }
    }

    pub(super) fn resized(&mut self, tid: u32, file: u32, size: u64) {
        let old = self.files[file].size.replace(size);
        if old == Some(size) {
            return;
        }
        if old.is_none_or(|old| old > size) {
            // The kernel splits a folio that the new end cuts.
            let first = size.div_ceil(PAGE_BYTES);
            self.folios_gone(file, first, u64::MAX - first);
        }
        self.files[file].may_have_grown = false;
        self.tell_size(tid, file, size);
    }

    /// An empty file was cut to nothing. No byte goes, but ext4 will write the file's pages at its
    /// next close.
    fn emptied(&mut self, tid: u32, file: u32) {
        if matches!(self.files[file].kind, Kind::Regular | Kind::Unknown) {
            self.tell_size(tid, file, 0);
        }
    }

    fn tell_size(&mut self, tid: u32, file: u32, size: u64) {
        self.files[file].was_emptied |= size == 0;
        if self.files[file].id.is_some() || self.is_in_scope(tid, file) {
            let file = self.id(tid, file);
            self.emit(tid, Action::Truncate { file, size });
        }
    }

    /// Tells the close of a file that was cut to nothing, which ext4 reports in this way. Without
    /// system calls no other close is known. btrfs writes for a sync, too, and the last page of a
    /// file that it cuts.
    pub(super) fn hurried(&mut self, tid: u32, inode: Inode) {
        let thread = self.thread(tid);
        thread.hurried = thread.asked_size.is_some();
        if self.btrfs != Some(inode.dev)
            && let Some(file) = self.files.current(inode)
            && std::mem::take(&mut self.files[file].was_emptied)
            && let Some(file) = self.files[file].id
        {
            self.emit(tid, Action::Close { file, open: None });
        }
    }

    pub(super) fn allocates(
        &mut self,
        tid: u32,
        inode: Inode,
        (offset, len): (u64, u64),
        mode: u32,
        done: bool,
    ) {
        const KEEP_SIZE: u32 = 1;
        const PUNCH: u32 = 2;
        const COLLAPSE: u32 = 8;
        const ZERO: u32 = 16;
        const INSERT: u32 = 32;
        let end = offset.saturating_add(len);
        if mode & (COLLAPSE | INSERT) != 0 {
            self.skip(SHIFTED);
            self.life(tid, inode, |file| Action::Punch {
                file,
                offset,
                len: i64::MAX as u64 - offset,
            });
            if let Some(file) = self.files.current(inode) {
                let grown = |size: u64| match mode & INSERT {
                    0 => size.saturating_sub(len),
                    _ => size.saturating_add(len),
                };
                self.files[file].size = self.files[file].size.map(grown);
            }
            return;
        }
        // Zeroing a range recreates its pages without a write.
        if mode & (PUNCH | ZERO) != 0 {
            self.punched(inode, offset, len);
            self.life(tid, inode, |file| Action::Punch { file, offset, len });
        }
        if mode & KEEP_SIZE == 0 && mode & PUNCH == 0 {
            self.thread(tid).allocating = Some((inode, end));
            if done {
                self.other(tid, &What::AllocateEnd { inode, done }, &mut NoHost);
            }
        }
    }

    /// The kernel splits a folio that a hole cuts.
    pub(super) fn punched(&mut self, inode: Inode, offset: u64, len: u64) {
        if let Some(file) = self.files.current(inode) {
            let end = offset.saturating_add(len).div_ceil(PAGE_BYTES);
            let first = offset / PAGE_BYTES;
            self.folios_gone(file, first, end - first);
        }
    }

    /// Emits an event of a file that is in the trace or that a recorded thread acts upon.
    pub(super) fn life(
        &mut self,
        tid: u32,
        inode: Inode,
        action: impl FnOnce(FileId) -> Action<'static>,
    ) {
        if let Some(file) = self.life_of(tid, inode) {
            let id = self.id(tid, file);
            self.emit(tid, action(id));
        }
    }

    fn life_of(&mut self, tid: u32, inode: Inode) -> Option<u32> {
        self.block_bytes(inode.dev)?;
        let file = self.files.current(inode)?;
        (self.files[file].id.is_some() || self.is_in_scope(tid, file)).then_some(file)
    }
}
