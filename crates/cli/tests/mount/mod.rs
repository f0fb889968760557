//! `flashsift mount` as applications see it: through the kernel, killed, cut off from power, ended.

mod crash;
mod delayed;
mod files;
mod flash_state;
mod idle;
mod memory_pressure;
mod model;
mod random_crashes;
mod requests;
mod seen;
mod sifting;
mod slow_flash;
mod waiting;
mod write_back;

use crate::places::Places;
use flashsift_testbed::{
    FileSystem, ended, is_mounted, loop_of, mount, or_skip, skip, unmount, unmount_lazily, until,
};
use rustix::{
    fs::{Mode, OFlags, inotify},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid},
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Condvar, Mutex, PoisonError, mpsc},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// After that a test hangs, and its daemon is killed so that it fails.
const PATIENCE: Duration = Duration::from_secs(300);
/// Options that keep files in RAM for as long as a test takes.
const LATE: [&str; 2] = ["--settle-after", "1h"];

/// Lets one test run at a time. A child process has, until its exec, all open files of the other
/// tests (a directory is "in use" then, a program that was just copied "busy"), and a new mount
/// namespace copies their mounts.
struct Alone;

/// The thread whose turn it is, and how many guards it holds.
static TURN: (Mutex<Option<(ThreadId, u32)>>, Condvar) = (Mutex::new(None), Condvar::new());

impl Alone {
    fn wait() -> Self {
        let us = thread::current().id();
        let others =
            |turn: &mut Option<(ThreadId, u32)>| turn.is_some_and(|(whose, _)| whose != us);
        let turn = TURN.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut turn = TURN.1.wait_while(turn, others).unwrap_or_else(PoisonError::into_inner);
        turn.get_or_insert((us, 0)).1 += 1;
        Self
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let mut turn = TURN.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = turn.as_mut() {
            *count -= 1;
            if *count == 0 {
                *turn = None;
                TURN.1.notify_one();
            }
        }
    }
}

/// An ext4 of its own on a loop device, and beside it a mount point; both are removed on drop. If
/// the kernel has F2FS, `FLASHSIFT_ON=f2fs` makes it an F2FS.
struct Ext4 {
    places: Places,
    /// Further options of its mount.
    options: &'static str,
    _alone: Alone,
}

impl Ext4 {
    /// `None`, with the reason printed, where there can be none.
    fn new() -> Option<Self> {
        Self::made(&[], "")
    }

    /// The same with further arguments of `mkfs` and options of its mount, which only ext4 knows.
    fn made(arguments: &[&str], options: &'static str) -> Option<Self> {
        if on_f2fs() && !(arguments.is_empty() && options.is_empty()) {
            return skip("it is about ext4");
        }
        let ext4 = Self { places: Places::new()?, options, _alone: Alone::wait() };
        ext4.places.create_directories();
        let pages: &[&str] = if on_f2fs() { &[] } else { &["-b", "4096"] };
        let arguments = [pages, arguments].concat();
        let made = FileSystem::new(kind(), 128 * MIB as u64).with(&arguments).make(&ext4.image());
        or_skip(made.and_then(|()| ext4.mount()))?;
        if !on_f2fs() {
            fs::remove_dir(ext4.backing().join("lost+found")).unwrap();
        }
        Some(ext4)
    }

    fn image(&self) -> PathBuf {
        self.path("image")
    }

    /// A name beside BACKING and the mount point.
    fn path(&self, name: &str) -> PathBuf {
        self.places.path(name)
    }

    fn backing(&self) -> PathBuf {
        self.places.backing()
    }

    fn mountpoint(&self) -> PathBuf {
        self.places.mountpoint()
    }

    /// The result of a power cut must not depend on how long the test took, so no timer commits the
    /// journal.
    fn mount(&self) -> Result<(), String> {
        let late = if on_f2fs() { "" } else { ",commit=3600" };
        let separator = if self.options.is_empty() { "" } else { "," };
        let options = ["loop", late, separator, self.options].concat();
        mount(&["-t", kind(), "-o", &options], self.image(), &self.backing())
    }

