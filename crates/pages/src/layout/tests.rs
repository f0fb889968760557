//! Properties of every layout, over random files, write-backs and deletions.

use super::*;
use flashsift_caches::trace::{Tables, TraceBuilder, Unit};
use flashsift_events::event::{About, Action, Create, Event, FileId, Knows, MaybeOwned, Side};
use proptest::prelude::*;
use std::collections::BTreeMap as Model;

/// A trace that reads ranges of files. Recorded places overlap.
fn trace(space: Space, files: &[(bool, Vec<(u64, u64)>)]) -> Trace {
    let knows = Knows { times: false, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
    let mut builder = TraceBuilder::new(
        About { epoch_us: None, boot_us: None, side: Side::Before, space, knows },
        Unit::Page,
        u64::MAX,
    )
    .with_tables(Tables { places: true, ..Tables::default() });
    for (n, (created, ranges)) in files.iter().enumerate() {
        let file = FileId(n as u64);
        let mut actions = vec![Action::Open { open: None, file, created: *created }];
        actions.extend(ranges.iter().map(|(page, pages)| Action::Read {
            open: None,
            file,
            offset: page * 4096,
            len: pages * 4096,
        }));
        actions.extend(ranges.iter().map(|(page, pages)| {
            let at = (page + 7 * n as u64) % 500 * 4096;
            Action::Place { file, offset: page * 4096, len: pages * 4096, at }
        }));
        for action in actions {
            builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
        }
    }
    builder.finish().unwrap()
}

proptest! {
    /// The index of runs finds what a walk over them finds, and no page behind the last one.
    #[test]
    fn the_run_of_a_page_is_that_of_a_walk(lengths in prop::collection::vec(1..200u32, 0..40)) {
        let mut first = 0;
        let mut runs = Vec::new();
        for pages in lengths.iter().copied() {
            runs.push(Run { first, pages, file: FileId(0), page: 0 });
            first += pages;
        }
        let indexed = Runs::new(Arc::new(runs));
        let offsets = |(n, pages): (usize, &u32)| (0..*pages).map(move |offset| (n, offset));
        for (page, wanted) in lengths.iter().enumerate().flat_map(offsets).enumerate() {
            prop_assert_eq!(indexed.find(Page(page as u32)), Some(wanted));
        }
        prop_assert_eq!(indexed.find(Page(first)), None);
    }

    /// No two live pages share a place, a page is read from the place to which it was last written,
    /// and freed space is reused.
    // Promises: Placement 2, Placement 5.
    #[test]
    fn places_are_exclusive_and_remembered(
        files in prop::collection::vec(
            (any::<bool>(), prop::collection::vec((0..3000u64, 1..40u64), 1..4)), 1..8),
        ops in prop::collection::vec((0..6u8, any::<prop::sample::Index>(), 1..60u32), 1..150),
        spare in 0..2u8,
    ) {
        for spec in ALL {
            let space = if (spec.suits)(Space::Files) { Space::Files } else { Space::Blocks };
            let trace = trace(space, &files);
            let text = match spec.name {
                "f2fs" => ["f2fs:spare=0", "f2fs:segments=1"][usize::from(spare)].to_owned(),
                "ext4" => ["ext4:groups=1", "ext4:alloc=early"][usize::from(spare)].to_owned(),
                name => name.to_owned(),
            };
            let chosen = Selection::parse(&text).unwrap();
            let mut layout = (spec.build)(&trace, &chosen.params);
            layout.check();
            let places = |layout: &dyn Layout| -> Vec<_> {
                (0..trace.pages()).map(|page| layout.place(Page(page))).collect()
            };
            let mut before = places(&*layout);
            let mut model: Model<u32, Lba> = Model::new();
            for (op, page, count) in &ops {
                let page = page.index(trace.pages() as usize) as u32;
                if *op == 0 {
                    let range = page..(page + count).min(trace.pages());
                    layout.free(range.clone());
                    before = places(&*layout);
                    range.for_each(|page| { model.remove(&page); });
                    model.clear();
                } else if *op > 3 && layout.wants_dirtied() {
                    let range = page..(page + count).min(trace.pages());
                    for page in range {
                        let before = places(&*layout);
                        layout.dirtied(Page(page));
                        let after = places(&*layout);
                        let mut changed = (0..trace.pages())
                            .filter(|page| before[*page as usize] != after[*page as usize]);
                        prop_assert!(changed.all(|page| layout.moved().contains(&page)));
                    }
                    layout.check();
                    before = places(&*layout);
                    continue;
                } else if *op == 1 {
                    let lba = layout.read(Page(page));
                    if let Some(written) = model.get(&page) {
                        prop_assert_eq!(*written, lba, "{} page {}", text, page);
                    }
                    prop_assert_eq!(&places(&*layout), &before, "a read places nothing");
                    continue;
                } else {
                    let why = [Why::Evict, Why::Sync, Why::DataSync, Why::SyncAll][*count as usize % 4];
                    let lba = layout.write_for(Page(page), why);
                    prop_assert!(!model.iter().any(|(other, at)| *at == lba && *other != page), "{}", text);
                    model.insert(page, lba);
                }
                layout.check();
                // Every page whose place changed is among those that the layout reports as moved.
                let after = places(&*layout);
                let changed = |page: &u32| before[*page as usize] != after[*page as usize];
                let moved = layout.moved();
                if *op != 0 {
                    let silent = (0..trace.pages()).filter(changed).find(|page| !moved.contains(page));
                    prop_assert_eq!(silent, None, "{} page {}", text, page);
                    prop_assert_eq!(after[page as usize], model.get(&page).copied().or(after[page as usize]));
                    prop_assert!(after[page as usize].is_some(), "{} page {} has a place now", text, page);
                }
                before = after;
            }
        }
    }
}

/// Files that exist before the trace are placed one after another in order of appearance. The dirty
/// pages around the first one that is written back are placed with it, in the first hole that is
/// long enough.
// Promises: Placement 4.
#[test]
fn ext4_reuses_what_unlink_freed() {
    let files = [
        (false, vec![(0, 4)]),
        (true, vec![(0, 600)]),
        (true, vec![(0, 20)]),
        (true, vec![(0, 100)]),
        (false, vec![(10, 3)]),
    ];
    let trace = trace(Space::Files, &files);
    let chosen = Selection::parse("ext4").unwrap();
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    assert_eq!([0, 1, 2, 3].map(|page| layout.write(Page(page))), [0, 1, 2, 3]);
    let second = [724, 725, 726].map(|page| layout.write(Page(page)));
    assert_eq!(second, [4, 5, 6], "the second old file follows the first");
    (4..724).for_each(|page| layout.dirtied(Page(page)));
    assert_eq!((layout.write(Page(10)), layout.moved()), (32_774, 4..604), "a file and its pages");
    assert_eq!(layout.write(Page(604)), 33_368, "the next one follows it");
    layout.free(4..604);
    assert_eq!(layout.write(Page(624)), 32_768, "the last one takes the freed places");
}

/// Pages that a trace appends to an old file have no place before they are written. They had one,
/// as if the file had always been so long: no append to an old log or database changed a bitmap,
/// and its syncs committed nothing. `doctor` counted 1.1 MiB of journal and metadata where 6.3 were
/// written. If the trace does not say the file's size, its pages count as old.
// Promises: Placement 4, Placement 5.
#[test]
fn pages_behind_the_old_end_of_a_file_have_no_place() {
    let file = FileId(3);
    let about = About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Files,
        knows: Knows { writes: true, ..Knows::NOTHING },
    };
    let placed = |size: Option<u64>, created: bool, text: &str| {
        let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
        let write = |page: u64, pages: u64| {
            let (offset, len) = (page * 4096, pages * 4096);
            Action::Write { open: None, file, offset, len, sync: false }
        };
        let size = size.map(|size| Action::Size { file, size });
        let open = Action::Open { open: None, file, created };
        for action in size.into_iter().chain([open, write(1, 4), write(8, 2)]) {
            builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
        }
        let trace = builder.finish().unwrap();
        let chosen = Selection::parse(text).unwrap();
        let layout = (chosen.spec.build)(&trace, &chosen.params);
        layout.check();
        let has_place = |page: &u32| layout.place(Page(*page)).is_some();
        (0..trace.pages()).filter(has_place).count()
    };
    for text in ["ext4", "ext4:alloc=early", "f2fs"] {
        let sizes = [None, Some(0), Some(4096), Some(4097), Some(8 * 4096 + 1), Some(1 << 40)];
        let counts = sizes.map(|size| placed(size, false, text));
        assert_eq!(counts, [6, 0, 0, 1, 5, 6], "{text}");
        assert_eq!((placed(Some(1 << 40), true, text), placed(None, true, text)), (0, 0), "{text}");
    }
}

