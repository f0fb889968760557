//! Names, rights and what the kernel tells of files: as on any file system of Linux.

use super::{Ext4, FLASHSIFT, KIB, LATE, MIB, Mounted, bytes, create, directory, run, text, tree};
use flashsift_testbed::{ended, skip};
use rustix::{
    fs::{
        AtFlags, FallocateFlags, FlockOperation, IFlags, Mode, OFlags, SeekFrom, StatxFlags,
        XattrFlags, inotify,
    },
    io::Errno,
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Read, Write},
    os::fd::AsRawFd,
    os::unix::{
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const ANN: u32 = 12_001;
const BOB: u32 = 12_002;
const TEAM: u32 = 12_100;

/// Output of a shell that runs in the mount as this user and group.
fn shell(mounted: &Mounted, (uid, gid): (u32, u32), script: &str) -> (bool, String) {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .uid(uid)
        .gid(gid)
        .current_dir(mounted.ext4.mountpoint())
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    (output.status.success(), text(output.stdout) + &text(output.stderr))
}

/// It was done.
fn did(mounted: &Mounted, user: (u32, u32), script: &str) -> String {
    let (success, messages) = shell(mounted, user, script);
    assert!(success, "{script}: {messages}");
    messages
}

// Promises: Mount 33, Mount 79.
#[test]
fn files_belong_to_the_user_that_created_them() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    fs::set_permissions(mounted.ext4.mountpoint(), super::mode(0o1777)).unwrap();
    did(
        &mounted,
        (ANN, ANN),
        "umask 027; echo hello > file; mkdir folder; mkfifo pipe; ln -s file link",
    );
    fs::create_dir(mounted.at("team")).unwrap();
    std::os::unix::fs::chown(mounted.at("team"), Some(ANN), Some(TEAM)).unwrap();
    fs::set_permissions(mounted.at("team"), super::mode(0o2777)).unwrap();
    did(
        &mounted,
        (BOB, BOB),
        "umask 002; echo hello > team/file; mkdir team/folder; echo x > team/folder/deep",
    );
    // Not of the group: the kernel takes setgid away.
    did(&mounted, (BOB, BOB), "touch team/odd; chmod 2775 team/odd");
    let expected = [
        ("file", ANN, ANN, 0o100640),
        ("folder", ANN, ANN, 0o40750),
        ("pipe", ANN, ANN, 0o10640),
        ("link", ANN, ANN, 0o120777),
        ("team/file", BOB, TEAM, 0o100664),
        ("team/folder", BOB, TEAM, 0o42775),
        ("team/folder/deep", BOB, TEAM, 0o100664),
        ("team/odd", BOB, TEAM, 0o100775),
    ];
    let check = |top: PathBuf| {
        for (name, uid, gid, mode) in expected {
            let about = fs::symlink_metadata(top.join(name)).unwrap();
            let found = (about.uid(), about.gid(), about.mode());
            assert_eq!(
                found,
                (uid, gid, mode),
                "{name} in {top:?}: {:o}, not {mode:o}",
                about.mode()
            );
        }
    };
    check(mounted.ext4.mountpoint());
    mounted.ended();
    check(mounted.ext4.backing());
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// An access control list as the kernel stores it: tag, permissions, who.
pub(super) fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, user) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(user.to_le_bytes());
    }
    bytes
}

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NOBODY: u32 = u32::MAX;

/// In a directory with a default access list, files inherit it, in RAM and on flash.
// Promises: Mount 33.
#[test]
fn default_access_lists_are_inherited() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    fs::create_dir(mounted.at("folder")).unwrap();
    let list = acl(&[
        (USER_OBJ, 7, NOBODY),
        (USER, 6, ANN),
        (GROUP_OBJ, 5, NOBODY),
        (MASK, 7, NOBODY),
        (OTHER, 0, NOBODY),
    ]);
    rustix::fs::setxattr(mounted.at("folder"), DEFAULT, &list, XattrFlags::empty()).unwrap();
    create(&mounted.at("folder/file"), b"for ann");
    let inherited = |path: &Path| {
        let mut space = [0; 256];
        let len = rustix::fs::getxattr(path, ACCESS, &mut space).unwrap();
        (space[..len].to_vec(), fs::metadata(path).unwrap().mode() & 0o777)
    };
    // Made with 0666: the umask does not count, the mask becomes rw.
    let expected = acl(&[
        (USER_OBJ, 6, NOBODY),
        (USER, 6, ANN),
        (GROUP_OBJ, 5, NOBODY),
        (MASK, 6, NOBODY),
        (OTHER, 0, NOBODY),
    ]);
    assert_eq!(inherited(&mounted.at("folder/file")), (expected.clone(), 0o660));
    assert_eq!(
        did(&mounted, (ANN, ANN), "cat folder/file || cat < folder/file"),
        "for ann",
        "ann may not pass the folder"
    );
    mounted.settle();
    assert_eq!(inherited(&mounted.below("folder/file")), (expected, 0o660));
}

