//! Chooses the tracepoints of a trace that supply accesses. A kernel reports one access by several
//! tracepoints; each access becomes one event.

use super::super::syscalls;
use super::{
    SystemCall,
    known::{Known, Source},
};
use crate::tracepoint::{Dev, Inode, What};
use flashsift_events::event::Space;

/// Of each group, the first source in the trace supplies the accesses; the others repeat them.
const PREFERRED: [&[Source]; 6] = [
    &[Source::F2fsReadEnd, Source::F2fsReadStart, Source::AndroidRead, Source::Added],
    &[Source::Pages, Source::Added],
    // Android's tracepoint also duplicates that of ext4.
    &[
        Source::F2fsWriteIter,
        Source::F2fsWriteEnd,
        Source::F2fsWritePiece,
        Source::F2fsWriteStart,
        Source::Ext4Write,
        Source::AndroidWrite,
    ],
    // The request and its process before merges and splits, as in blkparse's `Q`. SCSI's commands
    // go on to UFS.
    &[Source::Queued, Source::Started, Source::Issued, Source::Inserted, Source::Ufs, Source::Scsi],
    &[Source::Queued, Source::Started, Source::Issued, Source::Inserted, Source::Mmc],
    &[Source::Queued, Source::Started, Source::Issued, Source::Inserted, Source::Nvme],
];

/// The contents of the first tracepoints of a trace.
#[derive(Default)]
pub(super) struct Survey {
    seen: u32,
    files: bool,
    requests: bool,
    syncs: bool,
    removals: bool,
    f2fs: Vec<Dev>,
    ext4: Option<Dev>,
    direct_ends: bool,
    /// Some system call begins, and some ends.
    calls: [bool; 2],
    /// A system call reads.
    read_calls: bool,
    /// A system call shows a path.
    paths: bool,
}

impl Survey {
    pub(super) fn add(&mut self, known: &Known, what: Option<&What>) {
        self.seen |= 1 << known.source as u32;
        self.files |= known.is_access();
        self.requests |= known.is_request();
        let Some(what) = what else { return };
        self.syncs |= matches!(what, What::Sync { .. } | What::SyncFs { .. });
        self.removals |= matches!(
            what,
            What::Evicted { .. }
                | What::Hurried { .. }
                | What::Unlink { .. }
                | What::TruncateBegin { .. }
                | What::Allocated { .. }
        );
        self.direct_ends |= matches!(what, What::DirectEnd { .. });
        if let Some(Inode { dev, .. }) = inode(what)
            && dev != Dev::default()
        {
            match known.system {
                "f2fs" if !self.f2fs.contains(&dev) => self.f2fs.push(dev),
                "ext4" => self.ext4 = self.ext4.or(Some(dev)),
                _ => {}
            }
        }
    }

    pub(super) fn call(&mut self, call: &SystemCall) {
        self.calls[usize::from(call.ends)] = true;
        self.read_calls |= syscalls::reads(call.name);
        self.paths |= !call.ends && syscalls::shows_a_path(&call.text, call.hex);
    }

    pub(super) fn plan(&self, wanted: Option<Space>) -> Plan {
        let seen = |source: &Source| self.seen & 1 << *source as u32 != 0;
        let mut repeats = 0;
        for group in PREFERRED {
            for other in group.iter().skip_while(|source| !seen(source)).skip(1) {
                // Each of two file systems reports its own accesses.
                if *other != Source::Ext4Write {
                    repeats |= 1 << *other as u32;
                }
            }
        }
        // The writes of which the trace has more than the pages that became dirty.
        let writes = PREFERRED[2].iter().any(seen);
        let others = self.seen & !(1 << Source::None as u32 | 1 << Source::Added as u32) != 0;
        let nameless = self.f2fs.first().copied().or(self.ext4);
        // Calls name no inode, but tracepoints of writes alone tell of no read.
        let reads = seen(&Source::Pages) || PREFERRED[0][..3].iter().any(seen);
        let calls = self.calls == [true, true]
            && wanted != Some(Space::Blocks)
            && (!self.files || self.read_calls && !reads);
        Plan {
            space: wanted.unwrap_or(if !self.files && !calls && self.requests {
                Space::Blocks
            } else {
                Space::Files
            }),
            syncs: self.syncs || calls,
            removals: if calls { self.paths } else { self.removals },
            calls,
            repeats,
            nameless: nameless.unwrap_or_default(),
            several: self.f2fs.len() > 1,
            f2fs_reads: [Source::F2fsReadEnd, Source::F2fsReadStart]
                .iter()
                .any(seen)
                .then_some(nameless)
                .flatten(),
            direct_steps: !self.direct_ends,
            writes,
            misses_only: seen(&Source::Added) && !others,
            additions: match seen(&Source::Added) {
                false => Additions::None,
                true if repeats & 1 << Source::Added as u32 != 0 => Additions::Folios,
                true => Additions::Reads,
            },
        }
    }
}

/// The use of the pages that entered the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Additions {
    /// The trace does not tell them.
    None,
    /// They show folios.
    Folios,
    /// They show folios and, in lack of better, reads.
    Reads,
}

/// The plan for reading a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) space: Space,
    pub(super) syncs: bool,
    pub(super) removals: bool,
    /// One bit per [`Source`].
    repeats: u32,
    /// Device of files whose file system is not identified.
    pub(super) nameless: Dev,
    /// The trace has several F2FS file systems.
    pub(super) several: bool,
    /// The F2FS that reports its reads itself, so that the page cache's tracepoints repeat them.
    f2fs_reads: Option<Dev>,
    pub(super) direct_steps: bool,
    /// System calls supply the accesses.
    pub(super) calls: bool,
    /// The trace has a tracepoint of writes.
    pub(super) writes: bool,
    /// The use of the pages that entered the page cache.
    pub(super) additions: Additions,
    /// The trace has nothing but the pages that entered the page cache.
    pub(super) misses_only: bool,
}

impl Plan {
    /// Whether another tracepoint reports the same.
    pub(super) fn repeats(&self, source: Source, what: Option<&What>) -> bool {
        self.repeats & 1 << source as u32 != 0
            || source == Source::Pages
                && self.f2fs_reads.is_some()
                && what.and_then(inode).map(|inode| inode.dev) == self.f2fs_reads
    }
}

/// Returns the device, if the tracepoint identifies a file system.
fn inode(what: &What) -> Option<Inode> {
    match *what {
        What::Pages { inode, .. }
        | What::WriteBegin { inode, .. }
        | What::WriteEnd { inode, .. }
        | What::CallDirect { inode }
        | What::Blank { inode, .. }
        | What::CallEnd { inode, .. }
        | What::Fault { inode, .. }
        | What::Added { inode, .. }
        | What::Sync { inode, .. }
        | What::Allocated { inode, .. }
        | What::Evicted { inode, .. }
        | What::Hurried { inode }
        | What::Unlink { inode, .. }
        | What::TruncateBegin { inode, .. }
        | What::Allocate { inode, .. } => Some(inode),
        What::SyncFs { dev, .. } => Some(Inode { dev, ino: 0 }),
        _ => None,
    }
}
