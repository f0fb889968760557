//! Copying content and attributes from one file to another.

use super::beneath::proc_path;
use super::types::{errno, io};
use rustix::fs::{
    FallocateFlags, Gid, Mode, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};
use std::ffi::CString;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Size of one copy step, bytes.
const CHUNK: usize = 256 << 10;
/// Limit of the value of an extended attribute, and of all names together, bytes.
pub(crate) const XATTR_BYTES: usize = 64 << 10;

/// Reads as many bytes as there are. Returns their number.
pub(crate) fn read_all(file: &File, offset: u64, bytes: &mut [u8]) -> Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return io(Err(error)),
        }
    }
    Ok(read)
}

/// Calls `step` with the offset of each part of a range of bytes, and space for the part.
pub(crate) fn in_parts(
    range: Range<u64>,
    mut step: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut at = range.start;
    let mut bytes = vec![0; CHUNK.min(range.end.saturating_sub(at) as usize)];
    while at < range.end {
        let len = CHUNK.min((range.end - at) as usize);
        step(at, &mut bytes[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Returns the first hole of a file from this offset on, up to its size; `None`: there is none.
/// Reserved blocks without data are holes.
pub(crate) fn hole_from(file: &File, at: u64, size: u64) -> Result<Option<Range<u64>>> {
    let from = match rustix::fs::seek(file, SeekFrom::Hole(at)) {
        Err(Errno::NXIO) => size,
        from => from?,
    };
    if from >= size {
        return Ok(None);
    }
    let end = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Err(Errno::NXIO) => size,
        end => end?,
    };
    Ok(Some(from..end.min(size)))
}

/// Copies content, owner, mode and attributes, and reserves these parts. Returns the number of
/// bytes.
pub(crate) fn copy(source: &File, target: &File, reserved: &[Range<u64>]) -> Result<u64> {
    let stat = rustix::fs::fstat(source)?;
    let size = stat.st_size as u64;
    let mut bytes = vec![0; CHUNK.min(size as usize)];
    let (mut at, mut copied) = (0, 0);
    while at < size {
        // Holes stay holes.
        let data = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error),
        };
        reserve(target, at..data, reserved)?;
        let end = rustix::fs::seek(source, SeekFrom::Hole(data))?.min(size);
        at = data;
        while at < end {
            let len = bytes.len().min((end - at) as usize);
            let read = source.read_at(&mut bytes[..len], at).map_err(|error| errno(&error))?;
            if read == 0 {
                // The file was truncated meanwhile: this copy is invalid.
                return Ok(copied);
            }
            target.write_all_at(&bytes[..read], at).map_err(|error| errno(&error))?;
            at += read as u64;
            copied += read as u64;
        }
    }
    reserve(target, at..u64::MAX, reserved)?;
    // Without a hole at the end it is long enough: ext4 would journal a block more.
    if at < size {
        rustix::fs::ftruncate(target, size)?;
    }
    copy_rights(source, &stat, target)?;
    Ok(copied)
}

/// Copies owner, mode and attributes.
pub(crate) fn copy_rights(source: &File, stat: &Stat, target: &File) -> Result<()> {
    rustix::fs::fchown(target, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    // The directory may have got a default list since the file was created.
    let list = c"system.posix_acl_access";
    if rustix::fs::fgetxattr(target, list, &mut [0_u8; 0][..]).is_ok() {
        rustix::fs::fremovexattr(target, list)?;
    }
    rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode))?;
    // Accessed by descriptor, since the name may disappear meanwhile.
    let path = proc_path(source);
    for name in xattr_names(&path)? {
        let value = xattr_value(&path, &name)?;
        rustix::fs::fsetxattr(target, &name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Reserves those parts that are in a hole, or behind the end.
fn reserve(target: &File, hole: Range<u64>, parts: &[Range<u64>]) -> Result<()> {
    for part in parts {
        let (start, end) = (part.start.max(hole.start), part.end.min(hole.end));
        if start < end {
            let done = rustix::fs::fallocate(target, FallocateFlags::KEEP_SIZE, start, end - start);
            match done {
                // RAM could, and BACKING cannot.
                Err(Errno::OPNOTSUPP) => return Ok(()),
                done => done?,
            }
        }
    }
    Ok(())
}

/// Gives an empty file in RAM the size and the attributes of another, but not its content.
pub(crate) fn copy_attributes(from: &File, stat: &Stat, ram: &File) -> Result<()> {
    rustix::fs::ftruncate(ram, stat.st_size as u64)?;
    let path = proc_path(from);
    let names = match xattr_names(&path) {
        Err(Errno::OPNOTSUPP) => Vec::new(),
        names => names?,
    };
    for name in names {
        let value = xattr_value(&path, &name)?;
        rustix::fs::fsetxattr(ram, &name, &value, XattrFlags::empty())?;
    }
    set_times(ram, stat)
}

/// Gives a file these times of its last read and write.
pub(crate) fn set_times(file: &File, was: &Stat) -> Result<()> {
    let time = |tv_sec, tv_nsec: i64| Timespec { tv_sec, tv_nsec };
    let last_access = time(was.st_atime, was.st_atime_nsec as i64);
    let last_modification = time(was.st_mtime, was.st_mtime_nsec as i64);
    rustix::fs::futimens(file, &Timestamps { last_access, last_modification })
}

pub(crate) fn xattr_names(path: &Path) -> Result<Vec<CString>> {
    let mut list = vec![0; XATTR_BYTES];
    let len = rustix::fs::listxattr(path, &mut list[..])?;
    Ok(split_names(&list[..len]))
}

pub(crate) fn xattr_value(path: &Path, name: impl rustix::path::Arg) -> Result<Vec<u8>> {
    let mut value = vec![0; XATTR_BYTES];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// Names of extended attributes as the kernel gives them.
fn split_names(list: &[u8]) -> Vec<CString> {
    list.split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| CString::new(name).ok())
        .collect()
}
