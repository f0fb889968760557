//! The life of a mount on the command line: its start, its refusals, its reports and its end.

use crate::places::Places;
use flashsift_testbed::{
    Disk, FileSystem, Loop, ended, is_mounted, mount, or_skip, output, skip, unmount,
    unmount_lazily, until,
};
use serde_json::Value;
use std::{
    fs::{self, File, Permissions},
    io::{BufRead, BufReader, Read, Seek, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
    time::Duration,
};

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");

/// [`Places`] on a file system of storage.
struct Bed {
    places: Places,
}

impl Bed {
    /// `None`, with the reason printed, where nothing can be mounted.
    fn new() -> Option<Self> {
        let places = Places::new()?;
        let kind =
            output(Command::new("stat").args(["-f", "-c", "%T"]).arg(places.folder())).unwrap();
        if !kind.starts_with("ext") && !kind.starts_with("f2fs") {
            return skip("the temporary directory is neither on ext4 nor on F2FS");
        }
        places.create_directories();
        Some(Self { places })
    }

    /// On an ext4 of 32 MiB by itself, which can be filled.
    fn small() -> Option<Self> {
        let bed = Self::new()?;
        let image = bed.path("image");
        let made = FileSystem::new("ext4", 32 << 20).with(&["-m", "0"]).make(&image);
        let folder = bed.places.folder();
        or_skip(made.and_then(|()| mount(&["-t", "ext4", "-o", "loop"], &image, folder)))?;
        bed.places.admit_others();
        bed.places.create_directories();
        Some(bed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.places.path(name)
    }

    fn backing(&self) -> PathBuf {
        self.places.backing()
    }

    fn seen(&self) -> PathBuf {
        self.places.mountpoint()
    }

    /// `flashsift VERB PLACE…`
    fn run(&self, words: &[&str], places: &[&Path]) -> Output {
        // Not a pipe: what stays in the background must not keep us from seeing an end. Not in the
        // bed, whose file system may be full.
        let mut messages = tempfile::tempfile().unwrap();
        let status = Command::new(FLASHSIFT)
            .args(&words[..1])
            .args(places)
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(messages.try_clone().unwrap())
            .output()
            .unwrap();
        let mut says = Vec::new();
        messages.rewind().unwrap();
        messages.read_to_end(&mut says).unwrap();
        Output { stderr: says, ..status }
    }

    fn succeeds(&self, words: &[&str], places: &[&Path]) -> (String, String) {
        let output = self.run(words, places);
        let (out, says) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{words:?}: {:?}: {says}", output.status);
        (out, says)
    }

    /// Message of a command that fails with exit code 1.
    fn fails(&self, words: &[&str], places: &[&Path]) -> String {
        let output = self.run(words, places);
        let says = text(output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {says}");
        says
    }

    fn status(&self, point: &Path) -> Value {
        serde_json::from_str(&self.succeeds(&["status", "--json"], &[point]).0).unwrap()
    }

    /// In the foreground, ready.
    fn foreground(&self, backing: &Path, point: &Path, options: &[&str]) -> Foreground {
        let mut child = Command::new(FLASHSIFT)
            .arg("mount")
            .args([backing, point])
            .arg("--foreground")
            .args(options)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut foreground = Foreground { child, stderr };
        foreground.says("mounted ");
        foreground.says("  undo ");
        foreground
    }

    fn names(&self, of: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(of)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

struct Foreground {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Foreground {
    /// Waits for a line that begins so.
    fn says(&mut self, begins: &str) -> String {
        let mut all = String::new();
        loop {
            let messages = all.len();
            assert!(
                self.stderr.read_line(&mut all).unwrap() > 0,
                "it ended before it said {begins:?}: {all}"
            );
            if all[messages..].starts_with(begins) {
                return all.split_off(messages);
            }
        }
    }

    fn signal(&self, name: &str) {
        assert!(ok(Command::new("kill").args(["-s", name, &self.child.id().to_string()])));
    }

    /// Its exit code and last words.
    fn ends(mut self) -> (Option<i32>, String) {
        let mut says = String::new();
        self.stderr.read_to_string(&mut says).unwrap();
        (self.child.wait().unwrap().code(), says)
    }
}

/// A process that works in a directory until it is dropped.
struct User(Child);

impl User {
    fn new(folder: &Path) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line"])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        Self(child)
    }

    fn in_words(&self, folder: &Path) -> String {
        format!("  sh (pid {}): works in {}", self.0.id(), folder.display())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn ok(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// `flashsift -q mount …` failed: the process in the background got its hidden option before
/// `mount`.
#[test]
fn options_of_every_command_may_precede_mount() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    for option in ["-q", "--verbose"] {
        bed.succeeds(&[option], &[Path::new("mount"), &backing, &seen]);
        assert!(is_mounted(&seen), "{option}");
        bed.succeeds(&[option], &[Path::new("unmount"), &seen]);
    }
}

// Promises: Mount 9, Mount 15.
#[test]
fn a_background_mount_shows_its_status_writes_back_and_unmounts() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    // Apart, and in place.
    for point in [&seen, &backing] {
        let (_, says) = bed.succeeds(&["mount"], &[&backing, point]);
        assert!(
            says.contains(&format!("mounted {}: new files live in RAM", point.display())),
            "{says}"
        );
        fs::write(point.join("a"), "first").unwrap();
        let status = bed.status(point);
        assert_eq!((&status["files_in_ram"], &status["settled"]), (&1.into(), &0.into()));
        assert_eq!(status["mountpoint"], point.to_str().unwrap());
        assert_eq!(status["backing"], backing.to_str().unwrap());
        let (words, _) = bed.succeeds(&["status"], &[point]);
        assert!(words.contains("in RAM         1 file"), "{words}");
        let lost = "power cut      now loses at most what is new in 1 file, ";
        assert!(words.contains(lost), "{words}");

        bed.succeeds(&["flush"], &[point]);
        assert_eq!(bed.status(point)["files_in_ram"], 0);
        if point == &seen {
            assert_eq!(fs::read_to_string(backing.join("a")).unwrap(), "first");
        }
        fs::write(point.join("b"), "second").unwrap();
        assert_eq!(bed.names(point), ["a", "b"], "nothing of ours is seen");
        bed.succeeds(&["unmount"], &[point]);
        assert!(!is_mounted(point));
        assert_eq!(bed.names(&backing), ["a", "b"], "nothing of ours is left");
        assert_eq!(fs::read_to_string(backing.join("b")).unwrap(), "second");
        fs::remove_file(backing.join("a")).unwrap();
        fs::remove_file(backing.join("b")).unwrap();
    }
}

// Promises: Mount 42, Mount 43.
#[test]
fn an_impossible_mount_is_refused_and_changes_nothing() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let user = User::new(&seen);
    let says = bed.fails(&["mount"], &[&backing, &seen]);
    assert!(says.contains(&user.in_words(&seen)), "{says}");
    bed.succeeds(&["mount", "--even-if-used"], &[&backing, &seen]);
    drop(user);
    let again = bed.fails(&["mount"], &[&backing, &bed.path("")]);
    assert!(again.contains("lies inside"), "{again}");
    let other = bed.path("other");
    fs::create_dir(&other).unwrap();
    let again = bed.fails(&["mount"], &[&backing, &other]);
    assert!(again.contains("is mounted by flashsift already (pid "), "{again}");
    bed.succeeds(&["unmount"], &[&seen]);

    let says = bed.fails(&["mount"], &[&bed.path("none"), &seen]);
    assert!(says.contains("none: "), "{says}");
    let says = bed.fails(&["mount"], &[Path::new("/dev/shm"), &seen]);
    assert!(says.contains("--even-on tmpfs"), "{says}");
    let config = bed.path("config.toml");
    fs::write(&config, "budget = \"1 MiB\"\nsetle-after = \"1s\"\n").unwrap();
    let says = bed.fails(&["mount", "--config", config.to_str().unwrap()], &[&backing, &seen]);
    assert!(says.contains("config.toml: ") && says.contains("setle-after"), "{says}");
    for verb in ["status", "flush", "unmount"] {
        let says = bed.fails(&[verb], &[&seen]);
        assert!(says.contains("is no mount of flashsift"), "{says}");
    }
    assert!(!is_mounted(&seen) && bed.names(&backing).is_empty());
}

#[test]
fn settings_come_from_a_file_too() {
    let Some(bed) = Bed::new() else { return };
    let config = bed.path("config.toml");
    fs::write(&config, "budget = \"1MiB\"\nsettled = [\"*.log\"]\nno-passthrough = true\n")
        .unwrap();
    let (backing, seen) = (bed.backing(), bed.seen());
    bed.succeeds(&["mount", "--config", config.to_str().unwrap()], &[&backing, &seen]);
    fs::write(seen.join("a.log"), "").unwrap();
    let status = bed.status(&seen);
    assert_eq!(status["budget_bytes"], 1 << 20);
    assert_eq!((&status["born_settled"], &status["passthrough"]), (&1.into(), &false.into()));
    bed.succeeds(&["unmount"], &[&seen]);
}

// Promises: Mount 20.
#[test]
fn a_mount_in_use_stays_and_its_users_are_named() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    bed.succeeds(&["mount"], &[&backing, &seen]);
    fs::write(seen.join("a"), "kept").unwrap();
    let user = User::new(&seen);
    let says = bed.fails(&["unmount"], &[&seen]);
    assert!(says.contains(&user.in_words(&seen)), "{says}");
    assert!(is_mounted(&seen));
    assert_eq!(fs::read_to_string(backing.join("a")).unwrap(), "kept");
    bed.succeeds(&["unmount", "--lazy"], &[&seen]);
    assert!(!is_mounted(&seen));
    drop(user);
    // The test does not wait for the daemon's end; the next mount reports it if it is not yet over.
}

// Promises: Mount 14.
#[test]
fn signals_end_a_mount_with_everything_written_back() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    for signals in [&["TERM"][..], &["INT"], &["HUP"], &["INT", "INT", "TERM", "TERM"]] {
        let daemon = bed.foreground(&backing, &seen, &[]);
        let content = vec![7; 3 << 20];
        fs::write(seen.join("large"), &content).unwrap();
        fs::write(seen.join("small"), "small").unwrap();
        signals.iter().for_each(|signal| daemon.signal(signal));
        let (code, says) = daemon.ends();
        assert_eq!((code, says.as_str()), (Some(0), ""), "{signals:?}");
        assert_eq!(bed.names(&backing), ["large", "small"]);
        assert!(fs::read(backing.join("large")).unwrap() == content && !is_mounted(&seen));
        bed.names(&backing).iter().for_each(|name| fs::remove_file(backing.join(name)).unwrap());
    }
}

// Promises: Mount 20.
#[test]
fn a_signal_ends_a_mount_in_use_and_names_its_users() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let daemon = bed.foreground(&backing, &seen, &[]);
    let mut open = File::create(seen.join("open")).unwrap();
    std::io::Write::write_all(&mut open, b"until then").unwrap();
    let user = User::new(&seen);
    daemon.signal("TERM");
    let (code, says) = daemon.ends();
    assert_eq!(code, Some(0), "{says}");
    assert!(says.contains("is in use") && says.contains(&user.in_words(&seen)), "{says}");
    assert!(!is_mounted(&seen));
    assert!(fs::metadata(seen.join("open")).is_err());
    // No later write may succeed.
    assert!(std::io::Write::write_all(&mut open, b"later").is_err());
    assert_eq!(bed.names(&backing), ["open"]);
    assert_eq!(fs::read_to_string(backing.join("open")).unwrap(), "until then");
}

// Promises: Mount 14, Mount 15.
#[test]
fn a_plain_umount_writes_everything_back() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let daemon = bed.foreground(&backing, &seen, &[]);
    fs::write(seen.join("a"), "kept").unwrap();
    unmount(&seen).unwrap();
    let (code, says) = daemon.ends();
    assert_eq!((code, says.as_str()), (Some(0), ""));
    assert_eq!(fs::read_to_string(backing.join("a")).unwrap(), "kept");
    assert_eq!(bed.names(&backing), ["a"]);
}

/// The file system is full to the last block.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for bytes in [1 << 20, 4096] {
        while std::io::Write::write_all(&mut file, &vec![1; bytes]).is_ok() {}
    }
    let _ = file.sync_all();
}

