//! Loop devices over memory. The kernel frees one with its memory when its last user is gone, also
//! when this process is killed.
#![allow(unsafe_code, reason = "rustix has no functions for the ioctls of loop devices")]

use super::store::last_error;
use crate::Error;
use rustix::{
    fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open},
    io::Errno,
};
use std::{
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_config` of the kernel's `linux/loop.h`, with its `struct loop_info64`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    device_inode_rdevice_offset_limit: [u64; 5],
    number_type_key_size: [u32; 3],
    flags: u32,
    file_name: [u8; 64],
    crypt_name_and_key: [u8; 96],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// A loop device over memory.
#[derive(Debug)]
pub(super) struct LoopDevice {
    _device: File,
    pub(super) path: PathBuf,
    stat: PathBuf,
}

/// Requests to a device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes written.
    pub written_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes of its write cache.
    pub flushes: u64,
}

impl Counters {
    /// Returns the requests since an earlier time.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            written_bytes: self.written_bytes - earlier.written_bytes,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
        }
    }
}

impl LoopDevice {
    pub(super) fn new(bytes: u64) -> Result<Self, Error> {
        let name = format!("flashsift-twin-{}", std::process::id());
        let memory = memfd_create(name, MemfdFlags::CLOEXEC)
            .map_err(|error| Error::system("memory for a twin", error))?;
        ftruncate(&memory, bytes).map_err(|error| Error::system("memory for a twin", error))?;
        let control = "/dev/loop-control";
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let control_fd = open(control, flags, Mode::empty())
            .map_err(|error| Error::system(format!("{control}: opening"), error))?;
        for _ in 0..64 {
            // Safety: the call takes no argument.
            let number = unsafe { libc::ioctl(control_fd.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(Error::system("a free loop device", last_error()));
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open(&path, flags, Mode::empty())
                .map_err(|error| Error::at(&path, "opening", error))?;
            match configure(&device, &memory) {
                // Another process took it.
                Err(Errno::BUSY) => continue,
                other => other.map_err(|error| Error::at(&path, "setting it up", error))?,
            }
            // A limit that an earlier user of the device left would split requests. 0 is the
            // kernel's default; a kernel that does not know it keeps the limit.
            let queue = format!("/sys/block/loop{number}/queue");
            let _ = std::fs::write(format!("{queue}/max_sectors_kb"), "0");
            let stat = PathBuf::from(format!("/sys/block/loop{number}/stat"));
            return Ok(Self { _device: device.into(), path, stat });
        }
        Err(Error::system("a free loop device", Errno::BUSY))
    }

    /// The requests so far.
    pub(super) fn counters(&self) -> Result<Counters, Error> {
        let text = std::fs::read_to_string(&self.stat)
            .map_err(|error| Error::at(&self.stat, "reading", error))?;
        let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
        // Documentation/block/stat.rst; flushes since Linux 5.5.
        let at = |n: usize| numbers.get(n).copied().unwrap_or_default();
        Ok(Counters { written_bytes: at(6) * 512, writes: at(4), flushes: at(15) })
    }

    /// The file that holds the share of all dirty pages that the kernel keeps for this device,
    /// percent.
    pub(super) fn share(&self) -> PathBuf {
        self.stat.with_file_name("bdi/min_ratio")
    }

    /// Waits until nothing on the device is mounted.
    pub(super) fn wait_unmounted(&self) -> Result<(), Error> {
        const LONGEST: Duration = Duration::from_secs(120);
        let begun = Instant::now();
        loop {
            let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
            match open(&self.path, flags, Mode::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::BUSY) if begun.elapsed() < LONGEST => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(Error::at(&self.path, "unmounting", error)),
            }
        }
    }
}

fn configure(device: &OwnedFd, memory: &OwnedFd) -> rustix::io::Result<()> {
    let mut config = LoopConfig {
        fd: memory.as_raw_fd() as u32,
        block_size: 0,
        device_inode_rdevice_offset_limit: [0; 5],
        number_type_key_size: [0; 3],
        flags: LO_FLAGS_AUTOCLEAR,
        file_name: [0; 64],
        crypt_name_and_key: [0; 96],
        init: [0; 2],
        reserved: [0; 8],
    };
    const NAME: &[u8] = b"flashsift twin";
    config.file_name[..NAME.len()].copy_from_slice(NAME);
    // Safety: the kernel reads a `loop_config`, which outlives the call.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernels_structure_has_304_bytes() {
        assert_eq!(size_of::<super::LoopConfig>(), 304);
    }
}
