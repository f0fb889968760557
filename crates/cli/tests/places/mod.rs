//! A directory to mount over and a directory to mount on, for the tests of `flashsift mount`.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// A temporary folder that other users may enter. When it is dropped, nothing stays mounted in it.
pub(crate) struct Places {
    folder: TempDir,
}

impl Places {
    /// `None`, with the reason printed, where nothing can be mounted.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return skip(test, "mounting needs root");
        }
        if !Path::new("/dev/fuse").exists() {
            return skip(test, "/dev/fuse is not there");
        }
        let places = Self { folder: tempfile::tempdir().unwrap() };
        places.admit_others();
        Some(places)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn backing(&self) -> PathBuf {
        self.path("backing")
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.path("mount")
    }

    pub(crate) fn create_directories(&self) {
        for place in [self.backing(), self.mountpoint()] {
            fs::create_dir(place).unwrap();
        }
    }

    pub(crate) fn admit_others(&self) {
        fs::set_permissions(self.folder(), Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for place in [&self.mountpoint(), &self.backing(), self.folder()] {
            while is_mounted(place)
                && output(Command::new("umount").arg("--lazy").arg(place)).is_ok()
            {}
        }
    }
}

/// Makes a file system in an image of so many bytes, with the command `mkfs`.
pub(crate) fn make_image(image: &Path, bytes: u64, mkfs: &[&str]) -> Result<(), String> {
    File::create(image).unwrap().set_len(bytes).unwrap();
    output(Command::new(mkfs[0]).args(&mkfs[1..]).arg(image)).map(drop)
}

/// Mounts an image of that type on a loop device.
pub(crate) fn mount_image(
    image: &Path,
    kind: &str,
    options: &str,
    on: &Path,
) -> Result<(), String> {
    output(Command::new("mount").args(["-t", kind, "-o", options]).args([image, on])).map(drop)
}

/// Prints why a test is skipped.
pub(crate) fn skip<T>(test: &str, why: &str) -> Option<T> {
    println!("SKIPPED {test}: {why}");
    None
}

pub(crate) fn is_mounted(place: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(place))
}

/// Standard output of a program that succeeds; otherwise its name and standard error.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
