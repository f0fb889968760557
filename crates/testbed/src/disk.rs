//! Loop devices, and file systems on them.

use crate::{Mounted, output};
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// A file system that `mkfs` makes.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem<'a> {
    /// As the kernel, `mkfs` and `mount` know it.
    pub kind: &'a str,
    /// Its size.
    pub bytes: u64,
    /// Further options of `mkfs`.
    pub options: &'a [&'a str],
}

impl<'a> FileSystem<'a> {
    /// As `mkfs` makes it without options.
    pub const fn new(kind: &'a str, bytes: u64) -> Self {
        Self { kind, bytes, options: &[] }
    }

    /// As `mkfs` makes it with these options.
    pub const fn with(self, options: &'a [&'a str]) -> Self {
        Self { options, ..self }
    }

    /// The program that makes it.
    pub fn mkfs(&self) -> String {
        format!("mkfs.{}", self.kind)
    }

    /// Makes it in a sparse file, or on a device as large as this is.
    pub fn make(&self, on: &Path) -> Result<(), String> {
        if !on.exists() {
            let image = File::create(on).and_then(|file| file.set_len(self.bytes));
            image.map_err(|error| format!("{}: {error}", on.display()))?;
        }
        // By force: ext4 asks before it takes a file, the others where a file system has been.
        let force = if self.kind == "ext4" { "-F" } else { "-f" };
        let mut mkfs = Command::new(self.mkfs());
        output(mkfs.args(["-q", force]).args(self.options).arg(on)).map(drop)
    }
}

/// A loop device; gone when it is dropped and nothing on it is mounted any more.
#[derive(Debug)]
pub struct Loop {
    node: PathBuf,
    /// The device detaches from its file when the last user closes it, however this program ends.
    _open: File,
}

impl Loop {
    /// Attaches a device to a file, with options of `losetup`.
    pub fn new(file: &Path, options: &[&str]) -> Result<Self, String> {
        let mut attach = Command::new("losetup");
        let node = output(attach.args(["--find", "--show"]).args(options).arg(file))?;
        let node = node.trim_end();
        let open = File::open(node);
        // While the device is open, this only makes it detach with its last user.
        let detached = output(Command::new("losetup").args(["--detach", node]));
        let open = open.map_err(|error| format!("{node}: {error}"))?;
        detached?;
        Ok(Self { node: node.into(), _open: open })
    }

    /// Its path in /dev.
    pub fn node(&self) -> &str {
        self.node.to_str().expect("a device has a plain name")
    }

    /// Its name in /sys/block.
    pub fn name(&self) -> &str {
        self.node().trim_start_matches("/dev/")
    }

    /// Its counts, as [`stat`].
    pub fn stat(&self) -> Vec<u64> {
        stat(self.name())
    }
}

/// The fields of `/sys/block/NAME/stat`: the third are sectors read, the seventh sectors written.
///
/// # Panics
///
/// If there is no such device.
pub fn stat(name: &str) -> Vec<u64> {
    let text = fs::read_to_string(Path::new("/sys/block").join(name).join("stat")).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Name of the loop device that has this file.
pub fn loop_of(image: &Path) -> Option<String> {
    let image = image.canonicalize().ok()?;
    fs::read_dir("/sys/block").ok()?.flatten().find_map(|device| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        (Path::new(backing.trim_end_matches('\n')) == image)
            .then(|| device.file_name().to_string_lossy().into_owned())
    })
}

/// A file system on a loop device, in a temporary directory that other users may enter.
#[derive(Debug)]
pub struct Disk {
    mounted: Option<Mounted>,
    device: Loop,
    folder: TempDir,
}

impl Disk {
    /// A file system that is not mounted.
    pub fn new(file_system: &FileSystem) -> Result<Self, String> {
        Self::below(&std::env::temp_dir(), file_system)
    }

    /// The same with its temporary directory in this one.
    pub fn below(parent: &Path, file_system: &FileSystem) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".to_owned());
        }
        let everyone = Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(everyone).tempdir_in(parent);
        let folder = folder.map_err(|error| format!("{}: {error}", parent.display()))?;
        let image = folder.path().join("image");
        file_system.make(&image)?;
        let made = fs::create_dir(folder.path().join("m"));
        made.map_err(|error| format!("{}: {error}", folder.path().display()))?;
        Ok(Self { mounted: None, device: Loop::new(&image, &[])?, folder })
    }

    /// A file system that is mounted with these options, as `"noatime,sync"`.
    pub fn mounted(file_system: &FileSystem, options: &str) -> Result<Self, String> {
        let mut disk = Self::new(file_system)?;
        disk.mount(file_system.kind, options)?;
        Ok(disk)
    }

    /// Mounts the file system.
    pub fn mount(&mut self, kind: &str, options: &str) -> Result<(), String> {
        let device = self.device.node().to_owned();
        self.mounted = Some(Mounted::new(&["-t", kind, "-o", options], device, &self.point())?);
        Ok(())
    }

    /// Mounts it again with other options, as `"ro"`.
    pub fn remount(&self, options: &str) -> Result<(), String> {
        let options = format!("remount,{options}");
        output(Command::new("mount").args(["-o", &options]).arg(self.point())).map(drop)
    }

    /// Unmounts the file system.
    pub fn unmount(&mut self) -> Result<(), String> {
        self.mounted.take().map_or(Ok(()), Mounted::unmount)
    }

    /// The directory on which it is mounted.
    pub fn point(&self) -> PathBuf {
        self.path("m")
    }

    /// Makes a directory on it.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn directory(&self, name: &str) -> PathBuf {
        let directory = self.point().join(name);
        fs::create_dir(&directory).unwrap();
        directory
    }

    /// A name beside the directory on which it is mounted.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns its loop device.
    pub fn device(&self) -> &Loop {
        &self.device
    }
}

/// A device of device mapper over the whole of another one; removed when it is dropped.
#[derive(Debug)]
pub struct Mapped(String);

impl Mapped {
    /// The size is that of the device.
    pub fn new(device: &str, bytes: u64) -> Result<Self, String> {
        let mapped = Self(format!("flashsift-test-{}", std::process::id()));
        let table = format!("0 {} linear {device} 0", bytes / 512);
        output(Command::new("dmsetup").args(["create", &mapped.0, "--table", &table]))?;
        Ok(mapped)
    }

    /// Its path in /dev.
    pub fn node(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.0)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = output(Command::new("dmsetup").args(["remove", "--retry", &self.0]));
    }
}
