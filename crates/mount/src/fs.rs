//! The file system's logic: what each request means for the table of names, BACKING and the store.

pub(crate) mod backing;
pub(crate) mod beneath;
mod caller;
mod copying;
pub(crate) mod decider;
mod delayed;
mod delayed_file;
mod directories;
pub(crate) mod drops;
pub(crate) mod failures;
mod flash_state;
mod group_names;
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
mod write_back;
mod writes;
mod xattrs;

use self::backing::Backing;
use self::beneath::proc_path;
use self::decider::Decider;
use self::delayed::Delayed;
use self::drops::Drops;
use self::failures::Failing;
use self::namespace::Namespace;
use self::opens::Opens;
use self::reservation::Reservation;
use self::store::Store;
use self::table::Table;
use self::types::{Attr, Changes, Config, Ino, Status, Time};
use self::write_back::Staged;
use self::writes::{BlockDevice, figures};
use flashsift_core::delayed::groups::Groups;
use flashsift_core::event::{Event, Micros};
use flashsift_core::sift::account::Account;
use flashsift_core::sift::{KeepConfig, live::Live};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, Gid, Mode, StatVfs, Timestamps, Uid};
use rustix::io::{Errno, Result};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failures that a status holds: it has to fit into 64 KiB.
const FAILURES_SHOWN: usize = 100;