// Promises: Mount 17.
#[test]
fn a_file_that_cannot_be_written_back_is_kept_until_it_can() {
    let Some(bed) = Bed::small() else { return };
    let (backing, seen, filler) = (bed.backing(), bed.seen(), bed.path("filler"));
    let content = vec![7; 2 << 20];
    for by_signal in [true, false] {
        let mut daemon = bed.foreground(&backing, &seen, &[]);
        fs::write(seen.join("kept"), &content).unwrap();
        fill(&filler);
        match by_signal {
            true => daemon.signal("INT"),
            false => unmount(&seen).unwrap(),
        }
        let says = daemon.says("flashsift: CANNOT END: ");
        assert!(says.contains("1 file (2.0 MiB) of ") && says.contains("No space left"), "{says}");
        if by_signal {
            assert!(fs::read(seen.join("kept")).unwrap() == content, "it is still mounted");
            let says = bed.fails(&["unmount"], &[&seen]);
            assert!(says.contains("stays mounted") && says.contains("No space left"), "{says}");
            // Impatience loses nothing.
            daemon.signal("INT");
        }
        fs::remove_file(&filler).unwrap();
        let (code, _) = daemon.ends();
        assert_eq!(code, Some(0));
        assert!(fs::read(backing.join("kept")).unwrap() == content);
        fs::remove_file(backing.join("kept")).unwrap();
    }
}

/// A mount right after an `umount` was refused: the earlier daemon still wrote its files back.
// Promises: Mount 16.
#[test]
fn a_second_mount_waits_for_the_end_of_the_first() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    for round in 0..8 {
        for point in [&seen, &backing] {
            bed.succeeds(&["mount", "--settle-after", "1h"], &[&backing, point]);
            let names: Vec<_> = (0..10).map(|file| format!("{round} {file}")).collect();
            for name in &names {
                fs::write(point.join(name), vec![7; 400_000]).unwrap();
            }
            unmount(point).unwrap();
            bed.succeeds(&["mount"], &[&backing, point]);
            for name in &names {
                assert_eq!(fs::read(point.join(name)).unwrap().len(), 400_000);
                fs::remove_file(point.join(name)).unwrap();
            }
            bed.succeeds(&["unmount"], &[point]);
        }
    }
}

