use super::{
    place::{fstab_options, option_value},
    *,
};
use crate::{
    change::{ChangeError, ChangeState, Outcome},
    mounts::parse,
};
use std::{fs, path::Path};

/// Trees of `/proc`, `/sys` and `/etc`.
struct Trees {
    folder: tempfile::TempDir,
}

const EXPIRE: &str = "proc/sys/vm/dirty_expire_centisecs";
const TICK: &str = "proc/sys/vm/dirty_writeback_centisecs";
const CONF: &str = "etc/sysctl.d/90-flashsift.conf";

impl Trees {
    fn new() -> Self {
        let trees = Self { folder: tempfile::tempdir().unwrap() };
        trees.set(EXPIRE, "3000\n");
        trees.set(TICK, "500");
        trees.set("etc/sysctl.d/README", "");
        trees
    }

    fn set(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A value without its end of line, which a shorter one leaves twice here.
    fn value(&self, path: &str) -> String {
        self.get(path).trim_end().to_owned()
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.folder.path().join(path)).unwrap_or_default()
    }

    fn machine(&self) -> SettingsMachine {
        let at = |name: &str| self.folder.path().join(name);
        SettingsMachine {
            roots: Roots { proc: at("proc"), sys: at("sys"), etc: at("etc") },
            journal: at("state/journal.jsonl"),
            boot_id: "this".to_owned(),
        }
    }

    fn apply(
        &self,
        values: &[(&str, &str)],
        permanent: bool,
    ) -> Result<Vec<AppliedSetting>, ChangeError> {
        let wanted = values.iter().map(|(name, value)| Wanted {
            spec: SettingSpec::named(name).unwrap(),
            mount: None,
            value: (*value).to_owned(),
        });
        let machine = self.machine();
        machine.apply(&machine.plan(&wanted.collect::<Vec<_>>(), permanent)?)
    }
}

fn states(machine: &SettingsMachine) -> Vec<ChangeState> {
    machine.status().unwrap().0.iter().map(|status| status.state).collect()
}

// Promises: Tune 12.
#[test]
fn values_and_files_are_as_before_after_an_undo() {
    for own in [None, Some("vm.swappiness = 1\n")] {
        let trees = Trees::new();
        own.inspect(|text| trees.set(CONF, text));
        let machine = trees.machine();
        let values = [("dirty-expire", "30000"), ("dirty-writeback", "1000")];
        assert_eq!(trees.apply(&values, true).unwrap().len(), 4);
        assert_eq!((trees.value(EXPIRE), trees.value(TICK)), ("30000".into(), "1000".into()));
        let conf = trees.get(CONF);
        assert!(conf.contains("vm.dirty_expire_centisecs = 30000\n"), "{conf}");
        assert!(own.is_none_or(|own| conf.contains(own)), "{conf}");
        assert_eq!(states(&machine), [ChangeState::InForce; 4]);
        let undone = machine.undo(|_| true, false).unwrap();
        assert!(undone.iter().all(|(_, found)| matches!(found, Outcome::Restored { .. })));
        assert_eq!((trees.value(EXPIRE), trees.value(TICK)), ("3000".into(), "500".into()));
        let left = own.map_or(String::new(), |own| {
            format!("# Written by flashsift tune writeback --persist; --undo removes it.\n{own}")
        });
        assert_eq!(trees.get(CONF), left);
        assert_eq!(states(&machine), []);
    }
}

// Promises: Tune 10.
#[test]
fn a_second_tuning_and_a_value_of_another_program_are_refused() {
    let trees = Trees::new();
    let machine = trees.machine();
    trees.apply(&[("dirty-expire", "30000")], false).unwrap();
    let second = trees.apply(&[("dirty-expire", "60000")], false).unwrap_err().to_string();
    assert!(second.contains("changed already (change 1): undo that first"), "{second}");
    trees.set(EXPIRE, "100");
    assert_eq!(states(&machine), [ChangeState::Replaced]);
    let (_, found) = machine.undo(|_| true, false).unwrap().remove(0);
    let [present, ours, old] = ["100", "30000", "3000"].map(str::to_owned);
    assert_eq!(found, Outcome::Refused { present, ours, old });
    assert_eq!(trees.value(EXPIRE), "100");
    machine.undo(|_| true, true).unwrap();
    assert_eq!(trees.value(EXPIRE), "3000");
    assert!(trees.apply(&[("dirty-expire", "3000")], false).unwrap().is_empty(), "it is there");
}

/// After a restart the kernel has its own value again. One from a configuration file is there
/// again, and an undo restores both.
// Promises: Tune 12.
#[test]
fn a_restart_ends_what_no_file_repeats() {
    for permanent in [false, true] {
        let trees = Trees::new();
        trees.apply(&[("dirty-expire", "30000")], permanent).unwrap();
        let later = SettingsMachine { boot_id: "next".into(), ..trees.machine() };
        if !permanent {
            trees.set(EXPIRE, "3000\n");
            assert_eq!(states(&later), [ChangeState::Restarted]);
            assert_eq!(later.undo(|_| true, false).unwrap()[0].1, Outcome::Restarted);
        } else {
            assert_eq!(states(&later), [ChangeState::InForce; 2]);
            later.undo(|_| true, false).unwrap();
        }
        assert_eq!((trees.value(EXPIRE), trees.get(CONF)), ("3000".into(), String::new()));
        assert_eq!(states(&later), []);
    }
}

