//! The file system's logic: what each request means for names, BACKING and the store.
//!
//! [`Fs`] composes objects that do not know it: the [`Mover`], the epochs ([`Delayed`]), the
//! [`Namespace`], the [`Decider`]. The modules with its requests stand above it. `tests.rs` has the
//! order in which modules may use each other.

mod attributes;
pub(crate) mod backing;
pub(crate) mod beneath;
mod caller;
mod copying;
pub(crate) mod decider;
mod delayed;
mod delayed_file;
mod descriptors;
mod directories;
pub(crate) mod drops;
pub(crate) mod failures;
mod flash_state;
mod group_names;
mod mover;
mod namespace;
pub(crate) mod open_files;
pub(crate) mod opens;
pub(crate) mod readers;
mod recovery;
mod reservation;
mod residence;
pub(crate) mod sifting;
pub(crate) mod store;
mod table;
mod temporary;
mod temps;
pub(crate) mod types;
mod volume;
mod waiting;
mod writes;
mod xattrs;

use self::backing::{Backing, MakeHidden};
use self::beneath::proc_path;
use self::decider::Decider;
use self::delayed::Delayed;
use self::drops::Drops;
use self::failures::WriteBackFailures;
use self::mover::Mover;
use self::namespace::{Locked, Namespace};
use self::opens::Opens;
use self::reservation::Reservation;
use self::store::Store;
use self::table::Table;
use self::types::{Attr, Config, Ino, Status};
use self::volume::Kind;
use self::writes::{BlockDevice, figures};
use flashsift_events::event::Event;
use flashsift_events::names::Patterns;
use flashsift_events::page::PAGE_BYTES;
use flashsift_files::delayed::groups::Groups;
use flashsift_files::sift::account::Account;
use flashsift_files::sift::{KeepConfig, live::Live};
use parking_lot::Mutex;
use rustix::fs::StatVfs;
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures that a status holds: it has to fit into 64 KiB.
const FAILURES_SHOWN: usize = 100;

/// A file system whose new files live in RAM until they are written back to BACKING.
///
/// Every method may be called at any time by any thread. No other program may change BACKING
/// meanwhile. If one does, an operation on a file that was replaced fails with `ESTALE`; it never
/// returns another file's content.
#[derive(Debug)]
pub struct Fs {
    pub(crate) backing: Arc<Backing>,
    pub(crate) store: Arc<Store>,
    /// The most RAM that files may take, bytes.
    pub(crate) budget_bytes: u64,
    /// The RAM that files may take now: less than `budget_bytes` while memory is short.
    pub(crate) allowed_bytes: AtomicU64,
    names: Arc<Mutex<Namespace>>,
    /// Open files by number, so that reads and writes need no table.
    pub(crate) opens: Opens,
    pub(crate) reservation: Reservation,
    pub(crate) counters: Arc<Mutex<Status>>,
    pub(crate) decider: Arc<Decider>,
    /// The block device of BACKING, where it is known.
    device: Option<BlockDevice>,
    pub(crate) delayed: Arc<Delayed>,
    pub(crate) mover: Mover,
    /// Whether appends to files on flash may wait, and overwrites, but for those that match. Where
    /// blocks are smaller than pages, a page that waited costs more than what was overwritten.
    writes_wait: [bool; 2],
    write_through: Patterns,
    /// Opens of files, and their time in microseconds.
    pub(crate) open_times: [AtomicU64; 2],
}

impl Fs {
    /// Creates the file system over this directory. A thread that performs requests has a umask and
    /// a working directory of its own from then on: requests carry their final modes.
    ///
    /// # Errors
    ///
    /// The store or BACKING cannot be examined, or BACKING cannot be prepared for the mount.
    pub fn new(backing: OwnedFd, store: Store, config: Config) -> Result<Fs> {
        Fs::over(Backing::new(backing, config.noatime)?, store, config)
    }

    /// The same as if BACKING were on an ext4 with a journal, where new directories wait in RAM:
    /// for tests, which run on any file system.
    ///
    /// # Errors
    ///
    /// Those of [`Fs::new`].
    #[doc(hidden)]
    pub fn as_on_ext4(backing: OwnedFd, store: Store, config: Config) -> Result<Fs> {
        let mut backing = Backing::new(backing, config.noatime)?;
        backing.volume.kind = Kind::Ext4 { fast_commit: false };
        Fs::over(backing, store, config)
    }

    /// As [`Fs::new`]; if `.flashsift` is not there, the first change has it made.
    pub(crate) fn lazy(
        backing: OwnedFd,
        make_hidden: MakeHidden,
        store: Store,
        config: Config,
    ) -> Result<Fs> {
        Fs::over(Backing::lazy(backing, config.noatime, make_hidden)?, store, config)
    }

