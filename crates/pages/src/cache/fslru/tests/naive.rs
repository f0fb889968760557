//! FSLRU in vectors, the least recently used page first.

use crate::cache::{
    Settings,
    testing::{Call, Lines, Model},
};
use flashsift_caches::{back::Why, lines::Traffic, trace::Bytes};
use flashsift_events::page::Op;
use std::{collections::BTreeSet, ops::Range};

struct InDram {
    page: u32,
    /// From the first to the last byte written since the page was last durable.
    changed: Option<(u16, u16)>,
}

struct InNvm {
    page: u32,
    frame: u32,
    durable: bool,
    /// Storage lacks it.
    unwritten: bool,
}

pub(super) struct Naive {
    settings: Settings,
    dram_frames: usize,
    dram: Vec<InDram>,
    nvm: Vec<InNvm>,
    /// The frame freed last is used first.
    free: Vec<u32>,
    reserved: u32,
    unflushed: BTreeSet<u32>,
    lines: Lines,
}

impl Naive {
    pub(super) fn new(dram_frames: u32, nvm_frames: u32, settings: Settings) -> Self {
        Self {
            settings,
            dram_frames: dram_frames as usize,
            dram: Vec::new(),
            nvm: Vec::new(),
            free: (0..nvm_frames - 1).rev().collect(),
            reserved: nvm_frames - 1,
            unflushed: BTreeSet::new(),
            lines: Lines::new(nvm_frames),
        }
    }

    fn in_dram(&self, page: u32) -> Option<usize> {
        self.dram.iter().position(|held| held.page == page)
    }

    fn in_nvm(&self, page: u32) -> Option<usize> {
        self.nvm.iter().position(|held| held.page == page)
    }

    fn dirty_in_dram(&self, page: u32) -> bool {
        self.in_dram(page).is_some_and(|at| self.dram[at].changed.is_some())
    }

    fn write_in_dram(&mut self, at: usize, bytes: Bytes) {
        self.lines.write_dram(bytes);
        let (from, to) = self.dram[at].changed.unwrap_or((bytes.from, bytes.to));
        self.dram[at].changed = Some((from.min(bytes.from), to.max(bytes.to)));
    }

    fn flush(&mut self, calls: &mut Vec<Call>) {
        self.unflushed.clear();
        calls.push(Call::Flush);
    }

    fn frame(&mut self, calls: &mut Vec<Call>) -> u32 {
        if self.free.is_empty() {
            let batch = (self.settings.evict_batch as usize).min(self.nvm.len());
            let durable = self.nvm[..batch].iter().any(|held| held.durable);
            for at in 0..batch {
                self.write_out(at, Why::Evict, calls);
            }
            if durable {
                self.flush(calls);
            }
            for _ in 0..batch {
                self.leave_nvm(0);
            }
        }
        self.free.pop().unwrap()
    }

    fn write_out(&mut self, at: usize, why: Why, calls: &mut Vec<Call>) {
        let page = self.nvm[at].page;
        if !self.nvm[at].unwritten {
            return;
        }
        self.nvm[at].unwritten = false;
        if !self.nvm[at].durable {
            self.unflushed.insert(page);
        }
        let newer = self.dirty_in_dram(page);
        calls.push(if newer { Call::Older(page, why) } else { Call::Write(page, why) });
    }

    fn leave_nvm(&mut self, at: usize) {
        let held = self.nvm.remove(at);
        if held.durable {
            self.lines.header(held.frame);
        }
        self.free.push(held.frame);
    }

    /// The changes of the page in DRAM reach its durable copy at once.
    fn update(&mut self, page: u32) {
        let above = self.in_dram(page).unwrap();
        let (from, to) = self.dram[above].changed.take().unwrap();
        let mut held = self.nvm.remove(self.in_nvm(page).unwrap());
        assert!(held.durable);
        let bytes = Bytes { from, to };
        if to - from <= self.settings.byte_atomic_bytes {
            self.lines.read_nvm(bytes);
            self.lines.write_nvm(self.reserved, bytes);
            self.lines.header(self.reserved);
            self.lines.read_dram(bytes);
            self.lines.write_nvm(held.frame, bytes);
            self.lines.header(self.reserved);
        } else {
            self.lines.read_dram(Bytes::PAGE);
            self.lines.write_nvm(self.reserved, Bytes::PAGE);
            self.lines.header(self.reserved);
            self.lines.header(held.frame);
            std::mem::swap(&mut held.frame, &mut self.reserved);
        }
        held.unwritten = true;
        self.nvm.push(held);
    }

    fn evict_from_dram(&mut self, calls: &mut Vec<Call>) {
        if self.dram.len() <= self.dram_frames {
            return;
        }
        let InDram { page, changed } = self.dram[0];
        if self.in_nvm(page).is_none() {
            let frame = self.frame(calls);
            self.lines.read_dram(Bytes::PAGE);
            self.lines.write_nvm(frame, Bytes::PAGE);
            self.nvm.push(InNvm { page, frame, durable: false, unwritten: changed.is_some() });
        } else if changed.is_some() {
            self.update(page);
            calls.push(Call::Durable(page));
        }
        self.dram.remove(0);
    }
}

