//! The calls that take more than a few lines.

use super::{
    Action, CallMachine, Create, Description, Dir, Done, Fd, Flags, MOVED_MAX, MaybeOwned, NO_PATH,
    NOT_STORAGE, Node, Of, Out, Path, ROOT, Renamed, SOMEWHERE, STRANGE_FD, STRANGE_FILE,
    STRANGE_OFFSET, Shown, Skip, Slot, TOO_LONG, Target, Task, Walk, What, id, in_range, open_id,
};

impl CallMachine {
    pub(super) fn open(
        &mut self,
        task: Task,
        path: Path<'_>,
        flags: Flags,
        mode: Option<u32>,
        fd: Fd<'_>,
        out: &mut Out,
    ) -> Done {
        let cloexec = flags.has(Flags::CLOEXEC);
        if let Some(open) = self.reopened(task, path.path) {
            let &Description { of, node, .. } = &self.files.open[open];
            let open = match of {
                Of::File(file) => self.open_file(file, node, flags, false, out),
                Of::Path if !self.names.is_virtual(node) => {
                    let file = self.names.file(node).unwrap_or_else(|| self.add(node, None, out));
                    self.open_file(file, node, flags, false, out)
                }
                of => self.files.describe(of, node, Some(0), flags),
            };
            self.install(task, fd.number, open, cloexec, out);
            return Ok(());
        }
        if fd.shown == Some(Shown::Other) {
            let open = self.files.describe(Of::Other, ROOT, Some(0), flags);
            self.install(task, fd.number, open, cloexec, out);
            return Ok(());
        }
        let exclusive = flags.has(Flags::CREATE | Flags::EXCLUSIVE);
        let mut node = self.resolve(task, path, !exclusive && !flags.has(Flags::NOFOLLOW), out)?;
        let tmpfile = flags.has(Flags::TMPFILE);
        if let (Some(Shown::Path(shown, false)), false) = (fd.shown, tmpfile) {
            node = self.arrive(node, shown)?;
        }
        let open = if self.names.is_virtual(node) {
            self.files.describe(Of::Other, node, Some(0), flags)
        } else if flags.has(Flags::PATH) {
            self.files.describe(Of::Path, node, Some(0), flags)
        } else if tmpfile {
            let (file, node) = (self.files.add(0, Some(0)), self.names.nameless());
            self.create(file, "".into(), mode, flags, out);
            self.open_file(file, node, flags, true, out)
        } else {
            if exclusive {
                self.unbind(node, out);
            }
            let known = self.names.file(node);
            let absent = matches!(self.names.what(node), What::Absent);
            let created = exclusive || (absent && flags.has(Flags::CREATE));
            let file = match known {
                Some(file) => file,
                None if created => {
                    let file = self.files.add(0, Some(0));
                    self.name(node, file);
                    self.create(file, self.names.name(node), mode, flags, out);
                    file
                }
                None => self.add(node, None, out),
            };
            self.open_file(file, node, flags, created, out)
        };
        if let Some(Shown::Path(shown, _)) = fd.shown {
            self.files.open[open].shown = shown.into();
        }
        self.install(task, fd.number, open, cloexec, out);
        Ok(())
    }

    pub(super) fn open_nameless(&mut self, task: Task, flags: Flags, fd: i32, out: &mut Out) {
        let created = flags.has(Flags::CREATE | Flags::EXCLUSIVE);
        // The file has a name somewhere, and no event removes it: the file outlives its
        // descriptor.
        let file = self.files.add(1, created.then_some(0));
        let node = self.names.nameless();
        if created {
            self.create(file, "".into(), None, flags, out);
        }
        let open = self.open_file(file, node, flags, created, out);
        self.install(task, fd, open, flags.has(Flags::CLOEXEC), out);
    }

    /// Returns the description of an [`SystemCall::OpenUnnamed`](super::SystemCall::OpenUnnamed),
    /// which this call on its descriptor names.
    fn named(&mut self, task: Task, fd: Fd<'_>, slot: Slot, out: &mut Out) -> Result<u32, Skip> {
        let flags = self.files.open[slot.open].flags;
        match fd.shown {
            Some(Shown::Path(path, false)) => {
                let path = Path { dir: Dir::Cwd(None), path };
                self.open(task, path, flags, None, fd, out)?;
            }
            Some(Shown::Other) => {
                let open = self.files.describe(Of::Other, ROOT, Some(0), flags);
                self.install(task, fd.number, open, slot.cloexec, out);
            }
            Some(Shown::Path(_, true)) => self.open_nameless(task, flags, fd.number, out),
            None => {
                out.note(
                    "open of a file whose name is not in the trace: it counts as a file of its own",
                );
                self.open_nameless(task, flags, fd.number, out);
            }
        }
        let slot = self.tasks.tables[task.table].slots.get(&fd.number);
        slot.map(|slot| slot.open).ok_or(STRANGE_FD)
    }

