//! A session with the kernel: mounts, serves requests, and waits for the end of the mount.

use crate::attach::undo::{self, Unmounted};
use crate::attach::{AttachOptions, Detached};
use crate::fs::Fs;
use crate::fuse::Adapter;
use fuser::{MountOption, SessionACL};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A file system that is mounted.
#[derive(Debug)]
pub struct Running {
    session: JoinHandle<io::Result<()>>,
    mountpoint: PathBuf,
}

impl Running {
    /// Unmounts it; `wait` returns when the last request is answered. `EBUSY` while it is in use.
    ///
    /// # Errors
    ///
    /// `EBUSY` while it is in use; other errors of the unmount.
    pub fn unmount(&mut self) -> io::Result<()> {
        match undo::unmount(&self.mountpoint, false)? {
            Unmounted::Gone => Ok(()),
            Unmounted::Busy => Err(rustix::io::Errno::BUSY.into()),
        }
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    ///
    /// The kernel's requests ended with an error.
    pub fn wait(self) -> io::Result<()> {
        self.session
            .join()
            .map_err(|_| io::Error::other("the thread that answers the kernel panicked"))?
    }
}

/// How requests are served.
#[derive(Clone, Copy, Debug)]
pub struct Serving {
    /// The kernel reads and writes files on flash itself. Takes root.
    pub passthrough: bool,
    /// Threads that answer requests.
    pub threads: usize,
}

/// Mounts it. After the unmount the caller has to write back the files that are still in RAM.
///
/// # Errors
///
/// /dev/fuse or fusermount3 is missing, or the kernel refuses the mount.
pub fn start(fs: Arc<Fs>, options: &AttachOptions, serving: Serving) -> io::Result<Running> {
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        // Escaped for fusermount3.
        MountOption::FSName(options.name.replace('\\', "\\\\").replace(',', "\\,")),
        MountOption::Subtype("flashsift".to_owned()),
        MountOption::DefaultPermissions,
    ];
    for option in &options.kernel {
        config.mount_options.push(match option.as_str() {
            "nodev" => MountOption::NoDev,
            "nosuid" => MountOption::NoSuid,
            "noexec" => MountOption::NoExec,
            "noatime" => MountOption::NoAtime,
            "dev" => MountOption::Dev,
            "suid" => MountOption::Suid,
            other => MountOption::CUSTOM(other.to_owned()),
        });
    }
    if options.allow_other {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(serving.threads.max(1));
    config.clone_fd = false;
    let adapter = Adapter::new(fs, serving.passthrough);
    let notifier = adapter.passthrough.notifier.clone();
    let session = match Detached::new(options)? {
        Some(detached) => {
            let (device, mount) = detached.split();
            let session = fuser::Session::from_fd(adapter, device, config.acl, config)?;
            Detached::attach(mount, &options.mountpoint)?;
            session
        }
        // A plain user asks fusermount3.
        None => {
            // fusermount3 would report less of the error.
            let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
            device.map_err(|why| {
                io::Error::new(
                    why.kind(),
                    format!(
                        "opening /dev/fuse, which is for all (0666) where users may mount: {why}"
                    ),
                )
            })?;
            fuser::Session::new(adapter, &options.mountpoint, &config)?
        }
    };
    // No other thread sets it.
    let _ = notifier.set(session.notifier());
    let session =
        std::thread::Builder::new().name("fuse".to_owned()).spawn(move || session.run())?;
    Ok(Running { session, mountpoint: options.mountpoint.clone() })
}