// Promises: Mount 34.
#[test]
fn a_user_cannot_read_another_users_file() {
    let Some(ext4) = Ext4::made(&[], "") else { return };
    let hidden = ext4.backing().join(".flashsift");
    fs::create_dir(&hidden).unwrap();
    fs::set_permissions(&hidden, super::mode(0o700)).unwrap();
    let mounted = Mounted::over(ext4, &LATE);
    fs::set_permissions(mounted.ext4.mountpoint(), super::mode(0o1777)).unwrap();
    for settles in [false, true] {
        let name = if settles { "settled" } else { "in-ram" };
        did(
            &mounted,
            (ANN, ANN),
            &format!(
                "umask 077; echo secret > {name}; mkdir d-{name}; echo secret > d-{name}/file"
            ),
        );
        did(&mounted, (ANN, ANN), &format!("echo list > acl-{name}; chmod 600 acl-{name}"));
        let set = |mask| {
            let list = acl(&[
                (USER_OBJ, 6, NOBODY),
                (USER, 6, BOB),
                (GROUP_OBJ, 0, NOBODY),
                (MASK, mask, NOBODY),
                (OTHER, 0, NOBODY),
            ]);
            rustix::fs::setxattr(
                mounted.at(&format!("acl-{name}")),
                ACCESS,
                &list,
                XattrFlags::empty(),
            )
            .unwrap();
        };
        set(4);
        if settles {
            mounted.settle();
            assert!(mounted.below(name).exists());
        }
        let bob = (BOB, BOB);
        for denied in [
            format!("cat {name}"),
            format!("echo x >> {name}"),
            format!("ls d-{name}"),
            format!("cat d-{name}/file"),
            format!("rm -f {name}"),
            format!("mv {name} mine"),
            format!("chmod 777 {name}"),
            format!("touch -d 2001-01-01 {name}"),
            format!("echo x >> acl-{name}"),
            format!("cat acl-{name}; chown {BOB} acl-{name}"),
        ] {
            let (success, messages) = shell(&mounted, bob, &denied);
            assert!(!success, "bob could: {denied}: {messages}");
        }
        assert_eq!(did(&mounted, bob, &format!("cat acl-{name}")), "list");
        set(6);
        did(&mounted, bob, &format!("echo x >> acl-{name}"));
        set(0);
        assert!(!shell(&mounted, bob, &format!("cat acl-{name}")).0, "the mask forbids it");
        assert!(
            !shell(&mounted, bob, "ls .flashsift || cat .flashsift/lock").0,
            "flashsift's own files are inaccessible"
        );
    }
    assert!(!fs::exists(mounted.at(".flashsift")).unwrap(), "and hidden");
    assert_eq!(fs::metadata(mounted.below(".flashsift")).unwrap().mode() & 0o777, 0o700);
}

/// Bob asks for a name that does not exist, and the kernel remembers that. Then Ann's private file
/// appears there. When Bob created the name, the kernel asked to create a file and checked no
/// permissions; the mount opened the existing file, and Bob read it, appended to it and emptied it.
/// Now the mount answers that the kernel's knowledge is stale, so the kernel looks the name up
/// again and checks permissions itself.
// Promises: Mount 34.
#[test]
fn a_name_that_the_kernel_remembers_as_missing_opens_no_private_file() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    fs::set_permissions(mounted.ext4.mountpoint(), super::mode(0o777)).unwrap();
    let bob = (BOB, BOB);
    for (name, tried) in [
        ("read", "exec 3<>read; cat <&3"),
        ("append", "echo x >> append"),
        ("empty", ": > empty"),
        ("shared", "echo x >> shared"),
        ("excl", "set -C; : > excl"),
    ] {
        assert!(!shell(&mounted, bob, &format!("test -e {name}")).0, "{name} is missing");
        fs::write(mounted.below(name), "secret").unwrap();
        fs::set_permissions(mounted.below(name), super::mode(0o660)).unwrap();
        let group = if name == "shared" { BOB } else { ANN };
        std::os::unix::fs::chown(mounted.below(name), Some(ANN), Some(group)).unwrap();
        let (success, said) = shell(&mounted, bob, tried);
        // An append may wait in RAM.
        mounted.settle();
        let now = fs::read_to_string(mounted.below(name)).unwrap();
        match name {
            "shared" => assert!(success && now == "secretx\n", "{said}"),
            _ => assert!(!success && now == "secret" && !said.contains("secret"), "{name}: {said}"),
        }
    }
    // The owner may, also with the kernel's wrong knowledge, and no ESTALE is seen.
    assert!(!shell(&mounted, (ANN, ANN), "test -e own").0);
    fs::write(mounted.below("own"), "mine").unwrap();
    std::os::unix::fs::chown(mounted.below("own"), Some(ANN), Some(ANN)).unwrap();
    did(&mounted, (ANN, ANN), "echo over > own");
    assert_eq!(fs::read(mounted.below("own")).unwrap(), b"over\n");
}

/// Commands that change a program's user, groups or capabilities before it acts.
const OTHERS: [&[&str]; 5] = [
    &["setpriv", "--reuid=12001", "--regid=12001", "--clear-groups"],
    &["setpriv", "--reuid=12001", "--regid=12001", "--groups=7,12100"],
    &["setpriv", "--reuid=12001", "--regid=12100", "--clear-groups"],
    &[
        "setpriv",
        "--reuid=12001",
        "--regid=12001",
        "--clear-groups",
        "unshare",
        "--user",
        "--map-root-user",
    ],
    &["setpriv", "--bounding-set=-fsetid", "--inh-caps=-fsetid"],
];

