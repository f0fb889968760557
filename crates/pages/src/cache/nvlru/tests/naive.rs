//! NVLRU in vectors, the least recently used page first.

use crate::cache::{
    OldVersions, Settings,
    testing::{Call, Lines, Model},
};
use flashsift_caches::{back::Why, lines::Traffic, trace::Bytes};
use flashsift_events::page::Op;
use std::{collections::BTreeSet, ops::Range};

/// A version of a page.
#[derive(Clone, Copy)]
struct Version {
    page: u32,
    frame: u32,
    /// Storage lacks it.
    unwritten: bool,
    /// It was made durable.
    durable: bool,
}

pub(super) struct Naive {
    settings: Settings,
    /// The least recently used first. The last version of a page is its newest.
    queue: Vec<Version>,
    /// Durable versions that are not in the queue, because a newer one is.
    below: Vec<Version>,
    /// The frame freed last is used first.
    free: Vec<u32>,
    unflushed: BTreeSet<u32>,
    lines: Lines,
}

impl Naive {
    pub(super) fn new(frames: u32, settings: Settings) -> Self {
        Self {
            settings,
            queue: Vec::new(),
            below: Vec::new(),
            free: (0..frames).rev().collect(),
            unflushed: BTreeSet::new(),
            lines: Lines::new(frames),
        }
    }

    fn newest(&self, page: u32) -> Option<usize> {
        self.queue.iter().rposition(|version| version.page == page)
    }

    /// The versions of a page, the newest first.
    fn versions(&self, page: u32) -> Vec<Version> {
        let of_page = |version: &&Version| version.page == page;
        let queued = self.queue.iter().rev().filter(of_page);
        queued.chain(self.below.iter().filter(of_page)).copied().collect()
    }

    /// The newest durable version of a page.
    fn durable(&self, page: u32) -> Option<Version> {
        self.versions(page).into_iter().find(|version| version.durable)
    }

    fn flush(&mut self, calls: &mut Vec<Call>) {
        self.unflushed.clear();
        calls.push(Call::Flush);
    }

    fn frame(&mut self, keep: Option<u32>, calls: &mut Vec<Call>) -> u32 {
        if self.free.is_empty() {
            let others = self.queue.iter().filter(|version| Some(version.frame) != keep).copied();
            let leaving: Vec<Version> = others.take(self.settings.evict_batch as usize).collect();
            let mut flushes = false;
            for version in &leaving {
                let newest = self.versions(version.page)[0].frame == version.frame;
                let durable = self.durable(version.page).map(|durable| durable.frame);
                if newest {
                    flushes |= durable.is_some();
                    self.write_out(version.page, Why::Evict, calls);
                } else {
                    let is_durable = durable == Some(version.frame);
                    flushes |= is_durable;
                    let written = is_durable || self.settings.old_versions == OldVersions::Written;
                    let mut all = self.queue.iter_mut();
                    let version = all.find(|other| other.frame == version.frame).unwrap();
                    if written && std::mem::take(&mut version.unwritten) {
                        calls.push(Call::Older(version.page, Why::Evict));
                    }
                }
            }
            if flushes {
                self.flush(calls);
            }
            for version in leaving {
                if self.versions(version.page)[0].frame == version.frame {
                    self.remove(version.page);
                } else {
                    self.lines.header(version.frame);
                    self.queue.retain(|other| other.frame != version.frame);
                    self.free.push(version.frame);
                }
            }
        }
        self.free.pop().unwrap()
    }

    fn write_out(&mut self, page: u32, why: Why, calls: &mut Vec<Call>) {
        let newest = self.versions(page)[0];
        if newest.unwritten {
            if !newest.durable {
                self.unflushed.insert(page);
            }
            let all = self.queue.iter_mut().filter(|version| version.page == page);
            all.for_each(|version| version.unwritten = false);
            calls.push(Call::Write(page, why));
        }
    }

    /// Frees old versions in the queue first, the oldest first, and then the newest one and the one
    /// below it.
    fn remove(&mut self, page: u32) {
        let queued: Vec<_> =
            self.queue.iter().filter(|version| version.page == page).copied().collect();
        for version in queued.iter().chain(self.below.iter().filter(|below| below.page == page)) {
            self.free.push(version.frame);
            if version.durable {
                self.lines.header(version.frame);
            }
        }
        self.queue.retain(|version| version.page != page);
        self.below.retain(|version| version.page != page);
    }
}

