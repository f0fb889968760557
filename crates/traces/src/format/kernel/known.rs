//! The tracepoints that a foreign trace may hold: those that a recording asks for, and their
//! counterparts in older kernels, Android's kernels, and their tools.

use super::{
    hosts,
    requests::{Device, Request},
};
use crate::{
    format::block::Rwbs,
    tracepoint::{self, Dev, Inode, Need, Values, What},
};
use std::sync::LazyLock;

/// One tracepoint.
#[derive(Clone, Copy)]
pub(in crate::format) struct Known {
    /// Its group.
    pub(in crate::format) system: &'static str,
    pub(in crate::format) name: &'static str,
    /// The fields that are read, by the kernel's names.
    pub(in crate::format) fields: &'static [&'static str],
    pub(super) source: Source,
    read: Read,
}

/// Largest number of fields that are read from a tracepoint.
pub(in crate::format) const FIELDS_MAX: usize = 8;

#[derive(Clone, Copy)]
enum Read {
    Point(fn(&dyn Values) -> Option<What>),
    Call { write: bool },
    Request(fn(&dyn Values) -> Option<Request>),
}

/// The content of a tracepoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Point(What),
    Call(Box<Call>),
    Request(Request),
}

/// A read or write at its entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) ino: u64,
    pub(super) path: Box<str>,
    pub(super) size: u64,
    pub(super) offset: u64,
    /// Requested bytes; fewer may be moved.
    pub(super) len: u64,
    pub(super) write: bool,
}

/// Source of accesses: of several sources for the same access, one is used ([`super::plan`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The tracepoint shows no access.
    None,
    /// The tracepoint shows accesses that no other does.
    Alone,
    /// `mm_filemap_get_pages`.
    Pages,
    /// `mm_filemap_add_to_page_cache`.
    Added,
    /// `writeback_dirty_folio`.
    Dirtied,
    Ext4Write,
    F2fsReadEnd,
    F2fsReadStart,
    AndroidRead,
    F2fsWriteIter,
    F2fsWriteEnd,
    F2fsWritePiece,
    F2fsWriteStart,
    AndroidWrite,
    Queued,
    Started,
    Issued,
    Inserted,
    Ufs,
    Scsi,
    Mmc,
    Nvme,
    /// The driver returned the request: it will be issued again.
    Requeued,
}

impl Meaning {
    /// A point for the machine.
    pub(super) fn point(&self) -> Option<&What> {
        match self {
            Self::Point(what) => Some(what),
            _ => None,
        }
    }

    /// Whether its numbers are possible.
    pub(super) fn is_possible(&self) -> bool {
        match self {
            Self::Point(what) => what.is_possible(),
            Self::Call(call) => {
                call.begin(Dev::default()).is_possible() && call.end(Dev::default()).is_possible()
            }
            Self::Request(_) => true,
        }
    }
}

impl Call {
    pub(super) fn begin(&self, dev: Dev) -> What {
        let inode = Inode { dev, ino: self.ino };
        What::CallBegin {
            inode,
            path: self.path.clone(),
            size: self.size,
            offset: self.offset,
            write: self.write,
        }
    }

    /// Assumes that all requested bytes were moved.
    pub(super) fn end(&self, dev: Dev) -> What {
        let inode = Inode { dev, ino: self.ino };
        What::CallEnd {
            inode,
            offset: self.offset,
            moved: self.len.cast_signed(),
            write: self.write,
        }
    }
}

impl Known {
    /// Converts the fields; `None` if the hit is of no interest.
    pub(super) fn meaning(&self, v: &dyn Values) -> Option<Meaning> {
        match self.read {
            Read::Point(read) => read(v).map(Meaning::Point),
            Read::Call { write } => Some(Meaning::Call(Box::new(Call {
                path: v.text(0).into_owned().into(),
                ino: v.number(1),
                size: v.number(2),
                offset: v.number(3),
                len: v.number(4),
                write,
            }))),
            Read::Request(read) => read(v).map(Meaning::Request),
        }
    }

    /// Whether it shows accesses to files.
    pub(super) fn is_access(&self) -> bool {
        !self.is_request() && self.source != Source::None
    }

    /// Whether it belongs to the block layer or to a host controller.
    pub(in crate::format) fn is_request(&self) -> bool {
        matches!(self.read, Read::Request(_))
    }

    /// Whether its hits are of no use without this field. Some kernels lack the others, and some
    /// commands.
    pub(in crate::format) fn needs(&self, field: &str) -> bool {
        !matches!(
            (self.system, field),
            ("filemap", "order")
                | ("ufs", "str" | "str_t")
                | ("mmc", "sbc_arg")
                | ("nvme", "disk" | "slba" | "length" | "control")
        )
    }
}

