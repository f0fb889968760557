//! Newer eMMC and UFS: every page is mapped individually and written to any free place, and garbage
//! collection frees places.
//!
//! The device has several dies that work at the same time behind one link. Addresses are striped
//! over the dies by NAND pages (`nand_pages` pages of 4 KiB), so each die is a device of its own
//! with an equal share. A controller that writes to any idle die is faster than this model if a
//! workload prefers one die.
//!
//! A die writes into one active block. When that is full and only one block is free, garbage
//! collection takes the block with the fewest valid pages (greedy; ties: the one that reached that
//! number first). These pages are copied into the free block, which becomes active, and the
//! collected block is erased. This happens all at once when a write needs a place, and the next
//! request to the die waits.
//!
//! If there is an SLC cache, pages are written to it first while it has erased space, and otherwise
//! directly to the other blocks. The cache is a ring of blocks. It is emptied from the oldest page
//! on, one NAND page at a time, after the die has been idle for `idle_us`. Its wear counts like
//! that of other blocks. Its size is in addition to the capacity.
//!
//! Time: a write takes `write_us`, and `transfer_us` a page on the link. A die accepts pages as
//! long as it needs to program `buffer_pages`. A write completes when the die has accepted its last
//! page, and a flush when every die has programmed what it accepted. A read senses each NAND page
//! with requested data, on all dies at once, and then transfers page by page. A program takes the
//! same time a page for any number of pages.
//!
//! The mapping table is in flash, and the controller's memory holds `map_cache_bytes` of it, loaded
//! on demand. A request waits for each mapping page that it needs: a read of `map_read_us` on the
//! die that holds it. A changed mapping page that leaves the memory is programmed on its die, after
//! that read. Mapping pages have flash of their own, whose garbage collection is not modelled;
//! neither are the mapping pages that garbage collection, the emptying of the SLC cache and
//! discards change.
//!
//! With `fill = "random"` the device begins aged: see the file `aged`.

use super::{Device, Fill, Wear, ns, pages};
use aged::Aged;
use flashsift_events::{
    address::Lba,
    io::{Io, IoOp},
    page::{Id, PAGE_BYTES},
    structure::Lists,
};
use map_cache::{MAPPED_PAGES, MapCache};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

mod aged;
mod map_cache;

/// Constants of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageMappedParams {
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Blocks in addition to the capacity, as a share of it; each die has at least two.
    pub over_provisioning: f64,
    /// Number of dies that work at the same time.
    pub dies: u32,
    /// Pages of 4 KiB in an erase block of one die.
    pub block_pages: u32,
    /// Pages of 4 KiB in a NAND page of one die.
    pub nand_pages: u32,
    /// Pages that a die accepts before it can program them.
    pub buffer_pages: u32,
    /// Time to sense a NAND page, and the rest of a read except for the transfer, µs.
    pub read_us: f64,
    /// Time of a write on the link, in addition to its pages, µs.
    pub write_us: f64,
    /// Time for each page on the link, µs.
    pub transfer_us: f64,
    /// Time to program a page: that of a NAND page divided by `nand_pages`, µs.
    pub program_us: f64,
    /// The same for a page of the SLC cache, µs.
    pub slc_program_us: f64,
    /// Size of the SLC cache in bytes; 0 for none.
    pub slc_bytes: u64,
    /// Time to erase a block, µs.
    pub erase_us: f64,
    /// Idle time of a die before it empties its SLC cache, µs.
    pub idle_us: f64,
    /// Memory for the mapping table in bytes, 4 for each page; 0: the whole table is in memory.
    #[serde(default)]
    pub map_cache_bytes: u64,
    /// Time to read a page of the mapping table from flash, µs.
    #[serde(default)]
    pub map_read_us: f64,
    /// Content before the first request.
    pub fill: Fill,
}

