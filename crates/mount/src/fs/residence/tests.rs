//! The machine against the plain list of its transitions, and random lives of files.

use super::*;
use crate::fs::reservation::Metadata;
use crate::fs::table::{InRam, Table};
use crate::fs::types::{Ino, Name, ROOT, Time};
use proptest::prelude::*;
use std::ffi::OsStr;

const BACKING_INO: u64 = 77;

fn file() -> Arc<File> {
    Arc::new(File::open("/dev/null").unwrap())
}

fn attr() -> Attr {
    let time = Time::default();
    Attr {
        ino: 0,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        mode: 0o100_644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
    }
}

fn group_file() -> Arc<DelayedFile> {
    Arc::new(DelayedFile::new(1, 0))
}

/// The residence by name: the naive model.
fn name(residence: &Residence) -> &'static str {
    match residence {
        Residence::Ram(None) => "ram",
        Residence::Ram(Some(_)) => "copied",
        Residence::HandedOver => "handed over",
        Residence::Delayed(_) => "delayed",
        Residence::NewDirectory => "new directory",
        Residence::Flash(_) => "flash",
        Residence::Gone(_) => "gone",
    }
}

fn all() -> [Residence; 7] {
    [
        Residence::Ram(None),
        Residence::Ram(Some(Checkpoint { backing_ino: BACKING_INO, changes: 0 })),
        Residence::HandedOver,
        Residence::Delayed(group_file()),
        Residence::NewDirectory,
        Residence::Flash(BACKING_INO),
        Residence::Gone(Arc::new(attr())),
    ]
}

/// From where each step of the model leads, and to where.
const STEPS: [(&str, &[&str], &str); 6] = [
    ("keep_copy", &["ram", "copied"], "copied"),
    ("hand_over", &["ram", "copied"], "handed over"),
    ("join", &["ram"], "delayed"),
    ("adopt", &["flash"], "delayed"),
    ("settle", &["ram", "copied", "handed over", "delayed"], "flash"),
    ("vanish", &["ram", "copied", "handed over", "delayed", "flash"], "gone"),
];
/// The same of directories.
const OF_DIRECTORIES: [(&str, &[&str], &str); 2] = [
    ("settle_directory", &["new directory"], "flash"),
    ("vanish", &["new directory", "flash"], "gone"),
];

/// A file that was gone came back, or a file of a group was written back past its epoch, where a
/// flag was set in one of four places and not in another.
#[test]
fn the_machine_has_the_listed_transitions_and_no_other() {
    for from in all() {
        for to in all() {
            let listed = STEPS
                .iter()
                .chain(&OF_DIRECTORIES)
                .any(|(_, froms, leads)| froms.contains(&name(&from)) && *leads == name(&to));
            assert_eq!(from.leads_to(&to), listed, "{} to {}", name(&from), name(&to));
        }
    }
}

/// A file of the model.
struct Life {
    ino: Ino,
    is: &'static str,
    named: bool,
    opens: u32,
    /// The bytes that its readers get.
    bytes: Arc<File>,
}

fn called(ino: Ino) -> Name {
    Name::from(OsStr::new(&format!("{ino}")))
}