/// With `make test` in the background of a script, the first process of a mount ignored the SIGINT
/// that this test sends, and the test waited for its end for ever.
// Promises: Mount 16.
#[test]
fn a_waiting_mount_names_the_reason_and_can_be_ended() {
    let Some(bed) = Bed::small() else { return };
    let (backing, seen, filler) = (bed.backing(), bed.seen(), bed.path("filler"));
    let mut before = bed.foreground(&backing, &seen, &["--settle-after", "1h"]);
    fs::write(seen.join("kept"), vec![7; 2 << 20]).unwrap();
    fill(&filler);
    unmount(&seen).unwrap();
    before.says("flashsift: CANNOT END: ");
    let pid = before.child.id();
    let next = |foreground: bool| {
        let mut command = Command::new("env");
        // A shell without job control lets its background jobs ignore this signal, and a program
        // passes that on to those that it starts.
        command.args(["--default-signal=INT", FLASHSIFT, "mount"]);
        command.args([&backing, &seen]).args(foreground.then_some("--foreground"));
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut next = Foreground { child, stderr };
        let says = next.says("flashsift: waits: ");
        assert!(says.contains(&format!("(pid {pid})")) && says.contains("No space left"), "{says}");
        next
    };
    for signal in ["INT", "TERM"] {
        let waits = next(true);
        waits.signal(signal);
        let (code, says) = waits.ends();
        assert_eq!(
            (code, says.as_str()),
            (Some(0), "flashsift: ended by a signal before it was mounted\n")
        );
        let waits = next(false);
        waits.signal(signal);
        // The words end when also the process in the background has ended.
        let (code, says) = waits.ends();
        assert_eq!((code, says.as_str()), (None, ""));
        assert!(!is_mounted(&seen));
    }
    let mut waits = next(true);
    fs::remove_file(&filler).unwrap();
    waits.says("mounted ");
    assert_eq!(before.ends().0, Some(0));
    assert_eq!(fs::read(seen.join("kept")).unwrap().len(), 2 << 20);
    waits.signal("TERM");
    assert_eq!(waits.ends().0, Some(0));
}

/// A mount in which nothing was changed has no file in BACKING. Other mounts are refused all the
/// same, also in a container that does not see the first daemon's process.
// Promises: Mount 16, Mount 83.
#[test]
fn a_second_mount_of_an_idle_one_is_refused_in_a_container() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen, other) = (bed.backing(), bed.seen(), bed.path("other"));
    fs::create_dir(&other).unwrap();
    let daemon = bed.foreground(&backing, &seen, &[]);
    let pid = daemon.child.id();
    assert!(bed.names(&backing).is_empty(), "nothing of ours is there");
    let mut container = Command::new("unshare");
    container.args(["--mount", "--pid", "--fork", "--mount-proc", FLASHSIFT, "mount"]);
    let refused = container.args(["--foreground"]).args([&backing, &other]).output().unwrap();
    let says = text(refused.stderr);
    assert!(!refused.status.success(), "{says}");
    assert!(says.contains(&format!("is mounted by flashsift already (pid {pid})")), "{says}");
    bed.succeeds(&["unmount"], &[&seen]);
    assert_eq!(daemon.ends(), (Some(0), String::new()));
    assert!(bed.names(&backing).is_empty());
}

/// A container has a directory of BACKING as its volume, by a bind mount. A second mount over that
/// was accepted: of two files with one name, the mount that ended last kept its own. The same for a
/// directory above.
// Promises: Mount 16.
#[test]
fn a_part_of_a_mounted_directory_is_refused_under_another_path() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let bound = bed.path("bound");
    for place in [&bound, &backing.join("inner")] {
        fs::create_dir(place).unwrap();
    }
    let all = backing.parent().unwrap();
    for point in [&seen, &backing] {
        for part in [&*backing.join("inner"), all] {
            mount(&["--bind"], part, &bound).unwrap();
            let daemon = bed.foreground(&backing, point, &[]);
            let says = bed.fails(&["mount", "--even-if-used"], &[&bound]);
            assert!(says.contains("are parts of each other"), "{says}");
            bed.succeeds(&["unmount"], &[point]);
            assert_eq!(daemon.ends().0, Some(0));
            unmount(&bound).unwrap();
        }
    }
}

/// A mount that another namespace has lives, and is not waited for.
// Promises: Mount 16.
#[test]
fn a_mount_in_another_namespace_counts_as_mounted() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let daemon = bed.foreground(&backing, &seen, &[]);
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(elsewhere.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    unmount(&seen).unwrap();
    let says = bed.fails(&["mount"], &[&backing, &seen]);
    assert!(
        says.contains(&format!("is mounted by flashsift already (pid {})", daemon.child.id())),
        "{says}"
    );
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    assert_eq!(daemon.ends().0, Some(0));
}

// Promises: Mount 17.
#[test]
fn a_message_that_no_process_reads_does_not_end_the_mount() {
    let Some(bed) = Bed::small() else { return };
    let (backing, seen, filler) = (bed.backing(), bed.seen(), bed.path("filler"));
    let manager = Manager::new(&bed);
    let mut child = manager.mount(&backing, &seen).stderr(Stdio::piped()).spawn().unwrap();
    manager.wait_for("READY=1");
    let content = vec![7; 2 << 20];
    fs::write(seen.join("kept"), &content).unwrap();
    fill(&filler);
    drop(child.stderr.take());
    assert!(ok(Command::new("kill").args(["-s", "INT", &child.id().to_string()])));
    manager.wait_for("STATUS=cannot end");
    fs::remove_file(&filler).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(fs::read(backing.join("kept")).unwrap() == content);
}

/// The daemon discarded signals after its message, to ignore those that came before it. A user who
/// answered the message at once had to send the signal again.
// Promises: Mount 18.
#[test]
fn files_are_given_up_only_after_a_reported_failure() {
    let Some(bed) = Bed::small() else { return };
    let (backing, seen, filler) = (bed.backing(), bed.seen(), bed.path("filler"));
    let mut daemon = bed.foreground(&backing, &seen, &[]);
    fs::write(seen.join("lost"), vec![7; 2 << 20]).unwrap();
    fill(&filler);
    daemon.signal("TERM");
    daemon.says("flashsift: CANNOT END: ");
    daemon.signal("TERM");
    let (code, says) = daemon.ends();
    assert_eq!(code, Some(1));
    assert!(says.contains("1 file (2.0 MiB) LOST"), "{says}");
    assert!(!is_mounted(&seen));
    assert!(bed.names(&backing).iter().all(|name| name == ".flashsift"));
}

// Promises: Mount 8.
#[test]
fn the_dead_mount_of_a_killed_daemon_is_removed() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    for point in [&seen, &backing] {
        let daemon = bed.foreground(&backing, point, &[]);
        daemon.signal("KILL");
        daemon.ends();
        let says = bed.fails(&["status"], &[point]);
        assert!(says.contains("dead"), "{says}");
        let (_, says) = bed.succeeds(&["mount"], &[&backing, point]);
        assert!(says.contains("unmounted the dead mount"), "{says}");
        bed.succeeds(&["unmount"], &[point]);

        let daemon = bed.foreground(&backing, point, &[]);
        daemon.signal("KILL");
        daemon.ends();
        let (_, says) = bed.succeeds(&["unmount"], &[point]);
        assert!(says.contains("unmounted the dead mount"), "{says}");
        assert!(!is_mounted(point));
    }
}

