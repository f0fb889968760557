//! What may be read and written, and what must not be: the only part that opens a target.
//!
//! A device is opened exclusively (`O_EXCL`), which the kernel refuses while anything in it is mounted, in use for swap or
//! under another device, in any namespace; and while we hold it, nobody can mount it. Who uses it is looked up first, to be
//! named.

use crate::{Error, system, target::SECTOR_BYTES};
use rustix::{
    fs::{
        AtFlags, Dev, FallocateFlags, Mode, OFlags, SeekFrom, StatxFlags, fallocate, ftruncate, open, statx,
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

/// A file or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file on a file system.
    File,
    /// A block device.
    Device,
}

/// What a log needs of its target, and what its owner agreed to.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// First byte behind all requests.
    pub end_bytes: u64,
    /// It is written to, or has something discarded.
    pub changes: bool,
    /// What is there may be destroyed.
    pub consent: bool,
    /// Requests that reach beyond its end begin again at its beginning.
    pub fold: bool,
    /// Size of a file that is made; `end_bytes` if there is none.
    pub size_bytes: Option<u64>,
    /// A file that is made keeps its name.
    pub keep: bool,
}

/// An open target.
#[derive(Debug)]
pub struct Place {
    pub(crate) file: File,
    /// File or device.
    pub kind: Kind,
    /// Its size.
    pub bytes: u64,
    /// Requests have to begin and end at multiples of this.
    pub block_bytes: u64,
    /// It did not exist.
    pub made: bool,
    /// Parts of the file were never written: reading them reaches no device.
    pub holes: bool,
    /// A name that has to be gone unless [`Place::keep`] says otherwise.
    unfinished: Option<PathBuf>,
    dev: Option<Dev>,
    path: PathBuf,
}

/// Sizes, and addresses modulo them, are multiples of a page.
const PAGE_BYTES: u64 = flashsift_core::page::PAGE_BYTES;

