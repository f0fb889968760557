//! Reporting dropped names to the kernel: another process unlinks each once more, through the
//! kernel, as `fs/drops.rs` describes.
//!
//! It has to be another process. A thread of the daemon that waits for an answer of the daemon
//! cannot be killed: after a SIGKILL the rest of the process would be gone, and this thread would
//! keep the connection to the kernel open, so every user of the mount would hang for ever.

use crate::control;
use crate::fs::{Fs, drops::DroppedName, sifting::SiftWish};
use flashsift_host::mounts::Mount;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::{
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
};
use tracing::{debug, warn};

/// The hidden command of the other process.
pub const COMMAND: &str = "mount-announce";
/// Longest path that is sent, bytes: that of the kernel.
const PATH_BYTES_MAX: u32 = 4096;

/// The other process.
struct Announcer {
    process: Child,
    names: ChildStdin,
    answers: ChildStdout,
}

impl Announcer {
    /// Starts it. Returns when the file system knows it.
    fn start(fs: &Fs, mount: &Mount) -> io::Result<Announcer> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg0("flashsift")
            .arg(COMMAND)
            .arg(&mount.point)
            .arg(mount.dev.to_string())
            .current_dir("/")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The process that started a mount in the background waits for the end of this.
            .stderr(Stdio::null())
            .spawn()?;
        let (names, answers) = (process.stdin.take(), process.stdout.take());
        let (names, answers) = names.zip(answers).ok_or(io::ErrorKind::BrokenPipe)?;
        let mut announcer = Announcer { process, names, answers };
        fs.drops().expect(announcer.process.id());
        // Beside busy processes, it once asked before it was expected, and was refused.
        announcer.names.write_all(&[0])?;
        announcer.answer()?;
        if !fs.drops().are_announced() {
            return Err(io::Error::other("the kernel does not show the process of a request"));
        }
        Ok(announcer)
    }

    /// Waits for the answer to a name: the number of the error, or 0.
    fn answer(&mut self) -> io::Result<Option<Errno>> {
        let mut answer = [0; 4];
        self.answers.read_exact(&mut answer)?;
        Ok(match i32::from_le_bytes(answer) {
            0 => None,
            number => Some(Errno::from_raw_os_error(number)),
        })
    }

    fn announce(&mut self, dropped: &DroppedName) -> io::Result<Option<Errno>> {
        let mut message = Vec::new();
        for text in [dropped.directory.as_os_str(), &dropped.name] {
            let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
            message.extend(len.to_le_bytes());
            message.extend(text.as_bytes());
        }
        self.names.write_all(&message)?;
        self.answer()
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the thread that reports drops; it ends with the drops. Returns when the file
/// system knows the other process.
pub(super) fn start(fs: Arc<Fs>, mount: Mount) -> io::Result<JoinHandle<()>> {
    let mut announcer = Announcer::start(&fs, &mount);
    if let Err(why) = &announcer {
        fs.drops().expect(0);
        warn!("sifters drop no file here, as the kernel would not learn of it: {why}");
    }
    thread::Builder::new().name("announce".into()).spawn(move || {
        while let Some(drops) = fs.drops().wait() {
            for dropped in drops {
                let name = dropped.name.display();
                match announcer.as_mut().map(|announcer| announcer.announce(&dropped)) {
                    // The name was created again, or the directory is gone.
                    Ok(Ok(
                        None | Some(Errno::BUSY | Errno::NOENT | Errno::NOTDIR | Errno::STALE),
                    )) => {}
                    Ok(Ok(Some(why))) => debug!("{name}: reporting a drop: {why}"),
                    Ok(Err(why)) => {
                        warn!("the process that reports drops has ended: {why}");
                        announcer = again(&fs, &mount);
                    }
                    Err(_) => {}
                }
                fs.drops().give_up(&dropped);
            }
        }
    })
}

/// Starts another process in place of one that has ended. Without one nothing is dropped.
fn again(fs: &Fs, mount: &Mount) -> io::Result<Announcer> {
    fs.drops().expect(0);
    Announcer::start(fs, mount).inspect_err(|why| {
        fs.drops().expect(0);
        warn!("the sifter is switched off, as the kernel would not learn of drops: {why}");
        if let Err(why) = fs.switch_sifter(SiftWish::Off) {
            warn!("switching the sifter off: {why}");
        }
    })
}

/// Unlinks the names that arrive on standard input until it ends: the other process.
///
/// # Errors
///
/// The mount is not there, or does not accept this process.
pub fn serve(point: &Path, dev: u64) -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    // From now on the mount expects this process.
    input.read_exact(&mut [0])?;
    control::announce(root(point, dev)?)?;
    let mut answer = |number: i32| {
        output.write_all(&number.to_le_bytes())?;
        output.flush()
    };
    answer(0)?;
    loop {
        let Some(directory) = text(&mut input)? else { return Ok(()) };
        let name = text(&mut input)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let done = unlink(point, dev, &PathBuf::from(directory), &name);
        answer(done.err().map_or(0, Errno::raw_os_error))?;
    }
}

fn text(input: &mut impl Read) -> io::Result<Option<OsString>> {
    let mut len = [0; 4];
    match input.read_exact(&mut len) {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    let len = u32::from_le_bytes(len);
    if len > PATH_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    input.read_exact(&mut bytes)?;
    Ok(Some(OsStr::from_bytes(&bytes).to_owned()))
}

/// Opens the mounted directory, and nothing that lies at its place otherwise.
fn root(point: &Path, dev: u64) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let root = rustix::fs::open(point, flags, Mode::empty())?;
    match rustix::fs::fstat(&root)?.st_dev == dev {
        true => Ok(root),
        false => Err(Errno::STALE),
    }
}

fn unlink(point: &Path, dev: u64, directory: &Path, name: &OsStr) -> rustix::io::Result<()> {
    let root = root(point, dev)?;
    let directory = if directory.as_os_str().is_empty() {
        root
    } else {
        // An unlink must not leave the mount: elsewhere it would remove a file.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(&root, directory, flags, Mode::empty(), resolve)?
    };
    rustix::fs::unlinkat(&directory, name, AtFlags::empty())
}
