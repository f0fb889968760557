//! A model of the kernel's processes, descriptors, names and offsets, which turns a list of system
//! calls into events.
//!
//! The [`CallMachine`] does no I/O: it takes successful [`SystemCall`]s with their results, in the
//! order in which they completed, and returns events. Readers of system-call traces and live
//! recorders both use it. It follows POSIX and Linux's manual pages (open(2), dup(2), fork(2),
//! clone(2), execve(2), lseek(2), rename(2), unlink(2), mmap(2)). Descriptors of one open share its
//! offset across `dup` and `fork`. A file lives until its last name, descriptor and
//! mapping are gone; then its name can come back as another
//! [`FileId`](flashsift_events::event::FileId).
//!
//! If a trace lacks a fact, the machine guesses only as follows, each time with a note
//! ([`Out::notes`]) or a count ([`Skip`]), except the first two rules, which hold for every trace:
//!
//! - A file has only the names that the trace shows: when the last of them goes, the file goes. A
//!   hard link made before the trace and never used in it is unknown.
//! - An open under a known name finds the known file. If the open is an exclusive creation, a
//!   process outside the trace has removed the name.
//! - An append to a file of unknown size starts at the farthest byte known of it, and so does a
//!   write at an unknown offset (a descriptor from before the trace). A read at an unknown offset
//!   is left out.
//! - Zeroing a range counts as punching it; nothing under `/dev`, `/proc` and `/sys` is storage.
//! - Symbolic links older than the trace are inferred when an open shows another name than it
//!   requested (`Names::learn_link`).

mod call;
mod calls;
mod files;
mod names;
pub(crate) mod slab;
mod tasks;
#[cfg(test)]
mod tests;

use crate::{
    Error,
    events::{Events, Skip},
};
pub use call::{Dir, Fd, Flags, Path, Pin, Seen, Shown, Strangers, SystemCall, Target};
use files::{Description, Files, Of, id, open_id};
use flashsift_events::event::{Action, Create, Event, MaybeOwned, Renamed};
use names::{Names, Node, ROOT, SOMEWHERE, Walk, What};
pub use tasks::Shares;
use tasks::{Slot, Task, Tasks};

/// Calls on descriptors that lead to no storage.
pub const NOT_STORAGE: Skip = Skip::Benign("pipe, socket or device");
/// See [`SystemCall::Map`].
pub const MAPPED: Skip =
    Skip::Benign("mmap of a file (its page accesses are invisible to system-call tracing)");
/// A descriptor that the trace did not open.
pub const STRANGE_FD: Skip = Skip::Damage("descriptor opened before the trace");
const STRANGE_OFFSET: Skip = Skip::Damage("read at an offset from before the trace");
/// An unlink or rename of something that had no [`FileId`](flashsift_events::event::FileId).
pub const STRANGE_FILE: Skip = Skip::Benign("change of a file that the trace never opens");
const NO_PATH: Skip = Skip::Damage("path with more bytes or links than the kernel takes");
/// Renames of files with an exchanged directory are reported up to this total: otherwise a short
/// hostile input could produce them without end.
const MOVED_MAX: usize = 10_000_000;
const TOO_LONG: Skip = Skip::Damage("read or write of more than 2 GiB");
const TOO_FAR: Skip = Skip::Damage("offset beyond 2^63");

/// The result of a call besides its events.
pub type Done = Result<(), Skip>;

/// The output of a call.
#[derive(Debug, Default)]
pub struct Out {
    /// Events, in order.
    pub events: Vec<Event<'static>>,
    /// Notes on events that rest on a guess.
    pub notes: Vec<&'static str>,
    at_us: u64,
    pid: u32,
    tid: u32,
}

impl Out {
    fn push(&mut self, action: Action<'static>) {
        self.events.push(Event { at_us: self.at_us, pid: self.pid, tid: self.tid, action });
    }

    fn process(&mut self, pid: u32, tid: u32, name: Box<str>) {
        self.events.push(Event {
            at_us: self.at_us,
            pid,
            tid,
            action: Action::Process { name: name.into() },
        });
    }

    pub(crate) fn note(&mut self, note: &'static str) {
        self.notes.push(note);
    }

    /// Passes on the output of the call at `line`.
    pub(crate) fn hand_on(
        &mut self,
        done: Done,
        events: &mut Events<'_>,
        line: u64,
    ) -> Result<(), Error> {
        for note in self.notes.drain(..) {
            events.note(note, line);
        }
        if let Err(skip) = done {
            events.skipped(skip, line);
        }
        events.at(line);
        self.events.drain(..).try_for_each(|event| events.push(event))
    }
}