impl PageMappedParams {
    /// Returns the pages programmed for each page of uniform random writes in the steady state: the
    /// closed form for greedy garbage collection (Bux & Iliadis, Perform. Eval. 2010; Desnoyers,
    /// SYSTOR '12), and one more where an SLC cache takes each page first. It leaves out the
    /// mapping table.
    pub fn random_write_amplification(&self) -> f64 {
        let (level, share) = aged::greedy(1.0 + self.over_provisioning, self.block_pages);
        let pages = f64::from(self.block_pages);
        let collected = pages / (f64::from(self.block_pages - level) + share);
        collected + if self.slc_bytes > 0 { 1.0 } else { 0.0 }
    }
}

const SEED: u64 = 0x0f1a_5451_f7f1_1ed0;

/// A page-mapped device.
#[derive(Clone)]
pub struct PageMapped {
    dies: Vec<Die>,
    nand_pages: u32,
    pages: u32,
    write_ns: u64,
    transfer_ns: u64,
    /// Time at which the link becomes idle.
    link_ns: u64,
    host_pages: u64,
    map: Option<MapCache>,
    map_read_ns: u64,
    map_writes: u64,
}

impl PageMapped {
    /// Creates a device with the content of `params.fill`. `params` must have been checked.
    pub fn new(params: &PageMappedParams) -> Self {
        let stripe = params.dies * params.nand_pages;
        // Only whole stripes are used.
        let die_pages = pages(params.capacity_bytes) / stripe * params.nand_pages;
        // The dies collect garbage one after the other, not all at once.
        let phase = |die: u32| (f64::from(die) + 0.5) / f64::from(params.dies);
        let die = |n| Die::new(params, die_pages, phase(n), SEED.wrapping_add(n.into()));
        let dies: Vec<Die> = (0..params.dies).map(die).collect();
        Self {
            nand_pages: params.nand_pages,
            pages: die_pages * params.dies,
            dies,
            write_ns: ns(params.write_us),
            transfer_ns: ns(params.transfer_us),
            link_ns: 0,
            host_pages: 0,
            map: MapCache::new(
                die_pages * params.dies,
                params.map_cache_bytes,
                params.fill != Fill::Empty,
            ),
            map_read_ns: ns(params.map_read_us),
            map_writes: 0,
        }
    }

    /// Time from which the mapping of a page is in memory, for a request at `at_ns`.
    fn mapped(&mut self, page: u32, write: bool, at_ns: u64) -> u64 {
        let Some(map) = &mut self.map else { return at_ns };
        let mapping_page = page / MAPPED_PAGES;
        let work = map.access(mapping_page, write);
        let dies = self.dies.len();
        let mut ready_ns = at_ns;
        if work.read {
            ready_ns = self.dies[mapping_page as usize % dies].work(at_ns, self.map_read_ns);
        }
        if let Some(old) = work.write_back {
            let die = &mut self.dies[old as usize % dies];
            die.work(ready_ns, die.program_ns);
            self.map_writes += 1;
        }
        ready_ns
    }

    /// Die of a page, and the page's number there.
    fn place(&self, page: u32) -> (usize, u32) {
        let (nand_page, offset) = (page / self.nand_pages, page % self.nand_pages);
        let dies = self.dies.len() as u32;
        ((nand_page % dies) as usize, nand_page / dies * self.nand_pages + offset)
    }

    fn write(&mut self, first: u32, pages: u32, at_ns: u64) -> u64 {
        let mut link_ns = self.link_ns.max(at_ns) + self.write_ns;
        let mut page = first;
        for n in 0..pages {
            if n == 0 || page.is_multiple_of(MAPPED_PAGES) {
                link_ns = self.mapped(page, true, link_ns);
            }
            let (die, own) = self.place(page);
            let die = &mut self.dies[die];
            link_ns = die.take(own, link_ns + self.transfer_ns);
            page = if page + 1 == self.pages { 0 } else { page + 1 };
        }
        self.host_pages += u64::from(pages);
        self.link_ns = link_ns;
        link_ns
    }

