//! Files that flashsift keeps for itself: only their owner may read or change them.

use rustix::{
    fs::{FileType, Mode, OFlags},
    process::geteuid,
};
use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::Path,
};

const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;

/// Creates a directory for its owner alone if there is none. One that is there loses the
/// permissions of other users.
///
/// # Errors
///
/// It cannot be created, or another user can change it.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    refuse_shared(path)?;
    tighten(path, FileType::Directory)
}

/// Checks that no other user can change what is in a directory.
///
/// # Errors
///
/// It is neither ours nor root's, or others may write to it; or it cannot be examined.
pub fn refuse_shared(path: &Path) -> io::Result<()> {
    let about = fs::metadata(path)?;
    let (us, owner) = (geteuid().as_raw(), about.uid());
    let place = path.display();
    let why = match () {
        () if ![us, 0].contains(&owner) => {
            format!("{place} belongs to user {owner}, who could change what flashsift keeps there")
        }
        () if about.mode() & 0o022 != 0 => format!(
            "{place}: other users may write to it (mode {:o}) and could have changed what \
             flashsift keeps there; check it, then take that permission away (chmod go-w)",
            about.mode() & 0o7777
        ),
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Opens a file of ours to read it.
///
/// # Errors
///
/// It cannot be opened, or belongs to another user.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(NOFOLLOW).open(path)?;
    let owner = file.metadata()?.uid();
    if owner != geteuid().as_raw() {
        let why = format!("{} belongs to user {owner}", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mode = file.metadata()?.mode() & 0o700;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

/// Creates a file for its owner alone, or empties the one that is there.
///
/// # Errors
///
/// It cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(NOFOLLOW);
    let file = options.open(path)?;
    // It may have been there.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Takes the permissions of all other users from a file or directory, which must be of that kind.
/// Root may name anything here, so nothing but what is ours changes, and no link is followed.
///
/// # Errors
///
/// It is a link, of another kind, or another user's.
pub fn tighten(path: &Path, kind: FileType) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let about = rustix::fs::fstat(&file)?;
    let found = FileType::from_raw_mode(about.st_mode);
    let why = match () {
        () if found == FileType::Symlink => "is a link; name the file that it leads to".to_owned(),
        () if found != kind => "is not a regular file or directory; not changed".to_owned(),
        () if about.st_uid != geteuid().as_raw() => format!("belongs to user {}", about.st_uid),
        () if about.st_mode & 0o077 == 0 => return Ok(()),
        () => {
            // Such a descriptor takes no fchmod, but the file can be named by it.
            let name = format!("/proc/self/fd/{}", file.as_raw_fd());
            return fs::set_permissions(name, Permissions::from_mode(about.st_mode & 0o700));
        }
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// As root, `--record /tmp` once took /tmp from all users, and a recording over a link in
    /// another user's directory took the file that the link led to.
    #[test]
    fn only_a_file_of_ours_is_tightened_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, directory] = ["file", "link", "dir"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &directory] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        for path in [&link, &directory, Path::new("/dev/null")] {
            let why = tighten(path, FileType::RegularFile).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::InvalidInput, "{}: {why}", path.display());
        }
        assert_eq!((mode(&file), mode(&directory)), (0o755, 0o755));
        tighten(&file, FileType::RegularFile).unwrap();
        tighten(&directory, FileType::Directory).unwrap();
        assert_eq!((mode(&file), mode(&directory)), (0o700, 0o700));
    }
}