/// The kernel remembers attributes of the mounted directory for an hour. Once a process had asked
/// for them (a second, refused mount does), a mount whose daemon was killed seemed to live:
/// `unmount` said that it stays mounted, and a new mount was refused, until the user ran `umount`.
// Promises: Mount 15.
#[test]
fn a_dead_mount_is_recognised_although_the_kernel_remembers_it() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    for point in [&seen, &backing] {
        let killed = || {
            let daemon = bed.foreground(&backing, point, &[]);
            let says = bed.fails(&["mount"], &[&backing, point]);
            assert!(says.contains("is mounted by flashsift already"), "{says}");
            daemon.signal("KILL");
            daemon.ends();
            assert!(fs::metadata(point).is_ok(), "the kernel does not remember it");
        };
        killed();
        let (_, says) = bed.succeeds(&["unmount"], &[point]);
        assert!(says.contains("dead mount of a killed process") && !is_mounted(point), "{says}");
        killed();
        let (_, says) = bed.succeeds(&["mount"], &[&backing, point]);
        assert!(says.contains("dead mount of a killed process"), "{says}");
        bed.succeeds(&["unmount"], &[point]);
        assert!(bed.names(&backing).is_empty());
    }
}

/// `unmount` took one of several mounts away that lay on the same directory, dead ones included,
/// and then waited for the end of a daemon that still had another.
// Promises: Mount 15.
#[test]
fn unmount_ends_every_layer() {
    let Some(bed) = Bed::new() else { return };
    let seen = bed.seen();
    let bind = |from: &Path| ok(Command::new("mount").arg("--bind").args([from, &seen]));
    let [first, dead, last] = ["first", "dead", "last"].map(|name| bed.path(name));
    let elsewhere = bed.path("elsewhere");
    for place in [&first, &dead, &last, &elsewhere] {
        fs::create_dir(place).unwrap();
    }
    bed.succeeds(&["mount", "--settle-after", "1h"], &[&first, &seen]);
    fs::write(seen.join("a"), "kept").unwrap();

    let killed = bed.foreground(&dead, &elsewhere, &[]);
    assert!(bind(&elsewhere));
    killed.signal("KILL");
    killed.ends();
    unmount(&elsewhere).unwrap();

    bed.succeeds(&["mount", "--settle-after", "1h"], &[&last, &elsewhere]);
    // Twice the same.
    assert!(bind(&elsewhere) && bind(&elsewhere));
    unmount(&elsewhere).unwrap();
    fs::write(seen.join("b"), "kept").unwrap();

    let (_, says) = bed.succeeds(&["unmount"], &[&seen]);
    assert!(!is_mounted(&seen), "{says}");
    let lines = |word: &str| says.lines().filter(|line| line.contains(word)).count();
    assert_eq!(
        (lines("dead mount of a killed process"), lines("unmounted; every file is in ")),
        (1, 3),
        "{says}"
    );
    assert_eq!((bed.names(&first), bed.names(&last)), (vec!["a".into()], vec!["b".into()]));

    // A copy elsewhere keeps the daemon, which is not waited for.
    bed.succeeds(&["mount"], &[&first, &elsewhere]);
    assert!(bind(&elsewhere));
    let (_, says) = bed.succeeds(&["unmount"], &[&seen]);
    let place = elsewhere.display();
    assert!(says.contains(&format!("is still mounted on {place}")), "{says}");
    bed.succeeds(&["unmount"], &[&elsewhere]);
}

/// A program that moved `.flashsift` or the lock in it away made the next mount wait for ever: it
/// took the daemon, which it knew only by its open directory, for one that was about to end.
// Promises: Mount 16.
#[test]
fn a_moved_lock_blocks_no_mount() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let hidden = backing.join(".flashsift");
    let moves: [&dyn Fn(); 3] = [
        &|| fs::rename(&hidden, backing.join("moved")).unwrap(),
        &|| fs::rename(hidden.join("lock"), hidden.join("moved")).unwrap(),
        &|| fs::remove_file(hidden.join("lock")).unwrap(),
    ];
    for move_away in moves {
        // As an earlier mount left it; else there may be none.
        fs::create_dir(&hidden).unwrap();
        fs::set_permissions(&hidden, Permissions::from_mode(0o700)).unwrap();
        let daemon = bed.foreground(&backing, &seen, &["--settle-after", "1h"]);
        fs::write(seen.join("kept"), "kept").unwrap();
        move_away();
        let other = bed.path("other");
        fs::create_dir_all(&other).unwrap();
        let mut next = Command::new(FLASHSIFT)
            .args(["mount", "--foreground"])
            .args([&backing, &other])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = String::new();
        let mut stderr = BufReader::new(next.stderr.take().unwrap());
        stderr.read_line(&mut says).unwrap();
        let _ = next.kill();
        next.wait().unwrap();
        let pid = daemon.child.id();
        assert!(says.contains(&format!("is mounted by flashsift already (pid {pid})")), "{says}");
        bed.succeeds(&["unmount"], &[&seen]);
        assert_eq!(daemon.ends(), (Some(0), String::new()));
        assert_eq!(bed.names(&backing), ["kept"], "nothing of ours is left");
        bed.succeeds(&["mount"], &[&backing, &seen]);
        fs::remove_file(seen.join("kept")).unwrap();
        bed.succeeds(&["unmount"], &[&seen]);
    }
}

