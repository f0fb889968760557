//! The bytes that `flashsift describe` charges to programs and files, beside a real ext4 on which
//! four programs write at known rates.

use super::{Counted, Device};
use flashsift_events::page::PAGE_BYTES;
use flashsift_testbed::{ended, or_skip, started};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");
/// Set for the writers, which are this program under other names: the directory in which one works.
const DIRECTORY: &str = "FLASHSIFT_WRITER_DIRECTORY";

/// By file: pages that must reach the device.
type Pages = BTreeMap<&'static str, u64>;
type Writer = (&'static str, fn(&Path) -> Pages);

const WRITERS: [Writer; 4] =
    [("logger", logger), ("ledger", ledger), ("bulk", bulk), ("scratch", scratch)];

/// Appends lines and syncs each: a page is written as often as a line is put into it.
fn logger(directory: &Path) -> Pages {
    const LINES: u64 = 200;
    const LINE_BYTES: u64 = 1000;
    let mut log = File::create_new(directory.join("log")).unwrap();
    let mut pages = 0;
    for n in 0..LINES {
        log.write_all(&[b'l'; LINE_BYTES as usize]).unwrap();
        log.sync_all().unwrap();
        pages += ((n + 1) * LINE_BYTES).div_ceil(PAGE_BYTES) - n * LINE_BYTES / PAGE_BYTES;
    }
    Pages::from([("log", pages)])
}

/// Changes two pages in a transaction with a rollback journal, which it deletes, as SQLite does.
fn ledger(directory: &Path) -> Pages {
    const DB_PAGES: u64 = 256;
    const TRANSACTIONS: u64 = 60;
    let db = File::create_new(directory.join("app.db")).unwrap();
    db.write_all_at(&vec![1; (DB_PAGES * PAGE_BYTES) as usize], 0).unwrap();
    db.sync_all().unwrap();
    for n in 0..TRANSACTIONS {
        let journal = directory.join("app.db-journal");
        let rollback = File::create_new(&journal).unwrap();
        rollback.write_all_at(&[2; 3 * PAGE_BYTES as usize - 100], 0).unwrap();
        rollback.sync_data().unwrap();
        for page in [n * 7 % 128, 128 + n * 11 % 128] {
            db.write_all_at(&[3; PAGE_BYTES as usize], page * PAGE_BYTES).unwrap();
        }
        db.sync_data().unwrap();
        fs::remove_file(&journal).unwrap();
    }
    Pages::from([("app.db", DB_PAGES + 2 * TRANSACTIONS), ("app.db-journal", 3 * TRANSACTIONS)])
}

/// Writes one file, twice, without a sync.
fn bulk(directory: &Path) -> Pages {
    const BULK_PAGES: u64 = 6000;
    let file = File::create_new(directory.join("movie")).unwrap();
    for _ in 0..2 {
        for n in 0..BULK_PAGES / 100 {
            let bytes = [4; 100 * PAGE_BYTES as usize];
            file.write_all_at(&bytes, n * 100 * PAGE_BYTES).unwrap();
        }
    }
    Pages::from([("movie", BULK_PAGES)])
}

/// Makes files that are deleted long before the kernel would write them, and one that ext4 writes
/// when it is closed, because it was cut to nothing, as Chromium makes them.
fn scratch(directory: &Path) -> Pages {
    const SPOOL_PAGES: u64 = 300;
    let spool = directory.join("spool");
    File::create_new(&spool).unwrap();
    let mut file = File::create(&spool).unwrap();
    fs::remove_file(&spool).unwrap();
    file.write_all(&[6; (SPOOL_PAGES * PAGE_BYTES) as usize]).unwrap();
    drop(file);
    for n in 0..40 {
        let path = directory.join(format!("part-{n}"));
        fs::write(&path, vec![5; 1 << 20]).unwrap();
        fs::remove_file(path).unwrap();
    }
    Pages::from([("spool", SPOOL_PAGES)])
}

/// Not a test of its own: the writers run it.
#[test]
fn writer() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let name = directory.file_name().unwrap();
    let (_, write) = WRITERS.iter().find(|(writer, _)| name == *writer).unwrap();
    write(&directory);
    println!("\ndone");
    // The recorder asks for the control group of a running process.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// A control group for each writer, in a hierarchy of the second version.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        let root = mounts.find_map(|mut words| {
            let path = words.nth(1)?;
            (words.next() == Some("cgroup2")).then(|| PathBuf::from(path))
        })?;
        let name = |writer: &str| format!("flashsift-{}-{writer}.service", std::process::id());
        let groups = WRITERS.map(|(writer, _)| root.join(name(writer)));
        groups.iter().try_for_each(fs::create_dir).ok()?;
        Some(Self(groups.to_vec()))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Starts a writer, in its control group from its first instruction on.
