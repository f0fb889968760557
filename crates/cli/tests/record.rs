//! `flashsift record` as people run it: ended, killed, without rights.

use flashsift_testbed::{Disk, FileSystem, ended, is_root, or_skip, output, skip, started};
use std::{
    io::{BufReader, Read},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
};

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");

/// A file system that can be recorded, and the path of tracefs; `None`, with a message, if there is
/// none.
fn root() -> Option<(tempfile::TempDir, PathBuf)> {
    if !is_root("recording") {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let kind = output(Command::new("stat").args(["-f", "-c", "%T"]).arg(folder.path())).unwrap();
    if !kind.starts_with("ext") && !kind.starts_with("f2fs") {
        return skip("the temporary directory is neither on ext4 nor on F2FS");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounted = mounts.lines().find(|line| line.contains(" tracefs "));
    let Some(tracefs) = mounted.and_then(|line| line.split(' ').nth(1)) else {
        return skip("tracefs is not mounted, so leftovers cannot be found");
    };
    Some((folder, Path::new(tracefs).join("instances")))
}

/// Begins to record a directory, and waits until it does.
fn begun(folder: &Path, options: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut record = Command::new(FLASHSIFT);
    record
        .args(["record", "-o"])
        .arg(folder.join("t.parquet"))
        .arg("--path")
        .arg(folder)
        .args(options);
    started(&mut record, "recording; Ctrl-C")
}

fn signal(child: &Child, signal: &str) {
    assert!(
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success()
    );
}

/// Instances of that recorder.
fn instances(all: &Path, child: &Child) -> usize {
    let ours = format!("flashsift-{}-", child.id());
    let names = std::fs::read_dir(all).unwrap().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with(&ours)).count()
}

fn described(trace: &Path) -> String {
    ended(Command::new(FLASHSIFT).arg("describe").arg(trace), 0).0
}

// Promises: Record 8.
#[test]
fn an_interrupted_recording_leaves_a_whole_trace_and_nothing_else() {
    let Some((_, all)) = root() else { return };
    // The trace would hold what all other tests write on the file system of their images.
    let disk = Disk::mounted(&FileSystem::new("ext4", 64 << 20), "defaults");
    let Some(disk) = or_skip(disk) else { return };
    let folder = disk.point();
    for end in ["-INT", "-TERM", "-HUP"] {
        let (mut child, mut stderr) = begun(&folder, &[]);
        assert_eq!(instances(&all, &child), 2);
        std::fs::write(folder.join("seen"), vec![1; 100_000]).unwrap();
        signal(&child, end);
        let mut printed = String::new();
        stderr.read_to_string(&mut printed).unwrap();
        assert!(child.wait().unwrap().success(), "{printed}");
        assert_eq!(instances(&all, &child), 0);
        let described = described(&folder.join("t.parquet"));
        assert!(described.contains("/seen") && described.contains("97.7 KiB"), "{described}");
        // Neither the recorder's own writing nor its trace.
        assert!(
            !described.contains("/t.parquet") && !printed.contains("LOST"),
            "{described}{printed}"
        );
        // The trace begins with the recording: mappings from before it once appeared at the
        // machine's start, hours earlier.
        assert!(
            described.lines().take(5).any(|line| line.contains(" s.") || line.contains(" ms.")),
            "{described}"
        );
    }
}

/// A recorder once also removed the instances of others whose names begin with its own, so that a
/// test of requests beside it lost its trace, now and then.
// Promises: Record 9.
#[test]
fn the_next_recorder_removes_the_remains_of_a_killed_one() {
    let Some((folder, all)) = root() else { return };
    let (mut child, _stderr) = begun(folder.path(), &[]);
    signal(&child, "-KILL");
    // Before its end is taken note of, no other recorder removes them.
    assert_eq!(instances(&all, &child), 2, "a killed recorder cannot clean up");
    child.wait().unwrap();
    assert!(!folder.path().join("t.parquet").exists(), "a trace appears whole or not at all");
    let of_others = all.join(format!("flashsift-other-{}", child.id()));
    std::fs::create_dir(&of_others).unwrap();
    let next = Command::new(FLASHSIFT)
        .args(["record", "-o"])
        .arg(folder.path().join("next.parquet"))
        .args(["--", "ls", "/"])
        .output()
        .unwrap();
    let is_left = std::fs::remove_dir(&of_others);
    assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    assert_eq!(instances(&all, &child), 0);
    assert!(is_left.is_ok(), "{is_left:?}");
}

// Promises: Record 8.
#[test]
fn a_recording_ends_after_its_time_or_size() {
    let Some((folder, _)) = root() else { return };
    let (mut child, _stderr) = begun(folder.path(), &["--for", "0.3s"]);
    assert!(child.wait().unwrap().success());
    let (mut child, mut stderr) = begun(folder.path(), &["--max-size", "100KiB"]);
    // Enough for it; whatever comes later, it has ended.
    for n in 0..20_000 {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        std::fs::write(folder.path().join("again"), format!("{n}")).unwrap();
    }
    let mut printed = String::new();
    stderr.read_to_string(&mut printed).unwrap();
    assert!(child.wait().unwrap().success(), "{printed}");
    assert!(folder.path().join("t.parquet").metadata().unwrap().len() < 200 << 10, "{printed}");
}

#[test]
fn a_running_process_is_recorded_with_what_it_had_open() {
    let Some((folder, _)) = root() else { return };
    let file = folder.path().join("log");
    // It writes a line for each that it is given.
    let script = format!("exec 5>>{}; while read x; do echo $x >&5; done", file.display());
    let mut shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    use std::io::Write;
    let mut lines = shell.stdin.take().unwrap();
    writeln!(lines, "before").unwrap();
    while std::fs::read(&file).unwrap_or_default().is_empty() {
        std::thread::yield_now();
    }
    let trace = folder.path().join("t.parquet");
    let mut record = Command::new(FLASHSIFT);
    record.args(["record", "-o"]).arg(&trace).args(["--pid", &shell.id().to_string()]);
    let (mut recorder, _stderr) = started(&mut record, "recording; Ctrl-C");
    writeln!(lines, "during").unwrap();
    drop(lines);
    shell.wait().unwrap();
    // It ends with what it records.
    assert!(recorder.wait().unwrap().success());
    let described = described(&trace);
    assert!(described.contains("/log") && described.contains("sh "), "{described}");
}

/// Containers, and services with `PrivateMounts=` or `ProtectSystem=`, have mounts of their own. A
/// file that one of them had open was once not looked at, since its mount was in no table of the
/// recorder: it had no name and no size, and what was appended to it allocated nothing in the
/// models. Its name is that of this namespace.
// Promises: Record 16.
#[test]
fn a_file_that_a_container_has_open_has_its_name_and_size() {
    let Some((folder, _)) = root() else { return };
    let (here, there) = (folder.path().join("volume"), folder.path().join("there"));
    std::fs::create_dir(&here).unwrap();
    std::fs::create_dir(&there).unwrap();
    std::fs::write(here.join("old.log"), vec![b'x'; 5000]).unwrap();
    let script = "set -e; mount --bind \"$0\" \"$1\"; exec 5>>\"$1/old.log\"; echo ready
        while read x; do echo $x >&5; done";
    let mut shell = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .args([&here, &there])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = shell.stdin.take().unwrap();
    let mut ready = [0; 6];
    shell.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    let trace = folder.path().join("t.parquet");
    let mut record = Command::new(FLASHSIFT);
    record.args(["record", "-o"]).arg(&trace).args(["--pid", &shell.id().to_string()]);
    let (mut recorder, _stderr) = started(&mut record, "recording; Ctrl-C");
    std::io::Write::write_all(&mut lines, b"during\n").unwrap();
    drop(lines);
    shell.wait().unwrap();
    assert!(recorder.wait().unwrap().success());
    let rows = csv(&trace);
    let has = |parts: &[&str]| rows.lines().any(|row| parts.iter().all(|part| row.contains(part)));
    let path = here.join("old.log");
    assert!(has(&[",bind,0,", path.to_str().unwrap()]) && has(&[",size,0,5000,"]), "{rows}");
}

/// The rows of a trace, as CSV.
fn csv(trace: &Path) -> String {
    let csv = trace.with_extension("csv");
    let import =
        Command::new(FLASHSIFT).arg("import").arg(trace).arg("-o").arg(&csv).output().unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    std::fs::read_to_string(csv).unwrap()
}

/// The number of rows of a trace with this action.
fn events(trace: &Path, action: &str) -> usize {
    let csv = csv(trace);
    csv.lines().filter(|line| line.split(',').nth(1) == Some(action)).count()
}

/// Databases sync the directory of a new file. If it was there before, and was opened as ".", this
/// was once the sync of a file without a name: a quarter of SQLite's syncs in one recording.
// Promises: Traces 29.
#[test]
fn a_sync_of_a_directory_is_no_sync_of_a_file() {
    let Some((folder, _)) = root() else { return };
    for means in ["--strace=never", "--strace=always"] {
        let trace = folder.path().join("t.parquet");
        let below = folder.path().join("below");
        std::fs::create_dir_all(&below).unwrap();
        let output = Command::new(FLASHSIFT)
            .args(["record", means, "-o"])
            .arg(&trace)
            .args(["--", "sh", "-c", "echo hello > f; sync f; sync ."])
            .current_dir(&below)
            .output()
            .unwrap();
        let says = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{says}");
        assert_eq!(events(&trace, "sync"), 1, "{means}: {says}");
        assert_eq!(events(&trace, "sync-directory"), 1, "{means}: {says}");
    }
}

/// `record -- true` once ended with "part: No such device" beside a mount in place on a partition,
/// whose mount point then leads to flashsift's file system.
// Promises: Record 25.
#[test]
fn a_partition_below_a_mount_in_place_is_named_and_left_out() {
    let Some((folder, _)) = root() else { return };
    let disk = Disk::mounted(&FileSystem::new("ext4", 64 << 20), "defaults");
    let Some(mut disk) = or_skip(disk) else { return };
    let point = disk.point();
    let mut mount = Command::new(FLASHSIFT);
    if or_skip(output(mount.args(["mount", "--force"]).args([&point, &point]))).is_none() {
        return;
    }
    let output = Command::new(FLASHSIFT)
        .args(["record", "-o"])
        .arg(folder.path().join("t.parquet"))
        .args(["--", "sh", "-c", "true; cat /etc/passwd"])
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{says}");
    assert!(says.contains("/m (ext4) is hidden by another mount over it"), "{says}");
    flashsift_testbed::output(Command::new(FLASHSIFT).arg("unmount").arg(&point)).unwrap();
    disk.unmount().expect("the partition can be unmounted after it");
}

/// In a mount namespace of its own: `$1` is flashsift, `$2` an empty directory.
fn in_own_namespace(folder: &Path, script: &str) -> Option<Output> {
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([Path::new(FLASHSIFT), folder])
        .output();
    match output {
        Ok(output) if output.status.code() != Some(99) => Some(output),
        other => skip(format_args!("it cannot mount here: {other:?}")),
    }
}

/// The recorder took the first tracefs of the table of mounts, in whatever directory: here, in that
/// of another user. Its recording ended when that was unmounted.
// Promises: Record 27.
#[test]
fn a_tracefs_in_the_directory_of_another_user_is_not_used() {
    let Some((folder, _)) = root() else { return };
    // In turn: without the system's own, and beside it.
    for own in ["umount -l /sys/kernel/tracing; umount -l /sys/kernel/debug", "true"] {
        let script = format!(
            "mkdir -p \"$2/theirs\" || exit 99
             {own}
             mount -t tracefs theirs \"$2/theirs\" || exit 99
             exec \"$1\" record -o \"$2/t.parquet\" --path \"$2\" -- \
                sh -c 'umount -l \"$0/theirs\" && umount -l /sys/kernel/tracing
                  echo x > \"$0/seen\"' \
                \"$2\""
        );
        let Some(output) = in_own_namespace(folder.path(), &script) else { return };
        let says = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !says.contains("could not be removed"), "{says}");
        assert!(described(&folder.path().join("t.parquet")).contains("/seen"), "{own}: {says}");
    }
}