/// Runs a script in a mount namespace that has, of all mounts of flashsift, only these.
fn with_only(places: &[&Path], script: &str) -> Output {
    // mountinfo writes a space as \040, and `printf %b` reads \0040.
    let others = "awk '$0 ~ / - fuse.flashsift / { print $5 }' /proc/self/mountinfo | tac \
                  | sed 's/\\\\/\\\\0/g'";
    let kept = places.iter().map(|place| format!("{}) ;;", place.display())).collect::<String>();
    let alone = format!(
        "{others} | while read -r place; do case $place in {kept} *) umount --lazy \
         \"$(printf %b \"$place\")\" ;; esac; done\n{script}"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-euc", &alone]);
    command.stdin(Stdio::null()).output().unwrap()
}

/// FUSE admits not even root to the mount of a user: `status` and `settle` failed there, and with
/// them the unit that writes back before the machine sleeps.
// Promises: Mount 24, Mount 47.
#[test]
fn root_reaches_the_mount_of_a_user() {
    let Some(bed) = Bed::new() else { return };
    let Some(nobody) = Nobody::new(&bed) else { return };
    let (backing, seen, of_root) = (bed.backing(), bed.seen(), bed.path("root"));
    let place = backing.to_str().unwrap();
    let (mounted, _, says) = nobody.flashsift(&["mount", place, place, "--settle-after", "1h"]);
    assert!(mounted, "{says}");
    fs::create_dir(&of_root).unwrap();
    bed.succeeds(&["mount", "--settle-after", "1h"], &[&of_root, &seen]);
    let in_ram = || [&backing, &seen].map(|point| bed.status(point)["files_in_ram"].clone());
    let write = || {
        assert!(nobody.may("sh", &["-c", "echo his > $0/a", place]));
        fs::write(seen.join("b"), "root's").unwrap();
        assert_eq!(in_ram(), [1, 1]);
    };
    let settle = |who: &[&str]| {
        let script = format!("{} {} flush", who.join(" "), nobody.binary.display());
        let output = with_only(&[&backing, &seen], &script);
        let says = text(output.stderr);
        assert!(output.status.success() && says.is_empty(), "{who:?}: {says}");
    };
    let (reached, told, _) = nobody.flashsift(&["status", "--json", place]);
    assert!(reached);
    let told = serde_json::from_str::<Value>(&told).unwrap();
    let same = |key: &str| assert_eq!(bed.status(&backing)[key], told[key], "{key}");
    ["mountpoint", "backing", "budget_bytes", "files_in_ram"].into_iter().for_each(same);
    write();
    settle(&Nobody::AS);
    assert_eq!(in_ram(), [0, 1], "a user writes his own back, and no other");
    settle(&[]);
    assert_eq!(in_ram(), [0, 0], "root writes all back");
    assert!(nobody.may("rm", &[&format!("{place}/a")]));
    fs::remove_file(seen.join("b")).unwrap();
    write();
    settle(&[]);
    assert_eq!(in_ram(), [0, 0]);
    bed.succeeds(&["unmount"], &[&backing, &seen]);
    assert_eq!((bed.names(&backing), bed.names(&of_root)), (vec!["a".into()], vec!["b".into()]));
}

/// Every figure of what was written has its source: requests, an estimate, the mount, the device.
// Promises: Mount 57.
#[test]
fn status_shows_what_reached_flash_and_what_ext4_would_write() {
    let Some(bed) = Bed::small() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    bed.succeeds(&["mount"], &[&backing, &seen]);
    fs::write(seen.join("waits"), vec![b'x'; 8192]).unwrap();
    let synced = File::create(seen.join("synced")).unwrap();
    (&synced).write_all(&[b'x'; 65536]).unwrap();
    synced.sync_all().unwrap();
    drop(synced);
    let status = bed.status(&seen);
    let writes = &status["writes"];
    let figure = |name: &str| writes[name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"));
    assert_eq!(figure("requested_bytes"), 65536 + 8192);
    assert_eq!((figure("sync_ext4_bytes"), figure("sync_flash_bytes")), (65536, 65536));
    assert_eq!((figure("syncs"), figure("sync_flushes")), (1, 1));
    // The kernel's own flusher may have come by in the estimate if this test is slow.
    assert_eq!(figure("ext4_bytes") + figure("ext4_waiting_bytes"), 65536 + 8192);
    assert_eq!((figure("flash_bytes"), figure("flash_waiting_bytes")), (65536, 8192));
    assert_eq!((&writes["saved_bytes"], figure("unseen_opens")), (&0.into(), 0));
    assert!(writes["saved_bytes_per_day"].is_null(), "{status}");
    assert!(writes["device"]["name"].as_str().unwrap().starts_with("loop"), "{status}");
    assert!(writes["device"]["written_bytes"].as_u64().unwrap() >= 65536, "{status}");
    assert_eq!(writes["model"]["expire_ms"].as_u64().unwrap() % 10, 0);
    // From now on the kernel writes past the daemon, once this has heard of the close.
    let mut written = 0;
    let (after, unseen) = loop {
        let mut open = fs::OpenOptions::new();
        open.read(true).write(true).open(seen.join("synced")).unwrap().write_all(b"y").unwrap();
        written += 1;
        let after = bed.status(&seen);
        let unseen = after["writes"]["unseen_opens"].as_u64().unwrap();
        if unseen == u64::from(after["passthrough"] == true) || written == 100 {
            break (after, unseen);
        }
    };
    assert_eq!(unseen, u64::from(after["passthrough"] == true));
    let requested = after["writes"]["requested_bytes"].as_u64().unwrap();
    assert_eq!(requested + unseen, 65536 + 8192 + written);
    let (words, _) = bed.succeeds(&["status"], &[&seen]);
    assert_eq!(words.contains("writes of 1 open with passthrough"), unseen == 1, "{words}");
    for shown in [
        "plain ext4, estimate",
        "through flashsift             64 KiB     64 KiB      8 KiB\n",
        "saved beyond ext4                0 B\n",
        "  flushes        1 for 1 sync of applications, 1 in all\n",
        ", by all programs\n",
    ] {
        assert!(words.contains(shown), "{shown:?}: {words}");
    }
    bed.succeeds(&["unmount"], &[&seen]);
}

/// Three messages of these commands went past `-q` and past the journal. `settle` without mounts
/// did not say that it had nothing to do.
#[test]
fn a_quiet_status_without_mounts_says_nothing() {
    let Some(_bed) = Bed::new() else { return };
    let says = |words: &str| {
        let output = with_only(&[], &format!("{FLASHSIFT} {words}"));
        assert!(output.status.success());
        (text(output.stdout), text(output.stderr))
    };
    let nothing = String::new();
    let said = "flashsift: nothing is mounted by flashsift\n".to_owned();
    for command in ["status", "flush"] {
        assert_eq!(says(command), (nothing.clone(), said.clone()));
        assert_eq!(says(&format!("-q {command}")), (nothing.clone(), nothing.clone()));
    }
}

/// The unit that `--enable` writes mounts and unmounts, as systemd would do it.
// Promises: Mount 22.
#[test]
fn a_user_enables_a_mount_and_disables_it() {
    let Some(bed) = Bed::new() else { return };
    let Some(nobody) = Nobody::new(&bed) else { return };
    let home = bed.path("home");
    let cache = home.join("a %h $x \"cache");
    fs::create_dir_all(&cache).unwrap();
    for place in [&home, &cache] {
        std::os::unix::fs::chown(place, Some(65534), Some(65534)).unwrap();
    }
    let dir = cache.to_str().unwrap();
    let flashsift = |args: &[&str]| {
        let mut command = nobody.command(&nobody.binary);
        command.args(args).env("HOME", &home).env_remove("XDG_CONFIG_HOME");
        nobody.says(&mut command)
    };
    let units = home.join(".config/systemd/user");
    let enable = ["mount", "--enable", dir, "--lose-at-most", "10m", "--write-through", "*.log"];
    let (done, text, says) = flashsift(&[&enable[..], &["--dry-run"]].concat());
    assert!(done && text.contains("\nExecStart=:") && says.is_empty(), "{text}{says}");
    assert!(!units.exists(), "a dry run changes nothing");

    for verb in ["wrote ", "replaced "] {
        let (done, _, says) = flashsift(&enable);
        assert!(done && says.contains(verb) && says.contains("mount --disable"), "{says}");
    }
    let [name, wants] = bed.names(&units).try_into().unwrap();
    let [name, wants] = if name.ends_with("wants") { [wants, name] } else { [name, wants] };
    assert!(name.starts_with("flashsift-") && name.ends_with("cache.service"), "{name}");
    let link = units.join(wants).join(&name);
    assert_eq!(fs::read_link(&link).unwrap(), units.join(&name));
    let unit = fs::read_to_string(link).unwrap();
    assert!(text.contains(&unit), "the dry run shows it");

    let command = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let words = shlex::split(&line.replace("%%", "%").replace('$', "\\$")).unwrap();
        let mut command = nobody.command(Path::new(&words[0]));
        command.args(&words[1..]);
        command
    };
    let mut daemon = command("ExecStart=:").stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(daemon.stderr.take().unwrap());
    let mut foreground = Foreground { child: daemon, stderr };
    let says = foreground.says("mounted ");
    assert!(says.contains("new files live in RAM for at most 10 min"), "{says}");
    let (done, _, says) = flashsift(&["mount", "--disable", dir]);
    assert!(done && says.contains("is still mounted"), "{says}");
    assert!(bed.names(&units).is_empty());
    assert!(nobody.says(&mut command("ExecStop=-:")).0);
    assert_eq!(foreground.ends().0, Some(0));
    let (done, _, says) = flashsift(&["mount", "--disable", dir]);
    assert!(!done && says.contains("is not mounted at every start"), "{says}");
    let (done, _, says) = flashsift(&["mount", "--enable", "/etc"]);
    assert!(!done && says.contains("--force"), "{says}");
}

/// A name for the binary under which mount(8) finds it.
struct Helper;

impl Helper {
    const PATH: &str = "/sbin/mount.fuse.flashsift";

    fn new() -> Option<Self> {
        let mut linked = Ok(());
        or_skip(until("no other test has the name", || {
            linked = symlink(FLASHSIFT, Self::PATH);
            !linked.as_ref().is_err_and(|why| why.kind() == std::io::ErrorKind::AlreadyExists)
        }))?;
        or_skip(linked.map(|()| Self).map_err(|why| format!("{}: {why}", Self::PATH)))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = fs::remove_file(Self::PATH);
    }
}

// Promises: Mount 54.
#[test]
fn mount_and_fstab_accept_flashsift_as_a_file_system_type() {
    let Some(bed) = Bed::new() else { return };
    let Some(_helper) = Helper::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let options = "settle_after=1h,budget=2M,settled=*.log,noatime,nofail,x-systemd.requires=/";
    let mounted = Command::new("mount")
        .args(["-t", "fuse.flashsift", "-o", options])
        .args([&backing, &seen])
        .stderr(File::create(bed.path("said")).unwrap())
        .status()
        .unwrap();
    assert!(mounted.success(), "{}", fs::read_to_string(bed.path("said")).unwrap());
    assert_eq!(bed.status(&seen)["budget_bytes"], 2 << 20);
    bed.succeeds(&["unmount"], &[&seen]);

    let fstab = bed.path("fstab");
    let line =
        format!("{} {} fuse.flashsift defaults,budget=4M 0 0\n", backing.display(), seen.display());
    fs::write(&fstab, line).unwrap();
    let mount = || {
        let messages = File::create(bed.path("said")).unwrap();
        Command::new("mount")
            .arg("--fstab")
            .arg(&fstab)
            .arg(&seen)
            .stderr(messages)
            .status()
            .unwrap()
    };
    assert!(mount().success(), "{}", fs::read_to_string(bed.path("said")).unwrap());
    assert_eq!(bed.status(&seen)["budget_bytes"], 4 << 20);
    fs::write(seen.join("a"), "kept").unwrap();
    bed.succeeds(&["unmount"], &[&seen]);
    assert_eq!(bed.names(&backing), ["a"]);

    let user = User::new(&seen);
    assert_eq!(mount().code(), Some(32), "as mount(8) says that it failed");
    let says = fs::read_to_string(bed.path("said")).unwrap();
    assert!(says.contains(&user.in_words(&seen)), "{says}");
}

fn is_read_only<T>(done: std::io::Result<T>) -> bool {
    done.is_err_and(|why| why.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
}

/// `mount -o remount,ro`, as scripts that shut a machine down say it, was refused.
// Promises: Mount 55.
#[test]
fn a_read_only_remount_refuses_writes_and_still_writes_back() {
    let Some(bed) = Bed::new() else { return };
    let Some(_helper) = Helper::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let mount = |words: &[&str], places: &[&Path]| {
        let messages = File::create(bed.path("said")).unwrap();
        let status =
            Command::new("mount").args(words).args(places).stderr(messages).status().unwrap();
        (status.code(), fs::read_to_string(bed.path("said")).unwrap())
    };
    let ours = |options: &str| {
        let (code, says) = mount(&["-t", "fuse.flashsift", "-o", options], &[&backing, &seen]);
        assert_eq!(code, Some(0), "{says}");
    };
    let remount = |options: &str| {
        let (code, says) = mount(&["-o", &format!("remount,{options}")], &[&seen]);
        assert_eq!(code, Some(0), "{says}");
        says
    };
    let options = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line =
            table.lines().find(|line| line.contains(&format!(" {} ", seen.display()))).unwrap();
        line.split(' ').nth(5).unwrap().to_owned()
    };
    ours("settle_after=1h");
    fs::write(seen.join("a"), "kept").unwrap();
    let mut open = File::create(seen.join("open")).unwrap();
    let (code, says) = mount(&["-o", "remount,ro"], &[&seen]);
    assert!(code == Some(32) && says.contains("open for writing"), "{code:?}: {says}");
    std::io::Write::write_all(&mut open, b"kept").unwrap();
    drop(open);
    assert_eq!(remount("ro"), "");
    assert_eq!(options(), "ro,nosuid,nodev,relatime");
    assert!(
        is_read_only(fs::write(seen.join("a"), "")) && is_read_only(fs::write(seen.join("b"), ""))
    );
    assert!(is_read_only(fs::remove_file(seen.join("a"))));
    assert_eq!(fs::read_to_string(seen.join("a")).unwrap(), "kept");
    assert_eq!(bed.status(&seen)["files_in_ram"], 2);
    assert!(bed.names(&backing).iter().all(|name| name == ".flashsift"));
    bed.succeeds(&["flush"], &[&seen]);
    assert_eq!(fs::read_to_string(backing.join("open")).unwrap(), "kept");
    assert_eq!(remount("rw,noexec"), "");
    assert_eq!(options(), "rw,nosuid,nodev,noexec,relatime");
    fs::write(seen.join("b"), "kept").unwrap();
    let says = remount("ro,budget=7M,noatime");
    assert!(says.contains("only by mounting anew: ") && says.contains("budget=7M"), "{says}");
    assert!(says.contains("noatime") && options() == "ro,nosuid,nodev,noexec,relatime", "{says}");
    bed.succeeds(&["unmount"], &[&seen]);
    assert_eq!(bed.names(&backing), ["a", "b", "open"]);

    // Files in RAM are written back on schedule.
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    let moves = inotify::init(CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&moves, &backing, WatchFlags::MOVED_TO).unwrap();
    ours("settle_after=2s");
    fs::write(seen.join("c"), "kept").unwrap();
    remount("ro");
    while !backing.join("c").exists() {
        rustix::io::read(&moves, &mut [0; 4096]).unwrap();
    }
    assert!(is_read_only(fs::write(seen.join("d"), "")));
    unmount(&seen).unwrap();

    let fstab = bed.path("fstab");
    let line =
        format!("{} {} fuse.flashsift ro,settle_after=1h 0 0\n", backing.display(), seen.display());
    fs::write(&fstab, line).unwrap();
    let fstab = fstab.to_str().unwrap();
    let (code, says) = mount(&["--fstab", fstab], &[&seen]);
    assert_eq!(code, Some(0), "{says}");
    assert_eq!(options(), "ro,nosuid,nodev,relatime");
    assert!(is_read_only(fs::write(seen.join("d"), "")));
    assert_eq!(fs::read_to_string(seen.join("c")).unwrap(), "kept");
    let (code, says) = mount(&["--fstab", fstab, "-o", "remount,rw"], &[&seen]);
    assert_eq!(code, Some(0), "{says}");
    fs::write(seen.join("d"), "kept").unwrap();
    bed.succeeds(&["unmount"], &[&seen]);
    assert_eq!(bed.names(&backing), ["a", "b", "c", "d", "open"]);
}

/// As systemd is to a service of type `notify`.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(bed: &Bed) -> Self {
        let path = bed.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
        Self { socket, path }
    }

    fn mount(&self, backing: &Path, point: &Path) -> Command {
        let mut command = Command::new(FLASHSIFT);
        command
            .arg("mount")
            .args([backing, point])
            .arg("--foreground")
            .env("NOTIFY_SOCKET", &self.path);
        command
    }

    /// Waits for a message with a line that begins so.
    fn wait_for(&self, begins: &str) -> String {
        let mut bytes = [0; 1024];
        loop {
            let len = self.socket.recv(&mut bytes).unwrap();
            let message = String::from_utf8_lossy(&bytes[..len]).into_owned();
            if message.lines().any(|line| line.starts_with(begins)) {
                return message;
            }
        }
    }
}