/// An owner who is not in his file's group gave it an access list, and the file kept setgid: the
/// kernel decides by the capabilities of the process that holds the file, and our daemon held it as
/// root.
// Promises: Mount 35.
#[test]
fn an_access_list_set_from_outside_the_group_clears_setgid() {
    if Command::new("setfacl").arg("--version").output().is_err() {
        return skip("setfacl is not installed");
    }
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let native = mounted.ext4.path("backing/native");
    fs::create_dir(&native).unwrap();
    let mut modes = BTreeSet::new();
    for user in OTHERS.iter().chain([&&["env"][..]]) {
        for (name, mode) in [("runs", 0o2755), ("does not run", 0o2664), ("folder", 0o2775)] {
            let after = |path: &Path, settles: bool| {
                match name {
                    "folder" => fs::create_dir(path).unwrap(),
                    _ => drop(create(path, b"x")),
                }
                if settles {
                    mounted.settle();
                }
                std::os::unix::fs::chown(path, Some(ANN), Some(TEAM)).unwrap();
                fs::set_permissions(path, super::mode(mode)).unwrap();
                let mut command = Command::new(user[0]);
                command.args(&user[1..]).args(["setfacl", "-m", "o::r"]).arg(path);
                let output = command.output().unwrap();
                assert!(output.status.success(), "{user:?}: {}", text(output.stderr));
                let plain = fs::metadata(path).unwrap().mode();
                fs::set_permissions(path, super::mode(mode)).unwrap();
                let mut command = Command::new(user[0]);
                command.args(&user[1..]).args(["setfacl", "-m", "m::rwx"]).arg(path);
                ended(&mut command, 0);
                let list = fs::metadata(path).unwrap().mode();
                match name {
                    "folder" => fs::remove_dir(path).unwrap(),
                    _ => fs::remove_file(path).unwrap(),
                }
                (plain, list)
            };
            let expected = after(&native.join(name), false);
            modes.extend([expected.0 & 0o2000, expected.1 & 0o2000]);
            for settles in [false, true] {
                let found = after(&mounted.at(name), settles);
                assert_eq!(
                    found, expected,
                    "{user:?}, {name}, settled: {settles}: {:o} {:o}, not {:o} {:o}",
                    found.0, found.1, expected.0, expected.1
                );
            }
        }
    }
    assert_eq!(modes.len(), 2, "some keep it, some do not");
}

/// Reads through the mount reach BACKING through the mount that BACKING is on: `noatime` of our
/// mount alone did not keep access times from being written to flash.
// Promises: Mount 37.
#[test]
fn noatime_holds_for_backing_too() {
    const LONG_AGO: std::time::Duration = std::time::Duration::from_secs(1_000_000_000);
    let long_ago = fs::FileTimes::new().set_accessed(std::time::SystemTime::UNIX_EPOCH + LONG_AGO);
    for options in
        [&["-o", "noatime"][..], &["-o", "noatime", "--no-passthrough"], &[], &["--no-passthrough"]]
    {
        let Some(ext4) = super::Ext4::new() else { return };
        run("mount", &[Path::new("-o"), Path::new("remount,strictatime"), &ext4.backing()]);
        fs::create_dir(ext4.backing().join("folder")).unwrap();
        create(&ext4.backing().join("folder/synced"), b"x");
        for name in ["folder/synced", "folder"] {
            File::open(ext4.backing().join(name)).unwrap().set_times(long_ago).unwrap();
        }
        let mut mounted = Mounted::over(ext4, &[options, &LATE].concat());
        assert_eq!(fs::read_dir(mounted.at("folder")).unwrap().count(), 1);
        assert_eq!(fs::read(mounted.at("folder/synced")).unwrap(), b"x");
        create(&mounted.at("in RAM"), b"x").set_times(long_ago).unwrap();
        assert_eq!(fs::read(mounted.at("in RAM")).unwrap(), b"x");
        let read_since =
            |path: PathBuf| fs::metadata(path).unwrap().atime() != LONG_AGO.as_secs() as i64;
        let noatime = options.contains(&"noatime");
        for path in [mounted.below("folder/synced"), mounted.below("folder"), mounted.at("in RAM")]
        {
            assert_eq!(read_since(path.clone()), !noatime, "{options:?}: {}", path.display());
        }
        let umount = Command::new("umount").arg(mounted.ext4.backing()).output().unwrap();
        assert!(text(umount.stderr).contains("busy"), "BACKING's file system stays where it is");
        mounted.ended();
    }
}

/// In place, the copy of BACKING's mount that `noatime` needs must not show our own mount on the
/// original.
// Promises: Mount 37.
#[test]
fn noatime_in_place_on_a_shared_mount() {
    let Some(ext4) = super::Ext4::new() else { return };
    run("mount", &[Path::new("--make-shared"), &ext4.backing()]);
    let place = ext4.backing().join("profile");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("old"), "old").unwrap();
    let mut command = Command::new(super::FLASHSIFT);
    let messages = File::create(ext4.path("said")).unwrap();
    let mount = command
        .arg("mount")
        .args([&place, &place])
        .args(LATE)
        .args(["-o", "noatime"])
        .stderr(messages);
    assert!(mount.status().unwrap().success());
    assert_eq!(fs::read(place.join("old")).unwrap(), b"old");
    fs::create_dir(place.join("folder")).unwrap();
    create(&place.join("folder/new"), b"new");
    run(super::FLASHSIFT, &[Path::new("unmount"), &place]);
    assert_eq!(tree(&place).into_keys().collect::<Vec<_>>(), ["folder", "folder/new", "old"]);
    run("umount", &[&ext4.backing()]);
}

/// A user who changes another user's setuid program cannot run it with that user's rights.
// Promises: Mount 35.
#[test]
fn writing_takes_setuid_away() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    for settles in [false, true] {
        let path = mounted.at(if settles { "settled" } else { "in RAM" });
        create(&path, &vec![0; 64 * KIB]);
        if settles {
            mounted.settle();
        }
        let ways = [
            "echo x >> \"$0\"",
            "truncate -s 100000 \"$0\"",
            "fallocate -l 200000 \"$0\"",
            "fallocate -p -o 4096 -l 4096 \"$0\"",
            "dd if=/dev/zero of=\"$0\" bs=4096 count=1 conv=notrunc oflag=direct status=none",
            "exec 5>>\"$0\"; echo; read go; echo x >&5",
        ];
        for (way, plain) in ways.iter().flat_map(|way| [(way, 0o777), (way, 0o666)]) {
            fs::set_permissions(&path, super::mode(plain)).unwrap();
            let mut shell = Command::new("sh");
            shell
                .args(["-c", way])
                .arg(&path)
                .uid(BOB)
                .gid(BOB)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            if !way.starts_with("exec") {
                fs::set_permissions(&path, super::mode(plain | 0o6000)).unwrap();
            }
            let mut shell = shell.spawn().unwrap();
            if way.starts_with("exec") {
                // It has it open already.
                shell.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
                fs::set_permissions(&path, super::mode(plain | 0o6000)).unwrap();
            }
            shell.stdin.take().unwrap().write_all(b"go\n").unwrap_or_default();
            assert!(shell.wait().unwrap().success(), "{way}");
            let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
            assert_eq!(mode, plain, "settled: {settles}: {way}: {mode:o}");
        }
    }
}

