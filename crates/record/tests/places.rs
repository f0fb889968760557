//! Places on the device: what ext4 allocates during a recording is what it tells at the end.

mod common;

use common::{Ext4, built, has, recorded, run};
use flashsift_core::event::{Action, Event, FileId};
use std::{
    collections::{BTreeMap, HashMap},
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
#[test]
fn ext4_allocates_what_it_tells_at_the_end() {
    let Some(ext4) = Ext4::new("ext4_allocates_what_it_tells_at_the_end") else { return };
    let folder = ext4.folder("here");
    std::fs::write(folder.join("old"), vec![1; 300_000]).unwrap();
    run(&mut Command::new("sync"));
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
#[test]
fn allocations_agree_with_the_end_for_files_that_were_not_cut() {
    let test = "allocations_agree_with_the_end_for_files_that_were_not_cut";
    let Some(ext4) = Ext4::new(test) else { return };
    let folder = ext4.folder("here");
    let program = built("reuse", &ext4.path());
    let mut command = Command::new("sh");
    let script =
        "\"$0\" \"$1\" 400 >/dev/null & \"$0\" \"$2\" 400 >/dev/null & sync; sync; wait; sync";
    let (one, two) = (ext4.folder("here/one"), ext4.folder("here/two"));
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
