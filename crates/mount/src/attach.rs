//! Attaching a file system to a place: what may be mounted where, the mount itself, and its end.

pub mod copies;
mod detached;
mod directory_lock;
pub mod noatime;
pub mod place;
mod system_directories;
pub mod undo;
pub mod user_tmpfs;
mod xattrs;

pub(crate) use detached::Detached;
use std::path::PathBuf;

/// The type of our mounts.
pub const KIND: &str = "fuse.flashsift";

/// Options of a mount in the kernel.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// The directory on which it is mounted.
    pub mountpoint: PathBuf,
    /// The source that `mount` shows.
    pub name: String,
    /// Other users may use it too; needs root.
    pub allow_other: bool,
    /// Options that the kernel knows: `ro`, `nodev`, `nosuid`, `noexec`, `noatime`.
    pub kernel: Vec<String>,
}