// Promises: Mount 34.
#[test]
fn nothing_escapes_backing() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    let outside = mounted.ext4.path("outside");
    fs::create_dir(&outside).unwrap();
    const WORDS: &str = "not for others";
    fs::write(outside.join("secret"), WORDS).unwrap();
    // Applications' own links lead where they say, through the kernel, not through us.
    symlink(&outside, mounted.at("link")).unwrap();
    assert_eq!(fs::read_to_string(mounted.at("link/secret")).unwrap(), WORDS);
    // Another program puts links into BACKING itself, in place of a directory and files that we
    // know.
    fs::create_dir(mounted.at("folder")).unwrap();
    create(&mounted.at("folder/synced"), b"ours").sync_all().unwrap();
    create(&mounted.at("secret"), b"ours").sync_all().unwrap();
    let mut waits = create(&mounted.at("folder/waits"), b"ours");
    fs::rename(mounted.below("folder"), mounted.below("moved")).unwrap();
    symlink(&outside, mounted.below("folder")).unwrap();
    fs::remove_file(mounted.below("secret")).unwrap();
    symlink(outside.join("secret"), mounted.below("secret")).unwrap();
    // In the application's namespace another file stands outside, so that accesses by the kernel
    // and by our daemon are distinguished.
    let script = "
        mount -t tmpfs none \"$0\"
        cd \"$1\"
        echo new > folder/new; echo new > folder/synced
        mv folder/waits folder/renamed; echo over >> secret; chmod 600 secret
        ls folder/; cat secret folder/secret; true";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).args([&outside, &mounted.ext4.mountpoint()]);
    let output = command.output().unwrap();
    let messages = text(output.stdout) + &text(output.stderr);
    let tried = [waits.write_all(b"more"), waits.sync_all()];
    drop(waits);
    let tried = format!("{tried:?}, settled: {:?}, {messages}", mounted.try_settle());
    mounted.kill();
    // Names may be listed: when the kernel has forgotten its entries, it finds the links, and
    // follows them by itself.
    assert!(!messages.contains(WORDS), "{tried}");
    assert_eq!(tree(&outside).keys().collect::<Vec<_>>(), ["secret"], "{tried}");
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), WORDS, "{tried}");
    assert_eq!(fs::metadata(outside.join("secret")).unwrap().mode() & 0o777, 0o644, "{tried}");
}

/// A listing has every name once, regardless of changes to the directory meanwhile; and a reader
/// can return to an earlier position.
#[test]
fn large_directories_are_listed_whole() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    const FILES: usize = 20_000;
    const NAME: &str = "a name of some length ";
    fs::create_dir(mounted.at("many")).unwrap();
    let name = |number: usize| format!("{NAME}{number}");
    for number in 0..FILES {
        create(&mounted.at("many").join(name(number)), &vec![0; number % 7]);
        if number == FILES / 2 {
            // So that half of them stands in BACKING.
            mounted.settle();
        }
    }
    fs::create_dir(mounted.at("many/folder")).unwrap();
    let listed = |names: Vec<String>| {
        let count = names.len();
        let names: BTreeSet<_> = names.into_iter().collect();
        assert_eq!(names.len(), count, "a name was listed twice");
        names
    };
    let all = |path: &Path| -> Vec<String> {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let names = listed(all(&mounted.at("many")));
    assert_eq!(names.len(), FILES + 1);
    assert!((0..FILES).all(|number| names.contains(&name(number))));
    // As `ls -l` does, for which the kernel asks for names and attributes at once.
    for entry in fs::read_dir(mounted.at("many")).unwrap() {
        let entry = entry.unwrap();
        let Ok(number) =
            entry.file_name().to_str().unwrap().trim_start_matches(NAME).parse::<u64>()
        else {
            continue;
        };
        assert_eq!(entry.metadata().unwrap().len(), number % 7, "{entry:?}");
    }

    // telldir and seekdir: from each of some places, the rest is the same.
    let mut stream = rustix::fs::Dir::new(directory(&mounted.at("many"))).unwrap();
    let mut places = Vec::new();
    while let Some(entry) = stream.read() {
        let entry = entry.unwrap();
        places.push((entry.file_name().to_owned(), entry.offset()));
    }
    assert_eq!(places.len(), FILES + 3, "with . and ..");
    for at in [0, 1, 2, 3, 1000, FILES / 2, FILES - 1, FILES + 1, FILES + 2] {
        stream.seek(places[at].1).unwrap();
        let next = stream.read().map(|entry| entry.unwrap().file_name().to_owned());
        assert_eq!(next.as_ref(), places.get(at + 1).map(|(name, _)| name), "after entry {at}");
    }

    drop(stream);
    // A listing during creations, deletions and write-back has all files that stay, each once.
    let mut stream = rustix::fs::Dir::new(directory(&mounted.at("many"))).unwrap();
    let mut seen = Vec::new();
    let mut step = 0;
    while let Some(entry) = stream.read() {
        let entry = entry.unwrap().file_name().to_str().unwrap().to_owned();
        step += 1;
        if step % 100 == 0 {
            // Odd ones are removed or renamed, even ones stay.
            let odd = |number: usize| mounted.at("many").join(name((number % FILES) | 1));
            let _ = fs::remove_file(odd(step * 2));
            let _ = fs::rename(odd(FILES + step * 7), mounted.at(&format!("many/renamed {step}")));
            create(&mounted.at(&format!("many/new {step}")), b"");
        }
        if step == FILES / 4 {
            mounted.settle();
        }
        seen.push(entry);
    }
    let seen = listed(seen);
    let missing: Vec<_> =
        (0..FILES).step_by(2).map(name).filter(|name| !seen.contains(name)).collect();
    assert!(
        missing.is_empty(),
        "{} names that stayed were not listed: {:?}…",
        missing.len(),
        missing.first()
    );
    drop(stream);
    let names = listed(all(&mounted.at("many")));
    mounted.ended();
    assert_eq!(listed(all(&mounted.below("many"))), names);
    // From BACKING alone.
    mounted.start();
    assert_eq!(listed(all(&mounted.at("many"))), names);
    fs::remove_dir_all(mounted.at("many")).unwrap();
    assert!(!mounted.below("many").exists());
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    for settles in [false, true] {
        let mut file = create(&mounted.at("file"), b"first");
        if settles {
            mounted.settle();
        }
        fs::remove_file(mounted.at("file")).unwrap();
        assert!(!mounted.at("file").exists());
        file.write_all(b" second").unwrap();
        // A new one of that name is another.
        create(&mounted.at("file"), b"another");
        mounted.settle();
        file.write_all(b" third").unwrap();
        file.sync_all().unwrap();
        let mut found = vec![0; 64];
        let len = file.read_at(&mut found, 0).unwrap();
        assert_eq!(&found[..len], b"first second third");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert_eq!(fs::read(mounted.at("file")).unwrap(), b"another");
        fs::remove_file(mounted.at("file")).unwrap();
    }
    assert!(mounted.ended().is_empty());
}

