//! The tracepoints that the machine understands, one entry each.

use super::{Dev, Inode, What};
use std::borrow::Cow;

/// The fields of one hit, in the order in which its [`TracepointSpec`] names them.
pub trait Values {
    /// A number, sign-extended where the kernel's type is signed.
    fn number(&self, field: usize) -> u64;
    /// A string, up to its first NUL byte.
    fn text(&self, field: usize) -> Cow<'_, str>;
}

/// Purpose of a tracepoint: it decides when the tracepoint is recorded, and which events are
/// missing on a kernel without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Buffered reads.
    Reads,
    /// Boundaries between reads.
    Batches,
    /// Buffered writes.
    Writes,
    /// Accesses that bypass the page cache.
    Direct,
    /// Reads and stores through mappings.
    Mapped,
    /// Folios of more than one page, which a store through a mapping makes dirty as a whole.
    Folios,
    /// Addresses of page faults, which identify the page of a mapping.
    Addresses,
    /// Syncs.
    Syncs,
    /// Creation, deletion, truncation, and holes.
    Life,
    /// Sizes that truncations ask for.
    Sizes,
    /// Places of data on the device.
    Places,
    /// Processes and threads.
    Tasks,
    /// System calls, for `--exact`.
    Calls,
}

/// One tracepoint.
pub struct TracepointSpec {
    /// Its group: the directory below `events`.
    pub system: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its purpose.
    pub need: Need,
    /// The fields that are read. A kernel without one of them counts as lacking the tracepoint.
    pub fields: &'static [&'static str],
    /// A filter that the kernel applies, for tracepoints most of whose hits carry no information.
    pub filter: Option<&'static str>,
    /// Converts the fields; `None` if the hit is of no interest.
    pub read: fn(&dyn Values) -> Option<What>,
}