/// A file gets places for the pages that are dirty, not for those that it will have. Two files that
/// grow in turn, each page written back at once, share a locality group up to 16 pages. Behind
/// that, each gets more places than it needs, so that it goes on in one piece.
// Promises: Placement 6.
#[test]
fn ext4_does_not_know_how_long_a_file_becomes() {
    let trace = trace(Space::Files, &[(true, vec![(0, 200)]), (true, vec![(0, 200)])]);
    let chosen = Selection::parse("ext4").unwrap();
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    let mut extents = [0, 0];
    let mut last = [None, None];
    for page in 0..200 {
        for file in 0..2 {
            let page = Page(200 * file as u32 + page);
            layout.dirtied(page);
            let place = layout.write(page);
            extents[file] += u32::from(last[file].replace(place) != place.checked_sub(1));
        }
    }
    // 16 pages one by one; then up to 32, 64, 128 and 256 pages.
    assert_eq!(extents, [20, 20]);
    layout.check();
}

/// Places of these pages when they are written back together: all are dirty before.
fn written(layout: &mut dyn Layout, pages: std::ops::Range<u32>, why: Why) -> Vec<Lba> {
    pages.clone().for_each(|page| layout.dirtied(Page(page)));
    let places = pages.map(|page| layout.write_for(Page(page), why)).collect();
    layout.check();
    places
}