    fn read(&mut self, first: u32, pages: u32, at_ns: u64) -> u64 {
        let mut link_ns = self.link_ns.max(at_ns);
        let mut page = first;
        // For a run of pages on one die: the NAND page that holds them.
        let mut sensed: Option<(usize, u32)> = None;
        let (mut mapped_ns, mut ready_ns) = (at_ns, at_ns);
        for count in 0..pages {
            if count == 0 || page.is_multiple_of(MAPPED_PAGES) {
                mapped_ns = self.mapped(page, false, mapped_ns);
                ready_ns = ready_ns.max(mapped_ns);
            }
            let (n, own) = self.place(page);
            let die = &mut self.dies[n];
            if let Some(nand_page) = die.nand_page(own, self.nand_pages)
                && sensed != Some((n, nand_page))
            {
                ready_ns = die.sense(mapped_ns);
                sensed = Some((n, nand_page));
            }
            link_ns = link_ns.max(ready_ns) + self.transfer_ns;
            page = if page + 1 == self.pages { 0 } else { page + 1 };
        }
        self.link_ns = link_ns;
        link_ns
    }
}

impl Device for PageMapped {
    fn serve(&mut self, io: &Io, at_ns: u64) -> u64 {
        let first = (io.lba % u64::from(self.pages)) as u32;
        match io.op {
            IoOp::Read => self.read(first, io.pages, at_ns),
            IoOp::Write => self.write(first, io.pages, at_ns),
            IoOp::Flush => {
                let busy = self.dies.iter().map(|die| die.free_ns).max();
                busy.unwrap_or(0).max(self.link_ns).max(at_ns)
            }
            IoOp::Discard => {
                self.discard(io.lba, io.pages);
                at_ns
            }
        }
    }

    fn discard(&mut self, lba: Lba, pages: u32) {
        let first = lba % u64::from(self.pages);
        for n in 0..u64::from(pages.min(self.pages)) {
            let (die, own) = self.place(((first + n) % u64::from(self.pages)) as u32);
            self.dies[die].forget(own);
        }
    }

    fn wear(&self) -> Wear {
        let mut sum = Wear { host_pages: self.host_pages, ..Wear::default() };
        let mut collected = 0;
        for die in &self.dies {
            sum.programs += die.wear.programs;
            sum.copies += die.wear.copies;
            sum.erases += die.wear.erases;
            sum.copies_due += u64::from(die.slc.wanted);
            collected += die.collected;
        }
        sum.collected = Some(collected);
        sum.map_writes = self.map_writes;
        sum.programs += self.map_writes;
        sum.copies_due += self.map.as_ref().map_or(0, |map| u64::from(map.dirty()));
        sum
    }

    fn check(&self) {
        self.dies.iter().for_each(Die::check);
        let wear = self.wear();
        let known = wear.host_pages + wear.copies + wear.map_writes;
        assert_eq!(known, wear.programs, "nothing else is programmed");
        self.map.iter().for_each(MapCache::check);
    }
}

/// Number of a block in its die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block(u32);

