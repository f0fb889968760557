//! An experiment, not a test: the state in which a power cut leaves the files of each setting.
//!
//! Programs work for `FLASHSIFT_SECONDS` (70: the kernel writes data back after 30 s). Two files a
//! second are created and never synced; two a second replace an older one by a rename without a
//! sync, as many editors do; every five seconds one is created, and one replaced, with an fsync of
//! file and folder. `experiments/writeback-settings/run.sh --cuts` runs it and makes a table.

use super::{
    BTRFS, Bed, EXT4, EXT4_FAST_COMMIT, FileSystem, Random, TURN, XFS,
    device::{Device, Flushes},
    number,
};
use flashsift_testbed::unmount;
use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::Path,
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

struct Setting {
    /// In the table.
    name: &'static str,
    file_system: &'static FileSystem,
    options: &'static str,
    /// The programs work on `flashsift mount` over it.
    above: bool,
}

const SETTING: Setting =
    Setting { name: "ext4", file_system: &EXT4, options: "defaults", above: false };

const SETTINGS: &[Setting] = &[
    SETTING,
    Setting { name: "ext4, dioread_lock", options: "dioread_lock", ..SETTING },
    Setting { name: "ext4, commit=300", options: "commit=300", ..SETTING },
    Setting { name: "ext4, noauto_da_alloc", options: "noauto_da_alloc", ..SETTING },
    // The kernel takes the second only with the first.
    Setting {
        name: "ext4, data=writeback, journal_async_commit",
        options: "data=writeback,journal_async_commit",
        ..SETTING
    },
    Setting { name: "ext4, fast_commit", file_system: &EXT4_FAST_COMMIT, ..SETTING },
    Setting { name: "XFS", file_system: &XFS, ..SETTING },
    Setting { name: "btrfs", file_system: &BTRFS, ..SETTING },
    Setting { name: "flashsift mount on ext4", above: true, ..SETTING },
];

/// Files that are replaced by turns, without a sync and with one.
const UNSYNCED_TARGETS: u64 = 10;
const SYNCED_TARGETS: u64 = 3;
const FILE_BYTES: usize = 20_000;

fn content(seed: u64) -> Vec<u8> {
    Random::new(seed).bytes(FILE_BYTES)
}

/// The states that a file had: for each the seed of its content, and the disk's positions when the
/// program began and ended to make it.
struct Written {
    path: String,
    is_synced: bool,
    /// It was there before.
    is_replaced: bool,
    states: Vec<(u64, u64, u64)>,
}

#[derive(Default, serde::Serialize)]
struct Found {
    setting: &'static str,
    cuts: usize,
    /// Disks that the kernel did not mount.
    not_mounted: u64,
    /// Files whose acknowledged fsync was lost, and the cuts with one.
    synced_lost: u64,
    cuts_with_synced_lost: u64,
    /// Files that no program synced, with bytes which no program wrote there.
    wrong: u64,
    cuts_with_wrong: u64,
    /// Created files that are not there, or shorter than they were written.
    created_lost: u64,
    /// Files that should have an old or a new content, and are empty or not there.
    replaced_lost: u64,
    cuts_with_replaced_lost: u64,
}

