//! The life of a mount: from the check of its place to the last file that is written back.
//!
//! Nothing ends the process while a file is only in RAM, except a SIGTERM that is sent after the
//! daemon has reported that some files cannot be written back.

pub mod announce;
mod background;
mod ending;
mod error;
mod process;
pub mod session;
mod systemd;
pub mod trial;
mod watcher;
mod write_back;

use self::background::Messages;
pub use self::background::{BeforeMessage, ToJournal};
use self::error::Context;
use self::systemd::{Watchdog, notify};
use crate::attach::{
    noatime,
    place::{self, LockedPlace, Refused, Sign},
    undo, user_tmpfs,
};
use crate::fs::{
    Fs,
    backing::MakeHidden,
    sifting::{SiftError, SiftWish},
    store::Store,
    types::Config,
};
use crate::metrics::{self, address::Address, server::Server};
pub use error::Error;
use flashsift_events::event::Event;
use flashsift_events::page::PAGE_BYTES;
use flashsift_events::show;
use flashsift_files::flusher::FlusherSettings;
use flashsift_files::sift::live::LiveSifter;
use flashsift_host::{
    foreground::Source,
    mounts::{self, Mount},
};
use rustix::fs::minor;
use sd_notify::NotifyState;
use signal_hook::consts::SIGHUP;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};
use tracing::{info, warn};

/// First and longest pause before a failed write-back is tried again.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// How often a daemon that waits for the end of another checks again.
const CHECK_AGAIN: Duration = Duration::from_millis(100);

/// The requested mount.
pub struct Options {
    /// The directory in which files are written back.
    pub backing: PathBuf,
    /// The directory on which it is mounted; the same as `backing` for an in-place mount.
    pub mountpoint: PathBuf,
    /// Mount also while a process uses one of the directories.
    pub even_if_used: bool,
    /// Types of file systems on which BACKING may lie although they are refused otherwise.
    pub even_on: Vec<String>,
    /// Data that no application synced is on flash at most this long after it was written.
    pub lose_at_most: Duration,
    /// Mount also over a directory that the machine needs to start.
    pub force: bool,
    /// RAM for new files, bytes.
    pub budget_bytes: u64,
    /// Patterns of names that are created on flash.
    pub settled: Vec<String>,
    /// Patterns of files whose syncs are delayed, each with the longest time.
    pub delayed: Vec<(String, Duration)>,
    /// Other users may use the mount.
    pub allow_other: bool,
    /// Options that the kernel knows.
    pub kernel: Vec<String>,
    /// How requests are served.
    pub serving: session::Serving,
    /// The sifter, and what it does at first.
    pub sift: Option<(LiveSifter, SiftWish)>,
    /// A trial, which switches the sifter.
    pub trial: Option<trial::StoredTrial>,
    /// Reads the sifter again, after a SIGHUP.
    pub reload: Option<Reload>,
    /// Records every event.
    pub record: Option<StartRecording>,
    /// The recording tells what cache files are copies of.
    pub record_meaning: bool,
    /// Places at which metrics are served.
    pub metrics: Vec<Address>,
    /// Where the application in the foreground is looked up.
    pub foreground: Option<Source>,
    /// Makes messages go to the journal; for a process in the background.
    pub to_journal: ToJournal,
    /// Performs something before the next message; for a process in the background.
    pub before_message: BeforeMessage,
    /// This process was started to run in the background.
    pub in_background: bool,
}

/// Reads the sifter from the file that it came from. The error is for the user.
pub type Reload = Box<dyn FnMut() -> Result<Option<(LiveSifter, SiftWish)>, String>>;

/// Any error of a recording.
pub type RecordingError = Box<dyn std::error::Error + Send + Sync>;

/// Time 0 of a recording by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Began {
    /// Wall-clock time, microseconds since 1970 (UTC).
    pub epoch_us: u64,
    /// CLOCK_BOOTTIME, microseconds.
    pub boot_us: u64,
}

