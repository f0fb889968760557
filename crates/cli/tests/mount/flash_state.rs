//! The mount refuses changes that the file system of BACKING does not allow when an application
//! asks for them, not later at the write-back.

use super::{Ext4, LATE, MIB, Mounted, create, run, text};
use flashsift_testbed::loop_of;
use rustix::io::Errno;
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::{
        fs::{FileExt, MetadataExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

/// A plain user.
const ANN: u32 = 12_001;

fn number<T>(done: io::Result<T>) -> Option<Errno> {
    done.err().as_ref().and_then(Errno::from_io_error)
}

/// Sets a flag of a file of BACKING.
fn chattr(flag: &str, path: &Path) {
    run("chattr", &[Path::new(flag), path]);
}

/// An error of its own made BACKING's ext4 read-only, and no file could be written back any more.
/// The mount continued to accept files, which were lost at its end. `statfs` does not show such an
/// error.
// Promises: Mount 43.
#[test]
fn a_backing_that_turned_read_only_refuses_changes() {
    let Some(ext4) = Ext4::made(&[], "errors=remount-ro") else { return };
    let mounted = Mounted::over(ext4, &LATE);
    let held = create(&mounted.at("held"), b"before");
    create(&mounted.at("settled"), b"before");
    mounted.settle();
    let in_ram = create(&mounted.at("in RAM"), b"before");
    assert_eq!(mounted.status()["read_only"], false);
    let device = loop_of(&mounted.ext4.image()).unwrap();
    let trigger = Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error");
    fs::write(trigger, "1").unwrap();
    // The answer may be as old as a tick of the kernel's clock.
    let refused =
        (0..1_000_000).find_map(|n| number(File::create(mounted.at(&format!("new {n}")))));
    assert_eq!(refused, Some(Errno::ROFS));
    assert_eq!(mounted.status()["read_only"], true);
    let at = |name: &str| mounted.at(name);
    for (what, done) in [
        ("write to a file in RAM", in_ram.write_all_at(b"after", 0)),
        ("write to a file on flash", held.write_all_at(b"after", 0)),
        ("truncate", in_ram.set_len(1)),
        ("open to write", OpenOptions::new().write(true).open(at("in RAM")).map(drop)),
        ("open on flash to write", OpenOptions::new().write(true).open(at("settled")).map(drop)),
        ("remove", fs::remove_file(at("in RAM"))),
        ("rename", fs::rename(at("in RAM"), at("renamed"))),
        ("link", fs::hard_link(at("in RAM"), at("linked"))),
        ("chmod", fs::set_permissions(at("in RAM"), super::mode(0o600))),
        ("mkdir", fs::create_dir(at("folder"))),
    ] {
        assert_eq!(number(done), Some(Errno::ROFS), "{what}");
    }
    assert_eq!(fs::read(at("in RAM")).unwrap(), b"before");
    assert_eq!(fs::read(at("settled")).unwrap(), b"before");
}

/// ext4 keeps a part of its blocks for root, so that the machine still works when users have filled
/// it. Our daemon is root, and wrote users' files into that part.
// Promises: Mount 30.
#[test]
fn a_plain_user_does_not_take_the_blocks_kept_for_root() {
    for options in [
        &["--write-through", "*"][..],
        &["--write-through", "*", "--no-passthrough"],
        &["--budget", "4MiB"],
        &["--budget", "1GiB"],
    ] {
        let Some(ext4) = Ext4::made(&["-m", "20"], "") else { return };
        fs::set_permissions(ext4.backing(), super::mode(0o777)).unwrap();
        let mut mounted = Mounted::over(ext4, &[options, &LATE].concat());
        let space = || rustix::fs::statvfs(mounted.ext4.backing()).unwrap();
        let kept = space().f_bfree - space().f_bavail;
        assert!(kept > 20 * MIB as u64 / 4096, "{kept} blocks are kept");
        let fill = |uid: u32, name: &str, more: &str| {
            let script = format!("dd if=/dev/zero of={name} bs=1M status=none {more}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).uid(uid).gid(uid).current_dir(mounted.ext4.mountpoint());
            let done = shell.stdin(Stdio::null()).output().unwrap();
            (done.status.success(), text(done.stderr))
        };
        let (success, said) = fill(ANN, "ann", "");
        assert!(!success && said.contains("No space left"), "{options:?}: {said}");
        let (success, said) = fill(ANN, "ann2", "count=1; fallocate -l 30M ann3; mkdir a/b");
        assert!(!success, "{options:?}: {said}");
        let try_settle = mounted.try_settle();
        let left = space().f_bfree;
        // Attributes and directories may take some.
        assert!(left + 64 >= kept, "{options:?}: {left} blocks are left of {kept}");
        assert_eq!(try_settle, Ok(()), "{options:?}");
        let (success, said) = fill(0, "root", "count=4");
        assert!(success, "{options:?}: root may use them: {said}");
        assert_eq!(fs::metadata(mounted.at("root")).unwrap().len(), 4 * MIB as u64);
        mounted.ended();
    }
}

/// `chattr +i` and `+a` in BACKING were ignored for files in RAM: files were created in immutable
/// directories and could never be written back, and a name that replaced an immutable file neither.
// Promises: Mount 10, Mount 35.
#[test]
fn flags_of_chattr_hold_for_files_in_ram() {
    let Some(ext4) = Ext4::made(&[], "") else { return };
    let backing = ext4.backing();
    for name in ["fixed", "grows", "synchronous", "quiet"] {
        fs::create_dir(backing.join(name)).unwrap();
    }
    create(&backing.join("constant"), b"old");
    create(&backing.join("grows/old"), b"old");
    for (flag, name) in [
        ("+i", "fixed"),
        ("+a", "grows"),
        ("+S", "synchronous"),
        ("+A", "quiet"),
        ("+i", "constant"),
    ] {
        chattr(flag, &backing.join(name));
    }
    let mut mounted = Mounted::over(ext4, &LATE);
    let at = |name: &str| mounted.at(name);
    create(&at("free"), b"new");
    create(&at("grows/new"), b"new");
    for (what, done) in [
        ("create in an immutable directory", File::create(at("fixed/new")).map(drop)),
        ("rename into it", fs::rename(at("free"), at("fixed/new"))),
        ("link into it", fs::hard_link(at("free"), at("fixed/new"))),
        ("rename over an immutable file", fs::rename(at("free"), at("constant"))),
        ("open an immutable file", OpenOptions::new().write(true).open(at("constant")).map(drop)),
        ("remove from an append-only directory", fs::remove_file(at("grows/new"))),
        ("rename out of it", fs::rename(at("grows/new"), at("out"))),
        ("rename over a name in it", fs::rename(at("free"), at("grows/old"))),
    ] {
        assert_eq!(number(done), Some(Errno::PERM), "{what}");
    }
    create(&at("synchronous/file"), b"durable");
    create(&at("quiet/file"), b"inherits");
    assert_eq!(fs::read(mounted.below("synchronous/file")).unwrap(), b"durable");
    let flags = Command::new("lsattr").arg(mounted.below("quiet/file")).output().unwrap();
    assert!(text(flags.stdout).split(' ').next().unwrap().contains('A'), "the flag is inherited");
    mounted.settle();
    for (flag, name) in [("-i", "fixed"), ("-a", "grows"), ("-i", "constant")] {
        chattr(flag, &mounted.below(name));
    }
    mounted.ended();
}

/// With BACKING mounted `sync`, a write is durable when it returns. Files stayed in RAM all the
/// same.
// Promises: Mount 10.
#[test]
fn a_synchronous_backing_makes_files_write_through() {
    let Some(ext4) = Ext4::made(&[], "sync") else { return };
    let mut mounted = Mounted::over(ext4, &LATE);
    create(&mounted.at("file"), b"durable");
    assert_eq!(fs::read(mounted.below("file")).unwrap(), b"durable");
    mounted.ended();
}

/// With BACKING mounted `dirsync`, or in a directory with `chattr +D`, a name is durable when the
/// call returns that makes it. New directories waited in RAM all the same, and so did files that
/// were renamed and linked to there.
// Promises: Mount 10, Mount 86.
#[test]
fn names_that_have_to_be_durable_at_once_do_not_wait() {
    for option in ["dirsync", ""] {
        let Some(ext4) = Ext4::made(&[], option) else { return };
        fs::create_dir(ext4.backing().join("at once")).unwrap();
        if option.is_empty() {
            chattr("+D", &ext4.backing().join("at once"));
        }
        let mut mounted = Mounted::over(ext4, &LATE);
        let elsewhere = mounted.at("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        assert_eq!(mounted.below("elsewhere").exists(), !option.is_empty(), "{option}");
        fs::create_dir_all(mounted.at("at once/made/inside")).unwrap();
        assert!(mounted.below("at once/made/inside").is_dir(), "{option}: mkdir");
        create(&mounted.at("at once/file"), b"content");
        assert!(mounted.below("at once/file").is_file(), "{option}: create");
        for name in ["renamed", "linked"] {
            create(&elsewhere.join(name), b"content");
        }
        fs::create_dir_all(elsewhere.join("directory/inside")).unwrap();
        fs::hard_link(elsewhere.join("linked"), mounted.at("at once/linked")).unwrap();
        for name in ["renamed", "directory"] {
            fs::rename(elsewhere.join(name), mounted.at("at once").join(name)).unwrap();
        }
        for name in ["linked", "renamed", "directory"] {
            assert!(mounted.below("at once").join(name).exists(), "{option}: {name}");
        }
        mounted.ended();
    }
}

/// An ext4 with inodes of 128 bytes keeps times in whole seconds. A file in RAM showed nanoseconds,
/// which its write-back took away: programs that compare times believed that it had changed.
// Promises: Mount 27.
#[test]
fn times_are_shown_as_backing_can_keep_them() {
    let Some(ext4) = Ext4::made(&["-I", "128"], "") else { return };
    let mut mounted = Mounted::over(ext4, &LATE);
    let times = |path: &Path| {
        let about = fs::metadata(path).unwrap();
        [about.atime_nsec(), about.mtime_nsec(), about.ctime_nsec()]
    };
    fs::create_dir(mounted.at("folder")).unwrap();
    let file = create(&mounted.at("folder/file"), b"x");
    for name in ["folder", "folder/file"] {
        assert_eq!(times(&mounted.at(name)), [0; 3], "{name}");
    }
    let odd = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    file.set_times(fs::FileTimes::new().set_accessed(odd).set_modified(odd)).unwrap();
    assert_eq!(times(&mounted.at("folder/file")), [0; 3]);
    let all = |path: &Path| {
        let about = fs::metadata(path).unwrap();
        (about.atime(), about.mtime(), about.ctime())
    };
    let before = all(&mounted.at("folder/file"));
    mounted.settle();
    assert_eq!(all(&mounted.at("folder/file")), before);
    chown(mounted.at("folder/file"), Some(ANN), None).unwrap();
    assert_eq!(times(&mounted.at("folder/file")), [0; 3]);
    drop(file);
    mounted.ended();
}