impl Model for Naive {
    fn access(&mut self, page: u32, op: Op, bytes: Bytes, calls: &mut Vec<Call>) -> bool {
        let found = self.newest(page);
        if let Some(at) = found {
            let version = self.queue.remove(at);
            self.queue.push(version);
        } else {
            let frame = self.frame(None, calls);
            self.queue.push(Version { page, frame, unwritten: false, durable: false });
            if op == Op::Read || (bytes != Bytes::PAGE && self.settings.write_miss_reads) {
                calls.push(Call::Read(page));
            }
        }
        if op == Op::Read {
            self.lines.read_nvm(bytes);
            return found.is_some();
        }
        let newest = *self.queue.last().unwrap();
        if newest.durable {
            let frame = self.frame(Some(newest.frame), calls);
            self.lines.read_nvm(Bytes::PAGE);
            self.lines.write_nvm(frame, Bytes::PAGE);
            if self.settings.old_versions == OldVersions::Freed {
                self.below.extend(self.queue.pop());
            }
            self.queue.push(Version { frame, durable: false, ..newest });
        }
        let newest = self.queue.last_mut().unwrap();
        newest.unwritten = true;
        self.lines.write_nvm(newest.frame, bytes);
        found.is_some()
    }

    fn drop_page(&mut self, page: u32, calls: &mut Vec<Call>) {
        if let Some(at) = self.newest(page) {
            calls.push(Call::Dropped(self.queue[at].unwritten));
            self.remove(page);
        }
    }

    fn sync(&mut self, pages: Range<u32>, why: Why, calls: &mut Vec<Call>) {
        for page in pages.clone().filter(|page| self.dirty().contains(page)).collect::<Vec<_>>() {
            let at = self.newest(page).unwrap();
            self.queue[at].durable = true;
            self.lines.header(self.queue[at].frame);
            if let Some(at) = self.below.iter().position(|below| below.page == page) {
                let old = self.below.remove(at);
                self.lines.header(old.frame);
                self.free.push(old.frame);
            }
            calls.push(Call::Durable(page));
        }
        if why.is_sync() && pages.into_iter().any(|page| self.unflushed.contains(&page)) {
            self.flush(calls);
        }
    }

    fn direct(&mut self, pages: Range<u32>, op: Op, calls: &mut Vec<Call>) {
        self.sync(pages.clone(), Why::Direct, calls);
        let held: Vec<u32> = pages.clone().filter(|page| self.newest(*page).is_some()).collect();
        for page in &held {
            self.write_out(*page, Why::Direct, calls);
        }
        if op == Op::Read {
            calls.extend(pages.map(Call::Read));
            return;
        }
        if held.iter().any(|page| self.durable(*page).is_some()) {
            self.flush(calls);
        }
        for page in pages {
            self.remove(page);
            self.unflushed.insert(page);
            calls.push(Call::Write(page, Why::Direct));
        }
    }

    fn drain(&mut self, calls: &mut Vec<Call>) {
        let newest = |at: &usize| self.newest(self.queue[*at].page) == Some(*at);
        let pages: Vec<u32> =
            (0..self.queue.len()).filter(newest).map(|at| self.queue[at].page).collect();
        for page in &pages {
            self.write_out(*page, Why::Drain, calls);
        }
        if pages.iter().any(|page| self.durable(*page).is_some()) {
            self.flush(calls);
        }
        let queued: Vec<u32> = self.queue.iter().map(|version| version.page).collect();
        for page in queued {
            self.remove(page);
        }
    }

    fn held(&self) -> BTreeSet<u32> {
        self.queue.iter().map(|version| version.page).collect()
    }

    fn dirty(&self) -> BTreeSet<u32> {
        let is_dirty = |page: &u32| {
            let newest = self.versions(*page)[0];
            newest.unwritten && !newest.durable
        };
        self.held().into_iter().filter(is_dirty).collect()
    }

    fn traffic(&self) -> Traffic {
        let left = |page: &u32| self.durable(*page).is_some_and(|durable| durable.unwritten);
        self.lines.total(self.held().into_iter().filter(left).count())
    }
}