/// Every tracepoint that can be read.
pub const ALL: &[TracepointSpec] = &[
    filemap("mm_filemap_get_pages", Need::Reads, &["s_dev", "i_ino", "index", "last_index"], |v| {
        Some(What::Pages { inode: inode(v), first: v.number(2), last: v.number(3) })
    }),
    filemap("mm_filemap_fault", Need::Mapped, &["s_dev", "i_ino", "index"], |v| {
        Some(What::Fault { inode: inode(v), page: v.number(2) })
    }),
    filemap(
        "mm_filemap_map_pages",
        Need::Mapped,
        &["s_dev", "i_ino", "index", "last_index"],
        |v| Some(What::FaultAround { inode: inode(v), first: v.number(2), last: v.number(3) }),
    ),
    // The order of a folio is missing before Linux 5.18, where all have one page.
    folio("mm_filemap_add_to_page_cache", |v| {
        Some(What::Added { inode: inode(v), first: v.number(2), pages: pages_of(v.number(3))? })
    }),
    folio("mm_filemap_delete_from_page_cache", |v| {
        Some(What::Removed { inode: inode(v), first: v.number(2), pages: pages_of(v.number(3))? })
    }),
    spec(
        "readahead",
        "page_cache_sync_ra",
        Need::Batches,
        &["s_dev", "i_ino", "index", "req_count"],
        |v| {
            let (first, pages) = (v.number(2), v.number(3));
            let missing = Some((first, first.saturating_add(pages).saturating_sub(1)));
            Some(What::ReadAhead { inode: inode(v), missing })
        },
    ),
    spec("readahead", "page_cache_async_ra", Need::Batches, &["s_dev", "i_ino"], |v| {
        Some(What::ReadAhead { inode: inode(v), missing: None })
    }),
    spec("exceptions", "page_fault_user", Need::Addresses, &["address", "error_code"], user_fault),
    spec(
        "exceptions",
        "page_fault_kernel",
        Need::Addresses,
        &["address", "error_code"],
        user_fault,
    ),
    spec("writeback", "writeback_dirty_folio", Need::Mapped, &["name", "ino", "index"], dirtied),
    // Name of the tracepoint before folios (Linux 5.17).
    spec("writeback", "writeback_dirty_page", Need::Mapped, &["name", "ino", "index"], dirtied),
    spec("iomap", "iomap_dio_complete", Need::Direct, &["dev", "ino", "pos", "ret"], |v| {
        Some(What::DirectEnd {
            inode: inode(v),
            end: v.number(2),
            moved: v.number(3).cast_signed(),
        })
    }),
    TracepointSpec {
        filter: Some("flags & 16"), // IOMAP_DIRECT
        ..spec(
            "iomap",
            "iomap_iter",
            Need::Direct,
            &["dev", "ino", "pos", "length", "flags"],
            |v| {
                let (offset, len, flags) = (v.number(2), v.number(3), v.number(4));
                (flags & 16 != 0).then(|| What::DirectStep {
                    inode: inode(v),
                    offset,
                    len,
                    write: flags & 1 != 0,
                })
            },
        )
    },
    TracepointSpec {
        filter: Some("type == 3 || flags & 1"), // IOMAP_UNWRITTEN, IOMAP_F_NEW
        ..spec(
            "iomap",
            "iomap_iter_dstmap",
            Need::Direct,
            &["dev", "ino", "offset", "length", "type", "flags"],
            |v| {
                let (offset, len, kind, flags) =
                    (v.number(2), v.number(3), v.number(4), v.number(5));
                (kind == 3 || flags & 1 != 0).then(|| What::Blank { inode: inode(v), offset, len })
            },
        )
    },
    ext4("ext4_da_write_begin", Need::Writes, &["dev", "ino", "pos", "len"], write_begin),
    ext4("ext4_write_begin", Need::Writes, &["dev", "ino", "pos", "len"], write_begin),
    ext4("ext4_da_write_end", Need::Writes, &["dev", "ino", "pos", "copied"], write_end),
    ext4("ext4_write_end", Need::Writes, &["dev", "ino", "pos", "copied"], write_end),
    ext4("ext4_journalled_write_end", Need::Writes, &["dev", "ino", "pos", "copied"], write_end),
    ext4("ext4_sync_file_enter", Need::Syncs, &["dev", "ino", "datasync"], sync_file),
    ext4("ext4_sync_fs", Need::Syncs, &["dev", "wait"], sync_fs),
    ext4("ext4_allocate_inode", Need::Life, &["dev", "ino", "dir", "mode"], |v| {
        Some(What::Allocated {
            inode: inode(v),
            dir: Some(v.number(2)),
            mode: Some(v.number(3) as u16),
        })
    }),
    ext4("ext4_evict_inode", Need::Life, &["dev", "ino", "nlink"], evicted),
    ext4("ext4_alloc_da_blocks", Need::Life, &["dev", "ino"], |v| {
        Some(What::Hurried { inode: inode(v) })
    }),
    ext4("ext4_unlink_enter", Need::Life, &["dev", "ino", "parent"], |v| {
        Some(What::Unlink { inode: inode(v), dir: Some(v.number(2)) })
    }),
    ext4("ext4_truncate_enter", Need::Life, &["dev", "ino"], |v| {
        Some(What::TruncateBegin { inode: inode(v), size: None })
    }),
    // The exact new size in bytes, in the mode data=ordered.
    ext4("ext4_begin_ordered_truncate", Need::Life, &["dev", "ino", "new_size"], |v| {
        Some(What::TruncateBegin { inode: inode(v), size: Some(v.number(2)) })
    }),
    ext4("ext4_es_remove_extent", Need::Life, &["dev", "ino", "lblk", "len"], |v| {
        Some(What::Cut { inode: inode(v), block: v.number(2), blocks: v.number(3) })
    }),
    ext4("ext4_truncate_exit", Need::Life, &["dev", "ino"], |v| {
        Some(What::TruncateEnd { inode: inode(v) })
    }),
    TracepointSpec {
        // ext4_setattr reserves more credits for a new size; other inode changes ask for two
        // blocks.
        filter: Some("type == 1 && blocks == 3"),
        ..ext4("ext4_journal_start_inode", Need::Life, &["dev", "ino", "type", "blocks"], |v| {
            (v.number(2) == 1 && v.number(3) == 3).then(|| What::Resize { inode: inode(v) })
        })
    },
    ext4("ext4_fallocate_enter", Need::Life, &["dev", "ino", "offset", "len", "mode"], |v| {
        let (offset, len, mode) = (v.number(2), v.number(3), v.number(4) as u32);
        Some(What::Allocate { inode: inode(v), offset, len, mode, done: false })
    }),
    ext4("ext4_fallocate_exit", Need::Life, &["dev", "ino", "ret"], |v| {
        Some(What::AllocateEnd { inode: inode(v), done: v.number(2) as i32 == 0 })
    }),
    ext4("ext4_punch_hole", Need::Life, &["dev", "ino", "offset", "len"], |v| {
        Some(What::Punch { inode: inode(v), offset: v.number(2), len: v.number(3) })
    }),
    TracepointSpec {
        // EXT4_MB_HINT_DATA: data of regular files. Other blocks hold directories and extent trees.
        filter: Some("flags & 32"),
        ..ext4(
            "ext4_allocate_blocks",
            Need::Places,
            &["dev", "ino", "logical", "len", "block", "flags"],
            |v| {
                let (block, blocks, at) = (v.number(2), v.number(3), v.number(4));
                let data = v.number(5) & 32 != 0;
                data.then(|| What::Placed { inode: inode(v), block, blocks, at })
            },
        )
    },
    // XFS rounds nothing and reports a call before it copies: of a write that ends early, the rest
    // is taken as written.
    xfs("xfs_file_buffered_write", Need::Writes, &["dev", "ino", "offset", "count"], |v| {
        Some(What::Written { inode: inode(v), offset: v.number(2), len: v.number(3) })
    }),
    // Neither says `datasync`.
    xfs("xfs_file_fsync", Need::Syncs, &["dev", "ino"], |v| {
        Some(What::Sync { inode: inode(v), data_only: false })
    }),
    xfs("xfs_dir_fsync", Need::Syncs, &["dev", "ino"], |v| {
        Some(What::Sync { inode: inode(v), data_only: false })
    }),
    xfs("xfs_itruncate_extents_start", Need::Life, &["dev", "ino", "new_size"], |v| {
        Some(What::TruncateBegin { inode: inode(v), size: Some(v.number(2)) })
    }),
    // A truncation that makes the file longer, behind `xfs_setattr`; else a write behind its end.
    xfs("xfs_zero_eof", Need::Life, &["dev", "ino", "offset", "count"], |v| {
        Some(What::Grows { inode: inode(v), size: v.number(2).saturating_add(v.number(3)) })
    }),
    xfs("xfs_setattr", Need::Life, &["dev", "ino"], |v| Some(What::SetAttr { inode: inode(v) })),
    xfs("xfs_inode_inactivating", Need::Life, &["dev", "ino"], |v| {
        Some(What::Inactive { inode: inode(v) })
    }),
    // btrfs names its file system by its identifier: it is the only recorded one.
    btrfs("btrfs_sync_file", Need::Syncs, &["ino", "datasync"], |v| {
        Some(What::Sync { inode: on_btrfs(v), data_only: v.number(1) != 0 })
    }),
    btrfs("btrfs_sync_fs", Need::Syncs, &["wait"], |v| {
        Some(What::SyncFs { dev: BTRFS, wait: v.number(0) as i32 != 0 })
    }),
    btrfs("btrfs_inode_evict", Need::Life, &["ino"], |v| {
        Some(What::Inactive { inode: on_btrfs(v) })
    }),
    TracepointSpec {
        // Only `btrfs_truncate`, for a size that is not larger, locks all from a page on.
        filter: Some("ino != 0 && (len == 0 || len > 0x7fffffffffffffff)"),
        ..btrfs("btrfs_set_extent_bit", Need::Life, &["ino", "start"], |v| {
            Some(What::CutInPage { inode: on_btrfs(v), start: v.number(1) })
        })
    },
    TracepointSpec {
        // The first folio of a file that an application's call makes btrfs write.
        filter: Some("nr_to_write == 0x7fffffffffffffff"),
        ..btrfs("extent_writepage", Need::Life, &["ino"], |v| {
            Some(What::Hurried { inode: on_btrfs(v) })
        })
    },
    size("sys_enter_ftruncate", &["length"], |v| Some(What::Asks { size: Some(v.number(0)) })),
    size("sys_enter_truncate", &["length"], |v| Some(What::Asks { size: Some(v.number(0)) })),
    size("sys_exit_ftruncate", &[], |_| Some(What::Asks { size: None })),
    size("sys_exit_truncate", &[], |_| Some(What::Asks { size: None })),
    f2fs("f2fs_submit_page_write", Need::Places, F2FS_WRITE, f2fs_placed),
    // Name of the tracepoint since folios.
    f2fs("f2fs_submit_folio_write", Need::Places, F2FS_WRITE, f2fs_placed),
    f2fs("f2fs_dataread_start", Need::Writes, &["pathbuf", "ino", "i_size", "offset"], |v| {
        call_begin(v, false)
    }),
    f2fs("f2fs_datawrite_start", Need::Writes, &["pathbuf", "ino", "i_size", "offset"], |v| {
        call_begin(v, true)
    }),
    f2fs("f2fs_direct_IO_enter", Need::Direct, &["dev", "ino"], |v| {
        Some(What::CallDirect { inode: inode(v) })
    }),
    f2fs("f2fs_dataread_end", Need::Reads, &["ino", "offset", "bytes"], |v| {
        let inode = Inode { dev: Dev::default(), ino: v.number(0) };
        Some(What::CallEnd {
            inode,
            offset: v.number(1),
            moved: v.number(2).cast_signed(),
            write: false,
        })
    }),
    f2fs("f2fs_file_write_iter", Need::Writes, &["dev", "ino", "offset", "ret"], |v| {
        let (offset, moved) = (v.number(2), v.number(3).cast_signed());
        Some(What::CallEnd { inode: inode(v), offset, moved, write: true })
    }),
    f2fs("f2fs_filemap_fault", Need::Mapped, &["dev", "ino", "index"], |v| {
        Some(What::Fault { inode: inode(v), page: v.number(2) })
    }),
    f2fs("f2fs_sync_file_enter", Need::Syncs, &["dev", "ino"], |v| {
        // Only the tracepoint of the exit says `datasync`.
        Some(What::Sync { inode: inode(v), data_only: false })
    }),
    f2fs("f2fs_sync_fs", Need::Syncs, &["dev", "wait"], sync_fs),
    f2fs("f2fs_new_inode", Need::Life, &["dev", "ino", "ret"], |v| {
        (v.number(2) == 0).then(|| What::Allocated { inode: inode(v), dir: None, mode: None })
    }),
    f2fs("f2fs_evict_inode", Need::Life, &["dev", "ino", "nlink"], evicted),
    f2fs("f2fs_unlink_exit", Need::Life, &["dev", "ino", "ret"], |v| {
        (v.number(2) == 0).then(|| What::Unlink { inode: inode(v), dir: None })
    }),
    f2fs("f2fs_truncate", Need::Life, &["dev", "ino", "size"], |v| {
        Some(What::TruncateBegin { inode: inode(v), size: Some(v.number(2)) })
    }),
    f2fs("f2fs_fallocate", Need::Life, &["dev", "ino", "offset", "len", "mode", "ret"], |v| {
        let (offset, len, mode) = (v.number(2), v.number(3), v.number(4) as u32);
        (v.number(5) == 0).then(|| What::Allocate {
            inode: inode(v),
            offset,
            len,
            mode,
            done: true,
        })
    }),
    spec("task", "task_newtask", Need::Tasks, &["pid", "clone_flags", "comm"], |v| {
        Some(What::NewTask {
            tid: v.number(0) as u32,
            flags: v.number(1),
            name: v.text(2).into_owned().into(),
        })
    }),
    // Linux 6.9. Without it, the mappings of a program count until another mapping replaces them.
    spec("sched", "sched_prepare_exec", Need::Tasks, &[], |_| Some(What::ExecBegin)),
    spec("sched", "sched_process_exec", Need::Tasks, &["old_pid", "filename"], |v| {
        Some(What::Exec { old_tid: v.number(0) as u32, program: v.text(1).into_owned().into() })
    }),
    spec("sched", "sched_process_exit", Need::Tasks, &[], |_| Some(What::Exit)),
    spec("raw_syscalls", "sys_enter", Need::Calls, &["id"], |_| None),
    spec("raw_syscalls", "sys_exit", Need::Calls, &["ret"], |v| {
        Some(What::Leave { result: v.number(0).cast_signed() })
    }),
];

