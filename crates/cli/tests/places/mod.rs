//! A directory to mount over and a directory to mount on, for the tests of `flashsift mount`.

use flashsift_testbed::{Mounted, is_root, skip};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A temporary folder that other users may enter. When it is dropped, nothing stays mounted in it.
pub(crate) struct Places {
    _mounted: [Mounted; 3],
    folder: TempDir,
}

impl Places {
    /// `None`, with the reason printed, where nothing can be mounted.
    pub(crate) fn new() -> Option<Self> {
        if !is_root("mounting") {
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            return skip("/dev/fuse is not there");
        }
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        let places = [&top.join("mount"), &top.join("backing"), top];
        let places = Self { _mounted: places.map(Mounted::owner), folder };
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