    pub(super) fn open_file(
        &mut self,
        file: u32,
        node: Node,
        flags: Flags,
        created: bool,
        out: &mut Out,
    ) -> u32 {
        let open = self.files.describe(Of::File(file), node, Some(0), flags);
        out.push(Action::Open { open: open_id(open), file: id(file), created });
        if flags.has(Flags::TRUNCATE | Flags::WRITABLE) && !created {
            self.truncate(file, 0, out);
        }
        open
    }

    /// Reports the creation of `file` under this name. A trace of system calls does not have its
    /// owner.
    pub(super) fn create(
        &self,
        file: u32,
        name: Box<str>,
        mode: Option<u32>,
        flags: Flags,
        out: &mut Out,
    ) {
        let (file, sync) = (id(file), flags.has(Flags::SYNC));
        let create = Create { file, name: name.into(), owner: None, mode, sync };
        out.push(Action::Create(MaybeOwned::owned(create)));
    }

    /// Returns the mode of a file that is created with `mode`. It is known if the umask is known,
    /// or clears no bit of it.
    pub(super) fn masked(&self, task: Task, mode: Option<u32>) -> Option<u32> {
        let mode = mode?;
        match self.tasks.fs[task.fs].umask {
            Some(umask) => Some(mode & !umask),
            None if mode & 0o777 == 0 => Some(mode),
            None => None,
        }
    }

    /// Returns the description that `/proc/self/fd/N` or `/dev/fd/N` leads to: that of descriptor
    /// `N`.
    fn reopened(&self, task: Task, path: &[u8]) -> Option<u32> {
        let rest = path.strip_prefix(b"/dev/fd/").or_else(|| {
            let rest = path.strip_prefix(b"/proc/")?;
            let slash = rest.iter().position(|&b| b == b'/')?;
            let own = &rest[..slash] == b"self" || number(&rest[..slash]) == Some(task.pid as i32);
            rest[slash..].strip_prefix(b"/fd/").filter(|_| own)
        })?;
        self.tasks.tables[task.table].slots.get(&number(rest)?).map(|slot| slot.open)
    }

    /// Returns the entry to which an open of `asked` really led.
    fn arrive(&mut self, asked: Node, shown: &[u8]) -> Result<Node, Skip> {
        let walk = Walk { follow: false, make: true };
        let real = self.names.walk(ROOT, ROOT, shown, walk).ok_or(NO_PATH)?;
        if real == asked && self.names.path(real) == shown {
            return Ok(real);
        }
        self.names.unlearn_links(shown);
        let real = self.names.walk(ROOT, ROOT, shown, walk).ok_or(NO_PATH)?;
        if real != asked {
            self.names.learn_link(asked, real);
        }
        Ok(real)
    }

    /// Adds a file that is seen for the first time, under the name `node`.
    fn add(&mut self, node: Node, size: Option<u64>, out: &mut Out) -> u32 {
        let file = self.files.add(0, size);
        self.bind(node, file, out);
        file
    }

    /// Makes `node` a name of `file`.
    pub(super) fn name(&mut self, node: Node, file: u32) {
        self.names.set(node, What::File(file));
        self.files.file(file).links += 1;
    }

    fn bind(&mut self, node: Node, file: u32, out: &mut Out) {
        self.name(node, file);
        out.push(Action::Bind { file: id(file), name: self.names.name(node).into() });
    }

    /// Removes the name `node` of its file, if it has a known one.
    pub(super) fn unbind(&mut self, node: Node, out: &mut Out) {
        if let Some(file) = self.names.file(node) {
            let name = self.names.name(node);
            self.names.set(node, What::Absent);
            self.files.unlink(file, name, out);
        }
    }

    /// Removes the names of `node` and of all entries beneath. The process that removed or made the
    /// directory `node` found it empty.
    pub(super) fn unbind_all(&mut self, node: Node, out: &mut Out) {
        for (node, _) in self.names.files_beneath(node) {
            self.unbind(node, out);
        }
    }