const fn spec(
    system: &'static str,
    name: &'static str,
    need: Need,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<What>,
) -> TracepointSpec {
    TracepointSpec { system, name, need, fields, filter: None, read }
}

const fn filemap(
    name: &'static str,
    need: Need,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<What>,
) -> TracepointSpec {
    spec("filemap", name, need, fields, read)
}

const fn folio(name: &'static str, read: fn(&dyn Values) -> Option<What>) -> TracepointSpec {
    let fields = &["s_dev", "i_ino", "index", "order"];
    TracepointSpec { filter: Some("order > 0"), ..filemap(name, Need::Folios, fields, read) }
}

const fn ext4(
    name: &'static str,
    need: Need,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<What>,
) -> TracepointSpec {
    spec("ext4", name, need, fields, read)
}

const fn xfs(
    name: &'static str,
    need: Need,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<What>,
) -> TracepointSpec {
    spec("xfs", name, need, fields, read)
}

const fn btrfs(
    name: &'static str,
    need: Need,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<What>,
) -> TracepointSpec {
    spec("btrfs", name, need, fields, read)
}

const fn f2fs(
    name: &'static str,
    need: Need,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<What>,
) -> TracepointSpec {
    spec("f2fs", name, need, fields, read)
}

/// Returns the pages of a folio of this order.
fn pages_of(order: u64) -> Option<u64> {
    1_u64.checked_shl(u32::try_from(order).ok()?)
}