impl Id for Block {
    fn index(self) -> u32 {
        self.0
    }
    fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// Marks a page without a place, and a place without a page.
const NONE: u32 = u32::MAX;

/// One die: a page-mapped flash of its own. Places are numbered through its blocks, followed by its
/// SLC cache.
#[derive(Clone)]
struct Die {
    /// By page: its place; by place: its page. Both hold 0 where nothing changed since the
    /// beginning ([`Beginning`]), and otherwise the number + 1 or [`NONE`]. So a full device of
    /// many gigabytes needs no memory before it is used.
    place_of: Vec<u32>,
    page_at: Vec<u32>,
    beginning: Beginning,
    block_pages: u32,
    blocks: u32,
    /// By place in a block: the page written there is no longer valid. Clear in places that are not
    /// written, and in those that were stale at the beginning.
    stale: Vec<u64>,
    /// By block: it was erased since the beginning.
    erased: Vec<bool>,
    /// Words of `stale` for a block.
    words: usize,
    /// By block: number of valid pages.
    wanted: Vec<u32>,
    /// By number of valid pages: the full blocks with that number, in the order of reaching it.
    full: Lists<Block, 0>,
    /// No full block has fewer valid pages.
    least: u32,
    /// Erased blocks, the one erased longest ago first.
    free: VecDeque<Block>,
    active: Block,
    /// Next place in the active block.
    next: u32,
    slc: Slc,
    /// Time at which the die becomes idle.
    free_ns: u64,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    idle_ns: u64,
    buffer_pages: u64,
    nand_pages: u32,
    wear: Wear,
    /// Blocks that garbage collection freed.
    collected: u64,
}

/// Places of a die's pages before its first request.
#[derive(Clone)]
enum Beginning {
    /// No page has a place.
    Empty,
    /// Page n is at place n.
    InOrder,
    /// The steady state of random writes.
    Aged(Box<Aged>),
}

/// SLC cache of a die: a ring, written at one end and emptied at the other.
#[derive(Clone)]
struct Slc {
    slots: u32,
    block_slots: u32,
    /// Total number of slots written, and emptied.
    written: u64,
    emptied: u64,
    stale: Vec<u64>,
    /// Number of valid pages in it.
    wanted: u32,
    program_ns: u64,
}

impl Slc {
    /// Whether an erased slot is left; emptied blocks are erased as a whole.
    fn has_space(&self) -> bool {
        let slots = u64::from(self.slots);
        slots > 0
            && self.written
                - self.emptied / u64::from(self.block_slots) * u64::from(self.block_slots)
                < slots
    }
}

impl Die {
    /// `phase`: see [`Aged::new`].
    fn new(params: &PageMappedParams, pages: u32, phase: f64, seed: u64) -> Self {
        let block_pages = params.block_pages;
        let user_blocks = pages.div_ceil(block_pages);
        let spare = (f64::from(pages) * params.over_provisioning / f64::from(block_pages)) as u32;
        let blocks = user_blocks + spare.max(2);
        let words = block_pages.div_ceil(64) as usize;
        let slc_blocks = super::pages(params.slc_bytes) / params.dies / block_pages;
        let beginning = match params.fill {
            Fill::Empty => Beginning::Empty,
            Fill::InOrder => Beginning::InOrder,
            Fill::Random => {
                let unit = params.nand_pages;
                Beginning::Aged(Box::new(Aged::new(pages, blocks, block_pages, unit, phase, seed)))
            }
        };
        let mut die = Self {
            place_of: vec![0; pages as usize],
            page_at: vec![0; (blocks + slc_blocks) as usize * block_pages as usize],
            beginning,
            block_pages,
            blocks,
            stale: vec![0; blocks as usize * words],
            erased: vec![false; blocks as usize],
            words,
            wanted: vec![0; blocks as usize],
            full: Lists::with_lists(blocks, block_pages + 1),
            least: block_pages,
            free: VecDeque::new(),
            active: Block(0),
            next: 0,
            slc: Slc {
                slots: slc_blocks * block_pages,
                block_slots: block_pages,
                written: 0,
                emptied: 0,
                stale: super::bits(slc_blocks as usize * block_pages as usize),
                wanted: 0,
                program_ns: ns(params.slc_program_us),
            },
            free_ns: 0,
            read_ns: ns(params.read_us),
            program_ns: ns(params.program_us),
            erase_ns: ns(params.erase_us),
            idle_ns: ns(params.idle_us),
            buffer_pages: u64::from(params.buffer_pages),
            nand_pages: params.nand_pages,
            wear: Wear::default(),
            collected: 0,
        };
        let full = match &die.beginning {
            Beginning::Empty => 0,
            Beginning::InOrder => user_blocks,
            Beginning::Aged(aged) => aged.full(),
        };
        for block in 0..full {
            let held = match &die.beginning {
                Beginning::Aged(aged) => aged.valid(block),
                _ => (pages - block * block_pages).min(block_pages),
            };
            if matches!(die.beginning, Beginning::InOrder) {
                for slot in held..block_pages {
                    die.stale[block as usize * words + slot as usize / 64] |= 1 << (slot % 64);
                }
            }
            die.wanted[block as usize] = held;
            die.close(Block(block));
        }
        die.free.extend((full..blocks).map(Block));
        die.active = die.free.pop_front().expect("there is more flash than capacity");
        if let Beginning::Aged(aged) = &die.beginning {
            die.next = aged.valid(die.active.0);
            die.wanted[die.active.0 as usize] = die.next;
        }
        die
    }