/// A mount whose path is not UTF-8, of any user, ended all recordings: "here that is none".
/// Others that come and go are no concern of a recording either, even file systems that it could
/// record: those are recorded as long as they are there.
// Promises: Record 26.
#[test]
fn mounts_that_come_and_go_do_not_end_a_recording() {
    let Some((folder, _)) = root() else { return };
    let image = FileSystem::new("ext4", 16 << 20).make(&folder.path().join("image"));
    if or_skip(image).is_none() {
        return;
    }
    let script = "
        odd=$(printf '%s/odd\\377' \"$2\"); come=\"$2/come\"; image=\"$2/image\"
        mkdir \"$odd\" \"$come\" && mount -t tmpfs odd \"$odd\" || exit 99
        mkdir \"$odd/disk\" || exit 99
        mount -o loop \"$image\" \"$odd/disk\" || exit 99
        umount \"$odd/disk\" || exit 99
        mount -o loop \"$image\" \"$come\" || exit 99
        exec \"$1\" record -o \"$2/t.parquet\" -- sh -c '
            echo x > \"$0/first\"
            for n in 1 2 3 4 5 6 7 8; do
                umount -l \"$0/come\"
                mount -t tmpfs come \"$0/come\"
                echo x > \"$0/come/unseen\"
                umount -l \"$0/come\"
                mount -o loop \"$1\" \"$0/come\"
                mkdir \"$0/$n\"; mount -t tmpfs more \"$0/$n\"; umount \"$0/$n\"
            done
            umount -l \"$0/come\"
            echo x > \"$0/last\"' \"$2\" \"$image\"";
    let Some(output) = in_own_namespace(folder.path(), script) else { return };
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{says}");
    let trace = folder.path().join("t.parquet");
    let described = described(&trace);
    assert!(described.contains("/first") && described.contains("/last"), "{described}{says}");
    assert!(!described.contains("unseen"), "{described}");
}

/// As Chromium starts its processes: the kernel calls them `exe`.
#[test]
fn a_program_that_starts_itself_again_keeps_its_name() {
    let Some((folder, _)) = root() else { return };
    let trace = folder.path().join("t.parquet");
    let script =
        format!("exec /proc/self/exe -c 'echo hello > {}/written'", folder.path().display());
    let output = Command::new(FLASHSIFT)
        .args(["record", "-o"])
        .arg(&trace)
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let described = described(&trace);
    let named = |name: &str| described.lines().any(|line| line.trim_start().starts_with(name));
    assert!(described.contains("/written") && named("sh ") && !named("exe "), "{described}");
}

#[test]
fn a_plain_user_gets_instructions_for_recording() {
    let Some((folder, _)) = root() else { return };
    // A directory that other users may not read.
    let program = folder.path().join("flashsift");
    // Not by this process: others that it starts would hold the copy open, which cannot run then.
    assert!(Command::new("cp").arg(FLASHSIFT).arg(&program).status().unwrap().success());
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    const NOBODY: u32 = 65534;
    let plain = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["record", "-o", "t.parquet"]).args(arguments).current_dir(folder.path());
        let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, printed) = plain(&["--path", "."]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("needs root: run it with sudo"), "{printed}");
    // A program can still be recorded.
    let (code, printed) = plain(&["--", "sh", "-c", "echo hello > written; cat written"]);
    if printed.contains("strace is not installed") {
        return skip("second part: strace is not installed");
    }
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("recording with strace, which slows") && printed.contains("sudo"),
        "{printed}"
    );
    assert!(described(&folder.path().join("t.parquet")).contains("/written"));
}