const F2FS_WRITE: &[&str] = &["dev", "ino", "index", "new_blkaddr", "type"];

/// Type 0 is data. The others are F2FS's own: nodes and metadata.
fn f2fs_placed(v: &dyn Values) -> Option<What> {
    let (block, at) = (v.number(2), v.number(3));
    (v.number(4) == 0).then(|| What::Placed { inode: inode(v), block, blocks: 1, at })
}

/// Most tracepoints begin with the device and the inode's number.
fn inode(v: &dyn Values) -> Inode {
    Inode { dev: Dev(v.number(0) as u32), ino: v.number(1) }
}

/// The size that a call asks for, which no tracepoint of btrfs tells.
const fn size(
    name: &'static str,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<What>,
) -> TracepointSpec {
    spec("syscalls", name, Need::Sizes, fields, read)
}

/// Stands for the device of the only recorded btrfs.
const BTRFS: Dev = Dev(0);

/// The inode's number comes first.
fn on_btrfs(v: &dyn Values) -> Inode {
    Inode { dev: BTRFS, ino: v.number(0) }
}

fn user_fault(v: &dyn Values) -> Option<What> {
    let address = v.number(0);
    // The upper half of the address space belongs to the kernel.
    (address >> 63 == 0).then(|| What::UserFault { address, write: v.number(1) & 2 != 0 })
}

