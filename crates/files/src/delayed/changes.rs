//! The changes of a file since the last epoch.

use flashsift_events::{
    page::PAGE_BYTES,
    structure::{
        Extents,
        extents::{pages_inside, pages_touched},
    },
};

/// How a file in RAM differs from the one that flash has at the end of the last epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Its size on flash, bytes.
    below: u64,
    /// The smallest size that it had since, if that is less than on flash: what was behind is gone.
    cut: Option<u64>,
    size: u64,
    /// Pages that were written since.
    pages: Extents,
    /// Those of them that are holes: zeroed as a whole, and not written since.
    holes: Extents,
    /// Owner, mode, times or names have changed.
    attributes: bool,
    /// Pages that the epoch before took; `None`: none took any yet.
    before: Option<Extents>,
}

impl Changes {
    /// Returns the state of a file that is on flash with this size, bytes.
    pub fn of_size(size: u64) -> Self {
        Self { below: size, size, ..Self::default() }
    }

    /// Returns whether anything has changed.
    pub fn any(&self) -> bool {
        self.attributes || self.size != self.below || self.cut.is_some() || !self.pages.is_empty()
    }

    /// Returns the size, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the size on flash, bytes.
    pub fn below(&self) -> u64 {
        self.below
    }

    /// Returns the smallest size since the last epoch, if content on flash is behind it.
    pub fn cut(&self) -> Option<u64> {
        self.cut
    }

    /// Returns the pages that were written.
    pub fn pages(&self) -> &Extents {
        &self.pages
    }

    /// Returns those of them that are holes.
    pub fn holes(&self) -> &Extents {
        &self.holes
    }

    /// Returns the pages that were written in the epoch before; `None`: there was none.
    pub fn before(&self) -> Option<&Extents> {
        self.before.as_ref()
    }

    /// Returns whether owner, mode, times or names have changed.
    pub fn attributes(&self) -> bool {
        self.attributes
    }

    /// Returns the bytes that a crash would lose.
    pub fn bytes(&self) -> u64 {
        (self.pages.covered() - self.holes.covered()) * PAGE_BYTES
    }

    /// Bytes were written.
    pub fn wrote(&mut self, offset: u64, len: u64) {
        if len > 0 {
            self.pages.insert(pages_touched(offset, len));
            self.holes.remove(pages_touched(offset, len));
            self.size = self.size.max(offset + len);
            self.attributes = true;
        }
    }

    /// The size was set. Returns the page that the end cuts, which has zeros behind it now.
    pub fn resized(&mut self, size: u64) -> Option<u64> {
        self.attributes = true;
        let cuts = size < self.size;
        self.size = size;
        if !cuts {
            return None;
        }
        self.pages.remove(size.div_ceil(PAGE_BYTES)..u64::MAX);
        self.holes.remove(size.div_ceil(PAGE_BYTES)..u64::MAX);
        if size < self.cut.unwrap_or(self.below) {
            self.cut = Some(size);
        }
        (!size.is_multiple_of(PAGE_BYTES)).then_some(size / PAGE_BYTES)
    }

    /// A hole was punched, without a change of the size. The pages of which a part was zeroed have
    /// to be in RAM.
    pub fn punched(&mut self, offset: u64, len: u64) {
        let len = len.min(self.size.saturating_sub(offset));
        self.wrote(offset, len);
        let mut end = offset + len;
        if end == self.size {
            end = end.next_multiple_of(PAGE_BYTES);
        }
        self.holes.insert(pages_inside(offset, end.saturating_sub(offset)));
    }

    /// Attributes or names were changed.
    pub fn touched(&mut self) {
        self.attributes = true;
    }

    /// Takes the changes for an epoch. The rest counts from now on.
    pub fn take(&mut self) -> Self {
        let before = Some(self.pages.clone());
        let now = Self { before, ..Self::of_size(self.size) };
        std::mem::replace(self, now)
    }