    /// As if power were cut now: nothing more reaches the device. Then the device comes back.
    #[allow(unsafe_code, reason = "rustix has no function for FS_IOC_SHUTDOWN")]
    fn lose_power(&self) {
        const SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
        const NO_LOG_FLUSH: u32 = 2;
        let directory = File::open(self.backing()).unwrap();
        // SAFETY: FS_IOC_SHUTDOWN reads a u32.
        unsafe {
            let ask = rustix::ioctl::Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH);
            rustix::ioctl::ioctl(&directory, ask).unwrap();
        }
        drop(directory);
        // The kernel lets go of what the dead had open some time after they are gone.
        unmount(&self.backing()).unwrap();
        // A test with its own mount namespace keeps a copy of our mount for as long as it runs. A
        // new mount meanwhile would be the file system that has lost its power, and every read an
        // error.
        until("BACKING is mounted nowhere else", || loop_of(&self.image()).is_none()).unwrap();
        self.mount().unwrap();
    }
}

fn on_f2fs() -> bool {
    std::env::var_os("FLASHSIFT_ON").is_some_and(|kind| kind == "f2fs")
}

/// The type of BACKING's file system.
fn kind() -> &'static str {
    if on_f2fs() { "f2fs" } else { "ext4" }
}

/// `flashsift mount` in the foreground over an [`Ext4`].
struct Mounted {
    ext4: Ext4,
    daemon: Option<Daemon>,
    options: Vec<String>,
}

struct Daemon {
    process: Child,
    /// Dropped when the test waits no more.
    _patience: mpsc::Sender<()>,
}

impl Mounted {
    fn new(options: &[&str]) -> Option<Self> {
        Some(Self::over(Ext4::new()?, options))
    }

    fn over(ext4: Ext4, options: &[&str]) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut mounted = Self { ext4, daemon: None, options };
        mounted.start();
        mounted
    }

    /// Starts the daemon, and waits until it says that it is mounted.
    fn start(&mut self) {
        self.start_by(Path::new(FLASHSIFT));
    }

    /// The same with this program.
    fn start_by(&mut self, program: &Path) {
        let mut process = Command::new(program)
            .arg("mount")
            .args([self.ext4.backing(), self.ext4.mountpoint()])
            .arg("--foreground")
            .args(&self.options)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut messages = BufReader::new(process.stderr.take().unwrap());
        let mut log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut line = String::new();
        while !line.starts_with("mounted ") {
            line.clear();
            if messages.read_line(&mut line).unwrap() == 0 {
                let status = process.wait().unwrap();
                panic!(
                    "flashsift mount ended ({status}) before it was mounted: {}",
                    self.messages()
                );
            }
            log.write_all(line.as_bytes()).unwrap();
        }
        thread::spawn(move || io::copy(&mut messages, &mut log));
        let ended = pidfd_open(Pid::from_child(&process), PidfdFlags::empty()).unwrap();
        let (patience, over) = mpsc::channel::<()>();
        thread::spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("it hangs: its daemon is killed");
                let _ = rustix::process::pidfd_send_signal(&ended, Signal::KILL);
            }
        });
        self.daemon = Some(Daemon { process, _patience: patience });
    }

    fn log(&self) -> PathBuf {
        self.ext4.path("said")
    }

    fn messages(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// A name in the mount.
    fn at(&self, name: &str) -> PathBuf {
        self.ext4.mountpoint().join(name)
    }

    /// Path of the same name in BACKING.
    fn below(&self, name: &str) -> PathBuf {
        self.ext4.backing().join(name)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.daemon.as_ref().expect("a daemon runs").process)
    }

    /// Stops the daemon, and returns when each of its threads has stopped. A thread that still ran
    /// once took the request of `top`, which then could not end before an answer.
    fn stopped(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).unwrap();
    }

    /// Writes everything back before it returns.
    fn settle(&self) {
        self.try_settle().unwrap();
    }

    fn try_settle(&self) -> rustix::io::Result<()> {
        rustix::fs::getxattr(self.ext4.mountpoint(), "user.flashsift.settle", &mut [0; 1]).map(drop)
    }

    /// Waits until a file has come to BACKING by itself.
    fn until_settled(&self, name: &str) {
        use inotify::{CreateFlags, WatchFlags};
        let moves = inotify::init(CreateFlags::CLOEXEC).unwrap();
        let wanted = WatchFlags::MOVED_TO | WatchFlags::CREATE;
        inotify::add_watch(&moves, self.ext4.backing(), wanted).unwrap();
        while !self.below(name).exists() {
            rustix::io::read(&moves, &mut [0; 4096]).unwrap();
        }
    }

    fn status(&self) -> serde_json::Value {
        let mut space = vec![0; 64 * KIB];
        let len = rustix::fs::getxattr(self.ext4.mountpoint(), "user.flashsift.status", &mut space)
            .unwrap();
        serde_json::from_slice(&space[..len]).unwrap()
    }

    /// Ends the daemon at once; the mount that it leaves is taken away.
    fn kill(&mut self) {
        kill_process(self.pid(), Signal::KILL).unwrap();
        self.bury();
    }

    /// After the daemon was killed.
    fn bury(&mut self) {
        self.daemon.take().unwrap().process.wait().unwrap();
        unmount_lazily(&self.ext4.mountpoint());
    }

    /// Ends in order; the daemon's exit status.
    fn end(&mut self, how: End) -> ExitStatus {
        match how {
            End::Unmount => run(FLASHSIFT, &[Path::new("unmount"), &self.ext4.mountpoint()]),
            End::Signal(signal) => kill_process(self.pid(), signal).unwrap(),
        }
        let status = self.daemon.take().unwrap().process.wait().unwrap();
        assert!(!is_mounted(&self.ext4.mountpoint()), "its daemon ended, but it is mounted");
        status
    }

    /// Ends in order; what BACKING has then.
    fn ended(&mut self) -> Tree {
        let status = self.end(End::Unmount);
        assert!(status.success(), "{status}: {}", self.messages());
        let tree = tree(&self.ext4.backing());
        let left = ours(&self.ext4.backing());
        assert!(left.is_empty(), "a clean end leaves nothing of ours: {left:?}");
        tree
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Unmount,
    Signal(Signal),
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.process.kill();
            let _ = daemon.process.wait();
        }
        if thread::panicking() {
            eprintln!("the daemon said: {}", self.messages());
        }
    }
}