// Promises: Mount 22.
#[test]
fn a_service_manager_gets_its_notifications() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let manager = Manager::new(&bed);
    let messages = File::create(bed.path("said")).unwrap();
    let mut child = manager
        .mount(&backing, &seen)
        .env("WATCHDOG_USEC", "200000")
        .stderr(messages)
        .spawn()
        .unwrap();
    assert!(manager.wait_for("READY=1").contains("STATUS="));
    assert!(is_mounted(&seen), "ready is when it is mounted");
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    assert!(ok(Command::new(FLASHSIFT).arg("unmount").arg(&seen)));
    manager.wait_for("STOPPING=1");
    assert!(child.wait().unwrap().success());
}

/// A plain user, to whom BACKING belongs.
struct Nobody<'a> {
    bed: &'a Bed,
    /// Where he may run it.
    binary: PathBuf,
}

impl<'a> Nobody<'a> {
    const AS: [&'static str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

    /// `None`, with the reason printed, where no plain user can mount.
    fn new(bed: &'a Bed) -> Option<Self> {
        let nobody = Self { bed, binary: bed.path("flashsift") };
        // Not by this process: others that it starts would hold the copy open, which cannot run
        // then.
        assert!(Command::new("cp").arg(FLASHSIFT).arg(&nobody.binary).status().unwrap().success());
        if !nobody.may("unshare", &["--user", "--mount", "true"])
            || !nobody.may("fusermount3", &["--version"])
            || !nobody.may("test", &["-w", "/dev/fuse"])
        {
            return skip(
                "setpriv, a user namespace for uid 65534, fusermount3 or /dev/fuse \
                 cannot be had",
            );
        }
        std::os::unix::fs::chown(bed.backing(), Some(65534), Some(65534)).unwrap();
        Some(nobody)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(Self::AS[0]);
        command.args(&Self::AS[1..]).arg(program).stdin(Stdio::null());
        command
    }

    fn may(&self, program: &str, args: &[&str]) -> bool {
        ok(self.command(Path::new(program)).args(args))
    }

    /// Whether it succeeds, its standard output and standard error.
    fn flashsift(&self, args: &[&str]) -> (bool, String, String) {
        self.says(self.command(&self.binary).args(args))
    }

    fn says(&self, command: &mut Command) -> (bool, String, String) {
        // Not a pipe: what stays in the background must not keep us from seeing an end.
        let said = self.bed.path("said");
        let output = command.stderr(File::create(&said).unwrap()).output().unwrap();
        let says = fs::read_to_string(said).unwrap();
        (output.status.success(), text(output.stdout), says)
    }
}

// Promises: Mount 37, Mount 47.
#[test]
fn a_plain_user_mounts_without_passthrough() {
    let Some(bed) = Bed::new() else { return };
    let Some(nobody) = Nobody::new(&bed) else { return };
    let may = |program: &str, args: &[&str]| nobody.may(program, args);
    let run = |args: &[&str]| nobody.flashsift(args);
    let backing = bed.backing();
    let place = backing.to_str().unwrap();
    let (done, _, says) = run(&["mount", place, place]);
    assert!(done && says.contains("no passthrough"), "{says}");
    assert!(fs::read_dir(&backing).is_err(), "not even root sees another user's mount");
    assert!(may("sh", &["-c", "echo his > $0/a; cp $0/a $0/b", place]));
    let status: Value = serde_json::from_str(&run(&["status", "--json", place]).1).unwrap();
    assert_eq!((&status["files_in_ram"], &status["passthrough"]), (&2.into(), &false.into()));
    let (done, _, says) = run(&["unmount", place]);
    assert!(done, "{says}");
    assert_eq!(bed.names(&backing), ["a", "b"]);
    assert_eq!(fs::read_to_string(backing.join("b")).unwrap(), "his\n");
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(backing.join("b")).unwrap());
    assert_eq!(owner, 65534);

    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let times = fs::FileTimes::new().set_accessed(long_ago);
    File::open(backing.join("a")).unwrap().set_times(times).unwrap();
    let (done, _, says) = run(&["mount", place, place, "-o", "noatime"]);
    assert!(done && says.contains("noatime holds for your own files"), "{says}");
    assert!(may("sh", &["-c", "cat $0/a > $0/c", place]));
    bed.succeeds(&["unmount"], &[&backing]);
    assert_eq!(bed.names(&backing), ["a", "b", "c"], "root may unmount it, and it is written back");
    let read = fs::metadata(backing.join("a")).unwrap().accessed().unwrap();
    assert_eq!(read, long_ago);
}

