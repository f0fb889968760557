//! Properties of every layout, over random files, write-backs and deletions.

use super::*;
use crate::{
    event::{About, Action, Event, FileId, Knows, Side},
    trace::{TraceBuilder, Unit},
};
use proptest::prelude::*;
use std::collections::BTreeMap as Model;

fn trace(space: Space, files: &[(bool, Vec<(u64, u64)>)]) -> Trace {
    let knows = Knows { times: false, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
    let mut builder = TraceBuilder::new(
        About { epoch_us: None, boot_us: None, side: Side::Before, space, knows },
        Unit::Page,
        u64::MAX,
    );
    for (n, (created, ranges)) in files.iter().enumerate() {
        let file = FileId(n as u64);
        let mut actions = vec![Action::Open { open: None, file, created: *created }];
        actions.extend(ranges.iter().map(|(page, pages)| Action::Read {
            open: None,
            file,
            offset: page * 4096,
            len: pages * 4096,
        }));
        for action in actions {
            builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
        }
    }
    builder.finish().unwrap()
}

proptest! {
    /// No two live pages share a place, a page is read from the place to which it was last written,
    /// and freed space is reused.
    #[test]
    fn places_are_exclusive_and_remembered(
        files in prop::collection::vec(
            (any::<bool>(), prop::collection::vec((0..3000u64, 1..40u64), 1..4)), 1..8),
        ops in prop::collection::vec((0..4u8, any::<prop::sample::Index>(), 1..60u32), 1..150),
        spare in 0..2u8,
    ) {
        for spec in ALL {
            let space = if (spec.suits)(Space::Files) { Space::Files } else { Space::Blocks };
            let trace = trace(space, &files);
            let text = if spec.name == "f2fs" { format!("f2fs:spare={spare}") } else { spec.name.to_owned() };
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
                } else if *op == 1 {
                    let lba = layout.read(Page(page));
                    if let Some(written) = model.get(&page) {
                        prop_assert_eq!(*written, lba, "{} page {}", text, page);
                    }
                } else {
                    let lba = layout.write(Page(page));
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

/// Files that exist before the trace are placed one after another in order of appearance. A file
/// created during the trace is placed when its first page is written back, in the smallest hole
/// that a deleted file left.
#[test]
fn ext4_reuses_what_unlink_freed() {
    let trace = trace(
        Space::Files,
        &[
            (false, vec![(0, 4)]),
            (true, vec![(0, 2)]),
            (true, vec![(0, 2)]),
            (false, vec![(10, 3)]),
        ],
    );
    let chosen = Selection::parse("ext4").unwrap();
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    let mut write = |page| layout.write(Page(page));
    assert_eq!([0, 1, 2, 3].map(&mut write), [0, 1, 2, 3]);
    assert_eq!([8, 9, 10].map(&mut write), [4, 5, 6], "the second old file follows the first");
    assert_eq!([5, 4].map(&mut write), [8, 7], "a new file's extent, whatever page comes first");
    layout.free(0..4);
    assert_eq!(layout.write(Page(6)), 0, "the next new file takes the freed extent");
}

/// The layout is a log: each write-back is placed behind the one before, whatever page it writes.
#[test]
fn f2fs_appends() {
    let trace = trace(Space::Files, &[(false, vec![(0, 600)])]);
    let chosen = Selection::parse("f2fs:spare=3").unwrap();
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    assert_eq!(layout.read(Page(599)), 599);
    let lbas: Vec<Lba> = [7, 300, 2, 7].into_iter().map(|page| layout.write(Page(page))).collect();
    assert_eq!(lbas, [600, 601, 602, 603]);
    assert_eq!(layout.read(Page(7)), 603);
}

/// Blocks lie where the trace says; the second device begins where the first ends.
#[test]
fn identity_is_the_address() {
    let trace = trace(Space::Blocks, &[(false, vec![(100, 2), (900, 1)]), (false, vec![(5, 1)])]);
    let chosen = Selection::default_for(Space::Blocks);
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    assert_eq!([0, 1, 2, 3].map(|page| layout.read(Page(page))), [100, 101, 900, 906]);
}