/// The machine. See the module's documentation.
#[derive(Debug)]
pub struct CallMachine {
    names: Names,
    files: Files,
    tasks: Tasks,
    strangers: Strangers,
    /// Renames in progress: names that the trace shows may be older or newer than ours.
    renaming: u32,
    /// Renames of files that moved with a directory, so far.
    moved: usize,
}

impl CallMachine {
    /// Returns a machine that knows nothing yet.
    pub fn new(strangers: Strangers) -> Self {
        Self {
            names: Names::new(),
            files: Files::default(),
            tasks: Tasks::default(),
            strangers,
            renaming: 0,
            moved: 0,
        }
    }

    /// Sets the treatment of threads that no clone created.
    pub fn strangers(&mut self, strangers: Strangers) {
        self.strangers = strangers;
    }

    /// Notes that a rename began (`true`) or ended, before its [`SystemCall`].
    pub fn renaming(&mut self, begins: bool) {
        self.renaming = if begins { self.renaming + 1 } else { self.renaming.saturating_sub(1) };
    }

    /// Takes one call of thread `tid`.
    ///
    /// # Errors
    ///
    /// The reason for which the call gives no event.
    pub fn call(&mut self, at_us: u64, tid: u32, call: SystemCall<'_>, out: &mut Out) -> Done {
        (out.at_us, out.tid) = (at_us, tid);
        if matches!(call, SystemCall::Exit) && !self.tasks.knows(tid) {
            // The process ended before the last line of its thread.
            return Ok(());
        }
        let task = self.tasks.caller(tid, self.strangers, &mut self.files, out);
        out.pid = task.pid;
        match call {
            SystemCall::Open { path, flags, mode, fd } => {
                let mode = self.masked(task, mode);
                self.open(task, path, flags, mode, fd, out)
            }
            SystemCall::OpenNameless { flags, fd } => {
                self.open_nameless(task, flags, fd, out);
                Ok(())
            }
            SystemCall::OpenUnnamed { flags, fd } => {
                let open = self.files.describe(Of::Unnamed, ROOT, Some(0), flags);
                self.install(task, fd, open, flags.has(Flags::CLOEXEC), out);
                Ok(())
            }
            SystemCall::Made { fd, cloexec } => {
                let open = self.adopt(fd.shown.unwrap_or(Shown::Other), out)?;
                self.install(task, fd.number, open, cloexec, out);
                Ok(())
            }
            SystemCall::Dup { from, to, cloexec } => {
                let open = self.description(task, from, out)?;
                if from.number == to {
                    return Ok(());
                }
                self.files.open[open].refs += 1;
                let slot = Slot { open, cloexec };
                self.tasks.install(task.table, to, slot, &mut self.files, out);
                Ok(())
            }
            SystemCall::Close { fd } => {
                match self.tasks.close(task.table, fd, &mut self.files, out) {
                    true => Ok(()),
                    false => {
                        Err(Skip::Benign("close of a descriptor that was never used in the trace"))
                    }
                }
            }
            SystemCall::CloseRange { first, last, cloexec, unshare } => {
                if unshare {
                    self.tasks.unshare(tid, true, false, &mut self.files, out);
                }
                self.close_range(tid, first, last, cloexec, out);
                Ok(())
            }
            SystemCall::SetCloexec { fd, cloexec } => {
                if let Some(slot) = self.tasks.tables[task.table].slots.get_mut(&fd) {
                    slot.cloexec = cloexec;
                }
                Ok(())
            }
            SystemCall::SetFlags { fd, flags } => {
                let open = self.description(task, fd, out)?;
                let own = &mut self.files.open[open].flags;
                *own = Flags(own.0 & !Flags::CHANGEABLE.0 | flags.0 & Flags::CHANGEABLE.0);
                Ok(())
            }
            SystemCall::Read { fd, at, len } => {
                let open = self.description(task, fd, out)?;
                self.transfer(open, at, len, None, out)
            }
            SystemCall::Write { fd, at, len, flags } => {
                let open = self.description(task, fd, out)?;
                self.transfer(open, at, len, Some(flags), out)
            }
            SystemCall::Copy { from, from_at, to, to_at, len } => {
                let read = match self.description(task, from, out) {
                    Ok(open) => self.transfer(open, from_at, len, None, out),
                    Err(left) => Err(left),
                };
                let open = self.description(task, to, out)?;
                let written = self.transfer(open, to_at, len, Some(Flags::default()), out);
                match (read, written) {
                    (Err(Skip::Benign(_)), done) | (done, Err(Skip::Benign(_))) => done,
                    (read, written) => read.and(written),
                }
            }
            SystemCall::Seek { fd, to, size } => {
                let open = self.description(task, fd, out)?;
                let to = in_range(to)?;
                self.files.open[open].offset = Some(to);
                if let (Of::File(file), Some(size)) = (self.files.open[open].of, size) {
                    self.files.ends_at(file, in_range(size)?);
                }
                Ok(())
            }
            SystemCall::Sync { fd, offset, len, data_only } => {
                let file = self.storage(task, fd, out)?;
                if self.is_directory(task, fd, out)? {
                    let open = self.description(task, fd, out)?;
                    let path = self.names.name(self.files.open[open].node);
                    out.push(Action::SyncDirectory { path: path.into() });
                    return Ok(());
                }
                out.push(Action::Sync { file: id(file), offset, len, data_only });
                Ok(())
            }
            SystemCall::SyncAll => {
                out.push(Action::SyncAll);
                Ok(())
            }
            SystemCall::Truncate { target, size } => {
                let size = in_range(size)?;
                let file = self.target(task, target, true, out)?.ok_or(STRANGE_FILE)?;
                self.truncate(file, size, out);
                Ok(())
            }
            SystemCall::Allocate { fd, end } => {
                let file = self.storage(task, fd, out)?;
                match self.files.file(file).size {
                    Some(size) if size < in_range(end)? => self.truncate(file, end, out),
                    _ => {}
                }
                Ok(())
            }
            SystemCall::Punch { fd, offset, len } => {
                let file = self.storage(task, fd, out)?;
                in_range(offset.saturating_add(len))?;
                out.push(Action::Punch { file: id(file), offset, len });
                Ok(())
            }
            SystemCall::Size { target, size } => {
                if let Some(file) = self.target(task, target, false, out)? {
                    self.files.ends_at(file, in_range(size)?);
                }
                Ok(())
            }
            SystemCall::Rename { from, to, exchange } => self.rename(task, from, to, exchange, out),
            SystemCall::Link { from, to } => {
                let to = self.resolve(task, to, false, out)?;
                let file = self.target(task, from, true, out)?.ok_or(NOT_STORAGE)?;
                if self.names.file(to) != Some(file) {
                    self.unbind(to, out);
                    self.name(to, file);
                    out.push(Action::Link { file: id(file), name: self.names.name(to).into() });
                }
                Ok(())
            }
            SystemCall::Symlink { target, path } => {
                let node = self.resolve(task, path, false, out)?;
                self.unbind(node, out);
                self.names.set(node, What::Link { target: target.into(), guess: false });
                Ok(())
            }
            SystemCall::Unlink { path, seen } => {
                let node = self.resolve(task, path, false, out)?;
                let now = self.names.file(node);
                if seen.is_some_and(|seen| seen.0.is_some() && seen.0 != now) {
                    // Between the beginning and the end of this call, the name was found to be
                    // another file's.
                    return Ok(());
                }
                let known = !matches!(self.names.what(node), What::Unknown | What::Absent);
                self.unbind_all(node, out);
                self.names.set(node, What::Absent);
                if known { Ok(()) } else { Err(STRANGE_FILE) }
            }
            SystemCall::Mkdir { path } => {
                let node = self.resolve(task, path, false, out)?;
                self.unbind_all(node, out);
                self.names.set(node, What::Directory);
                Ok(())
            }
            SystemCall::MakeFile { path, mode } => {
                let node = self.resolve(task, path, false, out)?;
                if self.names.is_virtual(node) {
                    return Err(NOT_STORAGE);
                }
                let mode = self.masked(task, mode);
                self.unbind(node, out);
                let file = self.files.add(0, Some(0));
                self.name(node, file);
                self.create(file, self.names.name(node), mode, Flags::default(), out);
                Ok(())
            }
            SystemCall::Umask { mask } => {
                self.tasks.fs[task.fs].umask = Some(mask & 0o777);
                Ok(())
            }
            SystemCall::Chdir { target } => {
                let node = match target {
                    Target::Path(path) => self.resolve(task, path, true, out)?,
                    Target::Fd(fd) => {
                        let open = self.description(task, fd, out)?;
                        self.files.open[open].node
                    }
                };
                self.tasks.fs[task.fs].cwd = node;
                Ok(())
            }
            SystemCall::Chroot { path } => {
                let node = self.resolve(task, path, true, out)?;
                self.tasks.fs[task.fs].root = node;
                Ok(())
            }
            SystemCall::Cwd { path } => self.cwd_is(task, path),
            SystemCall::Map { fd, start, len, offset } => {
                let end = start.saturating_add(len);
                self.tasks.unmap(task.space, start, end, &mut self.files, out);
                let Some(fd) = fd else { return Ok(()) };
                let file = self.storage(task, fd, out)?;
                self.tasks.map(task.space, start, end, file, offset, &mut self.files);
                Err(MAPPED)
            }
            SystemCall::Unmap { start, len } => {
                self.tasks.unmap(
                    task.space,
                    start,
                    start.saturating_add(len),
                    &mut self.files,
                    out,
                );
                Ok(())
            }
            SystemCall::Remap { from, from_len, to, to_len } => {
                self.remap(task, (from, from_len), (to, to_len), out);
                Ok(())
            }
            SystemCall::Msync { start, len } => {
                let mut found = self.tasks.mapped(task.space, start, start.saturating_add(len));
                found.reverse();
                // A range that is mapped twice is made durable once.
                found.dedup_by_key(|&mut (from, to, file, offset)| (to - from, file, offset));
                for &(from, to, file, offset) in &found {
                    out.push(Action::Sync {
                        file: id(file),
                        offset,
                        len: to - from,
                        data_only: true,
                    });
                }
                if found.is_empty() { Err(Skip::Benign("msync of no known file")) } else { Ok(()) }
            }
            SystemCall::ForkBegins { shares } => {
                self.tasks.birth_begins(tid, shares);
                Ok(())
            }
            SystemCall::ForkEnds { child, shares } => {
                self.tasks.birth_ends(tid, child, shares, &mut self.files, out);
                Ok(())
            }
            SystemCall::Unshare { files, fs } => {
                self.tasks.unshare(tid, files, fs, &mut self.files, out);
                Ok(())
            }
            SystemCall::Exec { name } => {
                self.tasks.exec(tid, name, &mut self.files, out);
                Ok(())
            }
            SystemCall::Superseded { by } => {
                self.tasks.supersede(tid, by, &mut self.files, out);
                Ok(())
            }
            SystemCall::Exit => {
                self.tasks.exit(tid, &mut self.files, out);
                Ok(())
            }
            SystemCall::ExitGroup => {
                self.tasks.exit_group(tid, &mut self.files, out);
                Ok(())
            }
        }
    }

