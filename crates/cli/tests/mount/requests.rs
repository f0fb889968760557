//! The kernel's requests to the daemon, counted by kind: each costs an application two wake-ups of
//! another process.

use super::files::acl;
use crate::mount::*;
use flashsift_testbed::or_skip;
use rustix::{fs::XattrFlags, io::Errno};
use std::os::unix::fs::FileExt;

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// The requests of one mount, as the kernel's tracepoint shows them; removed on drop.
struct Requests {
    instance: PathBuf,
}

impl Requests {
    /// `None`, with the reason printed, where they cannot be seen.
    fn of(mounted: &Mounted) -> Option<Self> {
        let instance = format!("requests-flashsift-{}", std::process::id());
        let requests = Self { instance: Path::new(INSTANCES).join(instance) };
        let traced = || {
            fs::create_dir(&requests.instance)?;
            let event = requests.instance.join("events/fuse/fuse_request_send");
            // The kernel's number of a device without a major one.
            let minor = rustix::fs::minor(fs::metadata(mounted.ext4.mountpoint())?.dev());
            fs::write(event.join("filter"), format!("connection == {minor}"))?;
            fs::write(event.join("enable"), "1")
        };
        let traced = traced().map(|()| requests);
        or_skip(traced.map_err(|why| format!("the tracepoint fuse_request_send: {why}")))
    }

    /// The number of each kind so far, without those for which no process waits.
    fn counted(&self) -> BTreeMap<String, u32> {
        let mut counted = BTreeMap::new();
        for line in fs::read_to_string(self.instance.join("trace")).unwrap().lines() {
            let Some((_, kind)) = line.split_once("(FUSE_") else { continue };
            let kind = kind.split(')').next().unwrap();
            if !["FORGET", "BATCH_FORGET"].contains(&kind) {
                *counted.entry(kind.to_owned()).or_default() += 1;
            }
        }
        counted
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let _ = fs::write(self.instance.join("events/fuse/fuse_request_send/enable"), "0");
        let _ = fs::remove_dir(&self.instance);
    }
}

/// Performs the operations of a browser on entries of its cache and on their directory.
fn keep_entries(at: &Path) {
    fs::create_dir(at).unwrap();
    for name in ["1", "2", "3"] {
        let (temporary, entry) = (at.join("new"), at.join(name));
        let file = File::create_new(&temporary).unwrap();
        for part in 0..4 {
            file.write_all_at(&[7; 24], part * 24).unwrap();
        }
        file.set_len(96).unwrap();
        file.write_all_at(&[8; 3000], 96).unwrap();
        file.set_len(3096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3096);
        drop(file);
        fs::rename(&temporary, &entry).unwrap();
        assert_eq!(fs::metadata(&entry).unwrap().len(), 3096);
        assert_eq!(fs::read(&entry).unwrap().len(), 3096);
    }
    fs::remove_file(at.join("1")).unwrap();
    assert_eq!(fs::read_dir(at).unwrap().count(), 2);
}

/// The number of requests is what a cache costs its application. After each change of its size the
/// kernel asks for a file's capability; not with `--no-xattr`, where it learns at the first
/// question that there are none. A change here that adds a request says why.
#[test]
fn requests_of_a_cache_are_counted_by_kind() {
    let expected = |getxattr| {
        let mut expected = BTreeMap::from([
            ("CREATE", 3),
            // The first alone: it is answered with ENOSYS.
            ("FLUSH", 1),
            // After each change of a directory, the kernel forgets its attributes.
            ("GETATTR", 11),
            ("LOOKUP", 7),
            ("MKDIR", 1),
            ("OPEN", 3),
            ("OPENDIR", 1),
            ("READ", 6),
            ("READDIR", 1),
            ("READDIRPLUS", 1),
            ("RELEASE", 6),
            ("RELEASEDIR", 1),
            ("RENAME", 3),
            ("SETATTR", 6),
            ("UNLINK", 1),
            ("WRITE", 15),
        ]);
        expected.insert("GETXATTR", getxattr);
        expected
            .into_iter()
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect::<BTreeMap<_, _>>()
    };
    for (options, getxattr) in [(&LATE[..], 6), (&[LATE[0], LATE[1], "--no-xattr"][..], 1)] {
        let Some(mut mounted) = Mounted::new(options) else { return };
        let Some(requests) = Requests::of(&mounted) else { return };
        keep_entries(&mounted.at("cache"));
        assert_eq!(requests.counted(), expected(getxattr), "{options:?}");
        mounted.ended();
    }
}

/// Without extended attributes the kernel passes none on, so that the commands for a mount reach it
/// in another way. An access control list would be lost: the kernel would ask for it in vain.
// Promises: Mount 40.
#[test]
fn without_extended_attributes_the_commands_reach_a_mount() {
    let options = [&LATE[..], &["--no-xattr", "--sift", "controller"]].concat();
    let Some(mut mounted) = Mounted::new(&options) else { return };
    create(&mounted.at("a"), b"content");
    let xattr = |name| rustix::fs::getxattr(mounted.at("a"), name, &mut [0; 8]);
    assert_eq!(xattr("security.capability"), Err(Errno::OPNOTSUPP));
    assert_eq!(xattr("user.flashsift.explain"), Err(Errno::OPNOTSUPP), "it asks no more");
    let set = rustix::fs::setxattr(mounted.at("a"), "user.x", b"x", XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::listxattr(mounted.at("a"), &mut [0; 8]), Ok(0));
    let mountpoint = mounted.ext4.mountpoint();
    let status = Command::new(FLASHSIFT).args(["status", "--json"]).arg(&mountpoint).output();
    let status: serde_json::Value = serde_json::from_slice(&status.unwrap().stdout).unwrap();
    assert_eq!(status["files_in_ram"], 1, "{status}");
    for command in [&["sift", "dry-run"][..], &["flush"]] {
        let words: Vec<&Path> = command.iter().map(Path::new).chain([&*mountpoint]).collect();
        run(FLASHSIFT, &words);
    }
    assert_eq!(fs::read(mounted.below("a")).unwrap(), b"content");
    mounted.ended();
    let entries = [(1, 7, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX)];
    let list = acl(&[&entries[..], &[(32, 4, u32::MAX)]].concat());
    let name = "system.posix_acl_access";
    rustix::fs::setxattr(mounted.below("a"), name, &list, XattrFlags::empty()).unwrap();
    let refused = Command::new(FLASHSIFT)
        .args(["mount", "--no-xattr"])
        .args([mounted.ext4.backing(), mountpoint])
        .output()
        .unwrap();
    let words = text(refused.stderr);
    assert!(!refused.status.success() && words.contains(name), "{words}");
}