    pub(super) fn install(&mut self, task: Task, fd: i32, open: u32, cloexec: bool, out: &mut Out) {
        if self.tasks.install(task.table, fd, Slot { open, cloexec }, &mut self.files, out) {
            out.note("file's descriptor used again though its close is not in the trace");
        }
    }

    pub(super) fn close_range(
        &mut self,
        tid: u32,
        first: i32,
        last: i32,
        cloexec: bool,
        out: &mut Out,
    ) {
        let task = self.tasks.caller(tid, self.strangers, &mut self.files, out);
        if first > last {
            return;
        }
        let slots = &mut self.tasks.tables[task.table].slots;
        if cloexec {
            slots.range_mut(first..=last).for_each(|(_, slot)| slot.cloexec = true);
            return;
        }
        let fds: Vec<i32> = slots.range(first..=last).map(|(&fd, _)| fd).collect();
        for fd in fds {
            self.tasks.close(task.table, fd, &mut self.files, out);
        }
    }

    /// Returns the description of an open from before the trace, or from another process in a way
    /// that the trace does not show.
    pub(super) fn adopt(&mut self, shown: Shown<'_>, out: &mut Out) -> Result<u32, Skip> {
        let Shown::Path(path, deleted) = shown else {
            return Ok(self.files.describe(Of::Other, ROOT, None, Flags::default()));
        };
        let walk = Walk { follow: false, make: true };
        let node = match deleted {
            true => self.names.nameless(),
            false => self.names.walk(ROOT, ROOT, path, walk).ok_or(NO_PATH)?,
        };
        let of = if self.names.is_virtual(node) {
            Of::Other
        } else {
            Of::File(match self.names.file(node) {
                Some(file) => file,
                None if deleted => self.files.add(0, None),
                None => self.add(node, None, out),
            })
        };
        let open = self.files.describe(of, node, None, Flags::default());
        if let Of::File(file) = of {
            out.push(Action::Open { open: open_id(open), file: id(file), created: false });
        }
        self.files.open[open].shown = path.into();
        Ok(open)
    }

    /// Returns the description that a call's descriptor leads to. If the trace shows another file
    /// than expected, the trace is right: a call is missing from it.
    pub(super) fn description(
        &mut self,
        task: Task,
        fd: Fd<'_>,
        out: &mut Out,
    ) -> Result<u32, Skip> {
        if let Some(pin) = fd.pin {
            return Ok(pin.0);
        }
        let slot = self.tasks.tables[task.table].slots.get(&fd.number).copied();
        match (slot, fd.shown) {
            (Some(slot), _) if self.files.open[slot.open].of == Of::Unnamed => {
                self.named(task, fd, slot, out)
            }
            (Some(slot), None) => Ok(slot.open),
            (Some(slot), Some(_)) if self.renaming > 0 => Ok(slot.open),
            (Some(slot), Some(shown)) if self.agrees(slot.open, shown) => Ok(slot.open),
            (None, None) => Err(STRANGE_FD),
            (slot, Some(shown)) => {
                let open = self.adopt(shown, out)?;
                let cloexec = slot.is_some_and(|slot| slot.cloexec);
                self.tasks.install(
                    task.table,
                    fd.number,
                    Slot { open, cloexec },
                    &mut self.files,
                    out,
                );
                if matches!(self.files.open[open].of, Of::File(_)) {
                    out.note(match slot {
                        Some(_) => "descriptor that leads elsewhere than the trace explains",
                        None => "descriptor opened before the trace or received, known by its shown name",
                    });
                }
                Ok(open)
            }
        }
    }

    fn agrees(&mut self, open: u32, shown: Shown<'_>) -> bool {
        let description = &self.files.open[open];
        let (of, Shown::Path(path, deleted)) = (description.of, shown) else {
            return !matches!(description.of, Of::File(_));
        };
        if *description.shown == *path || deleted {
            return true;
        }
        let node = self.names.walk(ROOT, ROOT, path, Walk { follow: false, make: false });
        let agrees = match of {
            Of::File(file) => node.is_some_and(|node| self.names.file(node) == Some(file)),
            Of::Path | Of::Unnamed => true,
            Of::Other => node.is_some_and(|node| self.names.is_virtual(node)),
        };
        if agrees {
            self.files.open[open].shown = path.into();
        }
        agrees
    }

    /// Returns the file on storage that a descriptor leads to.
    pub(super) fn storage(&mut self, task: Task, fd: Fd<'_>, out: &mut Out) -> Result<u32, Skip> {
        let open = self.description(task, fd, out)?;
        match self.files.open[open].of {
            Of::File(file) => Ok(file),
            Of::Path | Of::Other | Of::Unnamed => Err(NOT_STORAGE),
        }
    }

