//! The life of a mount on the command line: its start, its refusals, its reports and its end.

mod places;

use places::{Places, is_mounted, make_image, mount_image, output, skip};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::{fs::symlink, net::UnixDatagram},
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
    fn new(test: &str) -> Option<Self> {
        let places = Places::new(test)?;
        let kind =
            output(Command::new("stat").args(["-f", "-c", "%T"]).arg(places.folder())).unwrap();
        if !kind.starts_with(b"ext") && !kind.starts_with(b"f2fs") {
            return skip(test, "the temporary directory is neither on ext4 nor on F2FS");
        }
        places.create_directories();
        Some(Self { places })
    }

    /// On an ext4 of 32 MiB by itself, which can be filled.
    fn small(test: &str) -> Option<Self> {
        let bed = Self::new(test)?;
        let image = bed.path("image");
        let made = make_image(&image, 32 << 20, &["mkfs.ext4", "-q", "-F", "-m", "0"]);
        if let Err(why) =
            made.and_then(|()| mount_image(&image, "ext4", "loop", bed.places.folder()))
        {
            return skip(test, &why);
        }
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
        // Not a pipe: what stays in the background must not keep us from seeing an end.
        let messages = self.path("said");
        let file = File::create(&messages).unwrap();
        let status = Command::new(FLASHSIFT)
            .args(&words[..1])
            .args(places)
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .output()
            .unwrap();
        Output { stderr: fs::read(messages).unwrap(), ..status }
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
    fn of(folder: &Path) -> Self {
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
    let Some(bed) = Bed::new("options_of_every_command_may_precede_mount") else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    for option in ["-q", "--verbose"] {
        bed.succeeds(&[option], &[Path::new("mount"), &backing, &seen]);
        assert!(is_mounted(&seen), "{option}");
        bed.succeeds(&[option], &[Path::new("unmount"), &seen]);
    }
}

#[test]
fn a_background_mount_shows_its_status_writes_back_and_unmounts() {
    let Some(bed) = Bed::new("a_background_mount_shows_its_status_writes_back_and_unmounts") else {
        return;
    };
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

        bed.succeeds(&["settle"], &[point]);
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

#[test]
fn an_impossible_mount_is_refused_and_changes_nothing() {
    let Some(bed) = Bed::new("an_impossible_mount_is_refused_and_changes_nothing") else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let user = User::of(&seen);
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
    for verb in ["status", "settle", "unmount"] {
        let says = bed.fails(&[verb], &[&seen]);
        assert!(says.contains("is no mount of flashsift"), "{says}");
    }
    assert!(!is_mounted(&seen) && bed.names(&backing).is_empty());
}

#[test]
fn settings_come_from_a_file_too() {
    let Some(bed) = Bed::new("settings_come_from_a_file_too") else { return };
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

#[test]
fn a_mount_in_use_stays_and_its_users_are_named() {
    let Some(bed) = Bed::new("a_mount_in_use_stays_and_its_users_are_named") else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    bed.succeeds(&["mount"], &[&backing, &seen]);
    fs::write(seen.join("a"), "kept").unwrap();
    let user = User::of(&seen);
    let says = bed.fails(&["unmount"], &[&seen]);
    assert!(says.contains(&user.in_words(&seen)), "{says}");
    assert!(is_mounted(&seen));
    assert_eq!(fs::read_to_string(backing.join("a")).unwrap(), "kept");
    bed.succeeds(&["unmount", "--lazy"], &[&seen]);
    assert!(!is_mounted(&seen));
    drop(user);
    // The test does not wait for the daemon's end; the next mount reports it if it is not yet over.
}

#[test]
fn signals_end_a_mount_with_everything_written_back() {
    let Some(bed) = Bed::new("signals_end_a_mount_with_everything_written_back") else { return };
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

#[test]
fn a_signal_ends_a_mount_in_use_and_names_its_users() {
    let Some(bed) = Bed::new("a_signal_ends_a_mount_in_use_and_names_its_users") else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let daemon = bed.foreground(&backing, &seen, &[]);
    let mut open = File::create(seen.join("open")).unwrap();
    std::io::Write::write_all(&mut open, b"until then").unwrap();
    let user = User::of(&seen);
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

#[test]
fn a_plain_umount_writes_everything_back() {
    let Some(bed) = Bed::new("a_plain_umount_writes_everything_back") else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let daemon = bed.foreground(&backing, &seen, &[]);
    fs::write(seen.join("a"), "kept").unwrap();
    assert!(ok(Command::new("umount").arg(&seen)));
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

#[test]
fn a_file_that_cannot_be_written_back_is_kept_until_it_can() {
    let Some(bed) = Bed::small("a_file_that_cannot_be_written_back_is_kept_until_it_can") else {
        return;
    };
    let (backing, seen, filler) = (bed.backing(), bed.seen(), bed.path("filler"));
    let content = vec![7; 2 << 20];
    for by_signal in [true, false] {
        let mut daemon = bed.foreground(&backing, &seen, &[]);
        fs::write(seen.join("kept"), &content).unwrap();
        fill(&filler);
        match by_signal {
            true => daemon.signal("INT"),
            false => assert!(ok(Command::new("umount").arg(&seen))),
        }
        let says = daemon.says("flashsift: CANNOT END: ");
        assert!(says.contains("1 file (2 MiB) of ") && says.contains("No space left"), "{says}");
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
#[test]
fn a_second_mount_waits_for_the_end_of_the_first() {
    let Some(bed) = Bed::new("a_second_mount_waits_for_the_end_of_the_first") else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    for round in 0..8 {
        for point in [&seen, &backing] {
            bed.succeeds(&["mount", "--settle-after", "1h"], &[&backing, point]);
            let names: Vec<_> = (0..10).map(|file| format!("{round} {file}")).collect();
            for name in &names {
                fs::write(point.join(name), vec![7; 400_000]).unwrap();
            }
            assert!(ok(Command::new("umount").arg(point)));
            bed.succeeds(&["mount"], &[&backing, point]);
            for name in &names {
                assert_eq!(fs::read(point.join(name)).unwrap().len(), 400_000);
                fs::remove_file(point.join(name)).unwrap();
            }
            bed.succeeds(&["unmount"], &[point]);
        }
    }
}

#[test]
fn a_waiting_mount_names_the_reason_and_can_be_ended() {
    let Some(bed) = Bed::small("a_waiting_mount_names_the_reason_and_can_be_ended") else { return };
    let (backing, seen, filler) = (bed.backing(), bed.seen(), bed.path("filler"));
    let mut before = bed.foreground(&backing, &seen, &["--settle-after", "1h"]);
    fs::write(seen.join("kept"), vec![7; 2 << 20]).unwrap();
    fill(&filler);
    assert!(ok(Command::new("umount").arg(&seen)));
    before.says("flashsift: CANNOT END: ");
    let pid = before.child.id();
    let next = |foreground: bool| {
        let mut command = Command::new(FLASHSIFT);
        command.arg("mount").args([&backing, &seen]).args(foreground.then_some("--foreground"));
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

/// A mount that another namespace has lives, and is not waited for.
#[test]
fn a_mount_in_another_namespace_counts_as_mounted() {
    let Some(bed) = Bed::new("a_mount_in_another_namespace_counts_as_mounted") else { return };
    let (backing, seen) = (bed.backing(), bed.seen());
    let daemon = bed.foreground(&backing, &seen, &[]);
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(elsewhere.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    assert!(ok(Command::new("umount").arg(&seen)));
    let says = bed.fails(&["mount"], &[&backing, &seen]);
    assert!(
        says.contains(&format!("is mounted by flashsift already (pid {})", daemon.child.id())),
        "{says}"
    );
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    assert_eq!(daemon.ends().0, Some(0));
}

#[test]
fn a_message_that_no_process_reads_does_not_end_the_mount() {
    let Some(bed) = Bed::small("a_message_that_no_process_reads_does_not_end_the_mount") else {
        return;
    };
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

#[test]
fn files_are_given_up_only_after_a_reported_failure() {
    let Some(bed) = Bed::small("files_are_given_up_only_after_a_reported_failure") else { return };
    let (backing, seen, filler) = (bed.backing(), bed.seen(), bed.path("filler"));
    let mut daemon = bed.foreground(&backing, &seen, &[]);
    fs::write(seen.join("lost"), vec![7; 2 << 20]).unwrap();
    fill(&filler);
    daemon.signal("TERM");
    daemon.says("flashsift: CANNOT END: ");
    daemon.signal("TERM");
    let (code, says) = daemon.ends();
    assert_eq!(code, Some(1));
    assert!(says.contains("1 file (2 MiB) LOST"), "{says}");
    assert!(!is_mounted(&seen));
    assert!(bed.names(&backing).iter().all(|name| name == ".flashsift"));
}

#[test]
fn the_dead_mount_of_a_killed_daemon_is_removed() {
    let Some(bed) = Bed::new("the_dead_mount_of_a_killed_daemon_is_removed") else { return };
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

/// A name for the binary under which mount(8) finds it.
struct Helper;

impl Helper {
    const PATH: &str = "/sbin/mount.fuse.flashsift";

    fn new(test: &str) -> Option<Self> {
        match symlink(FLASHSIFT, Self::PATH) {
            Ok(()) => Some(Self),
            Err(why) => {
                println!("SKIPPED {test}: {}: {why}", Self::PATH);
                None
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = fs::remove_file(Self::PATH);
    }
}

#[test]
fn mount_and_fstab_accept_flashsift_as_a_file_system_type() {
    let test = "mount_and_fstab_accept_flashsift_as_a_file_system_type";
    let Some(bed) = Bed::new(test) else { return };
    let Some(_helper) = Helper::new(test) else { return };
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

    let user = User::of(&seen);
    assert_eq!(mount().code(), Some(32), "as mount(8) says that it failed");
    let says = fs::read_to_string(bed.path("said")).unwrap();
    assert!(says.contains(&user.in_words(&seen)), "{says}");
}

fn is_read_only<T>(done: std::io::Result<T>) -> bool {
    done.is_err_and(|why| why.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
}

/// `mount -o remount,ro`, as scripts that shut a machine down say it, was refused.
#[test]
fn a_read_only_remount_refuses_writes_and_still_writes_back() {
    let test = "a_read_only_remount_refuses_writes_and_still_writes_back";
    let Some(bed) = Bed::new(test) else { return };
    let Some(_helper) = Helper::new(test) else { return };
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
    assert_eq!(bed.names(&backing), [".flashsift"]);
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
    assert!(ok(Command::new("umount").arg(&seen)));

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

#[test]
fn a_service_manager_gets_its_notifications() {
    let Some(bed) = Bed::new("a_service_manager_gets_its_notifications") else { return };
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

#[test]
fn a_plain_user_mounts_without_passthrough() {
    let test = "a_plain_user_mounts_without_passthrough";
    let Some(bed) = Bed::new(test) else { return };
    // Where he may run it.
    let binary = bed.path("flashsift");
    fs::copy(FLASHSIFT, &binary).unwrap();
    let nobody = |program: &Path, args: &[&str]| {
        let messages = File::create(bed.path("said")).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).args(args);
        let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages).output();
        output.map(|output| Output { stderr: fs::read(bed.path("said")).unwrap(), ..output })
    };
    let may = |program: &str, args: &[&str]| {
        nobody(Path::new(program), args).is_ok_and(|output| output.status.success())
    };
    if !may("unshare", &["--user", "--mount", "true"])
        || !may("fusermount3", &["--version"])
        || !may("test", &["-w", "/dev/fuse"])
    {
        println!(
            "SKIPPED {test}: setpriv, a user namespace for a plain user, fusermount3 or \
             /dev/fuse is missing"
        );
        return;
    }
    let backing = bed.backing();
    std::os::unix::fs::chown(&backing, Some(65534), Some(65534)).unwrap();
    let place = backing.to_str().unwrap();
    let run = |args: &[&str]| {
        let output = nobody(&binary, args).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
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

#[test]
fn requests_to_the_mount_become_a_trace() {
    let Some(bed) = Bed::new("requests_to_the_mount_become_a_trace") else { return };
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