/// A directory that was removed while a process has it open could not be synced (`ENOENT`), nor be
/// given to another user (`ESTALE`). Nothing of it is left to write, and the process sees what it
/// changes, as on ext4.
// Promises: Mount 11.
#[test]
fn a_removed_directory_takes_changes_while_it_is_open() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    for settles in [false, true] {
        fs::create_dir(mounted.at("dir")).unwrap();
        if settles {
            let file = create(&mounted.at("dir/file"), b"");
            mounted.settle();
            drop(file);
            fs::remove_file(mounted.at("dir/file")).unwrap();
        }
        let dir = File::open(mounted.at("dir")).unwrap();
        fs::remove_dir(mounted.at("dir")).unwrap();
        dir.sync_all().unwrap();
        dir.set_permissions(super::mode(0o2711)).unwrap();
        std::os::unix::fs::fchown(&dir, Some(ANN), Some(TEAM)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        dir.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
        let seen = dir.metadata().unwrap();
        assert_eq!((seen.mode(), seen.uid(), seen.gid()), (0o42711, ANN, TEAM));
        assert_eq!((seen.mtime(), seen.nlink()), (1_000_000_000, 0));
    }
    assert!(mounted.ended().is_empty());
}

/// FUSE, or the library, lacks some operations of ext4. Programs that try them get the errors for
/// which they have a fallback, for a file in RAM and for one on flash; the file stays as it was.
// Promises: Mount 38, Mount 40.
#[test]
fn what_ext4_has_and_fuse_lacks_fails_with_the_errors_that_programs_expect() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    create(&mounted.at("written back"), &bytes(2, 70_000));
    mounted.settle();
    create(&mounted.at("in RAM"), &bytes(2, 70_000));
    for name in ["in RAM", "written back"] {
        let open = || File::options().read(true).write(true).open(mounted.at(name)).unwrap();
        let (file, other) = (open(), File::create(mounted.at("other")).unwrap());
        for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            let done = rustix::fs::fallocate(&file, flags, 0, 4096);
            assert_eq!(done, Err(Errno::OPNOTSUPP), "{name}: {flags:?}");
        }
        assert_eq!(rustix::fs::ioctl_ficlone(&other, &file), Err(Errno::OPNOTSUPP), "{name}");
        assert_eq!(rustix::fs::ioctl_getflags(&file).unwrap_err(), Errno::NOTTY, "{name}");
        let flags = rustix::fs::ioctl_setflags(&file, IFlags::NOATIME);
        assert_eq!(flags, Err(Errno::NOTTY), "{name}");
        let at = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, at).unwrap();
        assert_eq!(stat.stx_mask & StatxFlags::BTIME.bits(), 0, "{name}");
        assert!(fs::read(mounted.at(name)).unwrap() == bytes(2, 70_000), "{name}");
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let opened = rustix::fs::open(mounted.ext4.mountpoint(), flags, Mode::from(0o640));
    assert_eq!(opened.unwrap_err(), Errno::OPNOTSUPP);
    let mut file = tempfile::tempfile_in(mounted.ext4.mountpoint()).unwrap();
    file.write_all(&bytes(1, 70_000)).unwrap();
    mounted.settle();
    let mut found = vec![0; 70_000];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == bytes(1, 70_000));
    drop(file);
    for name in ["in RAM", "written back", "other"] {
        fs::remove_file(mounted.at(name)).unwrap();
    }
    assert!(mounted.ended().is_empty());
}

