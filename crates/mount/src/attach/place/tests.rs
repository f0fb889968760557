use super::*;
use crate::fs::beneath::MARK;
use parking_lot::{Mutex, MutexGuard};
use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Write as _},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// Tests take turns: a child that one test starts inherits the open directories of the others until
/// it runs its program, and would count as a user of them.
static TURN: Mutex<()> = Mutex::new(());

/// Two directories on the file system of the temporary directory, regardless of its type.
struct Two {
    _turn: MutexGuard<'static, ()>,
    folder: TempDir,
    even_on: Vec<String>,
}

impl Two {
    fn new() -> Self {
        let turn = TURN.lock();
        let folder = tempfile::tempdir().unwrap();
        for name in ["backing", "seen"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let even_on = vec![mounts::mount_of(folder.path()).unwrap().kind];
        Self { _turn: turn, folder, even_on }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn take(&self, backing: &Path, mountpoint: &Path) -> Result<LockedPlace, Refused> {
        LockedPlace::take(&Wanted {
            backing,
            mountpoint,
            even_if_used: false,
            even_on: &self.even_on,
            xattrs: true,
            force: false,
        })
    }

    fn refused(&self, backing: &Path, mountpoint: &Path) -> String {
        self.take(backing, mountpoint).unwrap_err().to_string()
    }
}

#[test]
fn a_place_is_taken_once_and_left_as_it_was() {
    let two = Two::new();
    let (backing, seen) = (two.path("backing"), two.path("seen"));
    assert_eq!(wait_until_free(&backing).unwrap(), Left::Nothing);
    for mountpoint in [&seen, &backing] {
        let place = two.take(&backing, mountpoint).unwrap();
        assert_eq!((&place.backing, &place.mountpoint), (&backing, mountpoint));
        let says = two.refused(&backing, mountpoint);
        let pid = std::process::id();
        assert_eq!(
            says,
            format!("{} is mounted by flashsift already (pid {pid})", backing.display())
        );
        let mut log = place.lock.log().unwrap();
        writeln!(log, "a word").unwrap();
        place.lock.remove(place.root).unwrap();
        assert_eq!(fs::read_dir(&backing).unwrap().count(), 0);
    }
}

/// Waits until the kernel lists a thread that waits for the lock of a directory.
fn until_awaited(directory: &Path) {
    let inode = format!(":{} ", fs::metadata(directory).unwrap().ino());
    let waits = |line: &str| line.contains("-> FLOCK") && line.contains(&inode);
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(waits) {
        std::thread::yield_now();
    }
}

/// As the first change does where the lock needs no file.
fn mark(root: &OwnedFd) {
    rustix::fs::fsetxattr(root, MARK, b"1", rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn a_waiting_process_learns_how_the_mount_ended() {
    let two = Two::new();
    let (backing, seen) = (two.path("backing"), two.path("seen"));
    for (files, clean, left) in [
        (true, true, Left::Nothing),
        (true, false, Left::Remains),
        (false, true, Left::Nothing),
        (false, false, Left::Remains),
    ] {
        let place = two.take(&backing, &seen).unwrap();
        let thread = std::thread::spawn({
            let backing = backing.clone();
            move || wait_until_free(&backing).unwrap()
        });
        until_awaited(&backing);
        // As the first change does.
        match files {
            true => place.lock.make_hidden().unwrap(),
            false => mark(&place.root),
        }
        if !files && clean {
            rustix::fs::fremovexattr(&place.root, MARK).unwrap();
        }
        match clean {
            true => place.lock.remove(place.root).unwrap(),
            false => drop(place),
        }
        assert_eq!(thread.join().unwrap(), left);
        let _ = fs::remove_dir_all(backing.join(HIDDEN));
    }
    two.take(&backing, &seen).expect("what a killed one left is no hindrance");
}

#[test]
fn an_ending_holder_is_distinguished_from_a_running_one() {
    let two = Two::new();
    for makes_files in [true, false] {
        ending_is_distinguished_from_running(&two, makes_files);
    }
}

fn ending_is_distinguished_from_running(two: &Two, makes_files: bool) {
    let (backing, seen) = (two.path("backing"), two.path("seen"));
    let place = two.take(&backing, &seen).unwrap();
    let pid = Some(std::process::id());
    if makes_files {
        place.lock.make_hidden().unwrap();
    }
    let stuck = || match two.take(&backing, &seen) {
        Err(Refused::Ending(ending)) => {
            assert_eq!((&ending.backing, ending.pid), (&backing, pid));
            Some(ending.stuck)
        }
        Err(Refused::Locked(_, holder)) => {
            assert_eq!(holder, pid);
            None
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(stuck(), None, "it is about to mount");
    let sign = place.lock.sign();
    // No device has such a number.
    sign.mounted(1 << 20).unwrap();
    assert_eq!(stuck().unwrap(), "");
    sign.ending(&"no space\n".repeat(1000)).unwrap();
    assert!(stuck().unwrap().starts_with("no space no space"));
    sign.ending("").unwrap();
    assert_eq!(stuck().unwrap(), "");
    drop((sign, place));
    two.take(&backing, &seen).unwrap();
}

// Promises: Mount 42, Mount 43.
#[test]
fn places_that_do_not_fit_are_refused() {
    let two = Two::new();
    let (backing, seen, inner) = (two.path("backing"), two.path("seen"), two.path("backing/inner"));
    fs::create_dir(&inner).unwrap();
    fs::write(two.path("file"), "").unwrap();
    symlink(&inner, two.path("link")).unwrap();
    assert!(two.refused(&backing, &inner).contains("lies inside"));
    assert!(two.refused(&inner, &backing).contains("lies inside"));
    assert!(two.refused(&backing, &two.path("link")).contains("lies inside"));
    assert!(two.refused(&two.path("file"), &seen).contains("is not a directory"));
    assert!(two.refused(&two.path("none"), &seen).contains("No such file"));
    assert!(two.refused(Path::new("/"), &seen).contains("root directory"));
    assert!(two.refused(&backing, Path::new("/")).contains("root directory"));
    assert!(two.refused(Path::new("/proc/self"), &seen).contains("lies on proc"));
    let even_on = vec!["proc".to_owned()];
    let forced = Wanted {
        backing: Path::new("/proc/self/task"),
        mountpoint: &seen,
        even_if_used: false,
        even_on: &even_on,
        xattrs: true,
        force: true,
    };
    let says = LockedPlace::take(&forced).unwrap_err().to_string();
    assert!(!says.contains("lies on"), "{says}");
    assert_eq!(fs::read_dir(&backing).unwrap().count(), 1, "nothing was made");
}

/// `flashsift mount /etc /etc` was no different from any other mount: `kill -9` or a power cut
/// would have lost new files without which the machine does not start.
// Promises: Mount 42.
#[test]
fn directories_of_the_system_need_force() {
    let two = Two::new();
    let backing = two.path("backing");
    for system in ["/etc", "/usr/share", "/var"].map(Path::new) {
        let even_on = [two.even_on.clone(), vec![mounts::mount_of(system).unwrap().kind]].concat();
        let take = |backing, mountpoint, force| {
            LockedPlace::take(&Wanted {
                backing,
                mountpoint,
                even_if_used: true,
                even_on: &even_on,
                xattrs: true,
                force,
            })
        };
        for [backing, mountpoint] in [[&*backing, system], [system, &*backing], [system; 2]] {
            let says = take(backing, mountpoint, false).unwrap_err().to_string();
            assert!(says.contains("a directory of the system") && says.contains("--force"));
        }
        match take(&backing, system, true) {
            Ok(place) => place.lock.remove(place.root).unwrap(),
            // A container has mounts below it.
            Err(why) => assert!(!why.to_string().contains("--force"), "{why}"),
        }
    }
    assert_eq!(fs::read_dir(&backing).unwrap().count(), 0, "nothing was made");
}

// Promises: Mount 42, Mount 46.
#[test]
fn a_place_in_use_is_refused_and_its_users_named() {
    let two = Two::new();
    let (backing, seen) = (two.path("backing"), two.path("seen"));
    for (used, name) in [(&seen, "seen"), (&backing, "backing")] {
        let mut shell = Command::new("sh")
            .args(["-c", "echo; read line"])
            .current_dir(used)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        let says = two.refused(&backing, &seen);
        let line = format!("  sh (pid {}): works in {}\n", shell.id(), used.display());
        assert!(says.contains(&line) && says.contains(&format!("{name} is in use:")), "{says}");
        let wanted = Wanted {
            backing: &backing,
            mountpoint: &seen,
            even_if_used: true,
            even_on: &two.even_on,
            xattrs: true,
            force: false,
        };
        LockedPlace::take(&wanted).unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}

// Promises: Mount 44.
#[test]
fn a_hidden_directory_of_another_origin_is_refused() {
    let two = Two::new();
    let (backing, seen) = (two.path("backing"), two.path("seen"));
    let hidden = backing.join(HIDDEN);

    symlink("/tmp", &hidden).unwrap();
    assert!(two.refused(&backing, &seen).contains("is not a directory"));
    fs::remove_file(&hidden).unwrap();

    fs::write(&hidden, "").unwrap();
    assert!(two.refused(&backing, &seen).contains("is not a directory"));
    fs::remove_file(&hidden).unwrap();

    fs::create_dir(&hidden).unwrap();
    fs::set_permissions(&hidden, Permissions::from_mode(0o770)).unwrap();
    assert!(two.refused(&backing, &seen).contains("with mode 770"));
    fs::set_permissions(&hidden, Permissions::from_mode(0o700)).unwrap();

    fs::write(two.path("precious"), "precious").unwrap();
    symlink(two.path("precious"), hidden.join(LOCK)).unwrap();
    assert!(two.refused(&backing, &seen).contains("locking"));
    assert_eq!(fs::read_to_string(two.path("precious")).unwrap(), "precious");
    fs::remove_file(hidden.join(LOCK)).unwrap();

    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&hidden, Some(65534), None).unwrap();
        assert!(two.refused(&backing, &seen).contains("belongs to user 65534"));
        std::os::unix::fs::chown(&hidden, Some(0), None).unwrap();
    } else {
        println!("SKIPPED a directory of another user: root is needed to give one away");
    }
    two.take(&backing, &seen).unwrap();
}