/// If one change fails, those before it are undone.
// Promises: Tune 9.
#[test]
fn a_change_that_fails_leaves_all_as_it_was() {
    let trees = Trees::new();
    let machine = trees.machine();
    let wanted = |name: &str, value: &str| Wanted {
        spec: SettingSpec::named(name).unwrap(),
        mount: None,
        value: value.to_owned(),
    };
    let wanted = [wanted("dirty-expire", "30000"), wanted("dirty-writeback", " 700")];
    // The machine has 700 then, and not exactly the text that was wanted.
    let error = machine.apply(&machine.plan(&wanted, false).unwrap()).unwrap_err().to_string();
    assert!(error.contains("taken back"), "{error}");
    assert_eq!((trees.value(EXPIRE), trees.value(TICK)), ("3000".into(), "500".into()));
    assert_eq!(states(&machine), []);
}

#[test]
fn options_are_found_among_those_of_the_kernel() {
    let listed = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let number = |text: &str| option_value(&listed(text), &["commit".to_owned()], "5");
    assert_eq!((&*number("rw,commit=60"), &*number("rw,nocommit")), ("60", "5"));
    let words = ["dioread_nolock", "dioread_lock"].map(str::to_owned);
    let word = |text: &str| option_value(&listed(text), &words, "dioread_nolock");
    assert_eq!(word("rw,nodioread_nolock"), "dioread_lock");
    assert_eq!(word("rw,dioread_lock"), "dioread_lock");
    assert_eq!((word("rw,dioread_nolock"), word("rw")), (words[0].clone(), words[0].clone()));
}

/// Only the options of the one line of the mount point are changed, byte for byte.
// Promises: Tune 12.
#[test]
fn a_line_of_fstab_is_found_by_its_mount_point() {
    let text = b"# /dev/sda1 / ext4 defaults 0 1\n/dev/sda1\t/ ext4   defaults,noatime 0 1\n\n\
                 UUID=a\\040b /my\\040disk ext4 rw\nnone swap swap sw 0 0\n";
    let found = |point: &str| {
        fstab_options(text, Path::new(point)).map(|range| String::from_utf8_lossy(&text[range]))
    };
    assert_eq!((&*found("/").unwrap(), &*found("/my disk").unwrap()), ("defaults,noatime", "rw"));
    assert_eq!(found("/srv"), Err("no line"));
    let twice = [&text[..], &text[..]].concat();
    assert_eq!(fstab_options(&twice, Path::new("/")), Err("more than one line"));
    let fstab = Place::Fstab { path: "f".into(), point: "/".into() };
    let mount = parse(b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n").remove(0);
    let commit = SettingSpec::named("commit").unwrap();
    let place = Place::new(commit, Some(&mount), &Roots::default()).unwrap();
    assert_eq!(fstab.with(&place, "rw,commit=9,noatime", "60"), "rw,noatime,commit=60");
}

// Promises: Tune 10.
#[test]
fn file_systems_that_are_read_only_or_removable_are_refused() {
    let trees = Trees::new();
    let machine = trees.machine();
    let refused = |mountinfo: &str| {
        let mount = parse(mountinfo.as_bytes()).remove(0);
        let spec = SettingSpec::named("commit").unwrap();
        let wanted = [Wanted { spec, mount: Some(&mount), value: "60".to_owned() }];
        machine.plan(&wanted, false).unwrap_err().to_string()
    };
    assert!(refused("22 1 8:1 / /a ro - ext4 /dev/sda1 ro\n").contains("is mounted read-only"));
    trees.set("sys/dev/block/8:17/partition", "1\n");
    trees.set("sys/dev/block/removable", "1\n");
    assert!(refused("22 1 8:17 / /b rw - ext4 /dev/sdb1 rw\n").contains("removable device"));
    assert!(refused("22 1 0:9 / /c rw - tmpfs none rw\n").contains("has no setting commit"));
}

/// Every setting has a sentence for a power cut, and its name once.
#[test]
fn settings_are_described() {
    for spec in ALL {
        assert_eq!(ALL.iter().filter(|other| other.name == spec.name).count(), 1);
        assert!(!spec.crash.is_empty() && !spec.what.is_empty() && spec.what.len() < 90);
        let has_words = spec.sites.iter().any(|site| site.values == ValueForm::Switch);
        assert_eq!(has_words, matches!(spec.sites[0].at, SiteKind::Switch(..)), "{}", spec.name);
        assert!(NEVER.iter().all(|(never, _)| *never != spec.name));
    }
}
