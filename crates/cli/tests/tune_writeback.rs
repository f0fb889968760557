//! `flashsift tune writeback`: settings of file systems on loop devices, and of the machine.
//!
//! `vm.dirty_*` are the machine's: the tests mount files of their own over those of /proc, and a
//! folder over /etc, in the mount namespace that each test has for itself or makes.

use flashsift_testbed::{Disk, FileSystem, Mounted, ended, has, or_skip, skip};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");

/// A file system, and files that stand for those of /proc/sys/vm and /etc.
struct Tuned(Disk);

const EXPIRE: &str = "expire";
const TICK: &str = "tick";

impl Tuned {
    /// `None`, with the reason printed, where that is not possible.
    fn mounted(kind: &str, options: &str) -> Option<Self> {
        // XFS is not made smaller.
        let disk = or_skip(Disk::mounted(&FileSystem::new(kind, 320 << 20), options))?;
        fs::write(disk.path(EXPIRE), "3000\n").unwrap();
        fs::write(disk.path(TICK), "500\n").unwrap();
        fs::create_dir_all(disk.path("etc/sysctl.d")).unwrap();
        let point = disk.point();
        let fstab = format!("# a comment\nUUID=1-2  {}\text4 defaults 0 1\n", point.display());
        fs::write(disk.path("etc/fstab"), fstab).unwrap();
        Some(Self(disk))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn point(&self) -> String {
        self.0.point().to_str().unwrap().to_owned()
    }

    /// Runs a program in a mount namespace with the files of this disk.
    fn within(&self, before: &[&str], args: &[&str]) -> Command {
        let script = "mount --make-rprivate / && cd \"$1\" && \
                      mount --bind expire /proc/sys/vm/dirty_expire_centisecs && \
                      mount --bind tick /proc/sys/vm/dirty_writeback_centisecs && \
                      mount --bind etc /etc && shift && exec \"$@\"";
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-c", script, "sh"]).arg(self.path(""));
        shell.args(before).args([FLASHSIFT, "tune", "writeback"]).args(args);
        shell.arg("--journal").arg(self.path("state/journal.jsonl"));
        shell
    }

    fn succeeds(&self, args: &[&str]) -> String {
        let (out, says) = ended(&mut self.within(&[], args), 0);
        out + &says
    }

    fn fails(&self, args: &[&str]) -> String {
        let output = self.within(&[], args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// All that a tuning may change: the options of the mount, and the content of the files.
    fn state(&self) -> Vec<String> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let own = format!(" {} ", self.point());
        let mut state: Vec<String> =
            mountinfo.lines().filter(|line| line.contains(&own)).map(str::to_owned).collect();
        assert_eq!(state.len(), 1, "{mountinfo}");
        // Files that stand for values keep the end of a longer one.
        for file in [EXPIRE, TICK] {
            state.push(fs::read_to_string(self.path(file)).unwrap().trim_end().to_owned());
        }
        for file in ["etc/fstab", "etc/sysctl.d/90-flashsift.conf"] {
            state.push(fs::read_to_string(self.path(file)).unwrap_or_default());
        }
        for folder in ["etc", "etc/sysctl.d"] {
            let names = fs::read_dir(self.path(folder)).unwrap().map(|one| one.unwrap().path());
            let mut names: Vec<PathBuf> = names.collect();
            names.sort();
            state.push(format!("{names:?}"));
        }
        state
    }
}

const BOTH: &str = "dirty-expire=5m,commit=1m";

// Promises: Tune 9, Tune 12.
#[test]
fn settings_of_ext4_are_shown_set_listed_and_undone() {
    // An option of the mount itself, of the file system, and one that the kernel does not list.
    let Some(disk) = Tuned::mounted("ext4", "nosuid,noatime,commit=7,errors=continue") else {
        return;
    };
    let before = disk.state();
    assert!(before[0].contains("nosuid,noatime") && before[0].contains("commit=7"), "{before:?}");
    let on = disk.point();
    let all = "dirty-expire=5m,dirty-writeback=10s,commit=1m,dioread-nolock=off,\
               auto-da-alloc=off,discard=on";
    let text = disk.succeeds(&["--set", all, "--on", &on]);
    assert!(text.contains("Dry run, nothing was written"), "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    let price = "loses up to 6 min 10 s of what no program synced, not 42 s";
    assert!(words.join(" ").contains(price), "{text}");
    assert_eq!(disk.state(), before);
    assert!(!disk.path("state").exists());
    for persist in [false, true] {
        let mut args = vec!["--set", all, "--on", &on, "--apply"];
        args.extend(persist.then_some("--persist"));
        disk.succeeds(&args);
        let after = disk.state();
        for option in ["commit=60", "nodioread_nolock", "noauto_da_alloc", "discard"] {
            assert!(after[0].contains(option), "{option}: {after:?}");
        }
        assert!(after[0].contains("nosuid,noatime"), "{after:?}");
        assert_eq!((&*after[1], &*after[2]), ("30000", "1000"));
        let options = " ext4 defaults,commit=60,dioread_lock,noauto_da_alloc,discard 0 1\n";
        assert_eq!(after[3].replace('\t', " ").contains(options), persist, "{after:?}");
        assert_eq!(after[4].contains("vm.dirty_expire_centisecs = 30000"), persist, "{after:?}");
        let status = disk.succeeds(&["--status"]);
        assert_eq!(status.lines().filter(|line| line.ends_with(": in force")).count(), {
            if persist { 9 } else { 6 }
        });
        let again = disk.fails(&["--set", "commit=2m", "--on", &on, "--apply"]);
        assert!(again.contains("is changed already"), "{again}");
        disk.succeeds(&["--undo", "all"]);
        assert_eq!(disk.state(), before);
        assert!(disk.succeeds(&["--status"]).contains("has changed nothing"));
    }
}

// Promises: Tune 9, Tune 12.
#[test]
fn settings_of_xfs_and_btrfs_are_set_and_undone() {
    let interval = Path::new("/proc/sys/fs/xfs/xfssyncd_centisecs");
    if let Some(disk) = Tuned::mounted("xfs", "nosuid") {
        let (before, on) = (disk.state(), disk.point());
        // The interval is that of every XFS of the machine: another file stands for it.
        fs::write(disk.path("xfssyncd"), "3000\n").unwrap();
        assert!(interval.exists());
        let own = Mounted::new(&["--bind"], disk.path("xfssyncd"), interval);
        let json = disk.succeeds(&["--set", "xfssyncd=5m", "--on", &on, "--apply", "--json"]);
        let record: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(record["lost_before_us"], 65_000_000, "{json}");
        assert_eq!(record["lost_after_us"], 335_000_000, "{json}");
        assert_eq!(fs::read_to_string(interval).unwrap().trim(), "30000");
        disk.succeeds(&["--undo", "xfssyncd"]);
        assert_eq!(fs::read_to_string(interval).unwrap().trim(), "3000");
        assert_eq!(disk.state(), before);
        drop(own);
        let refused = disk.fails(&["--set", "commit=1m", "--on", &on, "--apply"]);
        assert!(refused.contains("commit is a setting of ext4, btrfs, f2fs"), "{refused}");
        let refused = disk.fails(&["--for", "1s", &on]);
        assert!(refused.contains("cannot be recorded"), "{refused}");
    }
    let Some(disk) = Tuned::mounted("btrfs", "noatime") else { return };
    let (before, on) = (disk.state(), disk.point());
    disk.succeeds(&["--set", "commit=2m", "--on", &on, "--apply"]);
    assert!(disk.state()[0].contains("commit=120"), "{:?}", disk.state());
    disk.succeeds(&["--undo", &on]);
    assert_eq!(disk.state(), before);
}

/// A kill at each system call that changes something leaves what an undo takes back.
// Promises: Tune 12.
#[test]
fn a_kill_at_any_step_is_undone() {
    let Some(disk) = Tuned::mounted("ext4", "noatime") else { return };
    if !has("strace") {
        return skip("strace is not there");
    }
    let (before, on) = (disk.state(), disk.point());
    let mut finished = false;
    for (n, args) in
        [vec!["--set", BOTH, "--on", &on, "--apply", "--persist"], vec!["--undo", "all"]]
            .iter()
            .enumerate()
    {
        // Every third call, and all of them in the long form.
        let every = if std::env::var_os("FLASHSIFT_EVERY_FAULT").is_some() { 1 } else { 3 };
        for step in (1..).step_by(every) {
            if n == 1 {
                disk.succeeds(&["--set", BOTH, "--on", &on, "--apply", "--persist"]);
            }
            let calls = "write,fsync,fsconfig,rename,renameat,renameat2,unlink,unlinkat";
            let inject = format!("inject={calls}:signal=KILL:when={step}");
            let trace = format!("trace={calls}");
            let mut killed = disk.within(
                &["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject],
                args,
            );
            let killed = killed.output().unwrap();
            disk.succeeds(&["--undo", "all"]);
            assert_eq!(disk.state(), before, "step {step} of {args:?}");
            if killed.status.success() {
                assert!(step > 10, "{args:?} has more steps than {step}");
                finished = true;
                break;
            }
        }
    }
    assert!(finished);
}

// Promises: Tune 10.
#[test]
fn what_must_not_be_changed_is_refused() {
    let Some(disk) = Tuned::mounted("ext4", "noatime") else { return };
    let (before, on) = (disk.state(), disk.point());
    for (args, words) in [
        (&["--set", "data=writeback", "--on", &on][..], "it is never set: ext4 refuses"),
        (&["--set", "journal_async_commit=on", "--on", &on], "does not take it back"),
        (&["--set", "logbsize=64k", "--on", &on], "changes nothing"),
        (&["--set", "comit=1m", "--on", &on], "did you mean `commit`?"),
        (&["--set", "commit=1", "--on", &on], "is not a time"),
        (&["--set", "commit=1ms", "--on", &on], "in steps of 1s"),
        (&["--set", "commit=1m,commit=2m", "--on", &on], "is there twice"),
        (&["--set", "commit=1m"], "name it by --on DIR"),
        (&["--set", "xfssyncd=1m", "--on", &on], "a setting of xfs, and --on is a ext4"),
        (&["--set", "commit=1m", "--on", "/nowhere"], "/nowhere"),
        (&["--set", "commit=1m", "--on", &on, "--persist"], "--persist needs --apply"),
        (&["--set", "bdi-max-ratio=50", "--on", &on, "--apply", "--persist"], "a udev rule can"),
        (&["--undo", "nothing"], "--undo takes a setting"),
        (&["--undo", "commit"], "has changed nothing of commit"),
        (&[&on], "is a directory: --for TIME records it"),
        (&[], "required"),
    ] {
        let refused = disk.fails(args);
        assert!(refused.contains(words), "{args:?}: {refused}");
    }
    let user = ["setpriv", "--reuid=65534", "--clear-groups"];
    for set in ["commit=1m", "dirty-expire=5m"] {
        let mut refused = disk.within(&user, &["--set", set, "--on", &on, "--apply"]);
        let refused = refused.output().unwrap();
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && stderr.contains("needs root"), "{stderr}");
    }
    disk.0.remount("ro").unwrap();
    let refused = disk.fails(&["--set", "commit=1m", "--on", &on, "--apply"]);
    assert!(refused.contains("is mounted read-only"), "{refused}");
    disk.0.remount("rw").unwrap();
    assert_eq!(disk.state(), before);
    assert!(!disk.path("state").exists());
    // Another program's value stays.
    disk.succeeds(&["--set", BOTH, "--on", &on, "--apply"]);
    disk.0.remount("commit=9").unwrap();
    let refused = disk.fails(&["--undo", "all"]);
    assert!(refused.contains("it is 9 s now, not 1 min as flashsift set it"), "{refused}");
    disk.succeeds(&["--undo", "all", "--force"]);
    assert_eq!(disk.state(), before);
}

/// A load on a real file system is recorded, and the proposal for it is set and undone.
// Promises: Tune 11.
#[test]
fn a_recording_leads_to_a_proposal() {
    let Some(disk) = Tuned::mounted("ext4", "noatime") else { return };
    if !Path::new("/sys/kernel/tracing/events/ext4").exists() {
        return skip("the kernel has no tracepoints of ext4, or tracefs is elsewhere");
    }
    let (before, on) = (disk.state(), disk.point());
    let script = "n=0; while :; do n=$((n + 1)); echo $n > $0/$n; rm -f $0/$((n - 2)); done";
    let mut writer = Command::new("sh").args(["-c", script, &on]).spawn().unwrap();
    let text = disk.succeeds(&["--for", "1s", &on, "--lose-at-most", "5m"]);
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(text.contains("at most 5 min may be lost") && text.contains("proposal"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("record 20 minutes or more"), "{text}");
    assert_eq!(disk.state(), before);
}
