//! Files whose syncs are delayed: they live in RAM as files do before their write-back, and reach
//! BACKING in epochs (`flashsift_files::delayed`).
//!
//! A file of a group that BACKING has is *adopted* at its first change: it becomes a file in RAM
//! whose names hide BACKING's. Its RAM holds the pages that were changed; the others are read from
//! the file in BACKING, its *base*. A name that a file of a group lost stays in the table as a
//! whiteout until the epoch that removes it is durable. So nothing in BACKING changes before the
//! epoch that it belongs to, and everything else in the mount treats these files as it treats files
//! in RAM.
//!
//! Locks are taken in this order: the closer, the gate, a file's gate, the namespace, a place, the
//! state, the pages of a file, the stream of events.

mod adoption;
mod epoch;
mod membership;

use super::backing::Backing;
use super::beneath::LOG;
use super::decider::Decider;
use super::delayed_file::DelayedFile;
use super::descriptors::open_share;
use super::namespace::{Locked, Namespace};
use super::residence::FileState;
use super::store::Store;
use super::types::{DelayedStatus, Ino, Name, Status, USED_AFTER_US};
use flashsift_events::event::Micros;
use flashsift_events::names::Patterns;
use flashsift_files::delayed::groups::{Groups, Temporaries};
use flashsift_files::delayed::plan::Log;
use flashsift_files::delayed::record::InodeId;
use flashsift_files::delayed::schedule::{Ending, Schedule};
use parking_lot::{Mutex, RwLock};
use rustix::io::{Errno, Result};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The files of the groups. All groups of a mount have their epochs together.
#[derive(Debug)]
pub(crate) struct Delayed {
    names: Arc<Mutex<Namespace>>,
    backing: Arc<Backing>,
    store: Arc<Store>,
    decider: Arc<Decider>,
    counters: Arc<Mutex<Status>>,
    groups: Groups,
    /// Names under which programs write files of the groups first. It is the last lock to be taken.
    temporaries: Mutex<Temporaries>,
    /// Names that are write-through, whatever the groups say.
    settled: Patterns,
    /// Held exclusively while an epoch is captured. Every change of a file's content or attributes
    /// holds it shared.
    pub(crate) gate: RwLock<()>,
    /// Held by the thread that ends an epoch.
    closer: Mutex<Closer>,
    state: Mutex<State>,
    /// Whether BACKING has a log.
    has_log: AtomicBool,
    /// Has a clone for each file of BACKING that is open because a file in RAM needs it.
    open_files: Arc<()>,
    /// Number of such files at which the epoch ends early.
    open_most: AtomicUsize,
}

/// The state of the thread that ends an epoch.
#[derive(Debug)]
pub(crate) struct Closer {
    log: Log,
    file: Option<File>,
    /// Files whose removal or replacement the log has, where BACKING does not keep when a file was
    /// created: held, so that no other file gets their numbers, which a recovery would take for
    /// them.
    held: Vec<OwnedFd>,
    /// The inode numbers of the files to which the epoch gave names: another process may give such
    /// a name in BACKING to a file of its own.
    placed: HashMap<(Ino, Name), u64>,
    /// The files of which only the log has some pages.
    deferred: HashMap<InodeId, Arc<File>>,
    /// Files that a checkpoint wrote and that may not be durable; `None`: there are many.
    unsynced: Option<HashMap<InodeId, Arc<File>>>,
    /// The log has changes of a file that others changed, too. It is to be emptied: writes of that
    /// file go past it from now on, and a recovery must not undo them.
    is_to_be_emptied: bool,
    /// Files that changed as a whole are not written anew: flash had no space for that.
    saves_space: bool,
    /// An epoch that is durable and not yet applied as a whole.
    unapplied: Option<epoch::Captured>,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    /// Names in BACKING that an epoch depends on may not be durable.
    uncommitted: bool,
    /// When the first sync was that waits.
    first_sync_us: Option<Micros>,
    /// The user to whom all files of the groups belong: the first one's.
    owner: Option<u32>,
    /// Files of BACKING that someone changed past the mount.
    changed_outside: HashSet<u64>,
    /// Directories that changed in BACKING without an epoch since they were last synced.
    direct: HashSet<Ino>,
    epochs: u64,
    log_bytes: u64,
    failing: Option<Errno>,
}

impl Delayed {
    pub(crate) fn new(
        groups: Groups,
        settled: &[String],
        lose_at_most_us: Micros,
        names: Arc<Mutex<Namespace>>,
        counters: Arc<Mutex<Status>>,
    ) -> Delayed {
        let (backing, store, decider) = names.lock().stands_on();
        Delayed {
            names,
            backing,
            store,
            decider,
            counters,
            groups,
            temporaries: Mutex::default(),
            settled: Patterns::new(settled),
            gate: RwLock::new(()),
            closer: Mutex::new(Closer {
                log: Log::starting_at(1),
                file: None,
                placed: HashMap::new(),
                held: Vec::new(),
                deferred: HashMap::new(),
                unsynced: Some(HashMap::new()),
                is_to_be_emptied: false,
                saves_space: false,
                unapplied: None,
            }),
            state: Mutex::new(State {
                schedule: Schedule::new(lose_at_most_us),
                uncommitted: false,
                first_sync_us: None,
                owner: None,
                changed_outside: HashSet::new(),
                direct: HashSet::new(),
                epochs: 0,
                log_bytes: 0,
                failing: None,
            }),
            has_log: AtomicBool::new(false),
            open_files: Arc::new(()),
            open_most: AtomicUsize::new(open_share()),
        }
    }

