//! Opens the target of a replay, and refuses targets that must not be read or written. No other
//! module opens one.
//!
//! A device is opened exclusively (`O_EXCL`). The kernel refuses that while anything on the device
//! is mounted, used as swap or part of another device, in any namespace. While it is open here, it
//! cannot be mounted. Users of the device are looked up first, so that the refusal can name them.

use crate::{Error, system, target::SECTOR_BYTES};
use rustix::{
    fs::{
        AtFlags, Dev, FallocateFlags, Mode, OFlags, SeekFrom, StatxFlags, fallocate, ftruncate,
        open, statx,
    },
    io::Errno,
    ioctl,
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Whether the target is a file or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A file on a file system.
    File,
    /// A block device.
    Device,
}

/// The requirements of a log, and the permissions that the user gave.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// End of the last request, in bytes from the beginning of the target.
    pub end_bytes: u64,
    /// The log writes or discards.
    pub changes: bool,
    /// The content of the target may be destroyed.
    pub consent: bool,
    /// Addresses are taken modulo the size of the target.
    pub fold: bool,
    /// Size of a file that is created; `end_bytes` if `None`.
    pub size_bytes: Option<u64>,
    /// A file that is created keeps its name.
    pub keep: bool,
}

/// An open target, ready for requests.
#[derive(Debug)]
pub struct OpenTarget {
    pub(crate) file: File,
    /// Whether it is a file or a device.
    pub kind: TargetKind,
    /// Its size in bytes.
    pub bytes: u64,
    /// Requests must begin and end at multiples of this.
    pub block_bytes: u64,
    /// The file did not exist before.
    pub made: bool,
    /// Parts of the file were never written: reads of them reach no device.
    pub holes: bool,
    /// Name to unlink when the target is dropped, unless [`OpenTarget::keep`] was called.
    unfinished: Option<PathBuf>,
    dev: Option<Dev>,
    path: PathBuf,
}

/// Usable sizes are multiples of a page.
const PAGE_BYTES: u64 = flashsift_events::page::PAGE_BYTES;

impl OpenTarget {
    /// Opens a file or device.
    ///
    /// A file that does not exist is created and its full size is allocated. Without `keep` its
    /// name is unlinked at once, so that nothing is left however the process ends.
    ///
    /// # Errors
    ///
    /// The target is refused if it is in use, if its content would be lost without consent, or if
    /// it is too small and addresses are not folded. Other errors are those of the system.
    pub fn open(path: &Path, wanted: &Requirements) -> Result<Self, Error> {
        let place = match fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => {
                Self::device(path, &metadata, wanted)
            }
            Ok(metadata) if metadata.is_file() => Self::existing(path, &metadata, wanted),
            Ok(_) => refused(path, "is neither a file nor a block device"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::new(path, wanted),
            Err(error) => Err(Error::at(path, "opening", error)),
        }?;
        let needed = wanted.end_bytes;
        if place.bytes < needed && !wanted.fold {
            return refused(
                path,
                &format!(
                    "has {} bytes and the log reaches to {needed}: give a larger target, or --fold \
                     to take addresses modulo its size",
                    place.bytes
                ),
            );
        }
        Ok(place)
    }