fn mode(bits: u32) -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(bits)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap().trim().to_owned()
}

/// Runs a program; panics with its words unless it succeeds.
fn run(program: &str, arguments: &[&Path]) {
    ended(Command::new(program).args(arguments), 0);
}

/// Whether this is a temporary name of flashsift in a directory of applications.
fn is_temporary(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap();
    name.strip_prefix(".flashsift-").is_some_and(|digits| digits.len() == 16)
}

/// Names of flashsift's own in a directory and below.
fn ours(top: &Path) -> Vec<PathBuf> {
    let (mut ours, mut folders) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().is_some_and(|name| name.starts_with(".flashsift"))
            {
                ours.push(path);
            } else if fs::symlink_metadata(&path).unwrap().is_dir() {
                folders.push(path);
            }
        }
    }
    ours
}

/// The content of a directory without what is flashsift's own: for each name, a file's bytes and
/// mode.
type Tree = BTreeMap<String, Node>;

#[derive(Clone, PartialEq, Eq)]
enum Node {
    Directory,
    Link(PathBuf),
    /// A fifo, a socket, a device.
    Other,
    File {
        bytes: Vec<u8>,
        mode: u32,
    },
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Directory => write!(f, "a directory"),
            Self::Other => write!(f, "neither file nor directory"),
            Self::Link(target) => write!(f, "a link to {}", target.display()),
            Self::File { bytes, mode } => {
                write!(f, "{} bytes {:?}… {mode:o}", bytes.len(), &bytes[..bytes.len().min(4)])
            }
        }
    }
}

fn tree(top: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            if name == ".flashsift" || is_temporary(&name) {
                continue;
            }
            let about = fs::symlink_metadata(&path).unwrap();
            let node = if about.is_dir() {
                folders.push(path);
                Node::Directory
            } else if about.is_symlink() {
                Node::Link(fs::read_link(&path).unwrap())
            } else if !about.is_file() {
                Node::Other
            } else {
                Node::File { bytes: fs::read(&path).unwrap(), mode: about.mode() & 0o7777 }
            };
            tree.insert(name, node);
        }
    }
    tree
}

/// Bytes that tell `seed` and place: no part of them looks like another.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// The same seed, the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// A new file, whole, as `cp` makes it.
fn create(path: &Path, bytes: &[u8]) -> File {
    let mut file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn directory(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .unwrap()
}