/// Starts a recording of the mount on this directory, which began then.
pub type StartRecording =
    Box<dyn FnOnce(&Path, Began) -> Result<Box<dyn Recording>, RecordingError>>;

/// A recording of all events of a mount.
pub trait Recording {
    /// A sink for the events, in order.
    fn sink(&self) -> Box<dyn FnMut(&Event<'_>) + Send>;

    /// Completes the recording; returns a sentence about it.
    ///
    /// # Errors
    ///
    /// The trace cannot be written.
    fn finish(self: Box<Self>) -> Result<String, RecordingError>;
}

enum Wake {
    Signal(i32),
    /// The mount has ended.
    Ended(io::Result<()>),
}

/// A mount that answers.
struct Daemon {
    fs: Arc<Fs>,
    mount: Mount,
    backing: PathBuf,
    sign: Sign,
    wakes: Receiver<Wake>,
}

/// Mounts, and returns after the unmount, when every file is written back.
///
/// # Errors
///
/// The mount was refused, a step failed, or files were given up after a signal.
pub fn run(mut options: Options) -> Result<(), Error> {
    if options.in_background {
        background::leave_terminal()?;
    }
    process::keep_files_private();
    let (wake, wakes) = mpsc::channel();
    process::read_signals(&wake)?;
    if free_dead(&options.mountpoint)? {
        info!("{}: unmounted the dead mount of a killed process", options.mountpoint.display());
    }
    for path in [&mut options.backing, &mut options.mountpoint] {
        *path = mounts::resolved(path).at(path)?;
    }
    // A working directory is in use.
    std::env::set_current_dir("/")?;
    let Some(place) = take(&options, &wakes)? else { return Ok(()) };
    let record = options.record.take();
    let mut metrics = match listen(&place, &options.metrics) {
        Ok(metrics) => metrics,
        Err(why) => {
            let _ = place.lock.remove(place.root);
            return Err(why);
        }
    };
    let (daemon, recording) = match start(&place, &options, record, wake, wakes) {
        Ok(started) => started,
        Err(why) => {
            // The reason why it is not mounted is more important than an error here.
            let _ = place.lock.remove(place.root);
            return Err(why);
        }
    };
    let write_back = write_back::start(daemon.fs.clone())?;
    let announce = announce::start(daemon.fs.clone(), daemon.mount.clone())?;
    let mut reload = options.reload.take();
    let sifting = match options.sift.take() {
        Some((sifter, wish)) => match daemon.fs.choose_sifter(sifter, wish) {
            // The warning is out. Files wait in RAM as without a sifter, and none is dropped.
            Err(SiftError::NotAnnounced) => Ok(()),
            done => done.context("--sift"),
        },
        None => Ok(()),
    };
    let trial = match options.trial.take() {
        Some(stored) => Some(trial::RunningTrial::start(daemon.fs.clone(), stored)?),
        None => None,
    };
    let (fs, point) = (daemon.fs.clone(), place.mountpoint.clone());
    metrics.start(move || metrics::text(&[(&point, &fs.status())]))?;
    let machine = watcher::Watcher::start(daemon.fs.clone(), options.foreground.take())?;
    let watchdog = Watchdog::start(daemon.fs.clone(), daemon.mount.clone())?;

    let report = report(&place, &options, &metrics);
    let reported = match options.in_background {
        // A mount that ends at once is not reported: programs would write below it.
        _ if sifting.is_err() => Ok(Messages::Elsewhere),
        true => background::report_ready(&report, &place.lock, &options),
        false => {
            let _ = io::stderr().write_all(show::lines(&report, false).as_bytes());
            Ok(Messages::Elsewhere)
        }
    };
    let status = format!("files are written back to {}", place.backing.display());
    if sifting.is_ok() {
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }
    let mounted = match &reported {
        Ok(_) if sifting.is_err() => true,
        Ok(_) => daemon.wait(reload.as_mut()),
        // The process that started this one is gone: its user has interrupted it.
        Err(why) => {
            warn!("ends again: reporting that it is mounted: {why}");
            true
        }
    };

    let ended = daemon.end(mounted);
    daemon.fs.decider.end();
    daemon.fs.drops().end();
    machine.stop();
    let _ = write_back.join();
    let _ = announce.join();
    if let Some(trial) = trial {
        trial.stop();
    }
    if let Some(watchdog) = watchdog {
        watchdog.stop();
    }
    ended?;
    drop(metrics);
    let tidied = daemon.fs.tidy();
    daemon.fs.deliver_events();
    drop(daemon);
    // `flashsift unmount` returns when BACKING is free, and the recording has to be whole by then.
    let recorded = match recording {
        Some(recording) => recording.finish().map(|says| info!("{says}")).map_err(Error::Recording),
        None => Ok(()),
    };
    let log_in_backing = matches!(reported, Ok(Messages::InBacking));
    let close_log = log_in_backing.then_some(options.before_message);
    let left = leave(place, close_log, tidied);
    sifting.and(recorded).and(left)
}

/// Makes BACKING an ordinary directory, and everything in it durable: in this order, so that one
/// commit of the kernel holds both.
fn leave(
    place: LockedPlace,
    close_log: Option<BeforeMessage>,
    tidied: rustix::io::Result<()>,
) -> Result<(), Error> {
    // Other daemons wait until the last descriptor of the directory is closed.
    let root = place.root.try_clone()?;
    let remove = || {
        tidied?;
        close_log.map_or(Ok(()), background::close_log)?;
        place.lock.remove(place.root)
    };
    let removed: io::Result<()> = remove();
    let synced = rustix::fs::syncfs(&root);
    synced.context(format!("writing back to {}", place.backing.display()))?;
    removed.context("leaving BACKING as an ordinary directory")
}

/// Unmounts a mount of flashsift whose process was killed. Whether there was one.
///
/// # Errors
///
/// The list of mounts cannot be read, or the unmount fails.
pub fn free_dead(mountpoint: &Path) -> Result<bool, Error> {
    undo::free_dead(mountpoint).at(mountpoint)
}

/// Takes the place. If another daemon has unmounted BACKING and still writes files back, waits for
/// its end. `None`: a signal ended this daemon during the wait.
fn take(options: &Options, wakes: &Receiver<Wake>) -> Result<Option<LockedPlace>, Error> {
    let wanted = place::Wanted {
        backing: &options.backing,
        mountpoint: &options.mountpoint,
        even_if_used: options.even_if_used,
        even_on: &options.even_on,
        xattrs: options.serving.xattrs,
        force: options.force,
    };
    let mut logged = None;
    loop {
        let ending = match LockedPlace::take(&wanted) {
            Err(Refused::Ending(ending)) => ending,
            taken => return Ok(Some(taken?)),
        };
        if logged.as_ref() != Some(&ending) {
            info!("waits: {ending}");
            notify(&[NotifyState::Status(&format!("waits: {ending}"))]);
        }
        match wakes.recv_timeout(CHECK_AGAIN) {
            // Without an error the process that started this one would report success.
            Ok(_) if options.in_background => {
                return Err(Error::Words("ended by a signal before it was mounted".to_owned()));
            }
            Ok(_) => {
                info!("ended by a signal before it was mounted");
                return Ok(None);
            }
            // Ctrl-C ended only the process that started this one.
            Err(_) if options.in_background && !background::is_awaited()? => return Ok(None),
            Err(_) => logged = Some(ending),
        }
    }
}

/// Listens for those who want metrics.
fn listen(place: &LockedPlace, addresses: &[Address]) -> Result<Server, Error> {
    let hidden = |address: &&Address| match address {
        Address::Unix(path) => {
            let folder = path.parent().and_then(|folder| mounts::resolved(folder).ok());
            let path = folder.unwrap_or_else(|| path.clone());
            path.starts_with(&place.backing) || path.starts_with(&place.mountpoint)
        }
        Address::Loopback(_) => false,
    };
    if let Some(address) = addresses.iter().find(hidden) {
        return Err(Error::Words(format!(
            "metrics: {address} lies in the mount; choose a directory outside, such as /run"
        )));
    }
    Server::bind(addresses).context("metrics")
}

/// Builds the file system and mounts it.
fn start(
    place: &LockedPlace,
    options: &Options,
    record: Option<StartRecording>,
    wake: Sender<Wake>,
    wakes: Receiver<Wake>,
) -> Result<(Daemon, Option<Box<dyn Recording>>), Error> {
    let root = rustix::process::geteuid().is_root();
    process::survive_out_of_memory(root);
    process::raise_descriptor_limit(root);
    process::outlive_limits(root)?;
    let noatime = options.kernel.iter().any(|option| option == "noatime");
    let store = store(root, options.budget_bytes, noatime)?;
    // `place` keeps the directory open as it was found: its file system stays mounted.
    let clone = if noatime { noatime::held(&place.root).at(&place.backing)? } else { None };
    let partly = noatime && clone.is_none();
    let config = Config {
        lose_at_most_us: micros(options.lose_at_most),
        settled: options.settled.clone(),
        delayed: options.delayed.iter().map(|(of, time)| (of.clone(), micros(*time))).collect(),
        noatime: partly,
        writes_wait: !options.even_if_used,
        tells_meaning: options.record_meaning,
        flusher: flusher_settings(),
        ..Config::default()
    };
    let backing = clone.map_or_else(|| place.root.try_clone(), Ok)?;
    let lock = place.lock.clone();
    let make_hidden = MakeHidden(Box::new(move || lock.make_hidden()));
    let fs = Arc::new(Fs::lazy(backing, make_hidden, store, config).at(&place.backing)?);
    let began = Began { epoch_us: fs.decider.epoch_us, boot_us: fs.decider.began_us };
    let started = record
        .map(|start| start(&place.mountpoint, began).map_err(Error::Recording))
        .transpose()
        .and_then(|recording| {
            if let Some(recording) = &recording {
                fs.observe(recording.sink());
            }
            Ok((mount(&fs, place, options, wake)?, recording))
        });
    let (mount, recording) = match started {
        Ok(started) => started,
        Err(why) => {
            let _ = fs.tidy();
            return Err(why);
        }
    };
    if !root {
        info!(
            "not root: there is no passthrough, so reads and writes take more CPU time, and \
             programs of other users that have files open here are not found"
        );
    }
    if partly {
        warn!(
            "the kernel refuses a mount without access times: noatime holds for your own files, \
             not for directories and for files of other users"
        );
    }
    let (backing, sign) = (place.backing.clone(), place.lock.sign());
    Ok((Daemon { fs, mount, backing, sign, wakes }, recording))
}

/// The settings by which the kernel writes dirty pages; its own defaults where it does not show
/// them.
fn flusher_settings() -> FlusherSettings {
    match flashsift_host::flusher::settings() {
        Ok(kernel) => FlusherSettings {
            expire_us: kernel.expire_us,
            tick_us: kernel.tick_us,
            background_pages: kernel.background_bytes / PAGE_BYTES,
        },
        Err(why) => {
            warn!("the status estimates ext4's writes with the kernel's defaults: {why}");
            FlusherSettings::default()
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn store(root: bool, budget_bytes: u64, noatime: bool) -> Result<Store, Error> {
    let tmpfs = match root {
        true => Store::new_tmpfs(budget_bytes, noatime).map_err(Error::from),
        false => user_tmpfs::receive(budget_bytes, noatime).map_err(Error::from),
    };
    tmpfs.map(Store::on).context(format!("{} of RAM for new files", show::bytes(budget_bytes)))
}

fn mount(
    fs: &Arc<Fs>,
    place: &LockedPlace,
    options: &Options,
    wake: Sender<Wake>,
) -> Result<Mount, Error> {
    let attach = crate::attach::AttachOptions {
        mountpoint: place.mountpoint.clone(),
        name: place.backing.to_string_lossy().into_owned(),
        allow_other: options.allow_other,
        kernel: options.kernel.clone(),
    };
    let running = session::start(fs.clone(), &attach, options.serving).map_err(|why| {
        let hint = match Path::new("/dev/fuse").exists() {
            false => " (there is no /dev/fuse: modprobe fuse)",
            true if !rustix::process::geteuid().is_root() => {
                " (users need fusermount3, of the package fuse3)"
            }
            true => "",
        };
        let what = format!("mounting on {}{hint}", place.mountpoint.display());
        Error::Step { what, why: Box::new(why.into()) }
    })?;
    let (sign, ended) = (place.lock.sign(), place.lock.sign());
    let mount = mounts::at(&place.mountpoint)?.ok_or_else(|| {
        Error::Words("it is mounted, but /proc/self/mountinfo does not list it".to_owned())
    })?;
    warn_unless_signed(sign.mounted(minor(mount.dev)));
    thread::Builder::new().name("session".into()).spawn(move || {
        let result = running.wait();
        warn_unless_signed(ended.ending(""));
        // Without a receiver the daemon has ended.
        let _ = wake.send(Wake::Ended(result));
    })?;
    Ok(mount)
}

/// Only another daemon that wants the same BACKING misses what could not be written.
fn warn_unless_signed(written: io::Result<()>) {
    if let Err(why) = written {
        warn!("writing to the lock in BACKING: {why}");
    }
}

/// Message for the user when the mount is ready.
fn report(place: &LockedPlace, options: &Options, metrics: &Server) -> String {
    let [backing, mountpoint] =
        [&place.backing, &place.mountpoint].map(|path| path.display().to_string());
    let [backing, mountpoint] = [&backing, &mountpoint].map(|path| show::name(path));
    let after = show::duration(micros(options.lose_at_most));
    let budget = show::bytes(options.budget_bytes);
    let later = match place.backing == place.mountpoint {
        true => "and are then written back in place".to_owned(),
        false => format!("and are then written back to {backing}"),
    };
    let metrics: String = metrics.addresses().map(|at| format!("  metrics {at}\n")).collect();
    format!(
        "mounted {mountpoint}: new files live in RAM for at most {after}, in at most {budget}, \
         {later}\n  \
         see   flashsift status {mountpoint}\n  \
         undo  flashsift unmount {mountpoint}\n{metrics}"
    )
}

impl Daemon {
    /// Waits until the mount is to end. Whether it is still mounted then.
    fn wait(&self, mut reload: Option<&mut Reload>) -> bool {
        loop {
            match (self.wakes.recv(), &mut reload) {
                (Ok(Wake::Ended(ended)), _) => {
                    warn_of_error(ended);
                    return false;
                }
                (Ok(Wake::Signal(SIGHUP)), Some(reload)) => self.reload(reload),
                // Without a sender no signal can come any more.
                (Ok(Wake::Signal(_)) | Err(_), _) => return true,
            }
        }
    }

    /// Reads the sifter again. After an error nothing changes.
    fn reload(&self, reload: &mut Reload) {
        match reload() {
            Ok(Some((sifter, wish))) => match self.fs.choose_sifter(sifter, wish) {
                Ok(()) => info!("read the sifter's settings again"),
                Err(why) => warn!("the sifter stays as it was: {why}"),
            },
            Ok(None) => match self.fs.switch_sifter(SiftWish::Off) {
                Ok(()) | Err(SiftError::NoSifter) => info!("the settings name no sifter"),
                Err(why) => warn!("switching the sifter off: {why}"),
            },
            Err(why) => warn!("the sifter stays as it was: {why}"),
        }
    }
}

fn warn_of_error(ended: io::Result<()>) {
    if let Err(why) = ended {
        warn!("the kernel's requests ended with an error: {why}");
    }
}
