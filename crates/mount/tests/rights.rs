//! Rights that the kernel leaves to us, through the kernel. Needs root, `setpriv` and `chattr`.

use flashsift_mount::attach::{AttachOptions, undo};
use flashsift_mount::daemon::session::{self, Serving};
use flashsift_mount::{Config, Fs, Store};
use flashsift_testbed::{is_root, skip};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

struct Mounted {
    fs: Arc<Fs>,
    folder: tempfile::TempDir,
    running: Option<session::Running>,
}

impl Mounted {
    /// `None` where it cannot be had.
    fn new(passthrough: bool) -> Option<Mounted> {
        if !is_root("mounting for others") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        for name in ["backing", "mount"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let backing = File::open(folder.path().join("backing")).unwrap();
        let store = Store::detached_tmpfs(1 << 20).unwrap();
        let fs = Arc::new(Fs::new(backing.into(), store, Config::default()).unwrap());
        let options = AttachOptions {
            mountpoint: folder.path().join("mount"),
            name: "test".into(),
            allow_other: true,
            kernel: Vec::new(),
        };
        let running = Some(
            session::start(fs.clone(), &options, Serving { passthrough, xattrs: true, threads: 2 })
                .unwrap(),
        );
        Some(Mounted { fs, folder, running })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("mount").join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = undo::unmount(&self.folder.path().join("mount"), true);
        let _ = self.running.take().map(session::Running::wait);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Another process has a file open for writing when the file becomes setuid; its next write clears
/// the bit. The kernel requested that by a `setattr` without changes, which did nothing: through
/// passthrough, root's rights kept the bit.
// Promises: Mount 35.
#[test]
fn a_write_by_another_user_clears_setuid() {
    for passthrough in [true, false] {
        let Some(mounted) = Mounted::new(passthrough) else { return };
        for settled in [false, true] {
            let path = mounted.path(if settled { "settled" } else { "in-ram" });
            fs::write(&path, "content").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
            if settled {
                mounted.fs.settle_all().unwrap();
            }
            let mut other = Command::new("setpriv")
                .args(["--reuid=12001", "--regid=12001", "--clear-groups", "sh", "-c"])
                .args([r#"exec 3<>"$0"; echo open; read -r _; echo evil >&3"#])
                .arg(&path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut open = String::new();
            BufReader::new(other.stdout.take().unwrap()).read_line(&mut open).unwrap();
            assert_eq!(open, "open\n");
            fs::set_permissions(&path, Permissions::from_mode(0o4777)).unwrap();
            other.stdin.take().unwrap().write_all(b"go\n").unwrap();
            assert!(other.wait().unwrap().success());
            assert_eq!(mode(&path), 0o777, "passthrough: {passthrough}, settled: {settled}");
        }
    }
}

/// A file that is append-only in BACKING cannot be overwritten through the mount. It was opened for
/// reading then, and passed through to the kernel, which opened it again for writing.
// Promises: Mount 35.
#[test]
fn an_append_only_file_is_not_overwritten() {
    for passthrough in [true, false] {
        let Some(mounted) = Mounted::new(passthrough) else { return };
        let (path, below) = (mounted.path("log"), mounted.folder.path().join("backing/log"));
        fs::write(&path, "old").unwrap();
        mounted.fs.settle_all().unwrap();
        if !Command::new("chattr")
            .arg("+a")
            .arg(&below)
            .status()
            .is_ok_and(|status| status.success())
        {
            return skip("no chattr +a here");
        }
        let overwritten =
            OpenOptions::new().write(true).open(&path).map(|file| file.write_all_at(b"new", 0));
        let cut = OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(0));
        let appended =
            OpenOptions::new().append(true).open(&path).and_then(|mut file| file.write_all(b"end"));
        let now = fs::read_to_string(&below).unwrap();
        assert!(Command::new("chattr").arg("-a").arg(&below).status().unwrap().success());
        assert!(now.starts_with("old") && now.ends_with("end"), "{now}: {overwritten:?}");
        cut.unwrap_err();
        appended.unwrap();
    }
}

/// `chown` of a file to no one asks for the same as a write: any user who reached root's file
/// removed setuid and setgid from it, and setgid from directories.
// Promises: Mount 35.
#[test]
fn a_chown_to_no_one_clears_setuid_for_the_owner_alone() {
    const CHOWN: &str = "exit !chown(-1, -1, $ARGV[0])";
    let Some(mounted) = Mounted::new(true) else { return };
    let (file, directory) = (mounted.path("file"), mounted.path("directory"));
    fs::write(&file, "content").unwrap();
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o2755)).unwrap();
    for settled in [false, true] {
        fs::set_permissions(&file, Permissions::from_mode(0o6755)).unwrap();
        if settled {
            mounted.fs.settle_all().unwrap();
        }
        // That it reads the file gives it no right.
        let _open = File::open(&file).unwrap();
        for path in [&file, &directory] {
            let _ = Command::new("setpriv")
                .args(["--reuid=12001", "--regid=12001", "--clear-groups", "perl", "-e", CHOWN])
                .arg(path)
                .status()
                .unwrap();
        }
        assert_eq!((mode(&file), mode(&directory)), (0o6755, 0o2755), "settled: {settled}");
        std::os::unix::fs::chown(&file, None, None).unwrap();
        assert_eq!(mode(&file), 0o755);
    }
}

/// A copy in BACKING inherits the default access control list of its directory, which may be newer
/// than the file: another user could read the file after its write-back.
// Promises: Mount 35.
#[test]
fn a_file_gets_no_list_that_its_directory_got_later() {
    let Some(mounted) = Mounted::new(true) else { return };
    let (directory, file) = (mounted.path("directory"), mounted.path("directory/file"));
    fs::create_dir(&directory).unwrap();
    fs::write(&file, "content").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let mut list = Command::new("setfacl");
    if !list.args(["-d", "-m", "u:12001:rw"]).arg(&directory).status().is_ok_and(|it| it.success())
    {
        return skip("no access control lists here");
    }
    mounted.fs.settle_all().unwrap();
    let below = mounted.folder.path().join("backing/directory/file");
    let list = rustix::fs::getxattr(&below, "system.posix_acl_access", &mut [0_u8; 100][..]);
    assert_eq!((mode(&below), list), (0o640, Err(rustix::io::Errno::NODATA)));
}