    fn over(backing: Backing, store: Store, config: Config) -> Result<Fs> {
        let budget_bytes = store.usage()?.1;
        let (backing, store) = (Arc::new(backing), Arc::new(store));
        let keep = KeepConfig {
            lose_at_most_us: config.lose_at_most_us,
            budget_bytes,
            patterns: config.settled.clone(),
            write_ahead: backing.volume.one_sync_covers_earlier(),
        };
        let (clock, sift) = (config.clock.clone(), Live::new(keep));
        let reservation =
            Reservation::new(backing.clone(), store.clone(), !config.delayed.is_empty());
        let groups = Groups::new(&config.delayed);
        let device = BlockDevice::new(&backing.root);
        let account = Account::new(config.flusher);
        let decider = Arc::new(Decider::new(clock, account, sift, config.tells_meaning));
        let table = Table::new(backing.root_ino, reservation.metadata.clone());
        let names = Namespace::new(table, backing.clone(), store.clone(), decider.clone());
        let names = Arc::new(Mutex::new(names));
        let counters = Arc::new(Mutex::new(Status { schema: 1, ..Status::default() }));
        let lose_us = config.lose_at_most_us;
        let block_bytes = rustix::fs::fstatvfs(&backing.root)?.f_frsize;
        let writes_wait = [config.writes_wait, config.writes_wait && block_bytes >= PAGE_BYTES];
        let delayed =
            Delayed::new(groups, &config.settled, lose_us, names.clone(), counters.clone());
        let delayed = Arc::new(delayed);
        let mover = Mover::new(names.clone(), delayed.clone(), counters.clone(), lose_us);
        Ok(Fs {
            names,
            reservation,
            backing,
            store,
            budget_bytes,
            allowed_bytes: AtomicU64::new(budget_bytes),
            opens: Opens::default(),
            counters,
            device,
            decider,
            delayed,
            mover,
            writes_wait,
            write_through: Patterns::new(&config.settled),
            open_times: Default::default(),
        })
    }

    /// Whether files are written back ahead of syncs: one sync makes earlier names durable.
    pub fn writes_ahead(&self) -> bool {
        self.backing.volume.one_sync_covers_earlier()
    }

    /// Time since this file system began, µs, by a clock that runs on through suspend.
    pub fn now_us(&self) -> u64 {
        self.decider.now()
    }

