//! F2FS-like: logs for hot, warm and cold data, as the kernel's `fs/f2fs` places pages (Linux 6.1).
//!
//! The main area consists of segments of 512 pages (2 MiB). A page written back is appended to one
//! of three logs, and its old place becomes a hole. [`main_area`] says how a log continues when its
//! segment is full, and when holes are used again. Lee et al., "F2FS", FAST '15, §2.2 and §2.4.
//!
//! - The log of a page (`__get_segment_type_6`): cold if the file's first name has an extension of
//!   media or archives, hot if it has one of databases or disk images. mkfs.f2fs writes these lists
//!   ([`names::f2fs_heat`]). Otherwise it is hot if the file has at most 16 dirty pages when its
//!   write-back begins (`min_hot_blocks`), and warm if it has more.
//! - A page that has a place keeps it (`f2fs_should_update_inplace`) in three cases: its file is
//!   cold by name; the volume has at most 8,192 segments, 16 GiB (`SMALL_VOLUME_SEGMENTS`); or an
//!   fsync writes it and the file had at most 8 dirty pages (`min_fsync_blocks`). fdatasync keeps
//!   any number of pages in place. `sync=fsync` and `sync=fdatasync` take all syncs as one of the
//!   two, for traces that do not tell them apart.
//! - A write-back of a file is the pages of it that are written one after another, for the same
//!   reason and without a page of it becoming dirty in between.
//! - A sync of all files ends with a checkpoint. F2FS also makes one every 60 s and for some
//!   fsyncs; these are left out.
//!
//! `segments` gives the size of the main area, of a volume that holds the files of the trace only;
//! its logs begin where mkfs.f2fs lets them begin. Without it the volume is a large one, full of
//! other files except for the pages of the trace and the share `spare`; nothing is reserved, and
//! holes are used again when 5 % of these segments are free.
//!
//! Pages that files had before the trace are written in order of first appearance, to the log of
//! the file's name, or the warm one. Left out are nodes and directories (the first three segments
//! of the main area remain for the logs of nodes), cleaning, write hints, compression, atomic
//! writes, pinned files, and data inside the inode (files of up to 3.4 KiB).

use super::{Layout, LayoutSpec, add_freed};
use flashsift_caches::{
    back::Why,
    trace::{File, Files, Trace},
};
use flashsift_events::{
    address::Lba,
    names::Heat,
    page::Page,
    params::{Param, ParamKind, Params},
    structure::BitTree,
};
use main_area::{Log, MainArea, Volume};
use std::ops::Range;

mod main_area;

pub(super) const SPEC: LayoutSpec = LayoutSpec {
    name: "f2fs",
    what: "F2FS-like: three logs by heat; in place where F2FS overwrites; holes when nearly full",
    params: PARAMS,
    suits: |_| true,
    in_rank_order: false,
    from_recording: false,
    page_bytes: 16,
    build: |trace, params| Box::new(F2fs::new(trace, params)),
};

const PARAMS: &[Param] = &[
    Param {
        name: "spare",
        what: "without segments: free space, as a share of the pages that the trace touches",
        kind: ParamKind::Number { default: 0.25, min: 0.0, max: 1000.0 },
    },
    Param {
        name: "segments",
        what: "size of the main area in segments of 2 MiB; 0: a part of a large volume",
        kind: ParamKind::Number { default: 0.0, min: 0.0, max: 1_000_000.0 },
    },
    Param {
        name: "sync",
        what: "the call that syncs of a file stand for: fdatasync always overwrites in place",
        kind: ParamKind::Word(&["recorded", "fsync", "fdatasync"]),
    },
];

/// The most segments of a volume on which every page is updated in place.
const SMALL_VOLUME_SEGMENTS: u32 = 16 * 512;
/// The most dirty pages of a file that fsync updates in place.
const FSYNC_PAGES: u32 = 8;
/// The most dirty pages of a file that go to the hot log.
const HOT_PAGES: u32 = 16;
const NOWHERE: u32 = u32::MAX;

struct F2fs {
    files: Files,
    /// By file: its heat by name.
    heat: Vec<Option<Heat>>,
    /// Slot of each page, or [`NOWHERE`].
    place: Vec<u32>,
    dirty: BitTree,
    /// By file.
    dirty_pages: Vec<u32>,
    area: MainArea,
    /// Whether each page that has a place keeps it.
    always_in_place: bool,
    /// Whether every sync is a sync of data; `None`: as the trace says.
    data_only: Option<bool>,
    /// The write-back that goes on if the next page suits it.
    current: Option<WriteBack>,
    /// Whether a sync of all files goes on.
    syncing_all: bool,
    /// See [`Layout::freed`].
    freed: Vec<Range<Lba>>,
    /// See [`Layout::moved`].
    moved: Range<u32>,
}

/// A write-back of a file.
#[derive(Clone, Copy)]
struct WriteBack {
    file: File,
    why: Why,
    /// The file's dirty pages when it began.
    pages: u32,
}