fn start(name: &str, program: &Path, directory: &Path, group: Option<&Path>) -> Child {
    let enter = match group {
        Some(group) => format!("echo $$ >'{}/cgroup.procs' && ", group.display()),
        None => String::new(),
    };
    let program = program.display();
    Command::new("sh")
        .arg("-c")
        .arg(format!("{enter}exec '{program}' --exact metadata::attribution::writer --nocapture"))
        .env(DIRECTORY, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Waits until a writer has written everything. Its output stays open.
fn await_done(name: &str, output: ChildStdout) -> BufReader<ChildStdout> {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    while line.trim_end() != "done" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "{name} failed");
    }
    output
}

/// A recorder, which is ended when it is dropped.
struct Recorder(Child);

impl Recorder {
    fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.interrupt();
            let _ = self.0.wait();
        }
    }
}

/// The bytes of each row of a table, by its first column, without journal and metadata.
fn data_bytes(section: &Value, table: &str, key: &str) -> BTreeMap<String, u64> {
    let rows = section[table].as_array().unwrap();
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_u64().unwrap();
        let data = number("reached_bytes") - number("file_system_bytes");
        (row[key].as_str().unwrap().to_owned(), data)
    };
    rows.iter().map(row).collect()
}

fn assert_near(what: &str, found: u64, known: u64, percent: u64) {
    println!("{what}: {found} bytes, {known} are known");
    assert!(found.abs_diff(known) * 100 <= known * percent, "{what}: {found} of {known}");
}

/// Each program, each file and each control group is within 5 % of the known bytes, data within 5 %
/// of what the block layer counts, and everything within 10 %: commits of the model do not begin
/// while the kernel writes the files of a sync.
// Promises: Describe 25, Record 24.
#[test]
fn programs_and_files_are_charged_what_they_write() {
    if !super::may_run() {
        return;
    }
    let Some(device) = or_skip(Device::new("attribution")) else { return };
    let groups = Groups::new();
    let root = device.disk.point();
    let programs = tempfile::tempdir().unwrap();
    let trace = programs.path().join("trace.parquet");
    let mut record = Command::new(FLASHSIFT);
    record.args(["record", "-o"]).arg(&trace).arg("--path").arg(&root);
    let (recorder, mut log) = started(&mut record, "recording; Ctrl-C");
    let mut recorder = Recorder(recorder);

    let mut known: BTreeMap<&str, Pages> = BTreeMap::new();
    let mut running = Vec::new();
    for (n, (name, _)) in WRITERS.into_iter().enumerate() {
        let (directory, program) = (root.join(name), programs.path().join(name));
        fs::create_dir(&directory).unwrap();
        symlink(std::env::current_exe().unwrap(), &program).unwrap();
        let group = groups.as_ref().map(|groups| groups.0[n].as_path());
        running.push((name, start(name, &program, &directory, group)));
    }
    let mut outputs = Vec::new();
    for (name, writer) in &mut running {
        outputs.push(await_done(name, writer.stdout.take().unwrap()));
    }
    for (name, mut writer) in running {
        drop(writer.stdin.take());
        assert!(writer.wait().unwrap().success(), "{name}");
    }
    rustix::fs::syncfs(File::open(&root).unwrap()).unwrap();
    recorder.interrupt();
    let mut printed = String::new();
    log.read_to_string(&mut printed).unwrap();
    assert!(recorder.0.wait().unwrap().success() && !printed.contains("lost"), "{printed}");
    let Counted { data, metadata } = device.end();

    // The same functions on another file system return what they must have written.
    for (name, write) in WRITERS {
        let directory = programs.path().join(format!("{name}-again"));
        fs::create_dir(&directory).unwrap();
        known.insert(name, write(&directory));
    }
    let mut describe = Command::new(FLASHSIFT);
    describe.arg("describe").arg(&trace).args(["--json", "--top", "99", "--metadata", "ext4"]);
    let (out, _) = ended(&mut describe, 0);
    let described: Value = serde_json::from_str(&out).unwrap();
    let section = &described["reached_flash"];

    let by_program = data_bytes(section, "programs", "program");
    let by_file = data_bytes(section, "files", "name");
    for (name, pages) in &known {
        let all = pages.values().sum::<u64>() * PAGE_BYTES;
        let found = by_program.get(*name).copied().unwrap_or_default();
        assert_near(name, found, all, 5);
        for (file, pages) in pages {
            let path = root.join(name).join(file);
            let found = by_file.get(path.to_str().unwrap()).copied().unwrap_or_default();
            assert_near(file, found, pages * PAGE_BYTES, 5);
        }
    }
    if groups.is_some() {
        let by_unit = data_bytes(section, "units", "unit");
        for (name, pages) in &known {
            let unit = format!("flashsift-{}-{name}.service", std::process::id());
            let found = by_unit.get(&unit).copied().unwrap_or_default();
            assert_near(&unit, found, pages.values().sum::<u64>() * PAGE_BYTES, 5);
        }
    }
    let figure = |key: &str| section[key].as_u64().unwrap_or_default();
    let file_system = figure("journal_bytes") + figure("metadata_bytes");
    let reached = figure("reached_bytes");
    assert_near("data", reached - file_system, data * PAGE_BYTES, 5);
    assert_near("everything", reached, (data + metadata) * PAGE_BYTES, 10);
    println!("journal and metadata: {file_system} bytes, {} are counted", metadata * PAGE_BYTES);
}
