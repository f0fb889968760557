//! Memory cards and simple eMMC: the logical space is mapped in large units, and only a few units
//! are open.
//!
//! A page is written into the log of its unit, which is opened first. The open units are the
//! `open_units` units written to last. Closing a unit copies every page that its log lacks from the
//! unit's old blocks, and erases these. So writes in order cost one program each, and random ones a
//! whole unit. SpatialClock's Table 2 shows this behaviour, and flashbench shows it on many cards
//! (Bergmann, "Optimizing Linux with cheap flash drives", LWN 2011).
//!
//! A log holds as many programs as its unit has pages, and a full log is closed. A page that is
//! written again while its unit is open takes space in the log and costs no copy. Requests are
//! served one at a time, page by page. The table does not show whether one large request is faster
//! than many small ones, so that is not modelled. The device does no work while it idles.
//!
//! Logs do not affect reads. A read outside the unit of its predecessor takes longer by
//! `far_read_us`, the difference between sorted and random reads in Table 2.

use super::{Device, Fill, Wear, bits, ns, pages};
use flashsift_events::{
    address::Lba,
    io::{Io, IoOp},
    page::{Id, PAGE_BYTES},
    structure::Lists,
};
use serde::{Deserialize, Serialize};

/// Constants of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenUnitParams {
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Size of a unit: U, bytes.
    pub unit_bytes: u64,
    /// Number of open units: K.
    pub open_units: u32,
    /// Time for each page read, µs.
    pub read_us: f64,
    /// Additional time for a read outside the unit of its predecessor, µs.
    pub far_read_us: f64,
    /// Time for each page written into a log, µs.
    pub program_us: f64,
    /// Time to copy a page when a unit is closed: read and program, µs.
    pub copy_us: f64,
    /// Time to erase a unit, µs.
    pub erase_us: f64,
    /// Content before the first request. `InOrder` and `Random` are the same here, because closed
    /// units hold their pages in order.
    pub fill: Fill,
}

/// Index of an open unit in the arrays.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

impl Id for Slot {
    fn index(self) -> u32 {
        self.0
    }
    fn from_index(index: u32) -> Self {
        Self(index)
    }
}

const OPEN: usize = 0;
const UNUSED: usize = 1;

/// A device of open units.
#[derive(Clone)]
pub struct OpenUnit {
    read_ns: u64,
    far_read_ns: u64,
    program_ns: u64,
    copy_ns: u64,
    erase_ns: u64,
    unit_pages: u32,
    /// Capacity in pages, of whole units.
    pages: u32,
    /// Words of the bitmap of a unit.
    words: usize,
    /// Pages with content in a unit's closed blocks, by unit. Inverted where the device begins
    /// filled, so that it begins as zeros in either case.
    held: Vec<u64>,
    inverted: bool,
    /// By unit: its slot + 1, or 0 if it is closed.
    slot_of: Vec<u16>,
    /// [`OPEN`], from least to most recently written; and [`UNUSED`].
    slots: Lists<Slot, 2>,
    /// By slot: the unit, its pages in the log, programs into the log.
    unit: Vec<u32>,
    log: Vec<u64>,
    logged: Vec<u32>,
    last_read: Option<u32>,
    free_ns: u64,
    wear: Wear,
}

/// Largest number of open units that fits the arrays.
pub(super) const OPEN_UNITS_MAX: u32 = 4096;

impl OpenUnit {
    /// Creates a device with all units closed and the content of `params.fill`. `params` must have
    /// been checked.
    pub fn new(params: &OpenUnitParams) -> Self {
        let unit_pages = pages(params.unit_bytes);
        let units = pages(params.capacity_bytes) / unit_pages;
        let words = unit_pages.div_ceil(64) as usize;
        let mut slots = Lists::new(params.open_units);
        for slot in 0..params.open_units {
            slots.push_newest(UNUSED, Slot(slot));
        }
        Self {
            read_ns: ns(params.read_us),
            far_read_ns: ns(params.far_read_us),
            program_ns: ns(params.program_us),
            copy_ns: ns(params.copy_us),
            erase_ns: ns(params.erase_us),
            unit_pages,
            pages: units * unit_pages,
            words,
            held: vec![0; units as usize * words],
            inverted: params.fill != Fill::Empty,
            slot_of: vec![0; units as usize],
            slots,
            unit: vec![0; params.open_units as usize],
            log: bits(params.open_units as usize * words * 64),
            logged: vec![0; params.open_units as usize],
            last_read: None,
            free_ns: 0,
            wear: Wear::default(),
        }
    }