    pub(crate) fn table(&self) -> Locked<'_> {
        Locked::new(&self.names)
    }

    /// Every event goes here from now on, one after the other. To be called before the file system
    /// is used.
    pub fn observe(&self, sink: impl FnMut(&Event<'_>) + Send + 'static) {
        self.decider.observe(sink);
    }

    /// Delivers the events that are still queued.
    pub fn deliver_events(&self) {
        self.decider.deliver();
    }

    /// Looks up a name. Each successful lookup has to be [forgotten](Fs::forget) once.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is no such name. `ENAMETOOLONG`; `ESTALE`: the directory is gone from
    /// BACKING.
    pub fn lookup(&self, parent: Ino, name: &OsStr) -> Result<Attr> {
        let mut table = self.table();
        let ino = table.find(parent, name)?;
        table.looked_up(ino)
    }

    /// Subtracts this many lookups, which the kernel has taken back.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let mut table = self.table();
        table.forget(ino, lookups);
        if table.is_unreachable(ino) {
            self.mover.remove_from_ram(&mut table, self.decider.begin(0), ino);
        }
    }

    /// Whether the kernel may still ask for this file.
    pub(crate) fn knows(&self, ino: Ino) -> bool {
        self.table().node(ino).is_some()
    }

    /// Attributes of a file: size, owner, times …
    ///
    /// # Errors
    ///
    /// `ESTALE`: the file is gone from BACKING. Errors of reading its attributes.
    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        let mut table = self.table();
        table.attr_of(ino)
    }

    /// The statistics of BACKING's file system, in which files in RAM count as written.
    ///
    /// # Errors
    ///
    /// The statistics of BACKING cannot be read.
    pub fn statfs(&self) -> Result<StatVfs> {
        let mut all = rustix::fs::fstatvfs(&self.backing.root)?;
        let files = self.table().inodes_in_ram();
        let waits = self.mover.waiting_bytes().0 > 0;
        let bytes = if files == 0 && !waits { 0 } else { self.store.content()?.0 };
        let in_ram = self.reservation.needed(files, bytes).div_ceil(all.f_frsize.max(1));
        all.f_bfree = all.f_bfree.saturating_sub(in_ram);
        all.f_bavail = all.f_bavail.saturating_sub(in_ram);
        all.f_ffree = all.f_ffree.saturating_sub(files);
        all.f_favail = all.f_favail.saturating_sub(files);
        Ok(all)
    }

    /// Whether an application, or the kernel, has a file open.
    pub(crate) fn has_open_files(&self) -> bool {
        self.opens.any()
    }

    /// The path of BACKING now.
    ///
    /// # Errors
    ///
    /// `ENODATA`: it cannot be known, as the mount uses a mount of BACKING that has no place.
    pub(crate) fn backing_path(&self) -> Result<Vec<u8>> {
        let link = proc_path(&self.backing.root);
        let path = rustix::fs::readlink(link, Vec::new())?.into_bytes();
        if path == b"/" { Err(Errno::NODATA) } else { Ok(path) }
    }

    /// Performs the decisions that are due. Returns how many files reached flash, and the failures.
    ///
    /// # Errors
    ///
    /// The files that could not be written back, which stay in RAM.
    pub fn settle_due(&self, now_us: u64) -> (u64, std::result::Result<(), WriteBackFailures>) {
        self.mover.settle_due(now_us)
    }

    /// Writes back every file in RAM that has a name, durably, without those that are created
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// The files that could not be written back, which stay in RAM.
    pub fn settle_all(&self) -> std::result::Result<(), WriteBackFailures> {
        self.mover.settle_all()
    }

    /// The names of dropped files that the kernel still remembers.
    pub(crate) fn drops(&self) -> &Drops {
        &self.mover.drops
    }

    /// The state of the mount.
    pub fn status(&self) -> Status {
        let mut status = self.counters.lock().clone();
        status.read_only = self.backing.is_read_only();
        let table = self.table();
        status.files_in_ram = table.named_in_ram().len() as u64;
        status.directories_in_ram = table.new_directories().len() as u64;
        (status.failures, status.failing_directories) = self.mover.failures(&table);
        drop(table);
        (status.waiting_files, status.waiting_bytes) = self.mover.waiting_bytes();
        status.failing_files = status.failures.len() as u64;
        status.failures.truncate(FAILURES_SHOWN);
        status.failing = status
            .failures
            .first()
            .map(|first| format!("{}: {}: {}", first.path, first.step, first.error))
            .unwrap_or_default();
        if let Ok((used, budget)) = self.store.usage() {
            (status.ram_bytes, status.budget_bytes) = (used, budget);
        }
        let allowed = self.allowed_bytes.load(Ordering::Relaxed);
        status.allowed_bytes = (allowed < self.budget_bytes).then_some(allowed);
        status.foreground = self.decider.foreground();
        status.delayed = self.delayed.delayed_status();
        status.sift = self.decider.sift_status();
        let used = self.store.content().ok().map(|(used, _)| used);
        let flushes = &self.backing.flushes;
        status.writes = Some(figures(&self.decider, flushes, self.device.as_ref(), used));
        status
    }

    /// Sets whether the kernel reads and writes files on flash itself.
    pub(crate) fn set_passthrough(&self, passthrough: bool) {
        self.counters.lock().passthrough = passthrough;
    }

    /// Counts an open of a file that took this long, µs.
    pub(crate) fn count_open(&self, took_us: u64) {
        self.open_times[0].fetch_add(1, Ordering::Relaxed);
        self.open_times[1].fetch_add(took_us, Ordering::Relaxed);
    }

    /// Number of opens of files, and their time in the daemon, µs.
    pub fn opens_counted(&self) -> (u64, u64) {
        let [opens, open_us] = &self.open_times;
        (opens.load(Ordering::Relaxed), open_us.load(Ordering::Relaxed))
    }

    /// Counts a request that failed because of a bug.
    pub(crate) fn count_fault(&self) {
        self.counters.lock().faults += 1;
    }

    /// Forgets the files that nothing leads to any more but their numbers, as the kernel does at
    /// once; for tests.
    pub fn forget_nameless(&self) {
        let nameless: Vec<Ino> = self.table().nameless().collect();
        nameless.into_iter().for_each(|ino| self.forget(ino, u64::MAX));
    }

    /// Recomputes the redundant state and compares it; for tests.
    pub fn check(&self) {
        self.table().check();
        self.decider.check();
    }

    /// Leaves BACKING as an ordinary directory. All files in RAM must have been written back.
    ///
    /// # Errors
    ///
    /// The directory of partial copies cannot be removed, or the time of a directory cannot be set.
    pub fn tidy(&self) -> Result<()> {
        self.delayed.remove_log()?;
        self.backing.tidy()
    }
}

#[cfg(test)]
mod tests;