    fn place_of(&self, page: u32) -> u32 {
        match (self.place_of[page as usize], &self.beginning) {
            (NONE, _) | (0, Beginning::Empty) => NONE,
            (0, Beginning::InOrder) => page,
            (0, Beginning::Aged(aged)) => aged.place_of(page),
            (place, _) => place - 1,
        }
    }

    /// Page at a place that has been written.
    fn page_at(&self, place: u32) -> u32 {
        match (self.page_at[place as usize], &self.beginning) {
            (0, Beginning::Empty) => NONE,
            (0, Beginning::InOrder) => place,
            (0, Beginning::Aged(aged)) => aged.page_at(place),
            (page, _) => page - 1,
        }
    }

    fn put(&mut self, page: u32, place: u32) {
        self.place_of[page as usize] = place + 1;
        self.page_at[place as usize] = page + 1;
    }

    /// Stale places in a word of a block's bitmap.
    fn stale_word(&self, block: u32, word: usize) -> u64 {
        let mut stale = self.stale[block as usize * self.words + word];
        if let Beginning::Aged(aged) = &self.beginning
            && block < aged.full()
            && !self.erased[block as usize]
            && aged.valid(block) < self.block_pages
        {
            let first = word as u32 * 64;
            for slot in first..(first + 64).min(self.block_pages) {
                stale |= u64::from(aged.is_stale(block, slot)) << (slot % 64);
            }
        }
        stale
    }

    /// Number of places in blocks; those of the SLC cache follow.
    fn places(&self) -> u32 {
        self.blocks * self.block_pages
    }

    /// NAND page that holds this page; `None` if the page has no content.
    fn nand_page(&self, page: u32, nand_pages: u32) -> Option<u32> {
        let place = self.place_of(page);
        (place != NONE).then_some(place / nand_pages)
    }

    /// Senses a NAND page and returns the completion time.
    fn sense(&mut self, at_ns: u64) -> u64 {
        self.work(at_ns, self.read_ns)
    }

    /// Is busy for this time from `at_ns` on, or from when it becomes idle. Returns the end.
    fn work(&mut self, at_ns: u64, work_ns: u64) -> u64 {
        self.meanwhile(at_ns);
        self.free_ns = self.free_ns.max(at_ns) + work_ns;
        self.free_ns
    }

    /// Accepts a page to write that arrives at `at_ns`, and returns the time at which it is
    /// accepted.
    fn take(&mut self, page: u32, at_ns: u64) -> u64 {
        self.meanwhile(at_ns);
        let slc = self.slc.has_space();
        let program_ns = if slc { self.slc.program_ns } else { self.program_ns };
        let taken_ns = at_ns.max(self.free_ns.saturating_sub(self.buffer_pages * program_ns));
        self.forget(page);
        self.free_ns = self.free_ns.max(taken_ns);
        if slc {
            self.cache(page);
            self.free_ns += program_ns;
        } else {
            self.free_ns += self.append(page);
        }
        taken_ns
    }

    /// Background work of a die until `at_ns`: emptying its SLC cache.
    fn meanwhile(&mut self, at_ns: u64) {
        if self.slc.wanted == 0 && self.slc.written == self.slc.emptied {
            return;
        }
        let mut now_ns = self.free_ns + self.idle_ns;
        while now_ns < at_ns && self.slc.emptied < self.slc.written {
            now_ns += self.empty_some();
            self.free_ns = now_ns;
        }
    }

