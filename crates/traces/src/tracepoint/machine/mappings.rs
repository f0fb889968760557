//! Accesses through mappings: page faults, and pages that become dirty.

use super::{
    super::{Inode, inodes::Kind, maps::FaultTarget, tasks::Faulting},
    Host, TracepointMachine,
};
use crate::events::Skip;
use flashsift_events::page::PAGE_BYTES;

const AROUND: Skip =
    Skip::Note("read through a mapping whose place is unknown: page guessed within 16");
const UNWRITTEN: Skip = Skip::Note(
    "page that became dirty, taken as a write: a write(2) looks like a store through a mapping, \
     and writes to a page that is dirty are not in the trace",
);
const PAGE: Skip = Skip::Note(
    "page that became dirty on btrfs, taken as a write of the page: writes to a page that is dirty \
     are not in the trace",
);
const FOLIO: Skip = Skip::Note("store through a mapping, known to its folio's first page only");

/// Whether a program of this name is a thread of the kernel that writes pages back. It makes pages
/// dirty again that it cannot write now: no program stored to them.
fn writes_back(name: &str) -> bool {
    name.starts_with("jbd2/") || name.starts_with("kworker/")
}

impl TracepointMachine {
    pub(super) fn user_fault(&mut self, tid: u32, address: u64, write: bool, host: &mut dyn Host) {
        if !self.tasks.is_recorded(tid) {
            return;
        }
        let thread = self.threads.entry(tid).or_default();
        if thread.write.is_none() {
            // Otherwise, it is a write whose source is mapped.
            self.flush(tid);
            let thread = self.thread(tid);
            thread.wrote.take_if(|_| !thread.in_call);
        }
        let (mut reported, mut absent) = (None, None);
        match self.maps.at(self.tasks.pid(tid), address) {
            FaultTarget::File(inode, page, shared) if self.block_bytes(inode.dev).is_some() => {
                let file = self.file(inode);
                self.access(
                    tid,
                    file,
                    None,
                    (page * PAGE_BYTES, PAGE_BYTES),
                    write && shared,
                    false,
                );
                reported = Some(inode);
                // The kernel reads an absent page after this report, and then makes it dirty.
                if write && shared && !self.tells_folio(tid, file, page, host) {
                    absent = Some(page);
                }
            }
            FaultTarget::File(..) | FaultTarget::Anonymous => return self.thread(tid).fault = None,
            FaultTarget::Unknown => {}
        }
        self.thread(tid).fault = Some(Faulting { address, reported, absent });
    }

    pub(super) fn fault(&mut self, tid: u32, inode: Inode, page: u64) {
        let thread = self.threads.entry(tid).or_default();
        if thread.fault.as_ref().is_some_and(|fault| fault.reported == Some(inode)) {
            return;
        }
        if thread.stored != Some((inode, page)) {
            self.flush(tid);
            // A page that becomes dirty shows that the fault was a store.
            self.thread(tid).stored = Some((inode, page));
        }
    }

    pub(super) fn fault_around(&mut self, tid: u32, inode: Inode, first: u64, last: u64) {
        self.flush(tid);
        let reported = match &self.thread(tid).fault {
            Some(fault) => fault.reported,
            None => None,
        };
        if reported == Some(inode) || self.block_bytes(inode.dev).is_none() {
            return;
        }
        let address = self.thread(tid).fault.as_ref().map_or(0, |fault| fault.address);
        let file = self.file(inode);
        if self.is_in_scope(tid, file) {
            self.skip(AROUND);
            let page = (first + (address >> 12) % 16).min(last);
            self.access(tid, file, None, (page * PAGE_BYTES, PAGE_BYTES), false, false);
        }
    }

    pub(super) fn dirtied(&mut self, tid: u32, inode: Inode, page: u64, host: &mut dyn Host) {
        let inode = self.on_btrfs(inode);
        let thread = self.threads.entry(tid).or_default();
        // A store to a page that was absent: it is emitted, and its folio is known now.
        if let Some(fault) = thread.fault.as_mut().filter(|fault| fault.reported == Some(inode))
            && let Some(page) = fault.absent.take()
        {
            let file = self.file(inode);
            self.tells_folio(tid, file, page, host);
            return;
        }
        let thread = self.threads.entry(tid).or_default();
        if thread.wrote == Some(inode) || thread.write.as_ref().is_some_and(|w| w.inode == inode) {
            return;
        }
        if thread.fault.as_ref().is_some_and(|fault| fault.reported == Some(inode)) {
            return;
        }
        let stored = thread.stored.take_if(|(of, _)| *of == inode);
        if stored.is_none() && self.tasks.name(self.tasks.pid(tid)).is_some_and(writes_back) {
            return;
        }
        // The first inode numbers belong to the file system; the device number denotes the block
        // device.
        let f2fs = self.f2fs.as_ref().is_some_and(|(dev, _)| *dev == inode.dev);
        if inode.ino < if f2fs { 4 } else { 11 }
            || inode.ino == u64::from(inode.dev.0)
            || self.is_elsewhere(tid, inode.dev)
        {
            return;
        }
        let file = self.file(inode);
        if self.files[file].kind == Kind::Directory || !self.is_in_scope(tid, file) {
            return;
        }
        let page = match stored {
            Some((_, page)) => page,
            None if self.btrfs == Some(inode.dev) => {
                // A write, or a store by a process whose mappings are unknown.
                self.skip(PAGE);
                self.files[file].reaches((page + 1) * PAGE_BYTES);
                let place = (page * PAGE_BYTES, PAGE_BYTES);
                return self.access(tid, file, None, place, true, false);
            }
            None => {
                self.skip(if self.without_writes { UNWRITTEN } else { FOLIO });
                page
            }
        };
        self.access(tid, file, None, (page * PAGE_BYTES, PAGE_BYTES), true, false);
        if !self.without_writes {
            self.tells_folio(tid, file, page, host);
        }
    }
}
