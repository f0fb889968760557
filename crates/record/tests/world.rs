//! The content of a recording beside reads and writes: owners, modes, sizes, links, directories,
//! opens, the clock.

use crate::common::{ToTheEnd, mounted, run};
use flashsift_events::event::Action;
use flashsift_record::{Options, Subject, record};
use flashsift_traces::events::Kept;
use std::{
    collections::{HashMap, HashSet},
    fs,
    process::Command,
    time::SystemTime,
};

// Promises: Record 15, Record 16, Record 19.
#[test]
fn a_recording_has_owners_modes_sizes_links_directories_and_opens() {
    let Some(ext4) = mounted("ext4") else { return };
    let folder = ext4.directory("here");
    fs::create_dir(folder.join("dir")).unwrap();
    fs::write(folder.join("dir/old"), vec![1; 5000]).unwrap();
    run(Command::new("sync").arg("-f").arg(&folder));
    let mut command = Command::new("sh");
    let script = "set -e; cd \"$0\"; umask 027
        exec 3<dir/old; exec 4<dir/old
        head -c 100 <&3 >/dev/null; head -c 100 <&4 >/dev/null
        echo hello >new; chown 7:8 new; ln new link; ln dir/old dir/again
        mv dir moved; cat moved/old >>new
        exec 3<&-; exec 4<&-; sleep 0.2";
    command.args(["-c", script]).arg(&folder);
    let mut whole = Kept::default();
    let options = Options { under: Some(folder.clone()), exact: true, buffer_kib: 32 << 10 };
    let before = SystemTime::now();
    record(Subject::Command(command), &options, &mut whole, &mut ToTheEnd).unwrap();
    let after = SystemTime::now();

    let about = whole.about.unwrap();
    let knows = about.knows;
    assert!(knows.opens && knows.creations && knows.sizes && knows.names && !knows.foreground);
    let pressure = std::path::Path::new("/proc/pressure/memory").exists();
    assert_eq!(knows.pressure, pressure);
    let us =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64;
    assert!((us(before)..us(after)).contains(&about.epoch_us.unwrap()));
    assert!(knows.places);
    // Both clocks show the same moment.
    let boot_us = about.boot_us.expect("this kernel stamps records with CLOCK_BOOTTIME");
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now_us = now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1000;
    let since_us = us(SystemTime::now()) - about.epoch_us.unwrap();
    // A second of slack: an NTP daemon may slew the clock.
    assert!((now_us - boot_us).abs_diff(since_us) < 1_000_000, "{now_us} {boot_us} {since_us}");

    let events = &whole.events;
    let prefix = format!("{}/", folder.display());
    let short = |name: &str| name.strip_prefix(&prefix).unwrap_or(name).to_owned();
    let mut files = HashMap::new();
    let mut names = HashSet::new();
    let mut opens: HashMap<_, Vec<_>> = HashMap::new();
    let mut pressures = 0;
    for event in events {
        let line = match &event.action {
            Action::Create(create) => {
                files.insert(short(&create.name), create.file);
                // `chown` may have come before the look at it.
                assert!(
                    create.owner.is_some_and(|owner| [0, 7].contains(&owner.uid)),
                    "{create:?}"
                );
                format!("create {} {:o}", short(&create.name), create.mode.unwrap())
            }
            Action::Bind { file, name } => {
                files.insert(short(name), *file);
                format!("bind {}", short(name))
            }
            Action::Size { file, size } if Some(file) == files.get("dir/old") => {
                format!("size {size}")
            }
            Action::Link { name, .. } => format!("link {}", short(name)),
            Action::RenameDirectory { names } => {
                format!("rename {} {}", short(&names.from), short(&names.to))
            }
            Action::MemoryPressure { .. } => {
                pressures += 1;
                continue;
            }
            Action::Open { file, open, .. } => {
                assert!(opens.insert(open.unwrap(), vec![*file]).is_none(), "an open begins once");
                continue;
            }
            Action::Close { file, open } => {
                let file_of_open = opens.remove(&open.unwrap()).expect("it is open")[0];
                assert_eq!(file_of_open, *file);
                continue;
            }
            Action::Read { file, open, .. } | Action::Write { file, open, .. } => {
                // Subject is mapped is read through no open.
                if let Some(open) = open {
                    opens.get_mut(open).expect("it is open").push(*file);
                    assert_eq!(opens[open][0], *file);
                }
                continue;
            }
            Action::Rename { names, .. } => panic!("no file was renamed: {names:?}"),
            _ => continue,
        };
        names.insert(line);
    }
    for wanted in [
        "create new 640",
        "bind dir/old",
        "size 5000",
        "link link",
        "link dir/again",
        "rename dir moved",
    ] {
        assert!(names.contains(wanted), "{wanted} is missing: {names:?}");
    }
    assert_eq!(pressures > 0, pressure, "the first sample is reported");
    // Both opens of the file were read.
    let old = files["dir/old"];
    let of_old: HashSet<_> = events
        .iter()
        .filter_map(|event| match event.action {
            Action::Read { file, open, .. } if file == old => open,
            _ => None,
        })
        .collect();
    assert!(of_old.len() >= 2, "{of_old:?}");
}
