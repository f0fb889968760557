//! The life of a mount: from the looking at its place to the last file that settles. Nothing ends it while a file has not
//! settled, but a SIGTERM after it was said that some cannot.

use super::{
    Args,
    background::{self, Words},
    events::Recording,
    namespace,
    notify::{self, Watchdog},
    settings::Wanted,
};
use crate::size;
use anyhow::Context;
use flashsift_host::{
    mounts::{self, Mount},
    users::Found,
};
use flashsift_mount::{
    Config, Fs, Store, fuse, noatime,
    place::{self, Place, Refused, Sign},
    say, undo,
};
use rustix::fs::minor;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Files that come of age within this part of their time in RAM settle together: they share a sync.
const TOGETHER: u32 = 16;
/// First and longest pause before what failed is tried again.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Who waits until another ends looks again after so long.
const AGAIN: Duration = Duration::from_millis(100);
/// A mount that was taken away is let go of by the kernel in no time, unless other namespaces have copies of it.
const LET_GO: Duration = Duration::from_secs(10);

enum Wake {
    Signal(i32),
    /// The kernel asks for nothing any more.
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

/// Mounts, and returns when all is over.
pub(super) fn run(args: &Args, wanted: Wanted) -> anyhow::Result<()> {
    let recording = args.record.as_deref().map(std::path::absolute).transpose()?;
    // No thread may exist that a signal could end us in.
    let (wake, wakes) = mpsc::channel();
    on_signals(&wake)?;
    say_freed(&args.mountpoint)?;
    let [backing, mountpoint] = [&args.backing, &args.mountpoint].map(|path| mounts::resolved(path));
    let (backing, mountpoint) = (
        backing.with_context(|| args.backing.display().to_string())?,
        mountpoint.with_context(|| args.mountpoint.display().to_string())?,
    );
    // A working directory is in use.
    std::env::set_current_dir("/")?;
    let wanted_place = place::Wanted {
        backing: &backing,
        mountpoint: &mountpoint,
        even_if_used: args.even_if_used,
        even_on: &args.even_on,
    };
    let Some(place) = taken(&wanted_place, &wakes, args.in_background)? else { return Ok(()) };
    let mounted = start(&place, &wanted, recording, wake, wakes);
    let (daemon, recording) = match mounted {
        Ok(started) => started,
        Err(why) => {
            // Why it is not mounted is what matters.
            let _ = place.lock.remove(place.root);
            return Err(why);
        }
    };
    let (stop, stopped) = mpsc::channel();
    let settler = daemon.settler(wanted.settle_after, stopped)?;
    let watchdog = Watchdog::start(daemon.fs.clone(), daemon.mount.clone())?;

    let says = in_words(&place, &wanted);
    let told = match args.in_background {
        true => background::ready(&says, &place.lock),
        false => {
            let _ = io::stderr().write_all(says.as_bytes());
            Ok(Words::Elsewhere)
        }
    };
    let settles_in = format!("files settle in {}", place.backing.display());
    notify::tell(&[NotifyState::Ready, NotifyState::Status(&settles_in)]);
    let mounted = match &told {
        Ok(_) => daemon.wait(),
        // Whoever started us is gone before he knew that it is mounted: he wants it no more.
        Err(why) => {
            say!("ends again: saying that it is mounted: {why}");
            true
        }
    };

    let ended = daemon.end(mounted);
    drop(stop);
    let _ = settler.join();
    if let Some(watchdog) = watchdog {
        watchdog.stop();
    }
    ended?;
    let ordinary = "leaving BACKING as an ordinary directory";
    daemon.fs.tidy().context(ordinary)?;
    drop(daemon);
    if let Some(recording) = recording {
        say!("{}", recording.finish()?);
    }
    if let Ok(Words::InBacking) = told {
        background::silent()?;
    }
    place.lock.remove(place.root).context(ordinary)
}

/// Its place; who had it before, and was unmounted by a plain `umount`, is waited for. `None`: somebody wants an end before.
fn taken(
    wanted: &place::Wanted<'_>,
    wakes: &Receiver<Wake>,
    in_background: bool,
) -> anyhow::Result<Option<Place>> {
    let mut said = None;
    loop {
        let ending = match Place::take(wanted) {
            Err(Refused::Ending(ending)) => ending,
            taken => return Ok(Some(taken?)),
        };
        if said.as_ref() != Some(&ending) {
            say!("waits: {ending}");
            notify::tell(&[NotifyState::Status(&format!("waits: {ending}"))]);
        }
        match wakes.recv_timeout(AGAIN) {
            // The first would take a plain end for a mount.
            Ok(_) if in_background => anyhow::bail!("told to end before it was mounted"),
            Ok(_) => {
                say!("told to end before it was mounted");
                return Ok(None);
            }
            // Ctrl-C reached the first alone.
            Err(_) if in_background && !background::is_awaited()? => return Ok(None),
            Err(_) => said = Some(ending),
        }
    }
}

/// Mounted, with what else runs.
fn start(
    place: &Place,
    wanted: &Wanted,
    recording: Option<PathBuf>,
    wake: Sender<Wake>,
    wakes: Receiver<Wake>,
) -> anyhow::Result<(Daemon, Option<Recording>)> {
    let root = rustix::process::geteuid().is_root();
    prefer_to_live(root);
    raise_descriptors(root);
    let recording = recording.map(|path| Recording::begin(&path, &place.mountpoint)).transpose()?;
    let noatime = wanted.options.iter().any(|option| option == "noatime");
    let store = store(root, wanted.budget_bytes, noatime)?;
    let at = || place.backing.display().to_string();
    // `place` keeps the directory open as it was found: its file system stays mounted.
    let held = if noatime { noatime::held(&place.root).with_context(at)? } else { None };
    let partly = noatime && held.is_none();
    let config = Config {
        settle_after_us: micros(wanted.settle_after),
        settled: wanted.settled.clone(),
        noatime: partly,
    };
    let backing = held.map_or_else(|| place.root.try_clone(), Ok)?;
    let fs = Fs::new(backing, store, config).with_context(at)?;
    if let Some(recording) = &recording {
        fs.observe(recording.observer());
    }
    let fs = Arc::new(fs);
    let mount = match mounted(&fs, place, wanted, wake) {
        Ok(mount) => mount,
        Err(why) => {
            let _ = fs.tidy();
            return Err(why);
        }
    };
    if !root {
        say!(
            "not root: no passthrough, so that reads and writes take more CPU time; and whether programs of other \
             users have files open here is not known"
        );
    }
    if partly {
        say!(
            "the kernel lets us have no mount without access times: noatime holds for settled files that are your own, not for others' and directories"
        );
    }
    let (backing, sign) = (place.backing.clone(), place.lock.sign());
    Ok((Daemon { fs, mount, backing, sign, wakes }, recording))
}

/// What a killed flashsift left is taken away, and that is said.
pub(super) fn say_freed(mountpoint: &Path) -> anyhow::Result<()> {
    if undo::free_dead(mountpoint).with_context(|| mountpoint.display().to_string())? {
        say!("{}: what was mounted here was dead, its process was killed; taken away", mountpoint.display());
    }
    Ok(())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn store(root: bool, budget_bytes: u64, noatime: bool) -> anyhow::Result<Store> {
    let at = || format!("{} of RAM for new files", size::bytes(budget_bytes));
    match root {
        true => Store::new_tmpfs(budget_bytes, noatime).map(Store::on).with_context(at),
        false => namespace::tmpfs(budget_bytes, noatime).map(Store::on),
    }
}

/// Without memory others are ended first: what lives in ours would be lost.
fn prefer_to_live(root: bool) {
    if root && let Err(why) = fs::write("/proc/self/oom_score_adj", "-900") {
        say!("/proc/self/oom_score_adj: {why}; should memory run out, this process may be ended first");
    }
}

/// A descriptor for each file that somebody has open.
fn raise_descriptors(root: bool) {
    let limit = getrlimit(Resource::Nofile);
    let most = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let to = |most| setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    if !root || to(most).is_err() {
        // What is allowed anyway.
        let _ = to(limit.maximum);
    }
}

/// From here on a signal is something to be read. The thread lives as long as we do.
fn on_signals(wake: &Sender<Wake>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    let wake = wake.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if wake.send(Wake::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn mounted(fs: &Arc<Fs>, place: &Place, wanted: &Wanted, wake: Sender<Wake>) -> anyhow::Result<Mount> {
    let options = fuse::Options {
        mountpoint: place.mountpoint.clone(),
        name: place.backing.to_string_lossy().into_owned(),
        passthrough: wanted.passthrough,
        allow_other: wanted.allow_other,
        threads: wanted.threads,
        kernel: wanted.options.clone(),
    };
    let running = fuse::start(fs.clone(), &options).with_context(|| {
        let hint = match Path::new("/dev/fuse").exists() {
            false => " (there is no /dev/fuse: modprobe fuse)",
            true if !rustix::process::geteuid().is_root() => {
                " (users need fusermount3, of the package fuse3)"
            }
            true => "",
        };
        format!("mounting on {}{hint}", place.mountpoint.display())
    })?;
    let (sign, ended) = (place.lock.sign(), place.lock.sign());
    let mount =
        mounts::at(&place.mountpoint)?.context("it is mounted and /proc/self/mountinfo does not have it")?;
    tell_others(sign.mounted(minor(mount.dev)));
    thread::Builder::new().name("session".into()).spawn(move || {
        let result = running.wait();
        tell_others(ended.ending(""));
        // Whoever listened is gone.
        let _ = wake.send(Wake::Ended(result));
    })?;
    Ok(mount)
}

/// Only who wants the same BACKING misses it.
fn tell_others(told: io::Result<()>) {
    if let Err(why) = told {
        say!("writing to the lock in BACKING: {why}");
    }
}

fn in_words(place: &Place, wanted: &Wanted) -> String {
    let (backing, mountpoint) = (place.backing.display(), place.mountpoint.display());
    let after = size::duration(micros(wanted.settle_after));
    let budget = size::bytes(wanted.budget_bytes);
    let settles = match place.backing == place.mountpoint {
        true => "then settle in place".to_owned(),
        false => format!("then settle in {backing}"),
    };
    format!(
        "mounted {mountpoint}: new files live in RAM for {after}, in at most {budget}, {settles}\n  \
         see   flashsift status {mountpoint}\n  \
         undo  flashsift unmount {mountpoint}\n"
    )
}

impl Daemon {
    /// Lets files settle as they come of age, until `stopped` has lost its other end.
    fn settler(&self, after: Duration, stopped: Receiver<()>) -> io::Result<JoinHandle<()>> {
        let fs = self.fs.clone();
        thread::Builder::new().name("settle".into()).spawn(move || {
            let mut failing = None;
            let mut pause = RETRY[0];
            let mut wait = after;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let (_, done) = fs.settle_due(fs.now_us());
                let failed = done.err();
                match failed {
                    Some(why) if failing != failed => {
                        say!("new files cannot settle and stay in RAM: {why}; it is tried again and again");
                    }
                    None if failing.is_some() => say!("new files settle again"),
                    _ => {}
                }
                failing = failed;
                let next = fs.next_due_us().map_or(after, |due| {
                    Duration::from_micros(due.saturating_sub(fs.now_us())) + after / TOGETHER
                });
                (wait, pause) = match failing {
                    Some(_) => (pause, (pause * 2).min(RETRY[1])),
                    None => (next.min(after), RETRY[0]),
                };
            }
        })
    }

    /// Until somebody wants an end. Whether it is still mounted then.
    fn wait(&self) -> bool {
        match self.wakes.recv() {
            Ok(Wake::Ended(ended)) => {
                say_ended(ended);
                false
            }
            // No sender is left: then no signal can come any more.
            Ok(Wake::Signal(_)) | Err(_) => true,
        }
    }

    /// Settles everything and takes the mount away.
    fn end(&self, mut mounted: bool) -> anyhow::Result<()> {
        let mut pause = RETRY[0];
        loop {
            match self.settle(&mut mounted) {
                Ok(()) => {
                    notify::tell(&[NotifyState::Stopping]);
                    return Ok(());
                }
                Err(why) => self.say_stuck(&why, pause, mounted),
            }
            // What was sent before this was said does not mean it.
            while let Ok(wake) = self.wakes.try_recv() {
                mounted &= still_mounted(wake);
            }
            match self.wakes.recv_timeout(pause) {
                Ok(Wake::Signal(SIGTERM)) => return Err(self.give_up(mounted)),
                Ok(wake) => mounted &= still_mounted(wake),
                Err(_) => pause = (pause * 2).min(RETRY[1]),
            }
        }
    }

    /// While it is mounted, and once more when it no longer is: something may have been born meanwhile.
    fn settle(&self, mounted: &mut bool) -> anyhow::Result<()> {
        let all = || self.fs.settle_all().with_context(|| format!("settling in {}", self.backing.display()));
        if *mounted {
            all()?;
            self.take_away()?;
            *mounted = false;
        }
        all()?;
        // Where the kernel's requests ended by an error, what is mounted is dead.
        if self.is_there()? {
            undo::unmount(&self.mount.point, true).with_context(|| self.mount.point.display().to_string())?;
        }
        Ok(())
    }

    fn is_there(&self) -> io::Result<bool> {
        Ok(mounts::at(&self.mount.point)?.is_some_and(|there| there.id == self.mount.id))
    }

    fn in_ram(&self) -> String {
        let status = self.fs.status();
        format!("{} ({})", size::counted(status.files_in_ram, "file"), size::bytes(status.ram_bytes))
    }

    fn say_stuck(&self, why: &anyhow::Error, pause: Duration, mounted: bool) {
        if !mounted {
            tell_others(self.sign.ending(&format!("{} in RAM: {why:#}", self.in_ram())));
        }
        say!(
            "CANNOT END: {} of {} in RAM: {why:#}. Nothing is lost while this process lives, and it tries again in {}: \
             if there is no room in {}, make some. Only a SIGTERM from now on gives up what is in RAM",
            self.in_ram(),
            self.mount.point.display(),
            size::duration(micros(pause)),
            self.backing.display()
        );
        notify::tell(&[NotifyState::Status(&format!("cannot end: {} in RAM: {why:#}", self.in_ram()))]);
    }

    fn give_up(&self, mounted: bool) -> anyhow::Error {
        let lost = self.in_ram();
        if mounted && let Err(error) = self.take_away() {
            return error.context(format!("{lost} LOST"));
        }
        anyhow::anyhow!(
            "told to end all the same: {lost} LOST that could not settle in {}",
            self.backing.display()
        )
    }

    /// Nobody sees it any more, and nobody is promised anything any more.
    fn take_away(&self) -> anyhow::Result<()> {
        let point = &self.mount.point;
        let at = || format!("unmounting {}", point.display());
        let here = self.is_there()?;
        // Somebody may have taken it from its place while others use it.
        let used = if here { undo::unmount_unused(point).with_context(at)? } else { Some(Found::default()) };
        if let Some(found) = used {
            // What programs stored through mappings has to reach us before they are cut off.
            if here {
                say!(
                    "{} is in use, and is taken away all the same; who uses it will get errors:\n{}",
                    point.display(),
                    place::listed(&found).trim_end()
                );
                undo::flush(point).with_context(at)?;
                self.fs.settle_all().with_context(at)?;
            }
            if let Err(why) = undo::cut_off(&self.mount) {
                say!("who uses it cannot be cut off ({why}); what they write until the end may be lost");
                if here {
                    undo::unmount(point, true).with_context(at)?;
                }
                return Ok(());
            }
            if here {
                undo::unmount(point, true).with_context(at)?;
            }
        }
        loop {
            match self.wakes.recv_timeout(LET_GO) {
                // It does end, as was asked for.
                Ok(Wake::Signal(_)) => {}
                Ok(Wake::Ended(ended)) => {
                    say_ended(ended);
                    return Ok(());
                }
                // Another mount namespace has a copy.
                Err(_) => return undo::cut_off(&self.mount).with_context(at),
            }
        }
    }
}

fn still_mounted(wake: Wake) -> bool {
    match wake {
        Wake::Ended(ended) => {
            say_ended(ended);
            false
        }
        Wake::Signal(_) => true,
    }
}

fn say_ended(ended: io::Result<()>) {
    if let Err(why) = ended {
        say!("the kernel's requests ended with an error: {why}");
    }
}