    fn table(&self) -> Locked<'_> {
        Locked::new(&self.names)
    }

    /// Whether so many files of BACKING are open that the epoch is to end early.
    fn has_many_open(&self) -> bool {
        Arc::strong_count(&self.open_files) > self.open_most.load(Ordering::Relaxed)
            && self.state.lock().failing.is_none()
    }

    /// For how long the syncs of a file with this path may be delayed, µs, as far as its name says.
    fn delay_of_path(&self, path: &str) -> Option<Micros> {
        if self.settled.matches(path) {
            return None;
        }
        let of_group =
            |path: &str| self.groups.delay_us(path).filter(|_| !self.settled.matches(path));
        of_group(path).or_else(|| self.temporaries.lock().delay_us(path, of_group))
    }

    /// Whether the mount has a group.
    pub(crate) fn is_used(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether a file of this user may belong to a group. One epoch takes the files of all groups
    /// back together, so that one user could undo what another synced.
    pub(crate) fn admits(&self, uid: u32) -> bool {
        *self.state.lock().owner.get_or_insert(uid) == uid
    }

    /// Whether an epoch can be written. The log is made before the first change that only an epoch
    /// brings to flash: if BACKING has no inode for it, files are none of a group, and fail or not
    /// as others do.
    pub(crate) fn may_log(&self) -> bool {
        if self.has_log.load(Ordering::Relaxed) {
            return true;
        }
        // The one who ends an epoch makes it.
        let Some(mut closer) = self.closer.try_lock() else { return true };
        let made = self.backing.temps().and_then(|_| self.log_file(&mut closer).map(drop));
        !matches!(made, Err(Errno::NOSPC | Errno::DQUOT))
    }

    /// Whether someone changed this file of BACKING past the mount.
    pub(crate) fn was_changed_outside(&self, ino: u64) -> bool {
        self.state.lock().changed_outside.contains(&ino)
    }

    /// When the epoch is to end, µs.
    pub(crate) fn deadline(&self) -> Option<Micros> {
        if self.is_used() { self.state.lock().schedule.deadline() } else { None }
    }

    /// Records that a name in BACKING has changed without an epoch.
    pub(crate) fn names_changed_below(&self) {
        if self.is_used() {
            self.state.lock().uncommitted = true;
        }
    }

    /// Records that a directory of BACKING has changed without an epoch.
    pub(crate) fn direct_change(&self, dir: Ino) {
        if self.is_used() {
            let mut state = self.state.lock();
            state.direct.insert(dir);
            state.uncommitted = true;
        }
    }

    /// Whether it has since it was last synced.
    pub(crate) fn has_direct_changes(&self, dir: Ino) -> bool {
        self.state.lock().direct.contains(&dir)
    }

    /// The directory is synced now.
    pub(crate) fn forget_direct_changes(&self, dir: Ino) {
        if self.is_used() {
            self.state.lock().direct.remove(&dir);
        }
    }
}

impl Delayed {
    /// State that the file's readers and writers share; it is created if no process has the file
    /// open.
    pub(crate) fn file_state(&self, table: &mut Namespace, ino: Ino) -> Result<Arc<FileState>> {
        let node = table.node(ino).ok_or(Errno::STALE)?;
        if let Some(file_state) = node.file_state() {
            return Ok(file_state.clone());
        }
        let in_group = !table.is_in_ram(ino) && self.delay_of_file(table, ino).is_some();
        table.share(ino, in_group).ok_or(Errno::STALE)
    }

    /// For how long the syncs of a file with this name may be delayed, µs. `None`: they are
    /// honoured at once.
    pub(crate) fn delay_us(&self, table: &mut Namespace, dir: Ino, name: &OsStr) -> Option<Micros> {
        if !self.is_used() {
            return None;
        }
        let delay_us = self.delay_of_path(&table.path(dir, name))?;
        let dir = table.dir(dir).ok()?;
        // Only BACKING can make such a file.
        let special = dir.default_acl || dir.apart || dir.inherits || dir.synchronous;
        (!special && !self.backing.is_synchronous()).then_some(delay_us)
    }

    /// The same for a file, all of whose names have to be in a group.
    pub(crate) fn delay_of_file(&self, table: &mut Namespace, ino: Ino) -> Option<Micros> {
        if !self.is_used() {
            return None;
        }
        let names = table.node(ino)?.names.clone();
        let mut least = None;
        for (dir, name) in &names {
            let delay_us = self.delay_us(table, *dir, name)?;
            least = Some(least.map_or(delay_us, |least: Micros| least.min(delay_us)));
        }
        least
    }