/// Every known tracepoint.
pub(in crate::format) static ALL: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let replaced = |name: &str| OTHERS.iter().any(|known| known.name == name);
    // System calls are not used: their numbers depend on the architecture, which no trace records.
    // Nor are places: they count blocks of the file system, whose size no trace records either.
    // Other programs' recordings of XFS and btrfs lack the names that the recorder adds.
    let left_out = |spec: &tracepoint::TracepointSpec| {
        matches!(spec.need, Need::Calls | Need::Sizes | Need::Places)
            || matches!(spec.system, "xfs" | "btrfs")
    };
    let ours = tracepoint::ALL.iter().filter(|spec| !left_out(spec) && !replaced(spec.name));
    let known = |spec: &'static tracepoint::TracepointSpec| Known {
        system: spec.system,
        name: spec.name,
        fields: spec.fields,
        source: match spec.name {
            "mm_filemap_get_pages" => Source::Pages,
            "mm_filemap_add_to_page_cache" => Source::Added,
            "writeback_dirty_folio" | "writeback_dirty_page" => Source::Dirtied,
            "f2fs_dataread_end" => Source::F2fsReadEnd,
            "f2fs_file_write_iter" => Source::F2fsWriteIter,
            // It adds to an access.
            "iomap_iter_dstmap" => Source::None,
            _ if spec.system == "ext4" && spec.need == Need::Writes => Source::Ext4Write,
            _ if matches!(spec.need, Need::Reads | Need::Writes | Need::Direct | Need::Mapped) => {
                Source::Alone
            }
            _ => Source::None,
        },
        read: Read::Point(spec.read),
    };
    ours.map(known).chain(OTHERS.iter().copied()).collect()
});

const CALL: &[&str] = &["pathbuf", "ino", "i_size", "offset", "bytes"];
const REQUEST: &[&str] = &["dev", "rwbs", "sector", "nr_sector"];

const OTHERS: &[Known] = &[
    // These have more fields than a recording needs, for traces without the ends of calls.
    call("f2fs", "f2fs_dataread_start", Source::F2fsReadStart, false),
    call("f2fs", "f2fs_datawrite_start", Source::F2fsWriteStart, true),
    point("f2fs", "f2fs_datawrite_end", Source::F2fsWriteEnd, &["ino", "offset", "bytes"], |v| {
        let inode = Inode { dev: Dev::default(), ino: v.number(0) };
        Some(What::CallEnd {
            inode,
            offset: v.number(1),
            moved: v.number(2).cast_signed(),
            write: true,
        })
    }),
    // One pair per page; atrace's category "disk" shows them.
    point("f2fs", "f2fs_write_begin", Source::F2fsWritePiece, &["dev", "ino", "pos", "len"], |v| {
        Some(What::WriteBegin { inode: inode(v), offset: v.number(2), len: v.number(3) })
    }),
    point(
        "f2fs",
        "f2fs_write_end",
        Source::F2fsWritePiece,
        &["dev", "ino", "pos", "copied"],
        |v| Some(What::WriteEnd { inode: inode(v), offset: v.number(2), copied: v.number(3) }),
    ),
    // Android kernels up to 5.10, for ext4 and F2FS alike. Reads are those that missed the cache.
    call("android_fs", "android_fs_dataread_start", Source::AndroidRead, false),
    call("android_fs", "android_fs_datawrite_start", Source::AndroidWrite, true),
    block("block_bio_queue", Source::Queued),
    block("block_io_start", Source::Started),
    block("block_rq_issue", Source::Issued),
    block("block_rq_insert", Source::Inserted),
    block("block_rq_requeue", Source::Requeued),
    request("ufs", "ufshcd_command", Source::Ufs, hosts::UFS, hosts::ufs),
    request("scsi", "scsi_dispatch_cmd_start", Source::Scsi, hosts::SCSI, hosts::scsi),
    request("mmc", "mmc_request_start", Source::Mmc, hosts::MMC, hosts::mmc),
    request("nvme", "nvme_setup_cmd", Source::Nvme, hosts::NVME, hosts::nvme),
];

const fn point(
    system: &'static str,
    name: &'static str,
    source: Source,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<What>,
) -> Known {
    Known { system, name, fields, source, read: Read::Point(read) }
}

const fn call(system: &'static str, name: &'static str, source: Source, write: bool) -> Known {
    Known { system, name, fields: CALL, source, read: Read::Call { write } }
}

const fn request(
    system: &'static str,
    name: &'static str,
    source: Source,
    fields: &'static [&'static str],
    read: fn(&dyn Values) -> Option<Request>,
) -> Known {
    Known { system, name, fields, source, read: Read::Request(read) }
}

const fn block(name: &'static str, source: Source) -> Known {
    request("block", name, source, REQUEST, |v| {
        Some(Request {
            device: Device::Number(Dev(v.number(0) as u32)),
            flags: Rwbs::parse(&v.text(1)),
            sector: v.number(2),
            sectors: v.number(3),
            own_blocks: false,
        })
    })
}

fn inode(v: &dyn Values) -> Inode {
    Inode { dev: Dev(v.number(0) as u32), ino: v.number(1) }
}
