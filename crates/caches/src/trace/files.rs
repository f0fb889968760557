//! The file of each page and the pages of each file, by rank.

use super::Run;
use flashsift_events::page::{Id, Page};
use std::ops::Range;

/// A file of a trace, numbered in page order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File(pub u32);

impl Id for File {
    #[inline(always)]
    fn index(self) -> u32 {
        self.0
    }
    #[inline(always)]
    fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// The files of a trace: two bits a page.
pub struct Files {
    /// For each 64 pages: a bit where a file begins, and the number of files that begin before.
    begins: Vec<(u64, u32)>,
    /// Each file's first rank, and finally the number of pages.
    firsts: Vec<u32>,
}

impl Files {
    /// Units without a place (whole requests) all belong to one file.
    pub fn new(runs: &[Run], pages: u32) -> Self {
        let mut firsts: Vec<u32> =
            runs.chunk_by(|one, next| one.file == next.file).map(|file| file[0].first).collect();
        if firsts.is_empty() && pages > 0 {
            firsts.push(0);
        }
        let mut begins = vec![(0, 0); pages.div_ceil(64) as usize];
        for first in &firsts {
            begins[*first as usize / 64].0 |= 1 << (first % 64);
        }
        let mut before = 0;
        for (bits, earlier) in &mut begins {
            *earlier = before;
            before += u64::count_ones(*bits);
        }
        firsts.push(pages);
        Self { begins, firsts }
    }

    /// Returns the number of files.
    pub fn count(&self) -> u32 {
        self.firsts.len() as u32 - 1
    }

    /// Returns every file, in page order.
    pub fn all(&self) -> impl Iterator<Item = File> + use<> {
        (0..self.count()).map(File)
    }

    /// Returns the file that a page belongs to.
    #[inline]
    pub fn of_page(&self, page: Page) -> File {
        let (bits, before) = self.begins[page.0 as usize / 64];
        let here = bits & (!0 >> (63 - page.0 % 64));
        File(before + here.count_ones() - 1)
    }

    /// Returns the pages of a file.
    #[inline]
    pub fn pages(&self, File(file): File) -> Range<u32> {
        self.firsts[file as usize]..self.firsts[file as usize + 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::FileId;
    use proptest::prelude::*;

    proptest! {
        /// Compares the files with a list that has a file for each page.
        #[test]
        fn agrees_with_a_list(lens in prop::collection::vec((1..150u32, any::<bool>()), 0..20)) {
            let (mut runs, mut wanted) = (Vec::new(), Vec::new());
            let mut file = 0;
            for (n, (pages, another)) in lens.into_iter().enumerate() {
                file += u32::from(another && n > 0);
                let first = wanted.len() as u32;
                runs.push(Run { first, pages, file: FileId(u64::from(file) * 3), page: n as u64 * 1000 });
                wanted.extend((0..pages).map(|_| file));
            }
            let files = Files::new(&runs, wanted.len() as u32);
            prop_assert_eq!(files.count(), wanted.last().map_or(0, |last| last + 1));
            for (page, file) in wanted.iter().enumerate() {
                prop_assert_eq!(files.of_page(Page(page as u32)).0, *file);
                prop_assert!(files.pages(File(*file)).contains(&(page as u32)));
            }
            let pages: u32 = (0..files.count()).map(|file| files.pages(File(file)).len() as u32).sum();
            prop_assert_eq!(pages as usize, wanted.len());
        }
    }

    #[test]
    fn units_without_a_place_belong_to_one_file() {
        let files = Files::new(&[], 70);
        assert_eq!((files.count(), files.of_page(Page(69)).0, files.pages(File(0))), (1, 0, 0..70));
        assert_eq!(Files::new(&[], 0).count(), 0);
    }
}