    /// Unit of a page, and the page's number in it.
    fn place(&self, page: u32) -> (u32, u32) {
        (page / self.unit_pages, page % self.unit_pages)
    }

    /// Page of an address; addresses wrap around at the end.
    fn page(&self, lba: Lba) -> u32 {
        (lba % u64::from(self.pages)) as u32
    }

    fn read(&mut self, page: u32) -> u64 {
        let unit = page / self.unit_pages;
        let far = self.last_read.replace(unit) != Some(unit);
        self.read_ns + if far { self.far_read_ns } else { 0 }
    }

    fn write(&mut self, page: u32) -> u64 {
        let (unit, offset) = self.place(page);
        let mut spent_ns = self.program_ns;
        let slot = match self.slot_of[unit as usize] {
            0 => {
                if let (None, Some(oldest)) = (self.slots.oldest(UNUSED), self.slots.oldest(OPEN)) {
                    spent_ns += self.close(oldest);
                }
                self.open(unit)
            }
            n => {
                let slot = Slot(u32::from(n) - 1);
                if self.logged[slot.0 as usize] == self.unit_pages {
                    spent_ns += self.close(slot);
                    self.open(unit)
                } else {
                    self.slots.move_newest(OPEN, slot);
                    slot
                }
            }
        };
        self.log[slot.0 as usize * self.words + offset as usize / 64] |= 1 << (offset % 64);
        self.logged[slot.0 as usize] += 1;
        self.wear.host_pages += 1;
        self.wear.programs += 1;
        spent_ns
    }

    fn open(&mut self, unit: u32) -> Slot {
        let slot = self.slots.oldest(UNUSED).expect("a slot has been released");
        self.slots.move_newest(OPEN, slot);
        self.unit[slot.0 as usize] = unit;
        self.slot_of[unit as usize] = slot.0 as u16 + 1;
        slot
    }

    /// Words of the bitmap of a unit.
    fn held_words(&self, unit: u32) -> std::ops::Range<usize> {
        let first = unit as usize * self.words;
        first..first + self.words
    }

    /// Mask of the unit's pages in its n-th word.
    fn mask(&self, n: usize) -> u64 {
        match self.unit_pages as usize - n * 64 {
            more if more >= 64 => !0,
            last => (1 << last) - 1,
        }
    }

    /// Pages with content in a word of the bitmap.
    fn content(&self, n: usize, word: u64) -> u64 {
        (if self.inverted { !word } else { word }) & self.mask(n)
    }

    /// Number of pages in a unit's closed blocks, and of those that its log lacks.
    fn held_and_lacking(&self, slot: Slot) -> (u32, u32) {
        let log = &self.log[slot.0 as usize * self.words..];
        let held = &self.held[self.held_words(self.unit[slot.0 as usize])];
        held.iter().zip(log).enumerate().fold((0, 0), |(all, lacking), (n, (held, log))| {
            let content = self.content(n, *held);
            (all + content.count_ones(), lacking + (content & !log).count_ones())
        })
    }