/// A write-back is appended to a log: the hot one if the file has at most 16 dirty pages, otherwise
/// the warm one. Old files of the trace lie in the warm log.
// Promises: Placement 5.
#[test]
fn f2fs_appends() {
    let trace = trace(Space::Files, &[(false, vec![(0, 600)])]);
    let chosen = Selection::parse("f2fs:spare=3").unwrap();
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    assert_eq!(layout.read(Page(599)), 599);
    assert_eq!(written(&mut *layout, 7..24, Why::Expire), Vec::from_iter(600..617), "warm");
    assert_eq!(written(&mut *layout, 7..23, Why::Expire), Vec::from_iter(1024..1040), "hot");
    assert_eq!(written(&mut *layout, 0..17, Why::Evict), Vec::from_iter(617..634), "warm");
    assert_eq!(layout.read(Page(7)), 624);
}

/// A trace of files with these names that are created with so many pages.
fn named(files: &[(&'static str, u64)]) -> Trace {
    let knows = Knows { writes: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
    for (file, (name, pages)) in files.iter().enumerate() {
        let (file, len) = (FileId(file as u64), pages * 4096);
        let create = Create { file, name: (*name).into(), owner: None, mode: None, sync: false };
        for action in [
            Action::Create(MaybeOwned::owned(create)),
            Action::Write { open: None, file, offset: 0, len, sync: false },
        ] {
            builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
        }
    }
    builder.finish().unwrap()
}

/// The extension of a file decides before the number of its dirty pages. On a volume that mkfs.f2fs
/// has just made, the hot log begins behind those of nodes, the warm one in the middle, and the
/// cold one in the middle of the first half.
// Promises: Placement 5.
#[test]
fn f2fs_separates_files_by_heat() {
    let files = [("/a/x.MP4.part", 4), ("/a/x.db-wal", 40), ("/a/x", 40), ("/a/y", 4)];
    let trace = named(&files);
    let chosen = Selection::parse("f2fs:segments=248").unwrap();
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    let mut place = |pages| written(&mut *layout, pages, Why::Expire)[0];
    let places = [place(0..4), place(4..44), place(44..84), place(84..88)];
    let [hot, warm, cold] = [3, 123, 61].map(|segment| segment * 512);
    assert_eq!(places, [cold, hot, warm, hot + 40]);
}

/// A page is overwritten in place by an fsync of at most 8 pages, in a file that is cold by name,
/// and everywhere on a small volume; not by a sync of all files.
// Promises: Placement 5.
#[test]
fn f2fs_overwrites_in_place_where_f2fs_does() {
    let trace = named(&[("/a/x", 40), ("/a/x.jpg", 40)]);
    let stays = |text: &str, pages: std::ops::Range<u32>, why| {
        let chosen = Selection::parse(text).unwrap();
        let mut layout = (chosen.spec.build)(&trace, &chosen.params);
        written(&mut *layout, 0..40, Why::Expire);
        written(&mut *layout, 40..80, Why::Expire);
        let before: Vec<_> = pages.clone().map(|page| layout.read(Page(page))).collect();
        written(&mut *layout, pages, why) == before
    };
    for (text, pages, why, expected) in [
        ("f2fs", 0..8, Why::Sync, true),
        ("f2fs", 0..9, Why::Sync, false),
        ("f2fs", 0..9, Why::DataSync, true),
        ("f2fs:sync=fdatasync", 0..9, Why::Sync, true),
        ("f2fs:sync=fsync", 0..9, Why::DataSync, false),
        ("f2fs", 0..8, Why::SyncAll, false),
        ("f2fs", 0..8, Why::Expire, false),
        ("f2fs", 40..80, Why::Expire, true),
        ("f2fs:segments=8192", 0..40, Why::Expire, true),
        ("f2fs:segments=8193", 0..40, Why::Expire, false),
    ] {
        assert_eq!(stays(text, pages.clone(), why), expected, "{text} {pages:?} {why:?}");
    }
}

/// A hole is used again after a sync of all files, because that ends with a checkpoint, and only
/// while few segments are free: a new file then lies in the holes of the old one.
// Promises: Placement 5.
#[test]
fn f2fs_uses_holes_when_few_segments_are_free() {
    let trace = named(&[("/a/old", 4_000), ("/a/new", 300), ("/a/newer", 600)]);
    let chosen = Selection::parse("f2fs:segments=1").unwrap();
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    let old = written(&mut *layout, 0..4_000, Why::Expire);
    (0..2_000).step_by(2).for_each(|page| layout.free(page..page + 1));
    let holes: Vec<Lba> = old.into_iter().step_by(2).take(1_000).collect();
    let in_holes = |places: &[Lba]| places.iter().filter(|place| holes.contains(place)).count();
    let new = written(&mut *layout, 4_000..4_300, Why::SyncAll);
    let newer = written(&mut *layout, 4_300..4_900, Why::SyncAll);
    assert_eq!(in_holes(&new), 0, "before the checkpoint");
    assert_eq!(in_holes(&newer), 292, "behind it, when the segment is full");
}

/// Blocks lie where the trace says; the second device begins where the first ends.
// Promises: Placement 3.
#[test]
fn identity_is_the_address() {
    let trace = trace(Space::Blocks, &[(false, vec![(100, 2), (900, 1)]), (false, vec![(5, 1)])]);
    let chosen = default_for(Space::Blocks);
    let layout = (chosen.spec.build)(&trace, &chosen.params);
    assert_eq!([0, 1, 2, 3].map(|page| layout.read(Page(page))), [100, 101, 900, 906]);
}

/// With `alloc=early` a page gets its place when it becomes dirty, so the order of writes into the
/// cache decides; late, it is the order of write-backs.
// Promises: Placement 4.
#[test]
fn ext4_can_allocate_early() {
    let trace = trace(Space::Files, &[(true, vec![(0, 2)]), (true, vec![(0, 3)])]);
    for (text, places) in [
        ("ext4:alloc=early", [32_770, 32_771, 32_768, 32_769]),
        ("ext4", [32_768, 32_769, 32_770, 32_771]),
    ] {
        let chosen = Selection::parse(text).unwrap();
        let mut layout = (chosen.spec.build)(&trace, &chosen.params);
        for page in [2, 3, 0, 1] {
            layout.dirtied(Page(page));
            let moved = if text == "ext4" { 0..0 } else { page..page + 1 };
            assert_eq!(layout.moved(), moved, "{text}");
        }
        assert_eq!([0, 1, 2, 3].map(|page| layout.write(Page(page))), places, "{text}");
    }
}

/// Each layout names the places that it has just freed: F2FS also the old places of pages that are
/// written again, a block trace those that the trace discards.
// Promises: Devices 15.
#[test]
fn freed_places_are_known() {
    let files = [(false, vec![(0, 4)]), (false, vec![(0, 2)])];
    let build = |space, text| {
        let chosen = Selection::parse(text).unwrap();
        (chosen.spec.build)(&trace(space, &files), &chosen.params)
    };
    let mut ext4 = build(Space::Files, "ext4");
    ext4.free(0..2);
    assert_eq!(ext4.freed(), std::slice::from_ref(&(0..2)));
    ext4.free(0..6);
    assert_eq!(ext4.freed(), std::slice::from_ref(&(2..6)));
    ext4.write(Page(5));
    assert_eq!(ext4.freed(), []);
    let mut f2fs = build(Space::Files, "f2fs:spare=3");
    f2fs.write(Page(1));
    assert_eq!(f2fs.freed(), std::slice::from_ref(&(1..2)));
    f2fs.free(0..3);
    assert_eq!(f2fs.freed(), [0..1, 512..513, 2..3]);
    let mut identity = build(Space::Blocks, "identity");
    identity.free(1..3);
    assert_eq!(identity.freed(), std::slice::from_ref(&(1..3)));
}
