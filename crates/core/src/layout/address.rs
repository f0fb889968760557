//! The address by which a cached page is ordered.
//!
//! A page that has a place on the device is ordered by that place. A layout that allocates late
//! gives a page its place only at write-back. Until then the page is ordered directly behind the
//! place most recently given to a page of its file, or, if the file has none, behind the place most
//! recently given to any page.
//!
//! A cache shows addresses only to policies that set
//! [`Policy::WANTS_ADDRESSES`](crate::policy::Policy::WANTS_ADDRESSES). For these it stores eight
//! bytes per frame, and storage holds [`Goals`]; other policies cost neither. The cache looks an
//! address up when a page enters it, and again when the layout reports that the page may have
//! moved: at the first write-back (ext4), at each write-back (F2FS), or, if the layout allocates
//! early, when the cached page first becomes dirty.

use super::{Layout, Lba};
use crate::{
    page::Page,
    trace::{Files, Trace},
};

/// The place of a page on the device, or the place behind which a page without one is ordered.
///
/// Addresses are ordered by place. A page without a place comes after the page at the place before
/// it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// The address behind every place.
    pub const LAST: Self = Self(u64::MAX);

    /// The address of a page at this place.
    #[inline(always)]
    pub fn at(lba: Lba) -> Self {
        Self(lba << 1)
    }

    /// The address of a page that has no place yet, directly behind this one.
    #[inline(always)]
    pub fn behind(lba: Lba) -> Self {
        Self(lba << 1 | 1)
    }

    /// The place of the page, if it has one.
    #[inline(always)]
    pub fn lba(self) -> Option<Lba> {
        (self.0 & 1 == 0).then_some(self.0 >> 1)
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.lba() {
            Some(lba) => write!(f, "at {lba}"),
            None if *self == Self::LAST => write!(f, "last"),
            None => write!(f, "behind {}", self.0 >> 1),
        }
    }
}

/// For each file the place most recently given to one of its pages. Pages of the file that have no
/// place yet are ordered behind it.
pub(crate) struct Goals {
    files: Files,
    by_file: Vec<Option<Lba>>,
    newest: Option<Lba>,
}

impl Goals {
    /// At the beginning of a trace, the last page of each file counts as the one placed most
    /// recently.
    pub(crate) fn new(trace: &Trace, layout: &dyn Layout) -> Self {
        let files = Files::of(trace.runs(), trace.pages());
        let by_file: Vec<_> =
            files.all().map(|file| layout.place(Page(files.pages(file).end - 1))).collect();
        let newest = by_file.iter().copied().flatten().max();
        Self { files, by_file, newest }
    }

    /// Records that the layout gave a page this place.
    pub(crate) fn placed(&mut self, page: Page, lba: Lba) {
        self.by_file[self.files.of_page(page).0 as usize] = Some(lba);
        self.newest = Some(lba);
    }

    /// Returns the address of a page that has no place.
    pub(crate) fn behind(&self, page: Page) -> Address {
        let goal = self.by_file[self.files.of_page(page).0 as usize].or(self.newest);
        goal.map_or(Address::LAST, Address::behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page without a place is ordered between the page at the place before it and the next page.
    #[test]
    fn addresses_are_ordered_by_place() {
        let ordered = [
            Address::at(0),
            Address::behind(0),
            Address::at(1),
            Address::at(1 << 40),
            Address::behind(1 << 40),
            Address::LAST,
        ];
        assert!(ordered.is_sorted_by(|one, next| one < next));
        let places = [Some(0), None, Some(1), Some(1 << 40), None, None];
        assert_eq!(ordered.map(Address::lba), places);
    }
}
