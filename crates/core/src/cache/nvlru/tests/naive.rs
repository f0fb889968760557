//! NVLRU in vectors, the least recently used page first.

use crate::{
    back::Why,
    cache::{
        Settings,
        testing::{Call, Lines, Model},
    },
    nvm::Traffic,
    page::Op,
    trace::Bytes,
};
use std::{collections::BTreeSet, ops::Range};

/// A version of a page.
#[derive(Clone, Copy)]
struct Version {
    frame: u32,
    /// Storage lacks it.
    unwritten: bool,
}

/// A page: its newest version, its durable version, or the same for both.
struct Held {
    page: u32,
    newest: Version,
    durable: Option<Version>,
}

impl Held {
    fn is_durable(&self) -> bool {
        self.durable.is_some_and(|durable| durable.frame == self.newest.frame)
    }
}

pub(super) struct Naive {
    settings: Settings,
    held: Vec<Held>,
    /// The frame freed last is used first.
    free: Vec<u32>,
    unflushed: BTreeSet<u32>,
    lines: Lines,
}

impl Naive {
    pub(super) fn new(frames: u32, settings: Settings) -> Self {
        Self {
            settings,
            held: Vec::new(),
            free: (0..frames).rev().collect(),
            unflushed: BTreeSet::new(),
            lines: Lines::new(frames),
        }
    }

    fn find(&self, page: u32) -> Option<usize> {
        self.held.iter().position(|held| held.page == page)
    }

    fn flush(&mut self, calls: &mut Vec<Call>) {
        self.unflushed.clear();
        calls.push(Call::Flush);
    }

    fn frame(&mut self, keep: Option<u32>, calls: &mut Vec<Call>) -> u32 {
        if self.free.is_empty() {
            let leaving: Vec<u32> = self
                .held
                .iter()
                .map(|held| held.page)
                .filter(|page| Some(*page) != keep)
                .take(self.settings.evict_batch as usize)
                .collect();
            for page in &leaving {
                self.write_out(*page, Why::Evict, calls);
            }
            if leaving.iter().any(|page| self.held[self.find(*page).unwrap()].durable.is_some()) {
                self.flush(calls);
            }
            for page in leaving {
                self.remove(page);
            }
        }
        self.free.pop().unwrap()
    }

    fn write_out(&mut self, page: u32, why: Why, calls: &mut Vec<Call>) {
        let at = self.find(page).unwrap();
        let held = &mut self.held[at];
        if held.newest.unwritten {
            if held.is_durable() {
                held.durable.as_mut().unwrap().unwritten = false;
            } else {
                self.unflushed.insert(page);
            }
            held.newest.unwritten = false;
            calls.push(Call::Write(page, why));
        }
    }

    fn remove(&mut self, page: u32) {
        let Some(at) = self.find(page) else { return };
        let held = self.held.remove(at);
        self.free.push(held.newest.frame);
        if let Some(durable) = held.durable {
            self.lines.header(durable.frame);
            if durable.frame != held.newest.frame {
                self.free.push(durable.frame);
            }
        }
    }
}

impl Model for Naive {
    fn access(&mut self, page: u32, op: Op, bytes: Bytes, calls: &mut Vec<Call>) -> bool {
        let hit = self.find(page).is_some();
        if let Some(at) = self.find(page) {
            let held = self.held.remove(at);
            self.held.push(held);
        } else {
            let frame = self.frame(None, calls);
            let newest = Version { frame, unwritten: false };
            self.held.push(Held { page, newest, durable: None });
            if op == Op::Read || (bytes != Bytes::PAGE && self.settings.write_miss_reads) {
                calls.push(Call::Read(page));
            }
        }
        if op == Op::Read {
            self.lines.read_nvm(bytes);
            return hit;
        }
        if self.held.last().unwrap().is_durable() {
            let frame = self.frame(Some(page), calls);
            self.lines.read_nvm(Bytes::PAGE);
            self.lines.write_nvm(frame, Bytes::PAGE);
            self.held.last_mut().unwrap().newest.frame = frame;
        }
        let newest = &mut self.held.last_mut().unwrap().newest;
        newest.unwritten = true;
        self.lines.write_nvm(newest.frame, bytes);
        hit
    }

    fn drop_page(&mut self, page: u32, calls: &mut Vec<Call>) {
        if let Some(at) = self.find(page) {
            calls.push(Call::Dropped(self.held[at].newest.unwritten));
            self.remove(page);
        }
    }

    fn sync(&mut self, pages: Range<u32>, why: Why, calls: &mut Vec<Call>) {
        for page in pages.clone().filter(|page| self.dirty().contains(page)).collect::<Vec<_>>() {
            let at = self.find(page).unwrap();
            let held = &mut self.held[at];
            self.lines.header(held.newest.frame);
            if let Some(old) = held.durable.replace(held.newest) {
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
        let held: Vec<u32> = pages.clone().filter(|page| self.find(*page).is_some()).collect();
        for page in &held {
            self.write_out(*page, Why::Direct, calls);
        }
        if op == Op::Read {
            calls.extend(pages.map(Call::Read));
            return;
        }
        if held.iter().any(|page| self.held[self.find(*page).unwrap()].durable.is_some()) {
            self.flush(calls);
        }
        for page in pages {
            self.remove(page);
            self.unflushed.insert(page);
            calls.push(Call::Write(page, Why::Direct));
        }
    }

    fn drain(&mut self, calls: &mut Vec<Call>) {
        let pages: Vec<u32> = self.held.iter().map(|held| held.page).collect();
        for page in &pages {
            self.write_out(*page, Why::Drain, calls);
        }
        if self.held.iter().any(|held| held.durable.is_some()) {
            self.flush(calls);
        }
        for page in pages {
            self.remove(page);
        }
    }

    fn held(&self) -> BTreeSet<u32> {
        self.held.iter().map(|held| held.page).collect()
    }

    fn dirty(&self) -> BTreeSet<u32> {
        let dirty = self.held.iter().filter(|held| held.newest.unwritten && !held.is_durable());
        dirty.map(|held| held.page).collect()
    }

    fn traffic(&self) -> Traffic {
        let left = |held: &&Held| held.durable.is_some_and(|durable| durable.unwritten);
        self.lines.total(self.held.iter().filter(left).count())
    }
}
