//! Files that flashsift keeps for itself: only their owner may read or change them.

use rustix::{fs::OFlags, process::geteuid};
use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;

/// Creates a directory for its owner alone if there is none. One that is there may be readable for
/// others, which it is no more.
///
/// # Errors
///
/// It cannot be created, or another user can change it.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    refuse_shared(path)?;
    tighten(path)
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
             flashsift keeps there; check it, then `chmod 700 {place}`",
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
    tighten(path)?;
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

/// Takes the permissions of all other users from a file or directory.
///
/// # Errors
///
/// It belongs to another user.
pub fn tighten(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.mode() & 0o7777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, Permissions::from_mode(mode & 0o700)),
    }
}