// Promises: Record 13.
#[test]
fn names_can_be_hidden() {
    let Some((folder, _)) = root() else { return };
    let trace = folder.path().join("t.parquet");
    let script = format!("echo hello > {}/letter-to-ann.txt", folder.path().display());
    let output = Command::new(FLASHSIFT)
        .args(["record", "--anonymize", "-o"])
        .arg(&trace)
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success());
    let described = described(&trace);
    assert!(
        described.contains(".txt") && !described.contains("letter") && !described.contains("tmp"),
        "{described}"
    );
}

#[test]
fn impossible_requests_to_record_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let printed = |arguments: &[&str]| {
        let output = Command::new(FLASHSIFT)
            .arg("record")
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = printed(&["-o", "t"]);
    assert!(code == Some(2) && text.contains("nothing to record"), "{text}");
    let (code, text) = printed(&["-o", "-", "--", "true"]);
    assert!(code == Some(2) && text.contains("standard output"), "{text}");
    let (code, text) = printed(&["-o", "t", "--for", "never", "--", "true"]);
    assert!(code == Some(2) && text.contains("90s, 10m, 1h or 7d"), "{text}");
    let (code, text) = printed(&["-o", "t", "--", "/no/such/program"]);
    assert!(code == Some(1) && text.contains("/no/such/program"), "{text}");
    assert!(!folder.path().join("t").exists());
}