impl Place {
    /// Opens it, or says why not. A file that does not exist is made, with room for everything, and without `keep` it has no
    /// name any more: whatever ends this process, nothing is left.
    pub fn open(path: &Path, wanted: &Wanted) -> Result<Self, Error> {
        let place = match fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => Self::device(path, &metadata, wanted),
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
                    "has {} bytes and the log reaches to {needed}: give a larger target, or --fold, which takes addresses \
                     modulo its size",
                    place.bytes
                ),
            );
        }
        Ok(place)
    }

    fn device(path: &Path, metadata: &fs::Metadata, wanted: &Wanted) -> Result<Self, Error> {
        let dev = metadata.rdev();
        let uses = system::used_by(dev);
        if !uses.is_empty() {
            return refused(path, &format!("is in use: {}", uses.join("; ")));
        }
        if !wanted.consent {
            return refused(
                path,
                "is a block device, and replaying destroys what it holds: --yes-destroy-data agrees to that",
            );
        }
        let file = opened(path, OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL).map_err(|error| match error {
            Errno::BUSY => Error::Refused(format!(
                "{} is in use, the kernel says (mounted in another namespace, or held by another program)",
                path.display()
            )),
            Errno::ROFS | Errno::ACCESS | Errno::PERM => {
                Error::at(path, "opening it for reading and writing (read-only, or root is needed)", error)
            }
            error => Error::at(path, "opening", error),
        })?;
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| Error::at(path, "its size", e))?;
        let block_bytes =
            rustix::fs::ioctl_blksszget(&file).map_err(|e| Error::at(path, "its block size", e))?;
        Ok(Self {
            file,
            kind: Kind::Device,
            bytes: bytes / PAGE_BYTES * PAGE_BYTES,
            block_bytes: u64::from(block_bytes),
            made: false,
            holes: false,
            unfinished: None,
            dev: Some(dev),
            path: path.to_owned(),
        })
    }

    fn existing(path: &Path, metadata: &fs::Metadata, wanted: &Wanted) -> Result<Self, Error> {
        if let Some(name) = system::loop_on(metadata) {
            return refused(path, &format!("is in use: {name} has it for its content"));
        }
        if wanted.changes && !wanted.consent {
            return refused(
                path,
                "exists, and the log writes: --yes-destroy-data agrees to losing what it holds, and a name that does not \
                 exist makes a file",
            );
        }
        let access = if wanted.changes { OFlags::RDWR } else { OFlags::RDONLY };
        let file = direct(path, access)?;
        let block_bytes = block_bytes(path, &file)?;
        Ok(Self {
            file,
            kind: Kind::File,
            bytes: metadata.len() / PAGE_BYTES * PAGE_BYTES,
            block_bytes,
            made: false,
            holes: metadata.blocks() * 512 < metadata.len(),
            unfinished: None,
            dev: None,
            path: path.to_owned(),
        })
    }

    fn new(path: &Path, wanted: &Wanted) -> Result<Self, Error> {
        if wanted.fold && wanted.size_bytes.is_none() {
            return refused(path, "does not exist; to fold addresses into it, give its --size");
        }
        let bytes = wanted.size_bytes.unwrap_or(wanted.end_bytes).next_multiple_of(PAGE_BYTES);
        let file = direct(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        // From here on, whatever goes wrong takes the name away again.
        let mut place = Self {
            file,
            kind: Kind::File,
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
        let room = match fallocate(&place.file, FallocateFlags::empty(), 0, bytes) {
            // exFAT cannot: filling it takes the room.
            Err(Errno::OPNOTSUPP) => ftruncate(&place.file, bytes),
            other => other,
        };
        room.map_err(|e| Error::at(path, &format!("room for {bytes} bytes"), e))?;
        place.block_bytes = block_bytes(path, &place.file)?;
        Ok(place)
    }

    /// A file that was made stays, with its name.
    pub fn keep(&mut self) {
        self.unfinished = None;
    }

    /// Makes the device forget these bytes, or a hole in the file.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.kind {
            Kind::Device => discard(&self.file, offset, len).map_err(Into::into),
            Kind::File => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, mode, offset, len).map_err(Into::into)
            }
        }
    }

    /// Refuses a log with discards where the device does not know them.
    pub fn check_discards(&self) -> Result<(), Error> {
        match self.dev {
            Some(dev) if !system::discards(dev) => refused(
                &self.path,
                "cannot discard, and the log does: --without-discards leaves these requests out",
            ),
            _ => Ok(()),
        }
    }

    fn unname(&mut self) {
        if let Some(path) = self.unfinished.take() {
            // It is ours: it was made with O_EXCL a moment ago. Somebody who took it away already did what we want.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Place {
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

/// Opens a file past the page cache.
fn direct(path: &Path, access: OFlags) -> Result<File, Error> {
    opened(path, access | OFlags::DIRECT).map_err(|error| match error {
        Errno::INVAL => {
            // A file system without O_DIRECT makes the file before it says so.
            if access.contains(OFlags::CREATE) {
                let _ = fs::remove_file(path);
            }
            Error::at(path, "its file system cannot do without the page cache (O_DIRECT)", error)
        }
        Errno::TXTBSY => Error::at(path, "it is in use, for swap or as a running program", error),
        error => Error::at(path, "opening", error),
    })
}

/// The smallest piece that can be read past the page cache: the kernel tells since Linux 6.1, others are asked by trying.
fn block_bytes(path: &Path, file: &File) -> Result<u64, Error> {
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let told = told.ok().filter(|told| told.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    match told.map(|told| u64::from(told.stx_dio_offset_align)) {
        Some(0) => {
            return Err(Error::at(
                path,
                "its file system cannot do without the page cache (O_DIRECT)",
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
    Err(Error::at(path, "reading past the page cache (O_DIRECT)", Errno::INVAL))
}

#[expect(unsafe_code, reason = "the one call that rustix has no function for")]
fn discard(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    const BLKDISCARD: ioctl::Opcode = ioctl::opcode::none(0x12, 119);
    // Safety: `BLKDISCARD` reads two numbers of 64 bits.
    unsafe { ioctl::ioctl(file, ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}
