//! The address by which a cached page is ordered.
//!
//! A page that has a place on the device is ordered by that place. A layout that allocates late
//! gives a page its place only at write-back. Until then the page is ordered directly behind the
//! place most recently given to a page of its file. If the file has none, it is ordered behind the
//! place most recently given to a file of its directory. If the directory has none, or is not
//! known, it is ordered behind the place most recently given to any page. ext4's allocator searches
//! from the same goals: behind the last block of the file, else in the directory's block group.
//!
//! A cache shows addresses only to policies that set
//! [`Policy::WANTS_ADDRESSES`](flashsift_caches::policy::Policy::WANTS_ADDRESSES). For these it
//! stores eight bytes per frame, and storage holds [`Goals`]; other policies cost neither. The
//! cache looks an address up when a page enters it, and again when the layout reports that the page
//! may have moved: at the first write-back (ext4), at each write-back (F2FS), or, if the layout
//! allocates early, when the cached page first becomes dirty. A page that waits behind another one
//! stays there until then, wherever later pages of its file are placed.

use super::Layout;
use flashsift_caches::trace::{Files, Trace};
use flashsift_events::{
    address::{Address, Lba},
    page::Page,
};

/// For each file and each directory the place most recently given to one of its pages. Pages of the
/// file that have no place yet are ordered behind it.
pub(crate) struct Goals {
    files: Files,
    by_file: Vec<Option<Lba>>,
    /// By file: its directory, if that is known.
    directory: Vec<Option<u32>>,
    by_directory: Vec<Option<Lba>>,
    newest: Option<Lba>,
}

impl Goals {
    /// At the beginning of a trace, the last page of each file counts as the one placed most
    /// recently, and so does the last file of each directory.
    pub(crate) fn new(trace: &Trace, layout: &dyn Layout) -> Self {
        let files = Files::new(trace.runs(), trace.pages());
        let by_file: Vec<_> =
            files.all().map(|file| layout.place(Page(files.pages(file).end - 1))).collect();
        let first_page = |file| Page(files.pages(file).start);
        let directory_of = |page| trace.directory(trace.place_of(page)?.0);
        let directory: Vec<_> = files.all().map(|file| directory_of(first_page(file))).collect();
        let directories = directory.iter().flatten().max().map_or(0, |last| last + 1);
        let mut by_directory = vec![None; directories as usize];
        for (goal, directory) in by_file.iter().zip(&directory) {
            if let (Some(goal), Some(directory)) = (goal, directory) {
                by_directory[*directory as usize] = Some(*goal);
            }
        }
        let newest = by_file.iter().copied().flatten().max();
        Self { files, by_file, directory, by_directory, newest }
    }

    /// Records that the layout gave a page this place.
    pub(crate) fn placed(&mut self, page: Page, lba: Lba) {
        let file = self.files.of_page(page).0 as usize;
        self.by_file[file] = Some(lba);
        if let Some(directory) = self.directory[file] {
            self.by_directory[directory as usize] = Some(lba);
        }
        self.newest = Some(lba);
    }

    /// Returns the address of a page that has no place.
    pub(crate) fn behind(&self, page: Page) -> Address {
        let file = self.files.of_page(page).0 as usize;
        let of_directory =
            || self.directory[file].and_then(|directory| self.by_directory[directory as usize]);
        let goal = self.by_file[file].or_else(of_directory).or(self.newest);
        goal.map_or(Address::LAST, Address::behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of a new file waits behind its file's last place. Before the file has one, it waits
    /// behind that of its directory, and in a directory without places behind all.
    // Promises: Placement 7.
    #[test]
    fn a_page_without_a_place_waits_behind_its_file_or_its_directory() {
        use crate::layout::Selection;
        use flashsift_caches::trace::{TraceBuilder, Unit};
        use flashsift_events::event::{
            About, Action, Create, Event, FileId, Knows, MaybeOwned, Side, Space,
        };
        let knows = Knows { writes: true, ..Knows::NOTHING };
        let about =
            About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
        let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
        let bind =
            |file, name: &'static str| Action::Bind { file: FileId(file), name: name.into() };
        let create = |file, name: &'static str| {
            let (name, file) = (name.into(), FileId(file));
            let create = Create { file, name, owner: None, mode: None, sync: false };
            Action::Create(MaybeOwned::owned(create))
        };
        let mut actions = vec![bind(0, "/a/old"), bind(1, "/b/old"), create(2, "/a/new")];
        actions.extend([create(3, "/a/other"), create(4, "/c/new")]);
        let write = |file, page: u64, pages: u64| {
            let (file, offset, len) = (FileId(file), page * 4096, pages * 4096);
            Action::Write { open: None, file, offset, len, sync: false }
        };
        actions.extend((0..2).map(|file| write(file, 0, 10)));
        actions.extend([write(2, 0, 1), write(2, 100, 1)]);
        actions.extend((3..5).map(|file| write(file, 0, 1)));
        for action in actions {
            builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
        }
        let trace = builder.finish().unwrap();
        let layout = Selection::parse("ext4").unwrap();
        let mut layout = (layout.spec.build)(&trace, &layout.params);
        let mut goals = Goals::new(&trace, &*layout);
        let [first, second, other, elsewhere] = [20, 21, 22, 23].map(Page);
        for page in [first, second, other] {
            assert_eq!(goals.behind(page), Address::behind(9), "behind /a/old");
        }
        assert_eq!(goals.behind(elsewhere), Address::behind(19), "behind all");
        let place = layout.write(first);
        goals.placed(first, place);
        assert_eq!(goals.behind(second), Address::behind(place), "behind its file");
        assert_eq!(goals.behind(other), Address::behind(place), "behind its directory");
        goals.placed(Page(3), 3);
        assert_eq!(goals.behind(second), Address::behind(place), "whatever else is placed");
        assert_eq!(goals.behind(other), Address::behind(3), "behind its directory");
    }
}
