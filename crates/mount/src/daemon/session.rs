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
    /// Files have extended attributes. Without, the kernel asks for none.
    pub xattrs: bool,
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
    let adapter = Adapter::new(fs, serving);
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
    let session = std::thread::Builder::new().name("fuse".to_owned()).spawn(move || {
        asks_for_short_slices();
        session.run()
    })?;
    Ok(Running { session, mountpoint: options.mountpoint.clone() })
}

/// Asks the kernel to run this thread, and those that it starts, in short slices of time. An
/// application waits while one of them answers, and the scheduler lets threads with short slices
/// begin earlier (Linux 6.12: EEVDF, `sched_attr::sched_runtime`). They get no more time than
/// others. Without it the mount works as well, so errors are ignored.
#[allow(unsafe_code, reason = "rustix has no function for sched_setattr")]
fn asks_for_short_slices() {
    /// The shortest slice that the kernel grants, ns.
    const SLICE_NS: u64 = 100_000;
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    attr.size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the kernel reads and writes no more than this size.
    let ordinary = unsafe {
        let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, attr.size, 0);
        got == 0 && attr.sched_policy == libc::SCHED_OTHER as u32
    };
    if ordinary {
        attr.sched_runtime = SLICE_NS;
        // SAFETY: the kernel reads no more than this size.
        let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}
