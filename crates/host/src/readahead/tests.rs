use super::*;
use crate::journal::{Intent, Journal, JournalEntry};
use std::os::unix::fs::symlink;

/// A tree of sysfs: an eMMC with two partitions, of which the second holds an encrypted device; a
/// btrfs on a disk of its own.
struct Tree {
    sys: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let tree = Self { sys: tempfile::tempdir().unwrap() };
        tree.block("devices/mmc/block/mmcblk0", "179:0", Some(128));
        tree.block("devices/mmc/block/mmcblk0/mmcblk0p1", "179:1", None);
        tree.block("devices/mmc/block/mmcblk0/mmcblk0p2", "179:2", None);
        tree.block("devices/virtual/block/dm-0", "253:0", Some(256));
        tree.block("devices/sata/block/sda", "8:0", Some(128));
        tree.write("devices/mmc/block/mmcblk0/device/cid", "1501004d\n");
        for partition in ["mmcblk0p1", "mmcblk0p2"] {
            tree.write(&format!("devices/mmc/block/mmcblk0/{partition}/partition"), "1\n");
        }
        tree.write("devices/mmc/block/mmcblk0/mmcblk0p2/holders/dm-0", "");
        tree.write("devices/virtual/block/dm-0/dm/name", "home\n");
        tree.write("fs/btrfs/features/x", "");
        tree.write("fs/btrfs/1234-5678/devices/sda", "");
        tree.write("devices/virtual/bdi/btrfs-1/read_ahead_kb", "4096\n");
        tree.link("class/bdi/btrfs-1", "devices/virtual/bdi/btrfs-1");
        tree.link("fs/btrfs/1234-5678/bdi", "devices/virtual/bdi/btrfs-1");
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.sys.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        symlink(self.at(to), self.at(path)).unwrap();
    }

    fn block(&self, folder: &str, dev: &str, kib: Option<u64>) {
        self.write(&format!("{folder}/dev"), &format!("{dev}\n"));
        self.link(&format!("dev/block/{dev}"), folder);
        let name = Path::new(folder).file_name().unwrap().to_str().unwrap();
        self.link(&format!("class/block/{name}"), folder);
        if let Some(kib) = kib {
            self.write(&format!("class/bdi/{dev}/read_ahead_kb"), &format!("{kib}\n"));
        }
    }

    fn find(&self, mounts: &[Mount], target: &str) -> Result<Backing, String> {
        find(self.sys.path(), mounts, target.as_ref()).map_err(|error| error.to_string())
    }

    fn kib(&self, bdi: &str) -> u64 {
        kib(&self.at(&format!("class/bdi/{bdi}/read_ahead_kb"))).unwrap()
    }

    fn set(&self, bdi: &str, kib: u64) {
        self.write(&format!("class/bdi/{bdi}/read_ahead_kb"), &format!("{kib}\n"));
    }

    fn machine(&self) -> Machine {
        let (sys, journal) = (self.sys.path().to_owned(), self.at("state/journal.jsonl"));
        Machine { sys, journal, boot_id: "this".into() }
    }
}

fn mount(dev: (u32, u32), point: &str, kind: &str, source: &str) -> Mount {
    Mount {
        id: 1,
        parent: 0,
        dev: makedev(dev.0, dev.1),
        root: "/".into(),
        point: point.into(),
        kind: kind.into(),
        source: source.into(),
        options: Vec::new(),
        read_only: false,
        user: None,
    }
}

// Promises: Tune 2.
#[test]
fn the_value_of_a_partition_is_that_of_its_disk() {
    let tree = Tree::new();
    let mounts = [mount((179, 1), "/", "ext4", "/dev/mmcblk0p1")];
    let backing = tree.find(&mounts, "mmcblk0p1").unwrap();
    assert_eq!((&*backing.bdi, backing.dev), ("179:0", Some(makedev(179, 1))));
    assert!(backing.why.contains("whole disk mmcblk0"), "{}", backing.why);
    assert_eq!(backing.device.facts["cid"], "1501004d");
    assert_eq!(tree.find(&mounts, "/").unwrap().bdi, "179:0");
    let not_mounted = tree.find(&[], "mmcblk0p1").unwrap();
    assert_eq!((&*not_mounted.bdi, not_mounted.dev), ("179:0", None));
    assert!(not_mounted.why.starts_with("No file system on mmcblk0p1 is mounted"));
}