/// Several processes append at once: every line is there, whole, also during the write-back.
#[test]
fn appended_lines_do_not_overwrite_each_other() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let script = format!(
                "for n in $(seq 500); do echo line {writer} $n of some length >> log; done"
            );
            let mut command = Command::new("sh");
            command.args(["-c", &script]).current_dir(mounted.ext4.mountpoint()).spawn().unwrap()
        })
        .collect();
    for mut writer in writers {
        mounted.settle();
        assert!(writer.wait().unwrap().success());
    }
    mounted.ended();
    let log = fs::read_to_string(mounted.below("log")).unwrap();
    let lines: BTreeSet<_> = log.lines().collect();
    assert_eq!((log.lines().count(), lines.len()), (2000, 2000));
    assert!(lines.iter().all(|line| line.ends_with(" of some length")));
}

#[test]
fn holes_and_preallocated_space_are_as_requested() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    for settles in [false, true] {
        let file =
            create(&mounted.at(if settles { "settled" } else { "in RAM" }), &vec![1; 64 * KIB]);
        if settles {
            mounted.settle();
        }
        let try_to = |flags, from: usize, len: usize| {
            rustix::fs::fallocate(&file, flags, from as u64, len as u64)
        };
        try_to(FallocateFlags::empty(), 0, 128 * KIB).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 128 * KIB as u64);
        try_to(FallocateFlags::KEEP_SIZE, 0, MIB).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 128 * KIB as u64);
        try_to(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 16 * KIB, 16 * KIB).unwrap();
        try_to(FallocateFlags::ZERO_RANGE, 40 * KIB, 4 * KIB).unwrap();
        let mut found = vec![9; 128 * KIB];
        file.read_exact_at(&mut found, 0).unwrap();
        let mut expected = vec![1; 64 * KIB];
        expected.resize(128 * KIB, 0);
        expected[16 * KIB..32 * KIB].fill(0);
        expected[40 * KIB..44 * KIB].fill(0);
        assert!(found == expected, "settled: {settles}");
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap();
        let data = rustix::fs::seek(&file, SeekFrom::Data(hole)).unwrap();
        assert_eq!((hole, data), (16 * KIB as u64, 32 * KIB as u64), "settled: {settles}");
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(200 * KIB as u64)), Err(Errno::NXIO));
    }
}

// Promises: Mount 26.
#[test]
fn locks_hold_across_the_write_back() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let file = create(&mounted.at("file"), b"x");
    rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
    for settles in [false, true] {
        if settles {
            mounted.settle();
        }
        let other = File::open(mounted.at("file")).unwrap();
        let tried = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(tried, Err(Errno::WOULDBLOCK), "settled: {settles}");
        let tried =
            Command::new("flock").args(["--nonblock"]).arg(mounted.at("file")).arg("true").status();
        assert!(tried.map_or(true, |status| !status.success()), "another process got it");
    }
    drop(file);
    let other = File::open(mounted.at("file")).unwrap();
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
}

/// A program is built, runs, and runs on during its write-back.
// Promises: Mount 26.
#[test]
fn programs_run_from_the_mount() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let program = mounted.at("cat");
    // Not by this process: others that it starts would hold the copy open, which cannot run then.
    assert!(Command::new("cp").arg("/bin/cat").arg(&program).status().unwrap().success());
    let mut running =
        Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = running.stdin.take().unwrap();
    stdin.write_all(b"before, ").unwrap();
    mounted.settle();
    stdin.write_all(b"after").unwrap();
    drop(stdin);
    let mut messages = String::new();
    running.stdout.take().unwrap().read_to_string(&mut messages).unwrap();
    assert!(running.wait().unwrap().success());
    assert_eq!(messages, "before, after");
    run(program.to_str().unwrap(), &[Path::new("/dev/null")]);
}

/// Events that inotify reports for the same operations in two directories, without cookies.
fn inotify_events(watch: &Path, doings: impl FnOnce()) -> Vec<(u32, String)> {
    let notify =
        inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&notify, watch, inotify::WatchFlags::ALL_EVENTS).unwrap();
    doings();
    let mut space = vec![std::mem::MaybeUninit::uninit(); 64 * KIB];
    let mut reader = inotify::Reader::new(&notify, &mut space);
    let mut events = Vec::new();
    while let Ok(event) = reader.next() {
        let name =
            event.file_name().map(|name| name.to_str().unwrap().to_owned()).unwrap_or_default();
        events.push((event.events().bits(), name));
    }
    events
}

// Promises: Mount 36.
#[test]
fn inotify_reports_operations_of_applications_and_no_write_back() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let native = tempfile::tempdir().unwrap();
    let script = "echo x > a; echo y >> a; cat a > /dev/null; chmod 600 a; mv a b; ln b c; rm b; mkdir d; rmdir d; : > c";
    let doings = |folder: &Path| {
        let (shell, folder) = (["-c", script], folder.to_owned());
        move || {
            assert!(Command::new("sh").args(shell).current_dir(folder).status().unwrap().success())
        }
    };
    let top = mounted.ext4.mountpoint();
    assert_eq!(
        inotify_events(&top, doings(&top)),
        inotify_events(native.path(), doings(native.path()))
    );
    // Asking for it sets an attribute of the top, as the kernel sees it.
    let asking = (inotify::ReadFlags::ATTRIB | inotify::ReadFlags::ISDIR).bits();
    let write_back = inotify_events(&top, || mounted.settle());
    assert!(
        write_back.iter().all(|event| *event == (asking, String::new())),
        "a write-back causes no events: {write_back:?}"
    );
    assert!(mounted.below("c").exists());
}