fn dirtied(v: &dyn Values) -> Option<What> {
    let name = v.text(0);
    // btrfs may span several devices, so that its name is a number of its own.
    let dev = if name.starts_with("btrfs-") { BTRFS } else { Dev::parse(&name)? };
    Some(What::Dirtied { inode: Inode { dev, ino: v.number(1) }, page: v.number(2) })
}

fn write_begin(v: &dyn Values) -> Option<What> {
    Some(What::WriteBegin { inode: inode(v), offset: v.number(2), len: v.number(3) })
}

fn write_end(v: &dyn Values) -> Option<What> {
    Some(What::WriteEnd { inode: inode(v), offset: v.number(2), copied: v.number(3) })
}

/// F2FS gives the path of the file and omits the device.
fn call_begin(v: &dyn Values, write: bool) -> Option<What> {
    let inode = Inode { dev: Dev::default(), ino: v.number(1) };
    let (size, offset) = (v.number(2), v.number(3));
    Some(What::CallBegin { inode, path: v.text(0).into_owned().into(), size, offset, write })
}

fn sync_file(v: &dyn Values) -> Option<What> {
    Some(What::Sync { inode: inode(v), data_only: v.number(2) != 0 })
}

fn sync_fs(v: &dyn Values) -> Option<What> {
    Some(What::SyncFs { dev: Dev(v.number(0) as u32), wait: v.number(1) as i32 != 0 })
}

fn evicted(v: &dyn Values) -> Option<What> {
    Some(What::Evicted { inode: inode(v), links: v.number(2) as u32 })
}
