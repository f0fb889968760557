//! A file that appears complete or not at all, even if its writing is interrupted.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

/// The file is written without a name if the file system supports that, so that not even a kill
/// leaves a partial file; otherwise under a name beside the target. [`Replace::commit`] puts it in
/// the target's place.
#[derive(Debug)]
pub struct Replace {
    target: PathBuf,
    draft: Draft,
}

#[derive(Debug)]
enum Draft {
    Nameless(File),
    Named(tempfile::NamedTempFile),
}

impl Replace {
    /// Begins a file that will become `path`, or the file that `path` links to.
    ///
    /// # Errors
    ///
    /// The target is a directory or a device, or the file cannot be created.
    pub fn new(path: &Path) -> io::Result<Self> {
        let target = match path.canonicalize() {
            Ok(target) if !target.is_file() => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "is not a regular file; not replaced",
                ));
            }
            Ok(target) => target,
            Err(_) if path.is_symlink() => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "is a link that leads nowhere; not replaced",
                ));
            }
            Err(_) => path.to_owned(),
        };
        let folder = folder(&target);
        if !folder.is_dir() {
            let says = format!("the folder {} does not exist", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, says));
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let draft = match rustix::fs::open(folder, flags, Mode::from(0o666)) {
            Ok(file) => Draft::Nameless(file.into()),
            Err(_) => Draft::Named(named(folder, |builder, folder| builder.tempfile_in(folder))?),
        };
        Ok(Self { target, draft })
    }

    /// Puts the file in the target's place. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be synced or renamed.
    pub fn commit(self) -> io::Result<u64> {
        let draft = match &self.draft {
            Draft::Nameless(file) => file,
            Draft::Named(file) => file.as_file(),
        };
        if let Ok(replaced) = self.target.metadata() {
            draft.set_permissions(replaced.permissions())?;
        }
        // Without this sync, a power cut could leave the name without the content.
        draft.sync_all()?;
        let file = match self.draft {
            Draft::Nameless(file) => {
                let name = format!("/proc/self/fd/{}", file.as_raw_fd());
                // A link cannot replace a file, but a rename can, so the file has a name of its own
                // for a moment.
                named(folder(&self.target), |builder, folder| {
                    builder.make_in(folder, |path| {
                        Ok(rustix::fs::linkat(
                            CWD,
                            name.as_str(),
                            CWD,
                            path,
                            AtFlags::SYMLINK_FOLLOW,
                        )?)
                    })
                })?
                .into_temp_path()
            }
            Draft::Named(file) => file.into_temp_path(),
        };
        let bytes = file.metadata()?.len();
        file.persist(&self.target)?;
        Ok(bytes)
    }
}

impl Write for Replace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.draft {
            Draft::Nameless(file) => file.write(bytes),
            Draft::Named(file) => file.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.draft {
            Draft::Nameless(file) => file.flush(),
            Draft::Named(file) => file.flush(),
        }
    }
}

fn folder(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn named<R>(
    folder: &Path,
    make: impl FnOnce(&tempfile::Builder<'_, '_>, &Path) -> io::Result<tempfile::NamedTempFile<R>>,
) -> io::Result<tempfile::NamedTempFile<R>> {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};
    let mut builder = tempfile::Builder::new();
    make(
        builder.prefix(".flashsift-").suffix(".part").permissions(Permissions::from_mode(0o666)),
        folder,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    // Promises: Traces 18.
    #[test]
    fn a_file_appears_complete_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t");
        let mut first = Replace::new(&target).unwrap();
        first.write_all(b"first").unwrap();
        drop(first);
        assert_eq!(names(folder.path()), [""; 0], "dropped without commit");

        for content in ["second", "third"] {
            let mut file = Replace::new(&target).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            file.commit().unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), content);
            assert_eq!(names(folder.path()), ["t"]);
        }
    }

    #[test]
    fn links_and_devices_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("t"), folder.path().join("l"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut file = Replace::new(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert!(link.is_symlink());
        assert!(Replace::new(Path::new("/dev/null")).is_err());
        assert!(Replace::new(folder.path()).is_err());
    }
}