impl Model for Naive {
    fn access(&mut self, page: u32, op: Op, bytes: Bytes, calls: &mut Vec<Call>) -> bool {
        if let Some(at) = self.in_dram(page) {
            let held = self.dram.remove(at);
            self.dram.push(held);
            match op {
                Op::Read => self.lines.read_dram(bytes),
                Op::Write => self.write_in_dram(self.dram.len() - 1, bytes),
            }
            return true;
        }
        if let Some(at) = self.in_nvm(page) {
            let held = self.nvm.remove(at);
            self.nvm.push(held);
            let held = self.nvm.last_mut().unwrap();
            if op == Op::Read {
                self.lines.read_nvm(bytes);
            } else if held.durable {
                self.lines.read_nvm(Bytes::PAGE);
                self.lines.write_dram(Bytes::PAGE);
                self.dram.push(InDram { page, changed: None });
                self.evict_from_dram(calls);
                self.write_in_dram(self.dram.len() - 1, bytes);
            } else {
                held.unwritten = true;
                let frame = held.frame;
                self.lines.write_nvm(frame, bytes);
            }
            return true;
        }
        if op == Op::Read || (bytes != Bytes::PAGE && self.settings.write_miss_reads) {
            calls.push(Call::Read(page));
        }
        self.dram.push(InDram { page, changed: None });
        self.evict_from_dram(calls);
        match op {
            Op::Read => self.lines.read_dram(bytes),
            Op::Write => self.write_in_dram(self.dram.len() - 1, bytes),
        }
        false
    }

    fn drop_page(&mut self, page: u32, calls: &mut Vec<Call>) {
        if !self.held().contains(&page) {
            return;
        }
        let below = self.in_nvm(page);
        let unwritten = below.is_some_and(|at| self.nvm[at].unwritten);
        calls.push(Call::Dropped(unwritten || self.dirty_in_dram(page)));
        self.dram.retain(|held| held.page != page);
        if let Some(at) = below {
            self.leave_nvm(at);
        }
    }

    fn sync(&mut self, pages: Range<u32>, why: Why, calls: &mut Vec<Call>) {
        for page in pages.clone().filter(|page| self.dirty().contains(page)).collect::<Vec<_>>() {
            // An eviction for an earlier page may have written this one.
            if !self.dirty().contains(&page) {
                continue;
            }
            match (self.in_dram(page), self.in_nvm(page)) {
                (Some(_), Some(_)) => self.update(page),
                (Some(above), None) => {
                    let frame = self.frame(calls);
                    self.lines.read_dram(Bytes::PAGE);
                    self.lines.write_nvm(frame, Bytes::PAGE);
                    self.lines.header(frame);
                    self.nvm.push(InNvm { page, frame, durable: true, unwritten: true });
                    self.dram[above].changed = None;
                }
                (None, Some(at)) => {
                    self.lines.header(self.nvm[at].frame);
                    self.nvm[at].durable = true;
                }
                (None, None) => unreachable!(),
            }
            calls.push(Call::Durable(page));
        }
        if why.is_sync() && pages.into_iter().any(|page| self.unflushed.contains(&page)) {
            self.flush(calls);
        }
    }

    fn direct(&mut self, pages: Range<u32>, op: Op, calls: &mut Vec<Call>) {
        self.sync(pages.clone(), Why::Direct, calls);
        let below: Vec<usize> = pages.clone().filter_map(|page| self.in_nvm(page)).collect();
        for at in &below {
            self.write_out(*at, Why::Direct, calls);
        }
        if op == Op::Read {
            calls.extend(pages.map(Call::Read));
            return;
        }
        if below.iter().any(|at| self.nvm[*at].durable) {
            self.flush(calls);
        }
        for page in pages {
            self.drop_page(page, &mut Vec::new());
            self.unflushed.insert(page);
            calls.push(Call::Write(page, Why::Direct));
        }
    }

    fn drain(&mut self, calls: &mut Vec<Call>) {
        for held in &self.nvm {
            if held.unwritten && !self.dirty_in_dram(held.page) {
                calls.push(Call::Write(held.page, Why::Drain));
            }
        }
        for held in &self.dram {
            if held.changed.is_some() {
                calls.push(Call::Write(held.page, Why::Drain));
            }
        }
        if self.nvm.iter().any(|held| held.durable) {
            self.flush(calls);
        }
        while !self.nvm.is_empty() {
            self.leave_nvm(0);
        }
        self.dram.clear();
    }

    fn held(&self) -> BTreeSet<u32> {
        let in_nvm = self.nvm.iter().map(|held| held.page);
        self.dram.iter().map(|held| held.page).chain(in_nvm).collect()
    }

    fn dirty(&self) -> BTreeSet<u32> {
        let in_dram = self.dram.iter().filter(|held| held.changed.is_some());
        let in_nvm = self.nvm.iter().filter(|held| held.unwritten && !held.durable);
        in_dram.map(|held| held.page).chain(in_nvm.map(|held| held.page)).collect()
    }

    fn traffic(&self) -> Traffic {
        self.lines.total(self.nvm.iter().filter(|held| held.durable && held.unwritten).count())
    }
}