/// The programs work. Returns the position at which they began, when the older files were durable,
/// and the files that they wrote.
fn work(top: &Path, seconds: u64, position: &(dyn Fn() -> u64 + Sync)) -> (u64, Vec<Written>) {
    let begun = Instant::now();
    let wait = |ms: u64| thread::sleep(Duration::from_millis(ms).saturating_sub(begun.elapsed()));
    let save = |path: &Path, seed: u64, sync: bool| {
        let mut file = File::create(path).unwrap();
        file.write_all(&content(seed)).unwrap();
        if sync {
            file.sync_all().unwrap();
        }
    };
    let replace = |path: &Path, seed: u64, sync: bool| {
        let temporary = path.with_extension("new");
        save(&temporary, seed, sync);
        fs::rename(temporary, path).unwrap();
        if sync {
            File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
        }
    };
    let targets = |folder: &str, count: u64, is_synced: bool| -> Vec<Written> {
        fs::create_dir(top.join(folder)).unwrap();
        let target = |n| {
            let path = format!("{folder}/{n}");
            replace(&top.join(&path), n, true);
            Written { path, is_synced, is_replaced: true, states: vec![(n, 0, 0)] }
        };
        (0..count).map(target).collect()
    };
    let mut replaced = targets("replaced", UNSYNCED_TARGETS, false);
    let mut replaced_synced = targets("replaced-synced", SYNCED_TARGETS, true);
    for folder in ["created", "created-synced"] {
        fs::create_dir(top.join(folder)).unwrap();
    }
    File::open(top).unwrap().sync_all().unwrap();
    let start = position();
    let create = |folder: &str, n: u64, is_synced: bool| {
        let path = format!("{folder}/{n}");
        let before = position();
        save(&top.join(&path), 1000 + n, is_synced);
        if is_synced {
            File::open(top.join(folder)).unwrap().sync_all().unwrap();
        }
        let states = vec![(1000 + n, before, position())];
        Written { path, is_synced, is_replaced: false, states }
    };
    let renew = |target: &mut Written, seed: u64| {
        let before = position();
        replace(&top.join(&target.path), seed, target.is_synced);
        target.states.push((seed, before, position()));
    };
    let mut files: Vec<Written> = thread::scope(|scope| {
        let created = scope.spawn(|| -> Vec<Written> {
            let each = (0..2 * seconds).inspect(|n| wait(500 * n));
            each.map(|n| create("created", n, false)).collect()
        });
        let synced = scope.spawn(|| -> Vec<Written> {
            let each = (0..seconds / 5).inspect(|n| wait(5000 * n));
            let done = each.map(|n| {
                renew(&mut replaced_synced[(n % SYNCED_TARGETS) as usize], 2000 + n);
                create("created-synced", n, true)
            });
            done.collect()
        });
        for n in 0..2 * seconds {
            wait(500 * n + 250);
            renew(&mut replaced[(n % UNSYNCED_TARGETS) as usize], 3000 + n);
        }
        [created, synced].into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    files.extend(replaced);
    files.extend(replaced_synced);
    (start, files)
}

/// Counts a file of the disk after a cut at a position.
fn count(top: &Path, file: &Written, position: u64, found: &mut Found) {
    let begun = |state: &&(u64, u64, u64)| state.1 <= position;
    let states: Vec<_> = file.states.iter().filter(begun).collect();
    if states.is_empty() {
        return;
    }
    let content_found = match fs::read(top.join(&file.path)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        // As damaged as wrong bytes.
        Err(_) => vec![0; FILE_BYTES],
    };
    // The last state that a program knows to be on the disk.
    let acknowledged = file.is_synced.then(|| states.iter().rposition(|state| state.2 <= position));
    let acknowledged = acknowledged.flatten();
    let may_have = &states[acknowledged.unwrap_or(0)..];
    if may_have.iter().any(|(seed, ..)| content(*seed) == content_found) {
        return;
    }
    if acknowledged.is_some() && file.is_synced {
        found.synced_lost += 1;
    } else if !states.iter().any(|(seed, ..)| content(*seed).starts_with(&content_found)) {
        found.wrong += 1;
    } else if file.is_replaced {
        found.replaced_lost += 1;
    } else {
        found.created_lost += 1;
    }
}

fn cut(setting: &'static Setting, bed: &Bed, cuts: usize, seconds: u64) -> Found {
    let device = Device::new(&bed.places.path("disk"), setting.file_system).unwrap();
    bed.mount(Path::new(device.node()), setting.options).unwrap();
    let daemon = setting.above.then(|| bed.start(&[]).unwrap());
    let top = if setting.above { bed.mountpoint() } else { bed.backing() };
    let (start, files) = work(&top, seconds, &|| device.position());
    let positions = start..device.position();
    if let Some(daemon) = daemon {
        daemon.end(&top).unwrap();
    }
    unmount(&bed.backing()).unwrap();
    let log = device.ended();

    let mut found = Found { setting: setting.name, cuts, ..Found::default() };
    let mut random = Random::new(1);
    let moments = log.cuts(&positions, cuts, &mut random);
    let after = log.after(&moments, Flushes::Obeyed, setting.file_system.sector, &mut random);
    for (number, (moment, disk)) in after.enumerate() {
        let image = bed.places.path(&format!("cut {number}"));
        disk.save(&image, log.disk_bytes());
        match bed.mount(&image, "loop") {
            Err(_) => found.not_mounted += 1,
            Ok(()) => {
                let before = (found.synced_lost, found.wrong, found.replaced_lost);
                for file in &files {
                    count(&bed.backing(), file, moment.position, &mut found);
                }
                found.cuts_with_synced_lost += u64::from(found.synced_lost > before.0);
                found.cuts_with_wrong += u64::from(found.wrong > before.1);
                found.cuts_with_replaced_lost += u64::from(found.replaced_lost > before.2);
                bed.unmount(&image).unwrap();
            }
        }
        fs::remove_file(image).unwrap();
    }
    found
}

#[test]
#[ignore = "an experiment: experiments/writeback-settings/run.sh --cuts"]
fn files_after_power_cuts_by_setting() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (cuts, seconds) = (number("FLASHSIFT_CUTS", 60), number("FLASHSIFT_SECONDS", 70));
    for setting in SETTINGS {
        let Some(bed) = Bed::new(setting.file_system) else { continue };
        let found = cut(setting, &bed, cuts as usize, seconds);
        println!("found {}", serde_json::to_string(&found).unwrap());
    }
}
