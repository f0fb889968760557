//! Places of data on the device.

use super::{super::Handle, Inode, TracepointMachine};
use crate::{events::Skip, tracepoint::inodes::Kind};
use flashsift_events::event::{Action, Event, FileId};

const NO_HANDLE: Skip = Skip::Note("file whose places at the end are unknown: it has no handle");

/// A file that still exists at the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its number in the trace.
    pub file: FileId,
    /// Its handle.
    pub handle: Handle,
}

impl TracepointMachine {
    /// Takes the blocks that the file system chose for data of a file. They concern the trace if
    /// the file does, whichever thread writes it back.
    pub(super) fn placed_at(&mut self, inode: Inode, block: u64, blocks: u64, at: u64) {
        let Some(block_bytes) = self.block_bytes(inode.dev) else { return };
        let Some(id) = self.files.current(inode).and_then(|file| self.files[file].id) else {
            return;
        };
        let bytes = |blocks: u64| blocks.saturating_mul(block_bytes);
        self.place(id, bytes(block), bytes(blocks), bytes(at));
    }

    /// Emits the place of a range. It joins the last event if it continues that event's range in
    /// the file and on the device, as the pages do that F2FS writes one by one.
    pub fn place(&mut self, file: FileId, offset: u64, len: u64, at: u64) {
        if let Some(Event { action: Action::Place { file: of, offset: o, len: l, at: a }, .. }) =
            self.out.last_mut()
            && (*of, o.saturating_add(*l), a.saturating_add(*l)) == (file, offset, at)
        {
            *l = l.saturating_add(len);
            return;
        }
        // Write-back happens in threads of the kernel, which say nothing about the file.
        self.emit(0, Action::Place { file, offset, len, at });
    }

    /// Returns the files of the trace that exist after [`TracepointMachine::finish`], in the order
    /// of their numbers, and notes those that cannot be looked up.
    pub fn survivors(&mut self) -> Vec<Survivor> {
        let (mut survivors, mut lost) = (Vec::new(), 0);
        for (_, file) in self.files.iter() {
            let Some(id) = file.id.filter(|_| file.gone_ns.is_none()) else { continue };
            if !matches!(file.kind, Kind::Regular | Kind::Unknown) {
                continue;
            }
            match file.handle {
                Some(handle) => survivors.push(Survivor { file: id, handle }),
                None => lost += 1,
            }
        }
        if lost > 0 {
            self.skipped.add_many(NO_HANDLE, self.points, lost);
        }
        survivors.sort_unstable_by_key(|survivor| survivor.file);
        survivors
    }
}