/// Longest time after which a file that was handed over gets its name, µs: when the kernel writes
/// dirty pages by default (`vm.dirty_expire_centisecs`). Until then its deletion costs nothing.
const UNNAMED_US: Micros = 30_000_000;

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
    /// Held by the thread that frees space in RAM.
    pub(crate) making_room: Mutex<()>,
    pub(crate) decider: Arc<Decider>,
    /// Locked after the table.
    pub(crate) failing: Mutex<Failing>,
    /// Copies that could not get their names, by file. Locked after the table.
    pub(crate) kept: Mutex<HashMap<Ino, Staged>>,
    /// Files that were handed over, and when each has to get its name, in order.
    pub(crate) handed_over: Mutex<VecDeque<(Micros, Ino)>>,
    /// Time from a file's being handed over to its name, µs.
    pub(crate) unnamed_us: Micros,
    /// The block device of BACKING, where it is known.
    device: Option<BlockDevice>,
    pub(crate) drops: Drops,
    pub(crate) delayed: Arc<Delayed>,
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

    fn over(backing: Backing, store: Store, config: Config) -> Result<Fs> {
        let budget_bytes = store.usage()?.1;
        let (backing, store) = (Arc::new(backing), Arc::new(store));
        let keep = KeepConfig {
            lose_at_most_us: config.lose_at_most_us,
            budget_bytes,
            patterns: config.settled.clone(),
            write_ahead: backing.volume.one_sync_covers_earlier(),
        };
        let unnamed_us = config.lose_at_most_us.min(UNNAMED_US);
        let (clock, sift) = (config.clock.clone(), Live::new(keep));
        let reservation = Reservation::new(backing.root.as_fd())?;
        let groups = Groups::new(&config.delayed);
        let device = BlockDevice::new(&backing.root);
        let decider = Arc::new(Decider::new(clock, Account::new(config.flusher), sift));
        let table = Table::new(backing.root_ino, reservation.metadata.clone());
        let names = Namespace::new(table, backing.clone(), store.clone(), decider.clone());
        let names = Arc::new(Mutex::new(names));
        let counters = Arc::new(Mutex::new(Status { schema: 1, ..Status::default() }));
        let lose_us = config.lose_at_most_us;
        let delayed =
            Delayed::new(groups, &config.settled, lose_us, names.clone(), counters.clone());
        Ok(Fs {
            names,
            reservation,
            backing,
            store,
            budget_bytes,
            allowed_bytes: AtomicU64::new(budget_bytes),
            opens: Opens::default(),
            counters,
            making_room: Mutex::new(()),
            device,
            decider,
            failing: Mutex::default(),
            kept: Mutex::default(),
            handed_over: Mutex::default(),
            unnamed_us,
            drops: Drops::default(),
            delayed: Arc::new(delayed),
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

    pub(crate) fn table(&self) -> MutexGuard<'_, Namespace> {
        self.names.lock()
    }

    /// Every event goes here from now on, one after the other. To be called before the file system
    /// is used.
    pub fn observe(&self, sink: impl FnMut(&Event<'_>) + Send + 'static) {
        self.decider.observe(sink);
    }

    /// Wall-clock time of the stream's time 0, µs since 1970.
    pub fn epoch_us(&self) -> u64 {
        self.decider.epoch_us()
    }

    /// CLOCK_BOOTTIME at the stream's time 0, µs.
    pub fn boot_us(&self) -> u64 {
        self.decider.boot_us()
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
        self.table().forget(ino, lookups);
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

    /// Performs `chmod`, `chown`, `truncate` and `utimensat`.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the file is not known; `EROFS` if BACKING is read-only; for a new size the
    /// errors of a write; any error of BACKING or of the store.
    pub fn set_attr(&self, tid: u32, ino: Ino, changes: &Changes) -> Result<Attr> {
        self.backing.refuse_if_read_only()?;
        let file_state = self.delayed.file_state(&mut self.table(), ino)?;
        if let Some(size) = changes.size {
            self.resize(self.decider.begin(tid), ino, size)?;
        }
        self.delayed.join_group(ino, &file_state)?;
        let epoch = file_state.is_in_group().then(|| self.delayed.gate.read());
        let gate = file_state.gate.read();
        let mut table = self.table();
        let place = file_state.place();
        let attr = table.attr_of(ino)?;
        let changes = with_stripped(changes, &attr);
        if table.is_in_ram(ino) {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            if uid.is_some() || gid.is_some() {
                self.store.chown(ino, uid, gid)?;
            }
            if let Some(mode) = changes.mode {
                self.store.chmod(ino, Mode::from_raw_mode(mode))?;
            }
            if let Some(times) = times(&changes) {
                self.store.set_times(ino, &times)?;
            }
            file_state.changed();
            if let Some(delayed) = place.residence().delayed() {
                delayed.touched();
                self.delayed.delayed_changed();
            }
        } else if let Some(file) = place.file() {
            apply(file, &changes)?;
        } else {
            let path = table.path_of(ino)?;
            apply(&path, &changes)?;
            table.close_dir(ino);
            if changes.mtime.is_some() {
                table.dir_times.remove(&ino);
            }
        }
        drop(place);
        drop(gate);
        drop(epoch);
        let attr = table.attr_of(ino);
        table.release(ino, file_state);
        attr
    }

    /// The statistics of BACKING's file system, in which files in RAM count as written.
    ///
    /// # Errors
    ///
    /// The statistics of BACKING cannot be read.
    pub fn statfs(&self) -> Result<StatVfs> {
        let mut all = rustix::fs::fstatvfs(&self.backing.root)?;
        let files = self.table().named_in_ram().len() as u64;
        let bytes = if files == 0 { 0 } else { self.store.content()?.0 };
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

    /// The state of the mount.
    pub fn status(&self) -> Status {
        let mut status = self.counters.lock().clone();
        status.read_only = self.backing.is_read_only();
        let table = self.table();
        status.files_in_ram = table.named_in_ram().len() as u64;
        status.failures = self.failing_now(&table);
        drop(table);
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

/// Clears setuid and setgid if the change requires it.
fn with_stripped(changes: &Changes, attr: &Attr) -> Changes {
    // Setgid without group execution is cleared too. The kernel would keep it for members of the
    // group, but we do not know the caller's groups.
    let bits = Mode::SUID | Mode::SGID;
    match changes.strip && changes.mode.is_none() && attr.permissions().intersects(bits) {
        true => Changes { mode: Some((attr.permissions() - bits).as_raw_mode()), ..*changes },
        false => *changes,
    }
}

/// Sets owner, permissions and times, in an order in which no call undoes another.
fn apply(file: &impl AsFd, changes: &Changes) -> Result<()> {
    let here = Path::new("");
    if changes.uid.is_some() || changes.gid.is_some() {
        let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
        rustix::fs::chownat(file, here, uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = changes.mode {
        rustix::fs::chmodat(
            rustix::fs::CWD,
            proc_path(file),
            Mode::from_raw_mode(mode),
            AtFlags::empty(),
        )?;
    }
    if let Some(times) = times(changes) {
        rustix::fs::utimensat(file, here, &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

fn times(changes: &Changes) -> Option<Timestamps> {
    let time = |asked: Option<Option<Time>>| {
        let (tv_sec, tv_nsec) = match asked {
            None => (0, rustix::fs::UTIME_OMIT),
            Some(None) => (0, rustix::fs::UTIME_NOW),
            Some(Some(time)) => (time.s, i64::from(time.ns)),
        };
        rustix::fs::Timespec { tv_sec, tv_nsec }
    };
    (changes.atime.is_some() || changes.mtime.is_some()).then(|| Timestamps {
        last_access: time(changes.atime),
        last_modification: time(changes.mtime),
    })
}

#[cfg(test)]
mod tests;