/// The value of the disk below a mapped device has no effect on files.
// Promises: Tune 2.
#[test]
fn a_mapped_device_has_a_value_of_its_own() {
    let tree = Tree::new();
    let home = mount((253, 0), "/home", "ext4", "/dev/mapper/home");
    for target in ["dm-0", "mmcblk0p2", "mmcblk0"] {
        let backing = tree.find(std::slice::from_ref(&home), target).unwrap();
        assert_eq!(backing.bdi, "253:0", "{target}");
        assert!(backing.why.contains("mapped device home (dm-0)"), "{}", backing.why);
    }
    let both = [mount((179, 1), "/", "ext4", "/dev/mmcblk0p1"), home];
    let error = tree.find(&both, "mmcblk0").unwrap_err();
    assert!(error.contains("name one of /, /home"), "{error}");
    assert_eq!(tree.find(&both, "mmcblk0p2").unwrap().bdi, "253:0");
}

// Promises: Tune 2.
#[test]
fn btrfs_has_a_value_of_its_own() {
    let tree = Tree::new();
    let mounts = [mount((0, 44), "/", "btrfs", "/dev/sda")];
    for target in ["sda", "/"] {
        let backing = tree.find(&mounts, target).unwrap();
        assert_eq!((&*backing.bdi, backing.dev), ("btrfs-1", Some(makedev(0, 44))), "{target}");
        assert_eq!(backing.device.facts["btrfs_uuid"], "1234-5678");
        assert!(backing.device.is_same(&named(tree.sys.path(), "btrfs-1").unwrap().1));
        assert!(backing.permanent(64).udev.unwrap().contains("KERNEL==\"btrfs-*\""));
    }
}

#[test]
fn bad_targets_are_named() {
    let tree = Tree::new();
    assert!(tree.find(&[], "sdz").unwrap_err().contains("no device or mount point sdz"));
    assert!(tree.find(&[], "/dev/null").unwrap_err().contains("neither a block device"));
    let mounts = [mount((0, 9), "/", "overlay", "overlay")];
    assert!(tree.find(&mounts, "/").unwrap_err().contains("no read-ahead of its own"));
    assert_eq!(named(tree.sys.path(), "../bdi/8:0"), None);
    assert_eq!(named(tree.sys.path(), ".."), None);
}

#[test]
fn permanent_lines_name_the_device_by_what_does_not_change() {
    let tree = Tree::new();
    let find = |target| tree.find(&[], target).unwrap();
    let lines = find("mmcblk0").permanent(64);
    let rule = lines.udev.unwrap();
    assert!(rule.contains("ATTRS{cid}==\"1501004d\", ATTR{queue/read_ahead_kb}=\"64\""), "{rule}");
    assert!(!lines.name_may_change);
    assert_eq!(lines.android_init.unwrap(), "write /sys/block/mmcblk0/queue/read_ahead_kb 64");
    let lines = find("dm-0").permanent(64);
    assert!(lines.udev.unwrap().contains("ENV{DM_NAME}==\"home\""));
    let lines = find("sda").permanent(64);
    assert!(lines.name_may_change && lines.udev.unwrap().contains("KERNEL==\"sda\""));
    tree.write("devices/sata/block/sda/wwid", "a\"b\n");
    assert!(find("sda").permanent(64).udev.unwrap().contains("KERNEL==\"sda\""), "no quotes");
    let data = [mount((8, 0), "/data", "f2fs", "/dev/sda")];
    let lines = tree.find(&data, "sda").unwrap().permanent(8);
    assert!(lines.android_init.unwrap().contains("/sys/block/${dev.mnt.blk.data}/queue"));
}

#[test]
fn the_kernel_keeps_whole_pages() {
    let page_bytes = rustix::param::page_size() as u64;
    assert_eq!(kept_kib(0), 0);
    assert_eq!(kept_kib(3 * page_bytes), 3 * page_bytes / 1024);
    assert_eq!(kept_kib(3 * page_bytes + 1023), 3 * page_bytes / 1024);
}

// Promises: Tune 4.
#[test]
fn several_changes_are_undone_at_once() {
    let tree = Tree::new();
    let machine = tree.machine();
    let backing = tree.find(&[], "sda").unwrap();
    let applied = machine.apply(&backing, 64).unwrap();
    let wanted = Applied { id: Some(1), old_kib: 128, new_kib: 64, kept_kib: 64 };
    assert_eq!(applied, wanted);
    assert_eq!(machine.apply(&backing, 64).unwrap().id, None, "it is there already");
    machine.apply(&backing, 32).unwrap();
    machine.apply(&tree.find(&[], "mmcblk0").unwrap(), 16).unwrap();
    let states: Vec<_> = machine.status().unwrap().0.iter().map(|status| status.state).collect();
    assert_eq!(states, [ChangeState::Superseded, ChangeState::InForce, ChangeState::InForce]);
    let undone = machine.undo(Some("8:0"), false).unwrap();
    assert_eq!(undone.len(), 1);
    assert_eq!(undone[0].1, Undone::Restored { from_kib: 32, to_kib: 128 });
    assert_eq!((tree.kib("8:0"), tree.kib("179:0")), (128, 16));
    machine.undo(None, false).unwrap();
    assert_eq!(tree.kib("179:0"), 128);
    assert_eq!(machine.status().unwrap(), (Vec::new(), false));
    assert_eq!(machine.undo(None, false).unwrap(), []);
}

