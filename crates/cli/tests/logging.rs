//! Messages go to standard error or to the journal, as `-v`, `-q` and `JOURNAL_STREAM` say.

use flashsift_testbed::{ended, is_root};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::UnshareFlags,
};
use std::{
    fs::{self, File},
    os::unix::{
        fs::{MetadataExt, symlink},
        net::UnixDatagram,
    },
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

/// Two correct lines, one that is not understood, and one request of no bytes.
const TRACE: &str = "\
128166372003061629,hm,0,Read,383496192,32768,113736
128166372016382155,hm,0,Write,2822144000,4096,151
this is not a line of this format
128166372026382245,hm,0,Write,2822144000,0,28
";

fn flashsift() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashsift"));
    command.env_clear().stdin(Stdio::null());
    command
}

fn trace(folder: &Path) -> String {
    let path = folder.join("t.csv");
    fs::write(&path, TRACE).unwrap();
    path.to_str().unwrap().to_owned()
}

fn compare(trace: &str) -> Command {
    let mut command = flashsift();
    command.args(["compare", trace, "--format", "msr", "--policy", "lru", "--frames", "1"]);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// Promises: Command line 6.
#[test]
fn quiet_leaves_warnings_and_errors() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let printed = |flags: &[&str]| {
        let (results, says) = ended(compare(&trace).args(flags), 0);
        // The row of the policy ends with the CPU time of this run, whose digits also set the width
        // of that column: a time of 100 ns and more once moved the header of one of two runs.
        let (row, rest): (Vec<_>, Vec<_>) =
            results.lines().partition(|line| line.starts_with("  lru "));
        assert_eq!(row.len(), 1, "{results}");
        let words = |line: &&str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let rest: Vec<String> = rest.iter().map(words).collect();
        (rest.join("\n"), says)
    };
    let (results, all) = printed(&[]);
    assert!(all.contains("t.csv: msr, "), "{all}");
    assert!(all.contains("  note: left out: 1 request of no bytes\n"), "{all}");
    let (same, warnings) = printed(&["-q"]);
    assert_eq!(same, results, "results are no messages");
    assert!(warnings.contains("  skipped 1: "), "{warnings}");
    assert!(!warnings.contains("t.csv") && !warnings.contains("note:"), "{warnings}");
    let (same, nothing) = printed(&["-qq"]);
    assert_eq!((same, nothing), (results, String::new()));
    let error = flashsift().args(["-qq", "describe", "/no/such/file"]).output().unwrap();
    assert!(text(&error.stderr).starts_with("flashsift: "), "{}", text(&error.stderr));
}

// Promises: Command line 6.
#[test]
fn verbose_adds_debugging_messages() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let printed = |flags: &[&str]| text(&compare(&trace).args(flags).output().unwrap().stderr);
    assert!(!printed(&[]).contains("flashsift: debug: "));
    assert!(printed(&["-v"]).contains("flashsift: debug: "), "{}", printed(&["-v"]));
}

/// mount(8) runs a helper, whose command line is not the one that starts logging.
#[test]
fn a_remount_that_fails_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let helper = folder.path().join("mount.flashsift");
    symlink(env!("CARGO_BIN_EXE_flashsift"), &helper).unwrap();
    let output =
        Command::new(helper).args(["x", "/no/such/place", "-o", "remount"]).output().unwrap();
    assert_eq!(output.status.code(), Some(32));
    assert!(text(&output.stderr).starts_with("flashsift: "), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("/no/such/place"), "{}", text(&output.stderr));
}

const JOURNAL: &str = "/run/systemd/journal/socket";
/// Bytes that follow the last entry.
const END: &[u8] = b"end";

/// Runs `command` where the journal's socket is one of the test, and returns the entries that were
/// sent to it too. Only the thread and the command see the other `/run`.
fn with_journal(mut command: Command) -> (Output, Vec<String>) {
    thread::spawn(move || {
        // SAFETY: the table of file descriptors stays shared.
        #[allow(unsafe_code, reason = "rustix marks every unshare as unsafe")]
        unsafe {
            rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS).unwrap();
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        mount("none", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
        fs::create_dir_all(Path::new(JOURNAL).parent().unwrap()).unwrap();
        let journal = UnixDatagram::bind(JOURNAL).unwrap();
        // The socket holds few datagrams, so they are taken out while the command runs.
        thread::scope(|scope| {
            let entries = scope.spawn(|| {
                let mut entries = Vec::new();
                let mut buffer = vec![0; 1 << 16];
                loop {
                    let bytes = journal.recv(&mut buffer).unwrap();
                    match &buffer[..bytes] {
                        END => return entries,
                        entry => entries.push(text(entry)),
                    }
                }
            });
            let output = command.output().unwrap();
            UnixDatagram::unbound().unwrap().send_to(END, JOURNAL).unwrap();
            (output, entries.join().unwrap())
        })
    })
    .join()
    .unwrap()
}

// Promises: Command line 7.
#[test]
fn a_service_logs_to_the_journal_with_levels() {
    if !is_root("a mount namespace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let stream = || {
        let file = File::create(folder.path().join("stream")).unwrap();
        let stat = file.metadata().unwrap();
        (file, format!("{}:{}", stat.dev(), stat.ino()))
    };

    let (file, name) = stream();
    let mut service = compare(&trace);
    service.env("JOURNAL_STREAM", name).stderr(file);
    let (output, entries) = with_journal(service);
    assert!(output.status.success());
    assert_eq!(fs::read_to_string(folder.path().join("stream")).unwrap(), "", "once is enough");
    let entry = |part: &str| entries.iter().find(|entry| entry.contains(part)).unwrap().clone();
    let (summary, skipped) = (entry("t.csv: msr, "), entry("skipped 1: "));
    // A value follows its length, 64 bits in little-endian order.
    let priority = |level: u8| format!("PRIORITY\n\u{1}{}{level}\n", "\0".repeat(7));
    assert!(summary.contains(&priority(5)) && skipped.contains(&priority(4)), "{entries:#?}");
    assert!(summary.contains("SYSLOG_IDENTIFIER"), "{summary}");

    // A terminal opened from a service inherits the variable; its messages belong to the terminal.
    let mut elsewhere = compare(&trace);
    elsewhere.env("JOURNAL_STREAM", stream().1).stderr(Stdio::piped());
    let (output, entries) = with_journal(elsewhere);
    assert!(text(&output.stderr).contains("t.csv: msr, "));
    assert!(entries.is_empty(), "{entries:#?}");
}
