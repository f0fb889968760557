//! A mount that watches the machine: memory that is short, and the program in the foreground.

use super::{FLASHSIFT, LATE, Mounted, create};
use flashsift_events::event::Action;
use flashsift_testbed::or_skip;
use flashsift_traces::{
    events::Kept,
    open::{self, Limits},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
};

/// A control group whose processes wait for memory: they read a file that is larger than their
/// limit, over and over. The group goes with it.
struct Thrashing {
    group: PathBuf,
    process: Child,
}

impl Thrashing {
    fn start(file: &Path) -> Result<Self, String> {
        let pressure = fs::read_to_string("/proc/pressure/memory");
        pressure.map_err(|_| "the kernel has no pressure stall information")?;
        let name = format!("flashsift-test-{}", std::process::id());
        let [group, limit] = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
            .into_iter()
            .chain([("/sys/fs/cgroup", "memory.max")])
            .find_map(|(root, limit)| {
                let group = Path::new(root).join(&name);
                fs::create_dir(&group).ok()?;
                let limit = group.join(limit);
                match limit.exists() {
                    true => Some([group, limit]),
                    false => {
                        let _ = fs::remove_dir(&group);
                        None
                    }
                }
            })
            .ok_or("no control group may be made whose memory can be limited")?;
        let thrash = "import mmap, os, sys
open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))
with open(sys.argv[2], 'wb') as file:
    for _ in range(160):
        file.write(bytes(1 << 20))
with open(sys.argv[2], 'rb') as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
while True:
    for at in range(0, len(pages), 4096):
        pages[at]
";
        let started = fs::write(limit, "50331648").and_then(|()| {
            Command::new("python3").args(["-c", thrash]).args([&group, file]).spawn()
        });
        match started {
            Ok(process) => Ok(Self { group, process }),
            Err(why) => {
                let _ = fs::remove_dir(&group);
                Err(format!("python3: {why}"))
            }
        }
    }
}

impl Drop for Thrashing {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The kernel moves its last pages elsewhere.
        for _ in 0..1000 {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            thread::yield_now();
        }
    }
}

/// Processes that wait for memory make the mount give RAM back at once: files leave it. When they
/// wait no longer, it may take more again.
// Promises: Mount 69.
#[test]
fn memory_that_is_short_shrinks_the_ram_for_files() {
    let options = [&LATE[..], &["--budget", "64MiB"]].concat();
    let Some(mut mounted) = Mounted::new(&options) else { return };
    for n in 0..40 {
        create(&mounted.at(&format!("f{n}")), &vec![n; 1 << 20]);
    }
    let allowed = |mounted: &Mounted| mounted.status()["allowed_bytes"].as_u64();
    assert_eq!(allowed(&mounted), None);
    let file = mounted.ext4.path("thrashed");
    let Some(thrashing) = or_skip(Thrashing::start(&file)) else { return };
    while allowed(&mounted).is_none_or(|bytes| bytes > 16 << 20) {
        thread::yield_now();
    }
    while mounted.status()["ram_bytes"].as_u64().unwrap() > 20 << 20 {
        thread::yield_now();
    }
    let words = Command::new(FLASHSIFT).arg("status").arg(mounted.ext4.mountpoint()).output();
    let words = String::from_utf8(words.unwrap().stdout).unwrap();
    assert!(words.contains("memory is short: at most "), "{words}");
    drop(thrashing);
    let least = allowed(&mounted).unwrap();
    while allowed(&mounted).is_some_and(|bytes| bytes <= least) {
        thread::yield_now();
    }
    for n in 0..40 {
        assert_eq!(fs::read(mounted.at(&format!("f{n}"))).unwrap(), vec![n; 1 << 20]);
    }
    mounted.ended();
}

/// The program in the foreground, as a launcher reports it and as a control group shows it: the
/// status has its name, and so has a recording.
// Promises: Mount 71.
#[test]
fn the_program_in_the_foreground_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.parquet");
    let options = ["--record", trace.to_str().unwrap()];
    let Some(mut mounted) = Mounted::new(&[&LATE[..], &options].concat()) else { return };
    let foreground = |mounted: &Mounted| mounted.status()["foreground"].as_str().map(str::to_owned);
    let report = |arguments: &[&str]| {
        let point = mounted.ext4.mountpoint();
        let mut command = Command::new(FLASHSIFT);
        command
            .args(["sift", "foreground"])
            .args(arguments)
            .arg("--mount")
            .arg(point)
            .status()
            .unwrap()
    };
    create(&mounted.at("a"), b"a");
    assert_eq!(foreground(&mounted), None);
    assert!(report(&["a-long-name-of-a-program"]).success());
    assert_eq!(foreground(&mounted).as_deref(), Some("a-long-name-of-"), "as the kernel cuts it");
    assert!(report(&["--none"]).success());
    assert_eq!(foreground(&mounted), None);
    assert_eq!(report(&["a/b"]).code(), Some(2));
    mounted.ended();
    let mut kept = Kept::default();
    open::read(&trace, None, &mut kept, &Limits::default()).unwrap();
    let names = kept.events.iter().filter_map(|event| match &event.action {
        Action::Foreground { app } => Some(app.to_string()),
        _ => None,
    });
    let names: Vec<String> = names.collect();
    assert_eq!(names, ["a-long-name-of-", ""]);
}

/// The directory of the group is any that has a list of processes.
// Promises: Mount 71.
#[test]
fn a_group_shows_the_program_in_the_foreground() {
    let group = tempfile::tempdir().unwrap();
    let list = group.path().join("cgroup.procs");
    fs::write(&list, format!("{}\n", std::process::id())).unwrap();
    let source = format!("cgroup:{}", group.path().display());
    let options = [&LATE[..], &["--foreground-from", &source]].concat();
    let Some(mut mounted) = Mounted::new(&options) else { return };
    let own = fs::read_to_string("/proc/self/comm").unwrap();
    while mounted.status()["foreground"].as_str() != Some(own.trim_end()) {
        thread::yield_now();
    }
    fs::write(&list, "").unwrap();
    while !mounted.status()["foreground"].is_null() {
        thread::yield_now();
    }
    mounted.ended();
}