    /// Returns whether the trace has opened this descriptor.
    pub fn is_open(&mut self, tid: u32, fd: i32) -> bool {
        let task = self.tasks.caller(tid, self.strangers, &mut self.files, &mut Out::default());
        self.tasks.tables[task.table].slots.contains_key(&fd)
    }

    /// Keeps the description of `fd` for a call that began and is reported at its end.
    /// [`CallMachine::unpin`] releases it.
    pub fn pin(&mut self, at_us: u64, tid: u32, fd: Fd<'_>, out: &mut Out) -> Option<Pin> {
        (out.at_us, out.tid) = (at_us, tid);
        let task = self.tasks.caller(tid, self.strangers, &mut self.files, out);
        out.pid = task.pid;
        let open = self.description(task, fd, out).ok()?;
        self.files.open[open].refs += 1;
        Some(Pin(open))
    }

    /// Releases `pin` after the end of its call.
    pub fn unpin(&mut self, pin: Pin, out: &mut Out) {
        self.files.release(pin.0, out);
    }

    /// Returns the file that a name stands for, for a [`SystemCall::Unlink`] that begins now.
    pub fn seen(&mut self, at_us: u64, tid: u32, path: Path<'_>, out: &mut Out) -> Option<Seen> {
        (out.at_us, out.tid) = (at_us, tid);
        let task = self.tasks.caller(tid, self.strangers, &mut self.files, out);
        let node = self.resolve(task, path, false, out).ok()?;
        Some(Seen(self.names.file(node)))
    }
}

fn in_range(offset: u64) -> Result<u64, Skip> {
    if offset <= i64::MAX as u64 { Ok(offset) } else { Err(TOO_FAR) }
}