#[test]
fn a_value_that_another_program_wrote_stays() {
    let tree = Tree::new();
    let machine = tree.machine();
    machine.apply(&tree.find(&[], "sda").unwrap(), 64).unwrap();
    tree.set("8:0", 512);
    assert_eq!(machine.status().unwrap().0[0].state, ChangeState::Replaced);
    let refused = Undone::Refused { present_kib: 512, ours_kib: 64, old_kib: 128 };
    assert_eq!(machine.undo(None, false).unwrap()[0].1, refused);
    assert_eq!((tree.kib("8:0"), machine.status().unwrap().0.len()), (512, 1));
    let restored = Undone::Restored { from_kib: 512, to_kib: 128 };
    assert_eq!(machine.undo(None, true).unwrap()[0].1, restored);
    // Another program has undone it.
    machine.apply(&tree.find(&[], "sda").unwrap(), 64).unwrap();
    tree.set("8:0", 128);
    assert_eq!(machine.undo(None, false).unwrap()[0].1, Undone::WasThere { kib: 128 });
    assert_eq!(machine.status().unwrap().0, []);
}

// Promises: Tune 3.
#[test]
fn a_crash_between_journal_and_mark_is_noticed_and_undone() {
    for (present, state, outcome) in [
        (64, ChangeState::UnfinishedWritten, Undone::Restored { from_kib: 64, to_kib: 128 }),
        (128, ChangeState::UnfinishedNotWritten, Undone::WasThere { kib: 128 }),
        (
            32,
            ChangeState::UnfinishedReplaced,
            Undone::Refused { present_kib: 32, ours_kib: 64, old_kib: 128 },
        ),
    ] {
        let tree = Tree::new();
        let machine = tree.machine();
        let device = tree.find(&[], "sda").unwrap().device;
        let intent = Intent {
            id: 1,
            at_us: 1,
            boot_id: "this".into(),
            plan: MaximumChange { bdi: "8:0".into(), device, old_kib: 128, new_kib: 64 },
            undoes: Vec::new(),
        };
        Journal::open(&machine.journal).unwrap().append(JournalEntry::Intent(intent)).unwrap();
        tree.set("8:0", present);
        assert_eq!(machine.status().unwrap().0[0].state, state);
        assert_eq!(machine.undo(None, false).unwrap()[0].1, outcome);
    }
}

// Promises: Tune 4.
#[test]
fn an_undo_that_crashed_can_be_repeated() {
    for written in [false, true] {
        let tree = Tree::new();
        let machine = tree.machine();
        machine.apply(&tree.find(&[], "sda").unwrap(), 64).unwrap();
        machine.undo(None, false).unwrap();
        // The mark of the undo never reached the disk.
        let text = fs::read_to_string(&machine.journal).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        fs::write(&machine.journal, lines[..3].join("\n") + "\n").unwrap();
        tree.set("8:0", if written { 128 } else { 64 });
        let (statuses, _) = machine.status().unwrap();
        assert_eq!(statuses.len(), 2);
        let outcome = machine.undo(None, false).unwrap().remove(0).1;
        let restored = Undone::Restored { from_kib: 64, to_kib: 128 };
        assert_eq!(outcome, if written { Undone::WasThere { kib: 128 } } else { restored });
        assert_eq!((tree.kib("8:0"), machine.status().unwrap().0.len()), (128, 0));
    }
}

// Promises: Tune 4.
#[test]
fn after_a_restart_or_on_another_device_nothing_is_written() {
    let tree = Tree::new();
    let machine = tree.machine();
    machine.apply(&tree.find(&[], "sda").unwrap(), 64).unwrap();
    let later = Machine { boot_id: "next".into(), ..machine.clone() };
    assert_eq!(later.status().unwrap().0[0].state, ChangeState::Restarted);
    assert_eq!(later.undo(None, true).unwrap()[0].1, Undone::Restarted);
    assert_eq!((tree.kib("8:0"), later.status().unwrap().0.len()), (64, 0));
    machine.apply(&tree.find(&[], "sda").unwrap(), 32).unwrap();
    tree.write("devices/sata/block/sda/device/serial", "another\n");
    assert_eq!(machine.status().unwrap().0[0].state, ChangeState::Gone);
    assert_eq!(machine.undo(None, true).unwrap()[0].1, Undone::Gone);
    assert_eq!(tree.kib("8:0"), 32);
}
