//! Places on the device: what ext4 allocates during a recording is what it tells at the end, and
//! the layout `recorded` puts pages there.

use crate::common::{built, mounted, recorded, run};
use flashsift_caches::trace::{StepKind, Tables, Trace, TraceBuilder, Unit};
use flashsift_events::{
    event::{About, Action, Event, FileId, Knows, Side, Space},
    page::Page,
};
use flashsift_pages::layout::{Layout, Selection};
use flashsift_testbed::has;
use flashsift_traces::{events::Kept, open};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    process::Command,
};

const BLOCK: u64 = 4096;

/// Places of a file's blocks: block in the file to block on the device.
type Blocks = BTreeMap<u64, u64>;

/// The places that allocations gave, and those at the end of the recording.
fn places(events: &[Event<'static>]) -> [HashMap<FileId, Blocks>; 2] {
    let end_us = events.last().map_or(0, |event| event.at_us);
    // Everything else comes before the places at the end.
    let last_other = events.iter().rposition(|event| !matches!(event.action, Action::Place { .. }));
    let mut places = [HashMap::<FileId, Blocks>::new(), HashMap::new()];
    for (n, event) in events.iter().enumerate() {
        let Action::Place { file, offset, len, at } = event.action else { continue };
        assert_eq!((offset % BLOCK, len % BLOCK, at % BLOCK), (0, 0, 0), "whole blocks: {event:?}");
        let is_end = event.at_us == end_us && last_other.is_none_or(|last| n > last);
        let blocks = places[usize::from(is_end)].entry(file).or_default();
        for block in 0..len / BLOCK {
            blocks.insert(offset / BLOCK + block, at / BLOCK + block);
        }
    }
    places
}

fn names(events: &[Event<'static>]) -> HashMap<String, FileId> {
    let mut names = HashMap::new();
    for event in events {
        match &event.action {
            Action::Create(create) => drop(names.insert(create.name.to_string(), create.file)),
            Action::Bind { file, name } => drop(names.insert(name.to_string(), *file)),
            _ => {}
        }
    }
    names
}

/// Each way to get blocks: write-back, `fallocate`, `O_DIRECT`, and writes at several places.
// Promises: Record 20.
#[test]
fn ext4_allocates_what_it_tells_at_the_end() {
    let Some(ext4) = mounted("ext4") else { return };
    let folder = ext4.directory("here");
    std::fs::write(folder.join("old"), vec![1; 300_000]).unwrap();
    run(Command::new("sync").arg("-f").arg(&folder));
    let script = "set -e; cd \"$0\"
        head -c 5000000 /dev/zero >large
        for n in 1 2 3 4 5 6 7 8; do head -c ${n}0000 /dev/zero >small$n; done
        printf x | dd of=holes bs=1 seek=1000000 conv=notrunc status=none
        printf x | dd of=holes bs=1 seek=9000000 conv=notrunc status=none
        fallocate -l 1000000 reserved
        dd if=/dev/zero of=direct bs=64k count=5 oflag=direct status=none
        printf x | dd of=old bs=1 seek=5000 conv=notrunc status=none
        head -c 40000 /dev/zero >gone; sync -f .; rm gone
        sync -f .; cat old >/dev/null";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&folder);
    let (events, recorded) = recorded(command, &folder, false);
    assert!(recorded.status.unwrap().success());
    let names = names(&events);
    let named = |name: &str| names[&folder.join(name).display().to_string()];
    let [allocated, at_end] = places(&events);
    let small = (1..=8).map(|n| (format!("small{n}"), n * 10_000));
    let sizes = [("large", 5_000_000), ("direct", 327_680), ("reserved", 1_000_000)];
    for (name, size) in sizes.map(|(name, size)| (name.to_owned(), size)).into_iter().chain(small) {
        let file = named(&name);
        assert_eq!(at_end[&file].len() as u64, u64::div_ceil(size, BLOCK), "{name}");
        assert_eq!(allocated[&file], at_end[&file], "{name}");
    }
    let holes = named("holes");
    assert_eq!(at_end[&holes].keys().copied().collect::<Vec<_>>(), [244, 2197]);
    assert_eq!(allocated[&holes], at_end[&holes]);
    // A file from before has its places at the end only, although it was written to.
    assert_eq!(at_end[&named("old")].len(), 74);
    assert!(!allocated.contains_key(&named("old")));
    // A deleted file had places.
    assert_eq!(allocated[&named("gone")].len(), 10);
    assert!(!at_end.contains_key(&named("gone")));

    // No two blocks share a place, and e2fsprogs tells the same.
    let mut taken: Vec<u64> = at_end.values().flat_map(|blocks| blocks.values().copied()).collect();
    let all = taken.len();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), all);
    if has("filefrag") {
        let told = run(Command::new("filefrag").arg("-v").arg(folder.join("direct")));
        // `0:        0..      79:      34304..     34383:     80:             last,eof`
        let first = told.lines().find_map(|line| line.trim_start().strip_prefix("0:"));
        let physical = first.and_then(|line| line.split([':', '.']).nth(3));
        let physical: u64 = physical.expect("filefrag tells extents").trim().parse().unwrap();
        assert_eq!(at_end[&named("direct")][&0], physical, "{told}");
    }
}