    /// A file of a group was changed.
    pub(crate) fn delayed_changed(&self) {
        let now = self.decider.now();
        self.reschedule(|state| state.schedule.changed(now));
    }

    /// Changes the time of the end of the epoch.
    fn reschedule<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (changed, is_new) = {
            let mut state = self.state.lock();
            let before = state.schedule.deadline();
            let changed = change(&mut state);
            (changed, state.schedule.deadline() != before)
        };
        if is_new {
            self.decider.wake();
        }
        changed
    }

    /// An application synced a file of a group. Returns at once, unless epochs fail or someone
    /// changed the file past the mount: then the epoch ends now, and the sync has its result.
    pub(crate) fn sync_delayed(&self, file: &DelayedFile) -> Result<()> {
        if file.was_changed_outside() {
            return self.end_epoch(Ending::Asked);
        }
        match file.synced() {
            Some(delay_us) => self.sync_waits(delay_us),
            None => Ok(()),
        }
    }

    /// Notes which patterns have delayed a sync of this file.
    pub(crate) fn note_delayed_sync(&self, ino: Ino) {
        if self.groups.has_unused() {
            let mut table = self.table();
            let names = table.node(ino).map(|node| node.names.clone()).unwrap_or_default();
            for (dir, name) in &names {
                self.note_delayed_name(&mut table, *dir, name);
            }
        }
    }

    pub(crate) fn note_delayed_name(&self, table: &mut Namespace, dir: Ino, name: &OsStr) {
        self.groups.delayed(&table.path(dir, name));
    }

    /// A sync waits for the end of the epoch, for at most this long, µs.
    pub(super) fn sync_waits(&self, delay_us: Micros) -> Result<()> {
        let now = self.decider.now();
        let fails = self.reschedule(|state| {
            state.schedule.synced(now, delay_us);
            state.first_sync_us.get_or_insert(now);
            state.schedule.is_failing()
        });
        if fails { self.end_epoch(Ending::Synced) } else { Ok(()) }
    }

    /// Ends the epoch if it is due.
    pub(crate) fn end_due_epoch(&self, now_us: Micros) -> Result<()> {
        if !self.is_used() {
            return Ok(());
        }
        let due = self.state.lock().schedule.due(now_us);
        due.map_or(Ok(()), |ending| self.end_epoch(ending))
    }

    /// Ends the epoch early if its files hold many descriptors. No lock is held.
    pub(crate) fn bound_open_files(&self) {
        if !self.is_used() || !self.has_many_open() {
            return;
        }
        // A failure is logged there.
        let _ = self.end_epoch(Ending::Asked);
        // Those that applications have open as well stay.
        let left = Arc::strong_count(&self.open_files);
        let most = left.saturating_add(open_share()).min(open_share().saturating_mul(3));
        self.open_most.store(most, Ordering::Relaxed);
    }

    /// The group of an open file, if it has one: adopts the file if BACKING still has it alone.
    pub(crate) fn join_group(&self, ino: Ino, file_state: &FileState) -> Result<()> {
        if !file_state.is_in_group() || file_state.is_in_ram() {
            return Ok(());
        }
        self.bound_open_files();
        let adopt = || {
            let _gate = self.gate.read();
            self.adopt(&mut self.table(), ino)
        };
        let adopted = match adopt() {
            Err(Errno::NOSPC) => {
                self.end_epoch(Ending::Asked)?;
                adopt()?
            }
            adopted => adopted?,
        };
        if !adopted {
            file_state.leaves_group();
        }
        Ok(())
    }

    /// Those that are files of a group in RAM, and the others.
    pub(crate) fn partition_delayed<T>(
        &self,
        all: Vec<T>,
        ino: impl Fn(&T) -> Ino,
    ) -> (Vec<T>, Vec<T>) {
        let table = self.table();
        all.into_iter().partition(|one| table.delayed().contains_key(&ino(one)))
    }

    /// The loss by a crash now.
    pub(crate) fn delayed_status(&self) -> Option<DelayedStatus> {
        if !self.is_used() {
            return None;
        }
        let now = self.decider.now();
        let table = self.table();
        let changed: Vec<u64> =
            table.delayed().values().filter_map(|file| file.unsaved()).collect();
        let state = self.state.lock();
        Some(DelayedStatus {
            files: changed.len() as u64,
            bytes: changed.iter().sum(),
            oldest_sync_s: state.first_sync_us.map(|at| now.saturating_sub(at) / 1_000_000),
            epochs: state.epochs,
            log_bytes: state.log_bytes,
            changed_outside: state.changed_outside.len() as u64,
            failing: state.failing.map(|error| error.to_string()).unwrap_or_default(),
            unused: match now >= USED_AFTER_US {
                true => self.groups.unused().into_iter().map(str::to_owned).collect(),
                false => Vec::new(),
            },
        })
    }
}

/// Opens the log, or creates it.
fn open_log(backing: &Backing) -> Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&backing.hidden()?.dir, LOG, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}
