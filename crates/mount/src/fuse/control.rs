//! The status and the control requests of a mount, as extended attributes of its directory.

use crate::fs::types::Status;
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// [`Status`] as JSON: the value of this attribute of the mounted directory.
pub const STATUS: &str = "user.flashsift.status";
/// Reading this attribute of the mounted directory writes every file in RAM back first. Only root
/// and the user of the mount may. (It is read, not set: setting it would lock the directory
/// meanwhile, and would fail on a read-only mount.)
pub const SETTLE: &str = "user.flashsift.settle";

/// The status of the mount on this directory.
///
/// # Errors
///
/// The attribute cannot be read: it is no mount of flashsift, or its daemon does not answer.
pub fn status(point: &Path) -> io::Result<Status> {
    let mut bytes = vec![0; 1 << 16];
    let len = rustix::fs::getxattr(point, STATUS, bytes.as_mut_slice())?;
    serde_json::from_slice(&bytes[..len]).map_err(io::Error::other)
}

/// Writes back every file that the mount on this directory has in RAM.
///
/// # Errors
///
/// The error of the first file that could not be written back, or of the request itself.
pub fn settle(point: &Path) -> Result<(), Errno> {
    rustix::fs::getxattr(point, SETTLE, &mut [0; 1]).map(drop)
}