fn lives_of(steps: &[(usize, usize)]) {
    let mut table = Table::new(ROOT + 1, Arc::new(Metadata::default()));
    let stat = rustix::fs::fstat(file()).unwrap();
    let mut lives: Vec<Life> = Vec::new();
    for (step, which) in steps {
        let at = which % (lives.len() + 1);
        let Some(life) = lives.get_mut(at) else {
            let ino = table.next_number();
            table.born(ino);
            table.insert_in_ram(ROOT, &called(ino), InRam { ino, hides: None });
            table.count_lookup(ino);
            lives.push(Life { ino, is: "ram", named: true, opens: 0, bytes: file() });
            continue;
        };
        let ino = life.ino;
        match step {
            0..6 => {
                let (step, from, to) = STEPS[*step];
                let nameless = step == "vanish";
                if !from.contains(&life.is) || (!nameless && !life.named) {
                    continue;
                }
                let bytes = file();
                let shared = table.share(ino, false).unwrap();
                let mut place = shared.place_to_move();
                match step {
                    "keep_copy" => {
                        let copy = Checkpoint { backing_ino: BACKING_INO, changes: 0 };
                        table.keep_copy(ino, &mut place, copy);
                    }
                    "hand_over" => table.hand_over(ino, &mut place, bytes.clone()),
                    "join" => {
                        drop(place);
                        table.join(ino, group_file());
                    }
                    "adopt" => table.adopt(ino, Some(&mut place), group_file(), bytes.clone()),
                    "settle" => {
                        let mut stat = stat;
                        stat.st_ino = 1000 + ino;
                        table.settle(ino, Some(&mut place), bytes.clone(), (&stat, &stat));
                    }
                    _ => {
                        table.remove_in_ram(ROOT, &called(ino));
                        table.unname(ino, ROOT, &called(ino));
                        let bytes = Some(bytes.clone());
                        table.vanish(ino, Some(&mut place), attr(), bytes);
                    }
                }
                life.named &= !nameless;
                life.is = to;
                if !matches!(step, "keep_copy" | "join") {
                    life.bytes = bytes;
                }
            }
            6 => {
                let shared = table.share(ino, false).unwrap();
                if life.opens == 0 {
                    shared.place_to_move().set_file(Some(life.bytes.clone()));
                }
                table.count_open(ino);
                life.opens += 1;
            }
            _ => {
                if life.opens > 0 {
                    life.opens -= 1;
                    assert_eq!(table.count_close(ino), Some(life.opens));
                }
                if life.opens == 0
                    && let Some(shared) = table.node(ino).and_then(|node| node.file_state())
                {
                    shared.place_to_move().set_file(None);
                }
                table.release_unused(ino);
                let shared = table.node(ino).and_then(|node| node.file_state());
                assert!(shared.is_none() || life.opens > 0 || life.is == "copied");
            }
        }
        table.check();
        for life in &lives {
            let node = table.node(life.ino).unwrap();
            assert_eq!(name(node.residence()), life.is);
            let is_in_ram = !matches!(life.is, "flash" | "gone");
            assert_eq!(table.is_in_ram(life.ino), is_in_ram);
            assert_eq!(table.named_in_ram().contains(&life.ino), is_in_ram && life.named);
            assert_eq!(table.delayed().contains_key(&life.ino), life.is == "delayed");
            let Some(shared) = node.file_state() else { continue };
            let place = shared.place();
            assert_eq!(name(place.residence()), life.is, "readers see the same");
            assert!(shared.is_in_group() || life.is != "delayed", "its writers wait for epochs");
            let opened = place.file().filter(|_| life.opens > 0);
            assert!(opened.is_none_or(|file| Arc::ptr_eq(file, &life.bytes)), "its bytes");
            assert_eq!(opened.is_some(), life.opens > 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Random lives of files: after each step the table's lists, and what readers see without the
    /// table, agree with the model.
    #[test]
    fn every_view_of_a_file_agrees(steps in prop::collection::vec((0_usize..8, 0_usize..6), 1..60)) {
        lives_of(&steps);
    }
}

/// A change of what is reserved of a file of 40 bytes: its kind, and its range.
fn change_of_reserved((kind, start, len): (u8, u64, u64)) -> Change {
    let flags = match kind {
        0 => return Change::Resize(start),
        1 => return Change::Write { offset: start, len },
        2 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        3 => FallocateFlags::KEEP_SIZE,
        _ => FallocateFlags::empty(),
    };
    Change::Allocate { offset: start, len, flags }
}

proptest! {
    /// The reserved ranges are those of a plain list of bytes, and neither meet nor overlap.
    #[test]
    fn reserved_ranges_are_those_of_a_list_of_bytes(
        changes in proptest::collection::vec((0_u8..6, 0_u64..32, 1_u64..8), 0..40),
    ) {
        let (state, mut bytes) = (FileState::default(), [false; 40]);
        for change in changes.into_iter().map(change_of_reserved) {
            state.reserves(change);
            match change {
                Change::Resize(size) => bytes[size as usize..].fill(false),
                Change::Write { .. } => (),
                Change::Allocate { offset, len, flags } => bytes
                    [offset as usize..(offset + len) as usize]
                    .fill(!flags.contains(FallocateFlags::PUNCH_HOLE)),
            }
            let ranges = state.reserved();
            prop_assert!(ranges.iter().all(|range| !range.is_empty()));
            prop_assert!(ranges.windows(2).all(|two| two[0].end < two[1].start), "{ranges:?}");
            let listed = |at: u64| ranges.iter().any(|range| range.contains(&at));
            prop_assert!((0..40).all(|at| listed(at) == bytes[at as usize]), "{ranges:?}");
        }
    }
}