/// The free space that statfs reports is BACKING's, minus the space that files in RAM will need
/// there.
// Promises: Mount 31.
#[test]
fn statfs_subtracts_the_files_in_ram() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let of = |path: PathBuf| rustix::fs::statvfs(path).unwrap();
    let backing = of(mounted.ext4.backing());
    create(&mounted.at("file"), &bytes(1, 8 * MIB));
    let shown = of(mounted.ext4.mountpoint());
    assert_eq!(
        (shown.f_blocks * shown.f_frsize, shown.f_namemax),
        (backing.f_blocks * backing.f_frsize, backing.f_namemax)
    );
    let free_bytes = backing.f_bavail * backing.f_frsize;
    let left = shown.f_bavail * shown.f_frsize;
    assert!(left <= free_bytes - 8 * MIB as u64, "{left} of {free_bytes} with 8 MiB in RAM");
    assert!(left >= free_bytes - 16 * MIB as u64, "{left} of {free_bytes} with 8 MiB in RAM");
    mounted.settle();
    let shown = of(mounted.ext4.mountpoint());
    assert_eq!(
        shown.f_bavail * shown.f_frsize,
        of(mounted.ext4.backing()).f_bavail * backing.f_frsize
    );
}

/// `sync` reaches only the kernel's own data; files that wait in RAM are written back by fsync,
/// `flashsift flush` and the end of the mount.
// Promises: Mount 9.
#[test]
fn sync_does_not_reach_files_in_ram() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    create(&mounted.at("file"), b"x");
    rustix::fs::syncfs(directory(&mounted.ext4.mountpoint())).unwrap();
    run("sync", &[]);
    assert!(!mounted.below("file").exists());
}

/// A program that reads a file which another one replaces all the time gets one content or the
/// other. The kernel asks for a file by its number, and one that had just lost its last name was
/// gone: `ESTALE`, in 7 of 1,000 opens. An `O_PATH` descriptor keeps a file without a name, too.
// Promises: Mount 11.
#[test]
fn a_file_that_is_replaced_can_be_opened_in_the_same_moment() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let (file, next) = (mounted.at("file"), mounted.at("next"));
    fs::write(&file, "content").unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for n in 0..4000 {
                let content = fs::read_to_string(&file).unwrap_or_else(|error| {
                    panic!("open {n}: {error}");
                });
                assert_eq!(content, "content");
            }
        });
        while !reader.is_finished() {
            fs::write(&next, "content").unwrap();
            fs::rename(&next, &file).unwrap();
        }
    });
    fs::write(&next, "").unwrap();
    let path = rustix::fs::open(&file, OFlags::PATH, Mode::empty()).unwrap();
    fs::remove_file(&file).unwrap();
    let opened = format!("/proc/self/fd/{}", path.as_raw_fd());
    assert_eq!(fs::read_to_string(&opened).unwrap(), "content");
    assert_eq!(fs::metadata(&opened).unwrap().nlink(), 0);
    drop(path);
    // The kernel forgets it some time after that.
    while mounted.status()["files_in_ram"] != 1 {}
}

/// Any name that Linux takes, and clear errors for what it does not.
#[test]
fn odd_names_are_kept() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    let longest = vec![b'x'; 255];
    let names: [&[u8]; 7] =
        [b"\xff\xfe not UTF-8", b"line\nbreak", b" ", b"-rf", b"*", b"%s%n\\", &longest];
    for name in names {
        create(&mounted.ext4.mountpoint().join(OsStr::from_bytes(name)), name);
    }
    let link = mounted.at("link");
    symlink(OsStr::from_bytes(&[b'y'; 4095]), &link).unwrap();
    assert_eq!(fs::read_link(&link).unwrap().as_os_str().len(), 4095);
    fs::remove_file(link).unwrap();
    let long = fs::write(mounted.at(&"x".repeat(256)), "");
    assert_eq!(long.unwrap_err().raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    // Ours is not to be had.
    for (name, made) in [
        ("file", fs::write(mounted.at(".flashsift"), "")),
        ("directory", fs::create_dir(mounted.at(".flashsift"))),
    ] {
        assert!(made.is_err(), "a {name} named .flashsift");
    }
    assert!(mounted.end(super::End::Unmount).success());
    for name in names {
        assert_eq!(fs::read(mounted.ext4.backing().join(OsStr::from_bytes(name))).unwrap(), name);
    }
    assert_eq!(fs::read_dir(mounted.ext4.backing()).unwrap().count(), names.len());
}

/// A file keeps its inode number as long as the mount lives: through write-back, renames and new
/// lookups.
// Promises: Mount 27.
#[test]
fn a_file_keeps_its_number() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    fs::create_dir(mounted.at("d")).unwrap();
    create(&mounted.at("d/file"), b"x");
    let number = |name: &str| fs::metadata(mounted.at(name)).unwrap().ino();
    let (file, folder) = (number("d/file"), number("d"));
    mounted.settle();
    assert_eq!(number("d/file"), file);
    fs::rename(mounted.at("d"), mounted.at("e")).unwrap();
    // The kernel forgets all that it can.
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    assert_eq!((number("e/file"), number("e")), (file, folder));
    let listed: Vec<_> = fs::read_dir(mounted.at("e"))
        .unwrap()
        .map(|entry| std::os::unix::fs::DirEntryExt::ino(&entry.unwrap()))
        .collect();
    assert_eq!(listed, [file], "readdir tells the same");
}

#[test]
fn status_reports_the_files_in_ram() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    create(&mounted.at("file"), &bytes(1, 100 * KIB));
    let output = Command::new(super::FLASHSIFT)
        .arg("status")
        .arg(mounted.ext4.mountpoint())
        .arg("--json")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let through: serde_json::Value = mounted.status();
    let keys = |value: &serde_json::Value| {
        value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>()
    };
    assert!(keys(&status).is_superset(&keys(&through)), "{status} {through}");
    run(super::FLASHSIFT, &[Path::new("flush"), &mounted.ext4.mountpoint()]);
    assert_eq!(fs::read(mounted.below("file")).unwrap(), bytes(1, 100 * KIB));
}