impl F2fs {
    fn new(trace: &Trace, params: &Params) -> Self {
        let pages = trace.pages();
        let files = Files::new(trace.runs(), pages);
        let heat_of = |file| {
            let (file, _) = trace.place_of(Page(files.pages(file).start))?;
            trace.f2fs_heat(file)
        };
        let heat: Vec<_> = files.all().map(heat_of).collect();
        let segments = params.number(PARAMS, "segments") as u32;
        let volume = if segments == 0 {
            let wanted = f64::from(pages) * (1.0 + params.number(PARAMS, "spare"));
            Volume::part_of_a_large_one((wanted as u32).max(pages))
        } else {
            Volume::new(segments, pages)
        };
        let mut layout = Self {
            place: vec![NOWHERE; pages as usize],
            dirty: BitTree::new(pages),
            dirty_pages: vec![0; files.count() as usize],
            always_in_place: segments != 0 && volume.segments <= SMALL_VOLUME_SEGMENTS,
            area: MainArea::new(volume),
            data_only: match params.word(PARAMS, "sync") {
                "recorded" => None,
                word => Some(word == "fdatasync"),
            },
            current: None,
            syncing_all: false,
            freed: Vec::new(),
            moved: 0..0,
            files,
            heat,
        };
        if trace.runs().is_empty() {
            (0..pages).for_each(|page| layout.append(page, Log::Warm));
        }
        for run in trace.runs() {
            let log = layout.log_by_name(Page(run.first)).unwrap_or(Log::Warm);
            trace.old_ranks(run).for_each(|page| layout.append(page, log));
        }
        layout.area.checkpoint();
        layout
    }

    fn log_by_name(&self, page: Page) -> Option<Log> {
        let heat = self.heat[self.files.of_page(page).0 as usize]?;
        Some(if heat == Heat::Hot { Log::Hot } else { Log::Cold })
    }

    fn append(&mut self, page: u32, log: Log) {
        let place = &mut self.place[page as usize];
        let old = (*place != NOWHERE).then_some(*place);
        *place = self.area.append(log, old);
        if let Some(old) = old {
            add_freed(&mut self.freed, old.into());
        }
        self.moved = page..page + 1;
    }

    /// Removes a page from the dirty ones.
    fn clean(&mut self, page: Page) {
        if self.dirty.contains(page.0) {
            self.dirty.remove(page.0);
            self.dirty_pages[self.files.of_page(page).0 as usize] -= 1;
        }
    }

    /// The write-back to which a page belongs that is written now.
    fn write_back_of(&mut self, file: File, why: Why) -> WriteBack {
        match self.current {
            Some(current) if (current.file, current.why) == (file, why) => current,
            _ => {
                let pages = self.dirty_pages[file.0 as usize].max(1);
                *self.current.insert(WriteBack { file, why, pages })
            }
        }
    }

    fn end_sync_of_all(&mut self) {
        if std::mem::take(&mut self.syncing_all) {
            self.area.checkpoint();
        }
    }
}

impl Layout for F2fs {
    fn write(&mut self, page: Page) -> Lba {
        self.write_for(page, Why::Evict)
    }

    fn write_for(&mut self, page: Page, why: Why) -> Lba {
        self.freed.clear();
        self.moved = 0..0;
        if why != Why::SyncAll {
            self.end_sync_of_all();
        }
        self.syncing_all = why == Why::SyncAll;
        let WriteBack { pages, .. } = self.write_back_of(self.files.of_page(page), why);
        self.clean(page);
        let by_name = self.log_by_name(page);
        let by_sync = matches!(why, Why::Sync | Why::DataSync)
            && (self.data_only.unwrap_or(why == Why::DataSync) || pages <= FSYNC_PAGES);
        let keeps = self.always_in_place || by_name == Some(Log::Cold) || by_sync;
        if !keeps || self.place[page.0 as usize] == NOWHERE {
            let by_pages = if pages <= HOT_PAGES { Log::Hot } else { Log::Warm };
            self.append(page.0, by_name.unwrap_or(by_pages));
        }
        Lba::from(self.place[page.0 as usize])
    }

    fn read(&self, page: Page) -> Lba {
        let next = || self.area.next(self.log_by_name(page).unwrap_or(Log::Warm));
        self.place(page).unwrap_or_else(|| next().into())
    }

    fn place(&self, page: Page) -> Option<Lba> {
        let slot = self.place[page.0 as usize];
        (slot != NOWHERE).then_some(Lba::from(slot))
    }

    fn wants_dirtied(&self) -> bool {
        true
    }

    fn dirtied(&mut self, page: Page) {
        self.freed.clear();
        self.moved = 0..0;
        self.end_sync_of_all();
        let file = self.files.of_page(page);
        if !self.dirty.contains(page.0) {
            self.dirty.insert(page.0);
            self.dirty_pages[file.0 as usize] += 1;
        }
        self.current.take_if(|current| current.file == file);
    }

    fn moved(&self) -> Range<u32> {
        self.moved.clone()
    }

    fn freed(&self) -> &[Range<Lba>] {
        &self.freed
    }

    fn free(&mut self, pages: Range<u32>) {
        self.freed.clear();
        self.moved = 0..0;
        self.end_sync_of_all();
        for page in pages {
            self.clean(Page(page));
            let slot = std::mem::replace(&mut self.place[page as usize], NOWHERE);
            if slot != NOWHERE {
                add_freed(&mut self.freed, slot.into());
                self.area.free(slot);
            }
        }
    }

    fn check(&self) {
        self.dirty.check();
        let mut slots: Vec<u32> =
            self.place.iter().copied().filter(|slot| *slot != NOWHERE).collect();
        slots.sort_unstable();
        for pair in slots.windows(2) {
            assert!(pair[0] < pair[1], "two pages share slot {}", pair[0]);
        }
        self.area.check(&slots);
        for file in self.files.all() {
            let dirty = self.files.pages(file).filter(|page| self.dirty.contains(*page)).count();
            assert_eq!(dirty as u32, self.dirty_pages[file.0 as usize]);
        }
    }
}
