//! Putting it to its place, and waiting for its end.

use super::Kernel;
use crate::Fs;
use crate::attach::Detached;
use crate::undo::{self, Unmounted};
use fuser::{MountOption, SessionACL};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// How it is mounted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub mountpoint: PathBuf,
    /// What `mount` says that is mounted.
    pub name: String,
    /// Settled files are handed to the kernel. Takes root.
    pub passthrough: bool,
    /// Other users may use it too. Takes root.
    pub allow_other: bool,
    /// That answer requests.
    pub threads: usize,
    /// Options that the kernel knows: `ro`, `nodev`, `nosuid`, `noexec`, `noatime`.
    pub kernel: Vec<String>,
}

/// A file system that is mounted.
#[derive(Debug)]
pub struct Running {
    session: JoinHandle<io::Result<()>>,
    mountpoint: PathBuf,
}

impl Running {
    /// Takes it away from its place; `wait` returns when the last request is answered. Not while somebody uses it.
    pub fn unmount(&mut self) -> io::Result<()> {
        match undo::unmount(&self.mountpoint, false)? {
            Unmounted::Gone => Ok(()),
            Unmounted::Busy => Err(rustix::io::Errno::BUSY.into()),
        }
    }

    /// Until it is mounted no longer.
    pub fn wait(self) -> io::Result<()> {
        self.session.join().map_err(|_| io::Error::other("the thread that answers the kernel panicked"))?
    }
}

/// Mounts it. What is in RAM when it has been unmounted the caller has to settle.
pub fn start(fs: Arc<Fs>, options: &Options) -> io::Result<Running> {
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        // As fusermount3 reads it.
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
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = false;
    let kernel = Kernel::new(fs, options.passthrough);
    let notifier = kernel.lending.notifier.clone();
    let session = match Detached::new(options)? {
        Some(detached) => {
            let (device, mount) = detached.split();
            let session = fuser::Session::from_fd(kernel, device, config.acl, config)?;
            Detached::attach(mount, &options.mountpoint)?;
            session
        }
        // A plain user asks fusermount3.
        None => {
            // It would say less of what is wrong.
            let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
            device.map_err(|why| {
                io::Error::new(
                    why.kind(),
                    format!("opening /dev/fuse, which is for all (0666) where users may mount: {why}"),
                )
            })?;
            fuser::Session::new(kernel, &options.mountpoint, &config)?
        }
    };
    // Nobody else sets it.
    let _ = notifier.set(session.notifier());
    let session = std::thread::Builder::new().name("fuse".to_owned()).spawn(move || session.run())?;
    Ok(Running { session, mountpoint: options.mountpoint.clone() })
}