    /// Copies the oldest NAND page of the SLC cache to the blocks. Returns the time that takes.
    fn empty_some(&mut self) -> u64 {
        let mut spent_ns = self.read_ns;
        for _ in 0..u64::from(self.nand_pages).min(self.slc.written - self.slc.emptied) {
            let slot = (self.slc.emptied % u64::from(self.slc.slots)) as usize;
            let bit = 1 << (slot % 64);
            self.slc.emptied += 1;
            if self.slc.stale[slot / 64] & bit != 0 {
                self.slc.stale[slot / 64] &= !bit;
            } else {
                self.slc.wanted -= 1;
                let page = self.page_at(self.places() + slot as u32);
                spent_ns += self.append(page);
                self.wear.copies += 1;
            }
            if self.slc.emptied.is_multiple_of(u64::from(self.slc.block_slots)) {
                self.wear.erases += 1;
                spent_ns += self.erase_ns;
            }
        }
        spent_ns
    }

    /// Writes a page that has no place into the SLC cache, which has space.
    fn cache(&mut self, page: u32) {
        let slot = (self.slc.written % u64::from(self.slc.slots)) as u32;
        self.slc.written += 1;
        self.slc.wanted += 1;
        self.wear.programs += 1;
        self.put(page, self.places() + slot);
    }

    /// Writes a page that has no place, or is about to leave it, into the active block. Returns the
    /// time that takes.
    fn append(&mut self, page: u32) -> u64 {
        let mut spent_ns = self.program_ns;
        if self.next == self.block_pages {
            spent_ns += self.next_block();
        }
        self.program(page);
        spent_ns
    }

    fn program(&mut self, page: u32) {
        self.put(page, self.active.0 * self.block_pages + self.next);
        self.wanted[self.active.0 as usize] += 1;
        self.next += 1;
        self.wear.programs += 1;
    }

    /// Makes another block active. Returns the time of garbage collection.
    fn next_block(&mut self) -> u64 {
        self.close(self.active);
        let block = self.free.pop_front().expect("one block is always free");
        let victim = if self.free.is_empty() { Some(self.least_wanted()) } else { None };
        (self.active, self.next) = (block, 0);
        victim.map_or(0, |victim| self.collect(victim))
    }

    fn close(&mut self, block: Block) {
        let wanted = self.wanted[block.0 as usize];
        self.full.push_newest(wanted as usize, block);
        self.least = self.least.min(wanted);
    }

    /// Removes the full block with the fewest valid pages from its list.
    fn least_wanted(&mut self) -> Block {
        loop {
            if let Some(block) = self.full.oldest(self.least as usize) {
                self.full.remove(block);
                return block;
            }
            self.least += 1;
        }
    }

    /// Copies the valid pages of a block into the active one, which is empty, and erases the block.
    /// Returns the time that takes.
    fn collect(&mut self, victim: Block) -> u64 {
        let wanted = self.wanted[victim.0 as usize];
        assert!(
            wanted < self.block_pages,
            "there is more flash than capacity, so some block has a stale page"
        );
        for word in 0..self.words {
            let last = self.block_pages as usize - word * 64;
            let mask = if last >= 64 { !0 } else { (1u64 << last) - 1 };
            let mut live = !self.stale_word(victim.0, word) & mask;
            self.stale[victim.0 as usize * self.words + word] = 0;
            while live != 0 {
                let slot = word as u32 * 64 + live.trailing_zeros();
                self.program(self.page_at(victim.0 * self.block_pages + slot));
                live &= live - 1;
            }
        }
        self.wanted[victim.0 as usize] = 0;
        self.erased[victim.0 as usize] = true;
        self.collected += 1;
        self.free.push_back(victim);
        self.wear.copies += u64::from(wanted);
        self.wear.erases += 1;
        u64::from(wanted) * (self.read_ns + self.program_ns) + self.erase_ns
    }

    /// Marks the content at this page's place as stale.
    fn forget(&mut self, page: u32) {
        let place = self.place_of(page);
        if place == NONE {
            return;
        }
        self.place_of[page as usize] = NONE;
        if let Some(slot) = place.checked_sub(self.places()) {
            self.slc.stale[slot as usize / 64] |= 1 << (slot % 64);
            self.slc.wanted -= 1;
            return;
        }
        let (block, slot) = (Block(place / self.block_pages), place % self.block_pages);
        self.stale[block.0 as usize * self.words + slot as usize / 64] |= 1 << (slot % 64);
        let wanted = &mut self.wanted[block.0 as usize];
        *wanted -= 1;
        let wanted = *wanted;
        if block != self.active {
            self.full.move_newest(wanted as usize, block);
            self.least = self.least.min(wanted);
        }
    }