/// The daemon released BACKING before it had written the recording, so `flashsift unmount` returned
/// too early.
// Promises: Mount 48.
#[test]
fn requests_to_the_mount_become_a_trace() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen, trace) = (bed.backing(), bed.seen(), bed.path("t.parquet"));
    let to = trace.to_str().unwrap();
    let says = bed.fails(
        &["mount", "--record", seen.join("t.parquet").to_str().unwrap()],
        &[&backing, &seen],
    );
    assert!(says.contains("cannot lie on what it records"), "{says}");
    assert!(bed.names(&backing).is_empty());

    bed.succeeds(&["mount", "--record", to], &[&backing, &seen]);
    fs::write(seen.join("kept"), vec![1; 10_000]).unwrap();
    fs::write(seen.join("short"), vec![1; 5000]).unwrap();
    fs::rename(seen.join("kept"), seen.join("renamed")).unwrap();
    File::open(seen.join("renamed")).unwrap().sync_all().unwrap();
    assert_eq!(
        fs::read(seen.join("renamed")).unwrap().len(),
        10_000,
        "it is written back and still seen"
    );
    fs::remove_file(seen.join("short")).unwrap();
    bed.succeeds(&["unmount"], &[&seen]);
    assert_eq!(bed.names(&backing), ["renamed"]);

    let (described, _) = bed.succeeds(&["describe", "--json"], &[&trace]);
    let described: Value = serde_json::from_str(&described).unwrap();
    let named = |which: &str, field: &str| {
        let files = described["top_files"][which].as_array().unwrap().iter();
        files.map(|file| (file["name"].clone(), file[field].clone())).collect::<Vec<_>>()
    };
    let name = |name: &str| Value::from(seen.join(name).to_str().unwrap());
    let written = [(name("renamed"), 10_000.into()), (name("short"), 5000.into())];
    assert_eq!(named("written", "written_bytes"), written);
    assert_eq!(named("read", "read_bytes"), [(name("renamed"), 10_000.into())]);
    assert_eq!(
        described["sync_distance"]["forced_pages"], 3,
        "what was synced, not what was deleted"
    );
}

/// Every file below a folder with its permissions, links apart.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        if !about.is_symlink() {
            all.push((path, about.mode() & 0o7777));
        }
    }
    all.sort();
    all
}