    /// Closes a unit and returns the time that takes.
    fn close(&mut self, slot: Slot) -> u64 {
        let (held, lacking) = self.held_and_lacking(slot);
        let (n, unit) = (slot.0 as usize, self.unit[slot.0 as usize]);
        let words = self.held_words(unit);
        for (word, log) in
            self.held[words].iter_mut().zip(&mut self.log[n * self.words..][..self.words])
        {
            let logged = std::mem::take(log);
            *word = if self.inverted { *word & !logged } else { *word | logged };
        }
        self.logged[n] = 0;
        self.slot_of[unit as usize] = 0;
        self.slots.move_newest(UNUSED, slot);
        self.wear.programs += u64::from(lacking);
        self.wear.copies += u64::from(lacking);
        let mut spent_ns = u64::from(lacking) * self.copy_ns;
        if held > 0 {
            self.wear.erases += 1;
            spent_ns += self.erase_ns;
        }
        spent_ns
    }

    fn forget(&mut self, page: u32) {
        let (unit, offset) = self.place(page);
        let (word, bit) = (offset as usize / 64, 1 << (offset % 64));
        if let Some(slot) = self.slot_of[unit as usize].checked_sub(1) {
            self.log[usize::from(slot) * self.words + word] &= !bit;
        }
        let at = unit as usize * self.words + word;
        if self.content(word, self.held[at]) & bit == 0 {
            return;
        }
        self.held[at] ^= bit;
        let empty =
            self.held_words(unit).enumerate().all(|(n, at)| self.content(n, self.held[at]) == 0);
        self.wear.erases += u64::from(empty);
    }
}

impl Device for OpenUnit {
    fn serve(&mut self, io: &Io, at_ns: u64) -> u64 {
        if io.op == IoOp::Discard {
            self.discard(io.lba, io.pages);
            return at_ns;
        }
        let mut page = self.page(io.lba);
        let mut spent_ns = 0;
        for _ in 0..io.pages {
            spent_ns += match io.op {
                IoOp::Read => self.read(page),
                IoOp::Write => self.write(page),
                // Every page is durable when its request is done, and a flush has no pages.
                IoOp::Flush | IoOp::Discard => 0,
            };
            page = if page + 1 == self.pages { 0 } else { page + 1 };
        }
        self.free_ns = self.free_ns.max(at_ns) + spent_ns;
        self.free_ns
    }

    /// A unit is erased when its last page in closed blocks is discarded. No request waits for
    /// that.
    fn discard(&mut self, lba: Lba, pages: u32) {
        let first = u64::from(self.page(lba));
        for n in 0..u64::from(pages.min(self.pages)) {
            self.forget(self.page(first + n));
        }
    }

    fn wear(&self) -> Wear {
        let mut wear = self.wear;
        wear.copies_due =
            self.slots.iter(OPEN).map(|slot| u64::from(self.held_and_lacking(slot).1)).sum();
        wear
    }

    fn check(&self) {
        let mut open = 0;
        for (unit, slot) in self.slot_of.iter().enumerate().filter(|(_, slot)| **slot > 0) {
            let n = usize::from(slot - 1);
            assert_eq!(self.unit[n] as usize, unit, "a unit and its slot agree");
            let log = &self.log[n * self.words..][..self.words];
            let logged: u32 = log.iter().map(|word| word.count_ones()).sum();
            assert!(logged <= self.logged[n], "a log holds no more pages than were programmed");
            assert!(self.logged[n] <= self.unit_pages, "a log takes no more than a unit has pages");
            assert!(
                log.iter().enumerate().all(|(n, word)| word & !self.mask(n) == 0),
                "a log ends with its unit"
            );
            open += 1;
        }
        self.slots.check();
        assert_eq!(self.slots.iter(OPEN).count(), open, "each open unit is in the order of use");
        assert_eq!(
            open + self.slots.iter(UNUSED).count(),
            self.unit.len(),
            "a slot is open or unused"
        );
        assert_eq!(
            self.wear.host_pages + self.wear.copies,
            self.wear.programs,
            "nothing else is programmed"
        );
    }
}

/// Whether the size of a unit is allowed.
pub(super) fn unit_is_possible(params: &OpenUnitParams) -> bool {
    params.unit_bytes.is_multiple_of(PAGE_BYTES)
        && params.unit_bytes > 0
        && params.capacity_bytes / params.unit_bytes > u64::from(params.open_units)
}

#[cfg(test)]
mod tests;
