//! The thread that tells the kernel which files were dropped: it unlinks their names once more,
//! through the kernel, as [`crate::fs::drops`] describes.

use crate::control;
use crate::fs::{Fs, drops::DroppedName};
use flashsift_host::mounts::Mount;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use std::{
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};
use tracing::{debug, warn};

/// Starts the thread; it ends after [`Fs::end_drops`]. Returns when the file system knows it.
pub(super) fn start(fs: Arc<Fs>, mount: Mount) -> io::Result<JoinHandle<()>> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let running = thread::Builder::new().name("announce".into()).spawn(move || {
        let known = root(&mount).and_then(|root| control::announce(&root));
        if let Err(why) = known {
            warn!("sifters drop no file here, as the kernel would not learn of it: {why}");
        }
        let _ = ready.send(());
        while let Some(drops) = fs.wait_for_drops() {
            for dropped in drops {
                match announce(&mount, &dropped) {
                    // The name was created again, or the directory is gone.
                    Ok(()) | Err(Errno::BUSY | Errno::NOENT | Errno::NOTDIR | Errno::STALE) => {}
                    Err(why) => {
                        debug!("{}: announcing a drop: {why}", dropped.name.display());
                    }
                }
                fs.give_up_announcing(&dropped);
            }
        }
    })?;
    // Without an answer the thread has panicked.
    let _ = is_ready.recv();
    Ok(running)
}

/// Opens the mounted directory, and nothing that lies at its place otherwise.
fn root(mount: &Mount) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = rustix::fs::open(&mount.point, flags, Mode::empty())?;
    match rustix::fs::fstat(&root)?.st_dev == mount.dev {
        true => Ok(root),
        false => Err(Errno::STALE),
    }
}

fn announce(mount: &Mount, dropped: &DroppedName) -> Result<()> {
    let root = root(mount)?;
    let directory = if dropped.directory.as_os_str().is_empty() {
        root
    } else {
        // An unlink must not leave the mount: elsewhere it would remove a file.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(&root, &dropped.directory, flags, Mode::empty(), resolve)?
    };
    rustix::fs::unlinkat(&directory, Path::new(&dropped.name), AtFlags::empty())
}
