//! Figures of the status about flash: the account of file data, flushes, the device's counter.
//!
//! The account is kept under the lock of the event stream, which reads do not take.

use super::decider::Decider;
use super::types::{Device, Model, Writes};
use flashsift_events::page::PAGE_BYTES;
use flashsift_files::sift::account::WrittenData;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Unit of the counters of a block device, bytes.
const SECTOR_BYTES: u64 = 512;
/// The field of a block device's statistics that counts written sectors, from 0
/// (`Documentation/block/stat.rst` of Linux).
const SECTORS_WRITTEN: usize = 6;

/// Counts of requests that make data durable, which reach the device as flushes of its cache.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    all: AtomicU64,
    /// Those for which an application waited.
    synced: AtomicU64,
    /// Directories that applications synced.
    directories: AtomicU64,
    /// Opens for writing whose writes are not seen here (passthrough).
    unseen_opens: AtomicU64,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Flushes {
    /// Counts an fsync, fdatasync or syncfs.
    pub(crate) fn issued(&self, synced: bool) {
        add(&self.all);
        if synced {
            add(&self.synced);
        }
    }

    /// Counts an application's sync of a directory.
    pub(crate) fn directory_synced(&self) {
        add(&self.directories);
    }

    /// Counts an open whose writes are not seen here.
    pub(crate) fn unseen_open(&self) {
        add(&self.unseen_opens);
    }
}

/// The block device of BACKING's file system.
#[derive(Debug)]
pub(crate) struct BlockDevice {
    name: String,
    stat: PathBuf,
    /// Its counter when the mount began.
    before_bytes: u64,
}

impl BlockDevice {
    /// `None` where the file system has no block device of its own, or /sys does not show it.
    pub(crate) fn new(dir: impl AsFd) -> Option<BlockDevice> {
        let device = rustix::fs::fstat(dir).ok()?.st_dev;
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let block = Path::new("/sys/dev/block").join(numbers);
        let name = fs::read_link(&block).ok()?.file_name()?.to_str()?.to_owned();
        let stat = block.join("stat");
        let before_bytes = written_bytes(&stat)?;
        Some(BlockDevice { name, stat, before_bytes })
    }

    fn since_mount(&self) -> Option<Device> {
        let written_bytes = written_bytes(&self.stat)?.saturating_sub(self.before_bytes);
        Some(Device { name: self.name.clone(), written_bytes })
    }
}

fn written_bytes(stat: &Path) -> Option<u64> {
    let sectors: u64 =
        fs::read_to_string(stat).ok()?.split_whitespace().nth(SECTORS_WRITTEN)?.parse().ok()?;
    sectors.checked_mul(SECTOR_BYTES)
}

/// Returns the figures since the mount began.
pub(crate) fn figures(
    decider: &Decider,
    flushes: &Flushes,
    device: Option<&BlockDevice>,
    in_ram_bytes: Option<u64>,
) -> Writes {
    let (totals, settings, now_us) = decider
        .with_account(|account, now_us| (account.totals(now_us), account.settings(), now_us));
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut writes = Writes {
        mounted_s: now_us / 1_000_000,
        requested_bytes: totals.requested_bytes,
        unseen_opens: count(&flushes.unseen_opens),
        ext4_bytes: totals.plain.written_bytes,
        ext4_waiting_bytes: totals.plain.dirty_bytes,
        ext4_early_bytes: totals.plain.early_bytes,
        flash_bytes: totals.mount.written_bytes,
        flash_estimated_bytes: totals.below_bytes,
        flash_waiting_bytes: in_ram_bytes.map(|bytes| bytes + totals.mount.dirty_bytes),
        saved_bytes: None,
        saved_bytes_per_day: None,
        syncs: totals.syncs + count(&flushes.directories),
        sync_ext4_bytes: totals.plain.synced_bytes,
        sync_flash_bytes: totals.mount.synced_bytes,
        sync_flushes: count(&flushes.synced),
        flushes: count(&flushes.all),
        device: device.and_then(BlockDevice::since_mount),
        model: Model {
            expire_ms: settings.expire_us / 1000,
            tick_ms: settings.tick_us / 1000,
            background_bytes: settings.background_pages.checked_mul(PAGE_BYTES),
        },
    };
    // Data that still waits will be written on both sides. Otherwise a file in RAM would count
    // as saved until its write-back.
    let due = |side: WrittenData, waiting_bytes: u64| {
        i64::try_from(side.written_bytes + waiting_bytes).unwrap_or(i64::MAX)
    };
    writes.saved_bytes = writes.flash_waiting_bytes.map(|waiting_bytes| {
        due(totals.plain, totals.plain.dirty_bytes) - due(totals.mount, waiting_bytes)
    });
    writes.saved_bytes_per_day = writes.saved_bytes.and_then(|bytes| writes.per_day(bytes));
    writes
}