/// The daemon ran without a umask, so that files of users get the modes that they ask for. Its own
/// got it too: every user could read the names in a recording and change a trial of root's.
// Promises: Mount 79.
#[test]
fn only_their_owner_may_use_flashsifts_own_files() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen, state) = (bed.backing(), bed.seen(), bed.path("state"));
    let (trace, socket) = (bed.path("t.parquet"), bed.path("metrics"));
    let shell = |umask: &str, script: &str| {
        let script = format!("umask {umask}; {script}");
        let output = Command::new("sh")
            .args(["-c", &script, FLASHSIFT])
            .args([&backing, &seen, &trace])
            .env("XDG_STATE_HOME", &state)
            .env("SOCKET", &socket)
            .stdin(Stdio::null())
            // The process that stays in the background would keep a pipe open.
            .stderr(File::create(bed.path("said")).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", fs::read_to_string(bed.path("said")).unwrap());
    };
    let private = |folder: &Path| {
        for (path, mode) in modes(folder) {
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        }
    };
    for umask in ["022", "0"] {
        // As an earlier version left it.
        fs::write(&trace, "").unwrap();
        fs::set_permissions(&trace, Permissions::from_mode(0o666)).unwrap();
        shell(
            umask,
            "exec \"$0\" mount --record \"$3\" --metrics \"unix:$SOCKET\" --settle-after 1h \
             --delay-sync '*.db=1h' \"$1\" \"$2\"",
        );
        shell(
            "0",
            "cd \"$2\"; echo > a; echo > b.db; mkdir d; mkfifo p; echo > d/c; sync b.db
             \"$0\" flush \"$2\"",
        );
        let hidden = backing.join(".flashsift");
        private(&hidden);
        private(&socket);
        let lock = fs::read_to_string(hidden.join("lock")).unwrap();
        let status = format!("/proc/{}/status", lock.lines().next().unwrap());
        assert!(fs::read_to_string(status).unwrap().contains("Umask:\t0077\n"));
        bed.succeeds(&["unmount"], &[&seen]);
        private(&trace);
        let asked = [("a", 0o666), ("b.db", 0o666), ("d", 0o777), ("d/c", 0o666), ("p", 0o666)];
        let of_users = asked.map(|(name, mode)| (backing.join(name), mode));
        assert_eq!(modes(&backing)[1..], of_users);
        shell(umask, "rm -r \"$1\"/*");

        shell(umask, "exec \"$0\" trial --for 6d \"$1\"");
        bed.succeeds(&["unmount"], &[&backing]);
        let trials = state.join("flashsift/trials");
        private(&trials);
        let file = fs::read_dir(&trials).unwrap().next().unwrap().unwrap().path();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        shell(umask, "exec \"$0\" trial \"$1\"");
        private(&trials);
        shell(umask, "exec \"$0\" trial --discard \"$1\"");
    }
    // A directory that another user could have changed is not trusted.
    let trials = state.join("flashsift/trials");
    fs::set_permissions(&trials, Permissions::from_mode(0o777)).unwrap();
    let refused = || {
        let mut trial = Command::new(FLASHSIFT);
        trial.args(["sift", "trial", "--for", "6d"]).arg(&backing).env("XDG_STATE_HOME", &state);
        ended(&mut trial, 1).1
    };
    let says = refused();
    let place = trials.display();
    assert!(says.contains(&format!("{place}: other users may write to it")), "{says}");
    assert!(says.contains("chmod go-w"), "{says}");
    fs::set_permissions(&trials, Permissions::from_mode(0o700)).unwrap();
    chown(&trials, Some(65_534), None).unwrap();
    assert!(refused().contains("belongs to user 65534"));
}

/// A process that keeps a copy of the mount in a mount namespace of its own, as a container does,
/// until it is dropped.
struct Elsewhere(Child);

impl Elsewhere {
    fn new(script: &str) -> Self {
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg(format!("{script} echo; read line"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        Self(child)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// `unmount` waited without a word, for ever, for a daemon that a mount namespace with a copy of
/// the mount kept alive.
// Promises: Mount 15.
#[test]
fn unmount_ends_a_mount_that_another_namespace_has() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    bed.succeeds(&["mount", "--settle-after", "1h"], &[&backing, &seen]);
    let file = seen.join("open");
    let elsewhere = Elsewhere::new(&format!("exec 7> {0}; echo written >&7;", file.display()));
    // The last process of a namespace that only a descriptor keeps.
    let gone = Elsewhere::new("");
    let kept = File::open(format!("/proc/{}/ns/mnt", gone.0.id())).unwrap();
    drop(gone);
    fs::write(seen.join("a"), "kept").unwrap();
    let (_, says) = bed.succeeds(&["unmount"], &[&seen]);
    assert!(!is_mounted(&seen));
    assert!(says.contains(&format!("sh (pid {})", elsewhere.0.id())), "{says}");
    let us = std::process::id();
    assert!(says.contains(&format!("(pid {us}): has open a mount namespace")), "{says}");
    assert!(says.contains("unmounted; every file is in "), "{says}");
    assert_eq!(bed.names(&backing), ["a", "open"], "the daemon has ended");
    assert_eq!(fs::read_to_string(backing.join("open")).unwrap(), "written\n");
    let copy = PathBuf::from(format!("/proc/{}/root{}", elsewhere.0.id(), seen.display()));
    assert_eq!(fs::read_dir(copy).err().and_then(|why| why.raw_os_error()), Some(107), "ENOTCONN");
    drop(kept);
    // The lock is free.
    bed.succeeds(&["mount"], &[&backing, &seen]);
    bed.succeeds(&["unmount"], &[&seen]);
}

/// `unmount` gave up, without a user to name, beside processes that ask for the status all the
/// time: the kernel counts a request in progress as a use.
// Promises: Mount 15.
#[test]
fn requests_for_the_status_do_not_keep_a_mount() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    bed.succeeds(&["mount"], &[&backing, &seen]);
    let asks = || {
        let mut status = vec![0; 1 << 16];
        while rustix::fs::getxattr(&seen, "user.flashsift.status", status.as_mut_slice()).is_ok() {}
    };
    std::thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(asks)));
        let output = bed.run(&["unmount"], &[&seen]);
        if !output.status.success() {
            unmount_lazily(&seen);
        }
        assert!(output.status.success(), "{}", text(output.stderr));
    });
    assert!(bed.names(&backing).is_empty());
    // A file that only the kernel uses is a use all the same.
    bed.succeeds(&["mount"], &[&backing, &seen]);
    fs::write(seen.join("image"), vec![0; 1 << 20]).unwrap();
    let device = Loop::new(&seen.join("image"), &[]).unwrap();
    let says = bed.fails(&["unmount"], &[&seen]);
    assert!(says.contains("is in use and stays mounted"), "{says}");
    drop(device);
    bed.succeeds(&["unmount"], &[&seen]);
}

/// BACKING was renamed while it was mounted: `unmount` did not find it, and failed.
// Promises: Mount 15.
#[test]
fn a_renamed_backing_is_found_at_the_end() {
    let Some(bed) = Bed::new() else { return };
    let (backing, seen, renamed) = (bed.backing(), bed.seen(), bed.path("renamed"));
    bed.succeeds(&["mount", "--settle-after", "1h"], &[&backing, &seen]);
    fs::write(seen.join("a"), "kept").unwrap();
    fs::rename(&backing, &renamed).unwrap();
    let (_, says) = bed.succeeds(&["unmount"], &[&seen]);
    assert!(says.contains(&format!("every file is in {}", renamed.display())), "{says}");
    assert_eq!(bed.names(&renamed), ["a"]);
}

/// A snapshot or another subvolume of btrfs below BACKING has inode numbers of its own. The mount
/// was made, and each access to it failed.
// Promises: Mount 42.
#[test]
fn a_subvolume_below_is_refused() {
    let Some(bed) = Bed::new() else { return };
    let disk = Disk::mounted(&FileSystem::new("btrfs", 128 << 20), "defaults");
    let Some(disk) = or_skip(disk) else { return };
    let folder = disk.point();
    let (backing, below) = (folder.join("backing"), folder.join("backing/in/sub"));
    fs::create_dir_all(folder.join("backing/in")).unwrap();
    let made = output(Command::new("btrfs").args(["subvolume", "create"]).arg(&below));
    if or_skip(made).is_some() {
        let says = bed.fails(&["mount"], &[&backing, &bed.seen()]);
        assert!(says.contains("is a subvolume below"), "{says}");
    }
}