/// Many files that are made, replaced and deleted while the kernel writes them back: the places of
/// those that remain and were not cut are those of their allocations.
// Promises: Record 20.
#[test]
fn allocations_agree_with_the_end_for_files_that_were_not_cut() {
    let Some(ext4) = mounted("ext4") else { return };
    let folder = ext4.directory("here");
    let program = built("reuse", &ext4.point());
    let mut command = Command::new("sh");
    let script =
        "\"$0\" \"$1\" 400 >/dev/null & \"$0\" \"$2\" 400 >/dev/null & sync; sync; wait; sync";
    let (one, two) = (ext4.directory("here/one"), ext4.directory("here/two"));
    command.args(["-c", script]).arg(program).args([&one, &two]);
    let (events, _) = recorded(command, &folder, false);
    let mut cut: Vec<FileId> = Vec::new();
    for event in &events {
        if let Action::Truncate { file, .. } | Action::Punch { file, .. } = event.action {
            cut.push(file);
        }
    }
    let [allocated, at_end] = places(&events);
    let whole = at_end.iter().filter(|(file, _)| !cut.contains(file));
    let (alike, apart): (Vec<_>, Vec<_>) =
        whole.partition(|(file, blocks)| allocated.get(*file) == Some(*blocks));
    println!("{} files alike, {} apart, {} cut", alike.len(), apart.len(), cut.len());
    assert!(alike.len() > 100, "{} files: nothing is tested", alike.len());
    assert!(apart.is_empty(), "{apart:?}");
}

fn trace_of(about: About, events: &[Event<'static>]) -> Trace {
    let tables = Tables { places: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
    builder.extend(events).unwrap();
    builder.finish().unwrap()
}

/// The layout `recorded` at the end of a trace. Pages are written back at once, or as late as
/// possible.
fn laid_out(trace: &Trace, at_once: bool) -> Box<dyn Layout> {
    let chosen = Selection::parse("recorded").unwrap();
    let mut layout = (chosen.spec.build)(trace, &chosen.params);
    let mut dirty = BTreeSet::new();
    let steps = trace.steps();
    for (n, step) in steps.iter().enumerate() {
        layout.now(trace.at_us(n));
        match step.kind() {
            StepKind::Write | StepKind::WriteSync | StepKind::Folio | StepKind::DirectWrite => {
                dirty.extend(step.range());
            }
            StepKind::Drop => {
                for page in step.range() {
                    dirty.remove(&page);
                }
                layout.free(step.range());
            }
            StepKind::Read | StepKind::DirectRead | StepKind::Sync | StepKind::SyncAll => {}
        }
        if at_once {
            while let Some(page) = dirty.pop_first() {
                layout.write(Page(page));
            }
        }
        if n % (steps.len() / 20 + 1) == 0 {
            layout.check();
        }
    }
    layout.now(u64::MAX);
    for page in dirty {
        layout.write(Page(page));
    }
    layout.check();
    layout
}

/// Files are written in stages, so that ext4 gives the blocks of deleted files to others. Under the
/// layout `recorded`, pages that are written back at the end lie where FIEMAP tells, whether or not
/// they were written back before.
// Promises: Placement 9.
#[test]
fn the_layout_puts_pages_where_fiemap_says() {
    let Some(ext4) = mounted("ext4") else { return };
    let folder = ext4.directory("here");
    std::fs::write(folder.join("old"), vec![1; 300_000]).unwrap();
    std::fs::write(folder.join("cut"), vec![1; 300_000]).unwrap();
    run(Command::new("sync").arg("-f").arg(&folder));
    let script = "set -e; cd \"$0\"
        for stage in 1 2 3 4; do
            head -c 3000000 /dev/zero >large$stage
            for n in 1 2 3 4 5 6 7 8; do head -c ${n}0000 /dev/zero >small$stage-$n; done
            head -c 20000 /dev/zero >>log
            sync -f .
            head -c 100000 /dev/zero >>large$stage
            printf x | dd of=old bs=1 seek=${stage}5000 conv=notrunc status=none
            head -c 50000 /dev/zero >cut
            head -c 10000 /dev/zero >temporary; rm temporary
            rm small$stage-2 small$stage-5
            if [ $stage = 3 ]; then rm large1 large2; fi
        done
        sync -f .; cat old >/dev/null";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&folder);
    let (events, recorded) = recorded(command, &folder, false);
    assert!(recorded.status.unwrap().success());
    let knows = Knows { times: true, writes: true, removals: true, places: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    let trace = trace_of(about, &events);
    let [_, at_end] = places(&events);
    for at_once in [true, false] {
        let mut layout = laid_out(&trace, at_once);
        let (mut alike, mut apart) = (0, Vec::new());
        for (file, blocks) in &at_end {
            for (block, place) in blocks {
                let Some(page) = trace.page_of(*file, *block) else { continue };
                match layout.place(page) {
                    Some(found) if found == *place => alike += 1,
                    other => apart.push((page, *place, other)),
                }
            }
        }
        println!("at once: {at_once}; {alike} pages where FIEMAP says, {} elsewhere", apart.len());
        assert!(alike > 1000, "{alike} pages: nothing is tested");
        // A page that was written back before its place was free goes there at its next write-back.
        assert!(at_once || apart.is_empty(), "{apart:?}");
        assert!(apart.len() * 10 < alike, "{apart:?}");
        for (page, place, _) in apart {
            assert_eq!(layout.write(page), place);
        }
        layout.check();
    }
}

/// No two pages share a place on stored recordings of days, however pages are written back.
// Promises: Placement 9.
#[test]
fn stored_recordings_have_places() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/days");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "parquet"));
    paths.sort_unstable();
    let mut with_places = 0;
    for path in paths {
        let mut kept = Kept::default();
        open::read(&path, None, &mut kept, &open::Limits::default()).unwrap();
        let about = kept.about.unwrap();
        if !about.knows.places {
            continue;
        }
        with_places += 1;
        let trace = trace_of(about, &kept.events);
        let places = trace.places().unwrap();
        println!("{path:?}: {} of {} pages have no place", places.pages_without(), trace.pages());
        assert_eq!(places.unaligned(), 0);
        for at_once in [true, false] {
            laid_out(&trace, at_once);
        }
    }
    assert!(with_places >= 10, "{with_places} recordings have places");
}