    fn device(path: &Path, metadata: &fs::Metadata, wanted: &Requirements) -> Result<Self, Error> {
        let dev = metadata.rdev();
        let uses = system::used_by(dev);
        if !uses.is_empty() {
            return refused(path, &format!("is in use: {}", uses.join("; ")));
        }
        if !wanted.consent {
            return refused(
                path,
                "is a block device, and a replay destroys its content: --yes-destroy-data permits \
                 that",
            );
        }
        let file = opened(path, OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL).map_err(|error| {
            match error {
                Errno::BUSY => Error::Refused(format!(
                    "{} is in use according to the kernel (mounted in another namespace, or opened \
                     by another program)",
                    path.display()
                )),
                Errno::ROFS | Errno::ACCESS | Errno::PERM => Error::at(
                    path,
                    "opening it for reading and writing (it is read-only, or root is required)",
                    error,
                ),
                error => Error::at(path, "opening", error),
            }
        })?;
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0))
            .map_err(|e| Error::at(path, "reading its size", e))?;
        let block_bytes = rustix::fs::ioctl_blksszget(&file)
            .map_err(|e| Error::at(path, "reading its block size", e))?;
        Ok(Self {
            file,
            kind: TargetKind::Device,
            bytes: bytes / PAGE_BYTES * PAGE_BYTES,
            block_bytes: u64::from(block_bytes),
            made: false,
            holes: false,
            unfinished: None,
            dev: Some(dev),
            path: path.to_owned(),
        })
    }

    fn existing(
        path: &Path,
        metadata: &fs::Metadata,
        wanted: &Requirements,
    ) -> Result<Self, Error> {
        if let Some(name) = system::loop_on(metadata) {
            return refused(path, &format!("is in use: it is the content of {name}"));
        }
        if wanted.changes && !wanted.consent {
            return refused(
                path,
                "exists, and the log writes: --yes-destroy-data permits its content to be \
                 destroyed; a name that does not exist creates a file",
            );
        }
        let access = if wanted.changes { OFlags::RDWR } else { OFlags::RDONLY };
        let file = direct(path, access)?;
        let block_bytes = block_bytes(path, &file)?;
        Ok(Self {
            file,
            kind: TargetKind::File,
            bytes: metadata.len() / PAGE_BYTES * PAGE_BYTES,
            block_bytes,
            made: false,
            holes: metadata.blocks() * 512 < metadata.len(),
            unfinished: None,
            dev: None,
            path: path.to_owned(),
        })
    }

    fn new(path: &Path, wanted: &Requirements) -> Result<Self, Error> {
        if wanted.fold && wanted.size_bytes.is_none() {
            return refused(path, "does not exist: --fold needs its size, --size");
        }
        let bytes = wanted.size_bytes.unwrap_or(wanted.end_bytes).next_multiple_of(PAGE_BYTES);
        let file = direct(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        // If anything fails from here on, the name is removed again.
        let mut place = Self {
            file,
            kind: TargetKind::File,
            bytes,
            block_bytes: PAGE_BYTES,
            made: true,
            holes: true,
            unfinished: Some(path.to_owned()),
            dev: None,
            path: path.to_owned(),
        };
        if !wanted.keep {
            place.unname();
        }
        let allocated = match fallocate(&place.file, FallocateFlags::empty(), 0, bytes) {
            // exFAT has no fallocate; extending the file allocates its space.
            Err(Errno::OPNOTSUPP) => ftruncate(&place.file, bytes),
            other => other,
        };
        allocated.map_err(|e| Error::at(path, &format!("allocating {bytes} bytes"), e))?;
        place.block_bytes = block_bytes(path, &place.file)?;
        Ok(place)
    }

    /// Keeps the file that was created, with its name.
    pub fn keep(&mut self) {
        self.unfinished = None;
    }

    /// Discards this range of a device, or punches a hole into a file.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.kind {
            TargetKind::Device => discard(&self.file, offset, len).map_err(Into::into),
            TargetKind::File => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, mode, offset, len).map_err(Into::into)
            }
        }
    }

    /// Checks that the device supports discards.
    ///
    /// # Errors
    ///
    /// The device cannot discard. Files always can.
    pub fn check_discards(&self) -> Result<(), Error> {
        match self.dev {
            Some(dev) if !system::discards(dev) => refused(
                &self.path,
                "does not support discards, and the log has some: --without-discards leaves them \
                 out",
            ),
            _ => Ok(()),
        }
    }

    fn unname(&mut self) {
        if let Some(path) = self.unfinished.take() {
            // The file was created with O_EXCL a moment ago, so it belongs to this replay. If
            // another process has removed the name, nothing is left to do.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for OpenTarget {
    fn drop(&mut self) {
        self.unname();
    }
}

fn refused<T>(path: &Path, why: &str) -> Result<T, Error> {
    Err(Error::Refused(format!("{} {why}", path.display())))
}

fn opened(path: &Path, flags: OFlags) -> Result<File, Errno> {
    open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Opens a file without the page cache.
fn direct(path: &Path, access: OFlags) -> Result<File, Error> {
    opened(path, access | OFlags::DIRECT).map_err(|error| match error {
        Errno::INVAL => {
            // A file system without O_DIRECT creates the file before it reports the error.
            if access.contains(OFlags::CREATE) {
                let _ = fs::remove_file(path);
            }
            Error::at(path, "its file system does not support direct I/O (O_DIRECT)", error)
        }
        Errno::TXTBSY => Error::at(path, "it is in use, as swap or as a running program", error),
        error => Error::at(path, "opening", error),
    })
}

/// The smallest unit of direct I/O: reported by the kernel since Linux 6.1, found by trial before.
fn block_bytes(path: &Path, file: &File) -> Result<u64, Error> {
    let reported = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let reported = reported.ok().filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    match reported.map(|stat| u64::from(stat.stx_dio_offset_align)) {
        Some(0) => {
            return Err(Error::at(
                path,
                "its file system does not support direct I/O (O_DIRECT)",
                Errno::INVAL,
            ));
        }
        Some(bytes) => return Ok(bytes.max(SECTOR_BYTES)),
        None => {}
    }
    #[repr(align(4096))]
    struct Page([u8; PAGE_BYTES as usize]);
    let mut page = Box::new(Page([0; PAGE_BYTES as usize]));
    for bytes in [SECTOR_BYTES, PAGE_BYTES] {
        match rustix::io::pread(file, &mut page.0[..bytes as usize], bytes) {
            Ok(_) => return Ok(bytes),
            Err(Errno::INVAL) => {}
            Err(error) => return Err(Error::at(path, "reading", error)),
        }
    }
    Err(Error::at(path, "reading by direct I/O (O_DIRECT)", Errno::INVAL))
}

#[expect(unsafe_code, reason = "rustix has no function for this ioctl")]
fn discard(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    const BLKDISCARD: ioctl::Opcode = ioctl::opcode::none(0x12, 119);
    // Safety: `BLKDISCARD` reads two numbers of 64 bits.
    unsafe { ioctl::ioctl(file, ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}