    /// The epoch that took `taken` failed: flash still has what it had before it.
    pub fn put_back(&mut self, taken: &Self) {
        let mut pages = taken.pages.clone();
        if let Some(cut) = self.cut {
            pages.remove(cut.div_ceil(PAGE_BYTES)..u64::MAX);
        }
        let mut holes = taken.holes.clone();
        if let Some(cut) = self.cut {
            holes.remove(cut.div_ceil(PAGE_BYTES)..u64::MAX);
        }
        for range in self.pages.iter() {
            pages.insert(range.clone());
            holes.remove(range);
        }
        self.holes.iter().for_each(|range| holes.insert(range));
        let cut = taken.cut.into_iter().chain(self.cut).min().filter(|cut| *cut < taken.below);
        *self = Self {
            below: taken.below,
            cut,
            size: self.size,
            pages,
            holes,
            attributes: self.attributes || taken.attributes,
            before: taken.before.clone(),
        };
    }

    /// Returns the pages that a write of these bytes leaves in part as they were.
    pub fn torn_by(&self, offset: u64, len: u64) -> impl Iterator<Item = u64> + use<> {
        let (touched, inside) = (pages_touched(offset, len), pages_inside(offset, len));
        let end = self.size;
        touched.filter(move |page| {
            // Beyond the end there is nothing to keep.
            !inside.contains(page) && page * PAGE_BYTES < end
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// A file as bytes, beside what flash has of it.
    #[derive(Clone)]
    struct Naive {
        below: Vec<u8>,
        bytes: Vec<u8>,
    }

    /// The changes of a file turn the one on flash into the one in RAM, also after an epoch that
    /// failed.
    // Promises: Mount 75.
    #[test]
    fn changes_turn_the_old_file_into_the_new_one() {
        for seed in 0..200 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let size = random.random_range(0..5 * PAGE_BYTES as usize);
            let mut naive = Naive { below: vec![1; size], bytes: vec![1; size] };
            let mut changes = Changes::of_size(size as u64);
            for step in 0..60 {
                let at = random.random_range(0..6 * PAGE_BYTES);
                match random.random_range(0..10) {
                    8 | 9 => {
                        let (len, bytes) = (random.random_range(0..9000), &mut naive.bytes);
                        changes.punched(at, len);
                        let end = bytes.len().min((at + len) as usize);
                        bytes[(at as usize).min(end)..end].fill(0);
                    }
                    0..=3 => {
                        let len = random.random_range(1..PAGE_BYTES);
                        changes.wrote(at, len);
                        let end = (at + len) as usize;
                        if naive.bytes.len() < end {
                            naive.bytes.resize(end, 0);
                        }
                        naive.bytes[at as usize..end].fill(random.random());
                    }
                    4 | 5 => {
                        if let Some(page) = changes.resized(at) {
                            changes.wrote(page * PAGE_BYTES, at - page * PAGE_BYTES);
                        }
                        naive.bytes.resize(at as usize, 0);
                    }
                    6 => {
                        let taken = changes.take();
                        naive.below = after(&naive, &taken);
                        assert_eq!(naive.below, naive.bytes, "seed {seed}, step {step}");
                        assert!(!changes.any());
                    }
                    _ => {
                        // An epoch fails while the file is written to.
                        let taken = changes.take();
                        changes.wrote(at, 10);
                        let end = at as usize + 10;
                        if naive.bytes.len() < end {
                            naive.bytes.resize(end, 0);
                        }
                        naive.bytes[at as usize..end].fill(7);
                        if random.random() {
                            if let Some(page) = changes.resized(at / 2) {
                                changes.wrote(page * PAGE_BYTES, at / 2 - page * PAGE_BYTES);
                            }
                            naive.bytes.resize(at as usize / 2, 0);
                        }
                        changes.put_back(&taken);
                    }
                }
                assert_eq!(after(&naive, &changes), naive.bytes, "seed {seed}, step {step}");
            }
        }
    }

    fn after(naive: &Naive, changes: &Changes) -> Vec<u8> {
        let mut file = naive.below.clone();
        if let Some(cut) = changes.cut() {
            file.truncate(cut as usize);
        }
        file.resize(changes.size() as usize, 0);
        for range in changes.pages().iter() {
            let from = (range.start * PAGE_BYTES) as usize;
            let end = ((range.end * PAGE_BYTES) as usize).min(naive.bytes.len());
            file[from..end].copy_from_slice(&naive.bytes[from..end]);
        }
        for range in changes.holes().iter() {
            assert_eq!(changes.pages().missing(range.clone()), 0, "holes are changed pages");
            let end = ((range.end * PAGE_BYTES) as usize).min(file.len());
            file[(range.start * PAGE_BYTES) as usize..end].fill(0);
        }
        file
    }
}