    /// Whether a descriptor leads to a directory: it was opened as one, or a name in it was used.
    /// No directory can be opened for writing.
    pub(super) fn is_directory(
        &mut self,
        task: Task,
        fd: Fd<'_>,
        out: &mut Out,
    ) -> Result<bool, Skip> {
        let open = self.description(task, fd, out)?;
        let &Description { node, flags, .. } = &self.files.open[open];
        let opened_so = flags.has(Flags::DIRECTORY) && !flags.has(Flags::TMPFILE);
        Ok(opened_so || !flags.has(Flags::WRITABLE) && self.names.is_directory(node))
    }

    /// Returns the file by name or descriptor; a file that was never opened is added only on
    /// demand.
    pub(super) fn target(
        &mut self,
        task: Task,
        target: Target<'_>,
        add: bool,
        out: &mut Out,
    ) -> Result<Option<u32>, Skip> {
        let node = match target {
            Target::Path(path) => match self.reopened(task, path.path) {
                Some(open) => return Ok(self.file_of(open)),
                None => match self.find(task, path, Walk { follow: true, make: add }, out)? {
                    Some(node) => node,
                    None if add => return Err(NO_PATH),
                    None => return Ok(None),
                },
            },
            Target::Fd(fd) => {
                let open = self.description(task, fd, out)?;
                match self.files.open[open].of {
                    Of::Path => self.files.open[open].node,
                    _ => return Ok(self.file_of(open)),
                }
            }
        };
        let known = self.names.file(node);
        let addable = add && !self.names.is_virtual(node);
        Ok(known.or_else(|| addable.then(|| self.add(node, None, out))))
    }

    fn file_of(&self, open: u32) -> Option<u32> {
        match self.files.open[open].of {
            Of::File(file) => Some(file),
            _ => None,
        }
    }

    pub(super) fn resolve(
        &mut self,
        task: Task,
        path: Path<'_>,
        follow: bool,
        out: &mut Out,
    ) -> Result<Node, Skip> {
        self.find(task, path, Walk { follow, make: true }, out)?.ok_or(NO_PATH)
    }

    fn find(
        &mut self,
        task: Task,
        path: Path<'_>,
        walk: Walk,
        out: &mut Out,
    ) -> Result<Option<Node>, Skip> {
        let root = self.tasks.fs[task.fs].root;
        let absolute = path.path.starts_with(b"/");
        let from = match path.dir {
            Dir::Cwd(shown) => {
                let cwd = self.tasks.fs[task.fs].cwd;
                if let Some(shown) = shown.filter(|_| !absolute || cwd == SOMEWHERE) {
                    self.cwd_is(task, shown)?;
                }
                self.tasks.fs[task.fs].cwd
            }
            _ if absolute => root,
            Dir::Fd(fd) => {
                let open = self.description(task, fd, out)?;
                self.files.open[open].node
            }
        };
        Ok(self.names.walk(from, root, path.path, walk))
    }

    /// Takes the caller's working directory from the trace.
    pub(super) fn cwd_is(&mut self, task: Task, path: &[u8]) -> Done {
        let cwd = self.tasks.fs[task.fs].cwd;
        if path.starts_with(b"/") && (cwd == SOMEWHERE || self.names.path(cwd) != path) {
            let walk = Walk { follow: true, make: true };
            self.tasks.fs[task.fs].cwd = self.names.walk(ROOT, ROOT, path, walk).ok_or(NO_PATH)?;
        }
        Ok(())
    }