/// In place: an application sees its directory as before, with its files, and so does every process
/// after the end.
#[test]
fn in_place_the_directory_is_its_own_backing() {
    let Some(ext4) = super::Ext4::new() else { return };
    let place = ext4.backing().join("profile");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("old"), "old").unwrap();
    let mut command = Command::new(super::FLASHSIFT);
    ended(command.arg("mount").args([&place, &place]).args(LATE), 0);
    // Without --foreground it returns once mounted.
    assert!(super::is_mounted(&place));
    let seen = fs::read(place.join("old")).unwrap();
    create(&place.join("new"), b"new");
    run(super::FLASHSIFT, &[Path::new("unmount"), &place]);
    assert!(!super::is_mounted(&place));
    assert_eq!(seen, b"old");
    let names: Vec<_> = tree(&place).into_keys().collect();
    assert_eq!(names, ["new", "old"]);
    assert!(!place.join(".flashsift").exists());
}

/// Without root there is no passthrough, which is said; all else holds.
// Promises: Mount 47.
#[test]
fn a_mount_works_for_a_plain_user() {
    let Some(ext4) = super::Ext4::new() else { return };
    let device = fs::metadata("/dev/fuse").map_or(0, |about| about.mode());
    if Command::new("fusermount3").arg("--version").output().is_err() || device & 0o006 != 0o006 {
        return skip("fusermount3 is not installed, or /dev/fuse not for all");
    }
    // She has a name, without which fusermount3 does nothing for her.
    const ANN: u32 = 65534;
    // Where she may run it.
    let program = ext4.path("flashsift");
    // Not by this process: as in `programs_run_from_the_mount`.
    assert!(Command::new("cp").arg(super::FLASHSIFT).arg(&program).status().unwrap().success());
    let (backing, mountpoint) = (ext4.backing().join("anns"), ext4.mountpoint().join("anns"));
    for place in [&backing, &mountpoint] {
        fs::create_dir(place).unwrap();
        std::os::unix::fs::chown(place, Some(ANN), Some(ANN)).unwrap();
    }
    let ann = |arguments: &[&Path]| {
        let mut command = Command::new(&program);
        let output = command.args(arguments).uid(ANN).gid(ANN).current_dir("/").output().unwrap();
        (output.status.success(), text(output.stdout) + &text(output.stderr))
    };
    let options: Vec<_> = LATE.iter().map(Path::new).collect();
    let (success, messages) =
        ann(&[&[Path::new("mount"), &backing, &mountpoint][..], &options].concat());
    assert!(success, "{messages}");
    assert!(messages.contains("passthrough"), "the lack of passthrough is reported: {messages}");
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo hello > file; mv file moved; mkdir d; cat moved"]).uid(ANN).gid(ANN);
    let output = shell.current_dir(&mountpoint).output();
    let waits = !backing.join("moved").exists();
    let (success, messages) = ann(&[Path::new("unmount"), &mountpoint]);
    if !success {
        run("umount", &[Path::new("--lazy"), &mountpoint]);
    }
    assert!(success, "{messages}");
    assert_eq!(text(output.unwrap().stdout), "hello");
    assert!(waits, "it went to flash at once");
    assert_eq!(tree(&backing).keys().collect::<Vec<_>>(), ["d", "moved"]);
    assert_eq!(fs::metadata(backing.join("moved")).unwrap().uid(), ANN);
}

// Promises: Mount 42.
#[test]
fn a_place_in_use_is_not_mounted_over() {
    let Some(ext4) = super::Ext4::new() else { return };
    let file = ext4.mountpoint().join("held");
    let mut user = Command::new("sh")
        .args(["-c", "exec 5> \"$0\"; echo open; read x"])
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 5];
    user.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    let mut command = Command::new(super::FLASHSIFT);
    let output = command.arg("mount").args([ext4.backing(), ext4.mountpoint()]).output().unwrap();
    let messages = text(output.stderr);
    drop(user.stdin.take());
    user.wait().unwrap();
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert!(
        messages.contains(&user.id().to_string()) || messages.contains("sh"),
        "it names the users: {messages}"
    );
    assert!(!super::is_mounted(&ext4.mountpoint()));
}

/// The kernel opens BACKING's file anew for a file that it reads and writes by itself, with the
/// flags of the first open. That file kept `O_APPEND` when the process cleared it, and bytes went
/// to the end.
#[test]
fn a_file_that_appends_no_more_is_written_where_it_should_be() {
    let Some(mut mounted) = Mounted::new(&[]) else { return };
    create(&mounted.at("x.db"), &[b'y'; 100]).sync_all().unwrap();
    let file = File::options().read(true).append(true).open(mounted.at("x.db")).unwrap();
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
    file.write_all_at(b"0123", 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100);
    drop(file);
    mounted.ended();
    let found = fs::read(mounted.below("x.db")).unwrap();
    assert_eq!((found.len(), &found[..5]), (100, &b"0123y"[..]));
}

/// The daemon had the limits of the shell that mounted: another program's write beyond `ulimit -f`
/// ended it, and the files in RAM were lost.
// Promises: Mount 6.
#[test]
fn limits_of_the_shell_are_not_those_of_the_mount() {
    let Some(mut mounted) = Mounted::new(&[]) else { return };
    mounted.ended();
    let scratch = tempfile::tempdir().unwrap();
    let shell = scratch.path().join("shell");
    let script = format!("#!/bin/sh\nulimit -S -f 100; exec {FLASHSIFT} \"$@\"\n");
    fs::write(&shell, script).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    mounted.start_by(&shell);
    let content = bytes(1, MIB);
    create(&mounted.at("large"), &content).sync_all().unwrap();
    mounted.ended();
    assert!(fs::read(mounted.below("large")).unwrap() == content);
}