    /// Number of valid pages of a block that have not moved since the die was aged.
    fn unchanged(&self, block: u32) -> u32 {
        let Beginning::Aged(aged) = &self.beginning else { return 0 };
        if self.erased[block as usize] || block > aged.full() {
            return 0;
        }
        // In the active block, the valid places are the first ones.
        let valid = aged.valid(block);
        let until = if block < aged.full() { self.block_pages } else { valid };
        let stale = &self.stale[block as usize * self.words..][..self.words];
        let gone = (0..until).filter(|slot| stale[*slot as usize / 64] >> (slot % 64) & 1 == 1);
        valid - gone.count() as u32
    }

    fn check(&self) {
        let mut wanted: Vec<u32> = (0..self.blocks).map(|block| self.unchanged(block)).collect();
        let mut cached = 0;
        for page in 0..self.place_of.len() as u32 {
            let aged = matches!(self.beginning, Beginning::Aged(_));
            if aged && self.place_of[page as usize] == 0 {
                // [`Die::unchanged`] counts it.
                continue;
            }
            let place = self.place_of(page);
            if place == NONE {
                continue;
            }
            assert_eq!(self.page_at(place), page, "a page and its place agree");
            if let Some(slot) = place.checked_sub(self.places()) {
                assert_eq!(
                    self.slc.stale[slot as usize / 64] >> (slot % 64) & 1,
                    0,
                    "mapped pages are valid"
                );
                cached += 1;
            } else {
                let (block, slot) = (place / self.block_pages, place % self.block_pages);
                let word = self.stale[block as usize * self.words + slot as usize / 64];
                assert_eq!(word >> (slot % 64) & 1, 0, "mapped pages are valid");
                wanted[block as usize] += 1;
            }
        }
        assert_eq!((&wanted, cached), (&self.wanted, self.slc.wanted), "wanted pages are counted");
        let mut state = vec!["full"; self.blocks as usize];
        state[self.active.0 as usize] = "active";
        for block in &self.free {
            assert_eq!(state[block.0 as usize], "full", "a block is in one state");
            assert_eq!(wanted[block.0 as usize], 0, "a free block holds nothing");
            state[block.0 as usize] = "free";
        }
        assert!(!self.free.is_empty(), "one block is always free");
        for (block, state) in state.iter().enumerate() {
            let block = Block(block as u32);
            assert_eq!(
                self.full.contains(block),
                *state == "full",
                "full blocks, and no others, are in lists"
            );
            if *state == "full" {
                assert!(wanted[block.0 as usize] >= self.least, "least is no more than the least");
            }
        }
    }
}

/// Describes an inconsistency of the sizes of a profile, if there is one.
/// Returns the bytes of both tables of pages.
pub(super) fn table_bytes(params: &PageMappedParams) -> u64 {
    let pages = super::pages(params.capacity_bytes);
    let spare = (f64::from(pages) * params.over_provisioning) as u64;
    4 * (2 * u64::from(pages) + spare + u64::from(super::pages(params.slc_bytes)))
}

pub(super) fn wrong_sizes(params: &PageMappedParams) -> Option<&'static str> {
    let die_blocks = |bytes: u64| {
        bytes / PAGE_BYTES / u64::from(params.dies.max(1)) / u64::from(params.block_pages.max(1))
    };
    if !params.block_pages.is_multiple_of(params.nand_pages) {
        Some("block_pages has to be a multiple of nand_pages")
    } else if die_blocks(params.capacity_bytes) < 2 {
        Some("capacity_bytes has to be two blocks a die at least")
    } else if params.slc_bytes > params.capacity_bytes
        || (params.slc_bytes > 0 && die_blocks(params.slc_bytes) < 2)
    {
        Some("slc_bytes has to be 0, or two blocks a die at least and no more than capacity_bytes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