    /// Handles a read, or (with the flags that it adds) a write.
    pub(super) fn transfer(
        &mut self,
        open: u32,
        at: Option<u64>,
        len: u64,
        write: Option<Flags>,
        out: &mut Out,
    ) -> Done {
        let &Description { of, offset, flags, .. } = &self.files.open[open];
        let Of::File(file) = of else { return Err(NOT_STORAGE) };
        if len > 1 << 31 {
            return Err(TOO_LONG);
        }
        let flags = flags | write.unwrap_or_default();
        let start = if write.is_some() && flags.has(Flags::APPEND) {
            // Even a write with an offset of its own appends then (pwrite(2), BUGS).
            let f = self.files.file(file);
            if f.size.is_none() {
                out.note("append to a file of unknown size: placed after the farthest byte known");
            }
            f.size.unwrap_or(f.reach)
        } else {
            match at.or(offset) {
                Some(start) => start,
                None if write.is_some() => {
                    out.note(
                        "write at an offset from before the trace: placed after the farthest byte \
                             known",
                    );
                    self.files.file(file).reach
                }
                None => return Err(STRANGE_OFFSET),
            }
        };
        let end = in_range(start.saturating_add(len))?;
        if at.is_none() {
            self.files.open[open].offset = Some(end);
        }
        if len > 0 {
            self.files.reaches(file, end, write.is_some());
        }
        let (file, open, sync) = (id(file), open_id(open), flags.has(Flags::SYNC));
        out.push(match write {
            _ if flags.has(Flags::DIRECT) => {
                Action::Direct { open, file, offset: start, len, write: write.is_some() }
            }
            Some(_) => Action::Write { open, file, offset: start, len, sync },
            None => Action::Read { open, file, offset: start, len },
        });
        Ok(())
    }

    pub(super) fn truncate(&mut self, file: u32, size: u64, out: &mut Out) {
        self.files.ends_at(file, size);
        out.push(Action::Truncate { file: id(file), size });
    }

    /// Renames a directory with one event for all that is below it. An exchange is two renames, one
    /// each way. If a directory takes part, it is the renames of all files below the two, because
    /// two directories cannot be renamed to each other one after the other.
    pub(super) fn rename(
        &mut self,
        task: Task,
        from: Path<'_>,
        to: Path<'_>,
        exchange: bool,
        out: &mut Out,
    ) -> Done {
        let (a, b) = (self.resolve(task, from, false, out)?, self.resolve(task, to, false, out)?);
        let same = self.names.file(a).is_some() && self.names.file(a) == self.names.file(b);
        if a == b || same {
            // POSIX: a rename between two names of one file has no effect.
            return Ok(());
        }
        if a.min(b) <= SOMEWHERE || self.names.is_above(a, b) || self.names.is_above(b, a) {
            return Err(Skip::Damage("rename of a directory into itself"));
        }
        if !exchange && self.names.is_directory(a) {
            let from = self.names.name(a);
            self.unbind_all(b, out);
            self.names.rename(a, b);
            let names = Renamed::owned(&from, &self.names.name(a));
            out.push(Action::RenameDirectory { names });
            return Ok(());
        }
        let mut moved = Vec::new();
        for node in [a, b].into_iter().take(if exchange { 2 } else { 1 }) {
            if self.moved < MOVED_MAX {
                moved.append(&mut self.names.files_beneath(node));
            } else {
                out.note(
                    "exchange of a directory after millions of others: names beneath it move \
                     without a word",
                );
                moved.extend(self.names.file(node).map(|file| (node, file)));
            }
        }
        self.moved += moved.len().saturating_sub(1);
        let before: Vec<_> = moved.iter().map(|&(node, _)| self.names.name(node)).collect();
        if exchange {
            self.names.exchange(a, b);
        } else {
            self.unbind_all(b, out);
            self.names.rename(a, b);
        }
        for (&(node, file), from) in moved.iter().zip(before) {
            let names = Renamed::owned(&from, &self.names.name(node));
            out.push(Action::Rename { file: id(file), names });
        }
        if moved.is_empty() && matches!(self.names.what(a), What::Unknown) {
            Err(STRANGE_FILE)
        } else {
            Ok(())
        }
    }

    /// Moves, grows or shrinks a mapping; the added part maps the same file.
    pub(super) fn remap(&mut self, task: Task, from: (u64, u64), to: (u64, u64), out: &mut Out) {
        let mut pieces = self.tasks.mapped(task.space, from.0, from.0.saturating_add(from.1));
        pieces.reverse();
        let last = pieces.len().wrapping_sub(1);
        for &(.., file, _) in &pieces {
            self.files.file(file).uses += 1;
        }
        self.tasks.unmap(task.space, from.0, from.0.saturating_add(from.1), &mut self.files, out);
        self.tasks.unmap(task.space, to.0, to.0.saturating_add(to.1), &mut self.files, out);
        let limit = to.0.saturating_add(to.1);
        for (n, &(start, end, file, offset)) in pieces.iter().enumerate() {
            let at = to.0.saturating_add(start - from.0);
            let until = if n == last { limit } else { at.saturating_add(end - start).min(limit) };
            self.tasks.map(task.space, at, until, file, offset, &mut self.files);
            self.files.unuse(file, out);
        }
    }
}

/// Reads a plain decimal number.
fn number(text: &[u8]) -> Option<i32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
