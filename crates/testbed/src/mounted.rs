//! Mounts, and their end with the object or the program.

use crate::{output, until};
use rustix::mount::{UnmountFlags, unmount as end};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};
use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::{self, Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, Once, PoisonError},
    thread,
};

/// All [`Mounted`], in the order of their mounts.
static ALL: Mutex<Vec<Place>> = Mutex::new(Vec::new());

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    at: PathBuf,
    /// Mounts that it had before.
    before: usize,
}

/// The owner of a mount, and of all that is mounted on its directory later.
#[derive(Debug)]
pub struct Mounted(Place);

impl Mounted {
    /// Mounts as [`mount`] does.
    pub fn new(options: &[&str], what: impl AsRef<Path>, at: &Path) -> Result<Self, String> {
        let before = mounts(at);
        mount(options, what, at).map(|()| Self::later(at, before))
    }

    /// The owner of all that will be mounted on a directory.
    pub fn owner(at: &Path) -> Self {
        Self::later(at, mounts(at))
    }

    fn later(at: &Path, before: usize) -> Self {
        static SIGNALS: Once = Once::new();
        SIGNALS.call_once(|| {
            let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).expect("valid signals");
            thread::spawn(move || {
                if let Some(signal) = signals.forever().next() {
                    all().iter().rev().for_each(Place::take_down);
                    let _ = emulate_default_handler(signal);
                }
            });
        });
        let place = Place { at: at.to_owned(), before };
        all().push(place.clone());
        Self(place)
    }

    /// Unmounts as [`unmount`] does.
    pub fn unmount(self) -> Result<(), String> {
        unmount(&self.0.at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.0.take_down();
        let mut all = all();
        if let Some(index) = all.iter().rposition(|place| *place == self.0) {
            all.remove(index);
        }
    }
}

impl Place {
    /// Ends its mounts; users that they still have keep the file systems until they end.
    fn take_down(&self) {
        while mounts(&self.at) > self.before && detach(&self.at) {}
    }
}

fn all() -> MutexGuard<'static, Vec<Place>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `mount` with these options, as `["-t", "tmpfs"]`, for a device, file or directory.
pub fn mount(options: &[&str], what: impl AsRef<Path>, at: &Path) -> Result<(), String> {
    output(Command::new("mount").args(options).args([what.as_ref(), at])).map(drop)
}

/// Runs plain `umount`. A program that has just ended, or asks all mounts for their status, may use
/// it for a moment longer, and is waited for.
pub fn unmount(at: &Path) -> Result<(), String> {
    let mut done = Ok(());
    until(&format!("no program uses {}", at.display()), || {
        done = output(Command::new("umount").arg(at)).map(drop);
        !done.as_ref().is_err_and(|why| why.contains("target is busy"))
    })?;
    done
}

/// Ends all mounts on a directory, although they may be in use.
pub fn unmount_lazily(at: &Path) {
    while is_mounted(at) && detach(at) {}
}

fn detach(at: &Path) -> bool {
    end(at, UnmountFlags::DETACH).is_ok()
}

/// Whether this mount namespace has a mount on a directory.
pub fn is_mounted(at: &Path) -> bool {
    mounts(at) > 0
}

/// How many mounts lie on a directory, one over the other.
fn mounts(at: &Path) -> usize {
    // The table escapes these, and is not always UTF-8.
    let mut escaped = Vec::new();
    let at = path::absolute(at).unwrap_or_else(|_| at.to_owned());
    for &byte in at.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            _ => escaped.push(byte),
        }
    }
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|&byte| byte == b'\n');
    lines.filter(|line| line.split(|&byte| byte == b' ').nth(4) == Some(&escaped)).count()
}
