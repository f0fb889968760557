//! The reader of blkparse's text against the real blkparse: on records made here, and on the
//! requests of this kernel's block layer to a loop device. Skipped, by name, if blkparse is not
//! installed; the latter also if the kernel or the permissions do not allow it.
//!
//! `FLASHSIFT_SEED=N` repeats a failure of the random part.

use flashsift_events::event::{Action, FileId};
use flashsift_testbed::{Loop, has, or_skip, skip};
use flashsift_traces::{
    Error,
    events::Kept,
    format,
    open::{self, Outcome},
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Command, Stdio},
};

const SECTOR_BYTES: u64 = 512;

/// Returns blkparse's text for binary records, or `None` if blkparse is not installed.
fn blkparse(records: &[u8], options: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("name.blktrace.0");
    fs::write(&file, records).unwrap();
    let records = fs::File::open(file).unwrap();
    if !has("blkparse") {
        return skip("blkparse is not installed");
    }
    let mut command = Command::new("blkparse");
    let output = command.args(options).current_dir(&folder).stdin(records).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

fn read(text: &[u8]) -> Result<(Vec<(u32, Action<'static>)>, Outcome), Error> {
    let mut kept = Kept::default();
    let outcome = open::read_stream(text, None, None, &mut kept, &open::Limits::default())?;
    assert_eq!(outcome.format, "blkparse");
    Ok((kept.events.into_iter().map(|event| (event.pid, event.action)).collect(), outcome))
}

/// `struct blk_io_trace` and its constants, of Linux's `blktrace_api.h`.
mod raw {
    pub(crate) const QUEUE: u32 = 1 | 0x10 << 16;
    pub(crate) const ISSUE: u32 = 7 | 0x40 << 16;
    pub(crate) const COMPLETE: u32 = 8 | 0x80 << 16;
    /// Merges, an allocated request, plug, insertion, bounce.
    pub(crate) const OTHERS: [u32; 6] = [2, 3, 4, 9, 12, 14];
    pub(crate) const PROCESS: u32 = 0x400 << 16;

    pub(crate) const READ: u32 = 1 << 16;
    pub(crate) const WRITE: u32 = 2 << 16;
    pub(crate) const FLUSH: u32 = 4 << 16;
    pub(crate) const SYNC: u32 = 8 << 16;
    pub(crate) const AHEAD: u32 = 0x800 << 16;
    pub(crate) const META: u32 = 0x1000 << 16;
    pub(crate) const DISCARD: u32 = 0x2000 << 16;
    pub(crate) const FUA: u32 = 0x8000 << 16;

    #[derive(Default)]
    pub(crate) struct Records {
        pub(crate) bytes: Vec<u8>,
        sequence: u32,
        time_ns: u64,
    }

    impl Records {
        pub(crate) fn push(
            &mut self,
            action: u32,
            device: u32,
            pid: u32,
            sector: u64,
            bytes: u32,
            pdu: &[u8],
        ) {
            self.sequence += 1;
            self.time_ns += 1000;
            for word in [0x6561_7407, self.sequence] {
                self.bytes.extend(word.to_le_bytes());
            }
            for long in [self.time_ns, sector] {
                self.bytes.extend(long.to_le_bytes());
            }
            for word in [bytes, action, pid, device, 0] {
                self.bytes.extend(word.to_le_bytes());
            }
            for short in [0, pdu.len() as u16] {
                self.bytes.extend(short.to_le_bytes());
            }
            self.bytes.extend(pdu);
        }
    }
}

/// Random requests, with some of the other records that a request leaves: each queued request is
/// read exactly once.
#[test]
#[cfg(target_endian = "little")]
fn the_text_of_blkparse_is_read() {
    use raw::*;
    let seed =
        std::env::var("FLASHSIFT_SEED").map_or(20_261_120, |seed| seed.parse().expect("a number"));
    eprintln!("FLASHSIFT_SEED={seed}");
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut records = Records::default();
    let mut expected = Vec::new();
    for (pid, name) in [(11, &b"first program"[..]), (12, b"[odd] (one)")] {
        records.push(PROCESS, 0, pid, 0, 0, name);
    }
    for n in 0..2000 {
        // Devices are numbered in order of their first request.
        let device = if n < 2 { n } else { random.random_range(0..2u32) };
        let (file, pid) = (FileId(device.into()), random.random_range(11..13));
        let device = if device == 0 { 8 << 20 } else { 259 << 20 | 17 };
        let (sector, sectors) = (random.random_range(0..1 << 40), random.random_range(1..=2048));
        let (offset, len) = (sector * SECTOR_BYTES, u64::from(sectors) * SECTOR_BYTES);
        let sync = random.random_bool(0.5);
        let flush = random.random_bool(0.2);
        let (action, mut flags) = match if n < 2 { 0 } else { random.random_range(0..4) } {
            0 => (Some(Action::Read { open: None, file, offset, len }), READ),
            1 => (Some(Action::Write { open: None, file, offset, len, sync }), WRITE),
            2 => (Some(Action::Punch { file, offset, len }), WRITE | DISCARD),
            _ => (None, WRITE),
        };
        let bytes = if action.is_some() { sectors * SECTOR_BYTES as u32 } else { 0 };
        flags |= if sync { [SYNC, FUA, SYNC | FUA][random.random_range(0..3)] } else { 0 };
        flags |= if flush { FLUSH } else { 0 };
        flags |= [0, META, AHEAD][random.random_range(0..3)];
        if random.random_bool(0.1) {
            records.push(
                OTHERS[random.random_range(0..OTHERS.len())] | flags,
                device,
                pid,
                sector,
                bytes,
                b"",
            );
        }
        records.push(QUEUE | flags, device, pid, sector, bytes, b"");
        records.push(ISSUE | flags, device, pid, sector, bytes, b"");
        records.push(COMPLETE | flags, device, 0, sector, bytes, b"");
        expected.extend(
            flush.then_some((
                pid,
                Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
            )),
        );
        expected.extend(action.map(|action| (pid, action)));
    }
    for options in ["-i -", "-i - -t", "-i - -q", "-i name", "-i name -s"] {
        let options: Vec<_> = options.split(' ').collect();
        let Some(text) = blkparse(&records.bytes, &options) else { return };
        let (events, outcome) = read(&text).unwrap();
        let names: Vec<_> = events
            .iter()
            .filter_map(|(pid, action)| match action {
                Action::Process { name } | Action::Bind { name, .. } => Some((*pid, &**name)),
                _ => None,
            })
            .collect();
        for name in [
            (11, "first program"),
            (12, "[odd] (one)"),
            (0, "/dev/block/8:0"),
            (0, "/dev/block/259:17"),
        ] {
            assert!(names.contains(&name), "{name:?}: {names:?}");
        }
        let requests: Vec<_> = events
            .into_iter()
            .filter(|(_, action)| !matches!(action, Action::Bind { .. } | Action::Process { .. }))
            .collect();
        let parted = requests.iter().zip(&expected).position(|(read, made)| read != made);
        if let Some(n) = parted {
            panic!(
                "request {n}, {options:?}: {:?} was made, {:?} is read",
                expected[n], requests[n]
            );
        }
        assert_eq!(requests.len(), expected.len(), "{options:?}: {}", outcome.skipped);
        assert_eq!((outcome.skipped.damaged(), outcome.late), (0, 0), "{}", outcome.skipped);
    }
}

/// A custom output format is refused, and the error names the reason.
#[test]
fn a_custom_output_format_is_refused() {
    let mut records = raw::Records::default();
    records.push(raw::QUEUE | raw::WRITE, 8 << 20, 11, 64, 4096, b"");
    let Some(text) = blkparse(&records.bytes, &["-i", "-", "-q", "-f", "%D %T.%t %a %d %S %n\n"])
    else {
        return;
    };
    let shown = String::from_utf8_lossy(&text);
    assert!(read(&text).is_err(), "{shown}");
    let spec = format::named("blkparse").unwrap();
    let limits = open::Limits::default();
    let error =
        open::read_stream(&text[..], None, Some(spec), &mut Kept::default(), &limits).unwrap_err();
    assert!(
        error.to_string().contains("formats made by -f or -F are not read"),
        "{error}: {shown}"
    );
}

/// A loop device with a partition, and the kernel's tracer of its block layer. `drop` restores the
/// machine's state.
struct Traced {
    device: Loop,
    /// The content that `tracing_on` had before.
    tracing_on: String,
    /// Of a request, KiB.
    limit: String,
    _image: tempfile::TempDir,
}

const TRACING: &str = "/sys/kernel/tracing";
const PARTITION_SECTOR: u64 = 2048;

fn run(program: &str, arguments: &[&str]) -> Result<(u32, String), String> {
    let child =
        Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|e| format!("{program}: {e}"))?;
    let pid = child.id();
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok((pid, String::from_utf8_lossy(&output.stdout).trim().to_owned())),
        false => Err(format!("{program} {arguments:?}: {stderr}")),
    }
}

impl Traced {
    /// Sets up the device. The error names the missing part.
    fn new() -> Result<Self, String> {
        let idle = |file: &str, state: &str| match fs::read_to_string(format!("{TRACING}/{file}")) {
            Ok(now) if now.trim() == state => Ok(()),
            Ok(_) => Err(format!("{TRACING}/{file}: another program is tracing")),
            Err(e) => Err(format!("{TRACING}/{file}: {e}")),
        };
        idle("current_tracer", "nop")?;
        idle("set_event", "")?;
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let image = folder.path().join("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(16 << 20))
            .map_err(|e| e.to_string())?;
        let device = Loop::new(&image, &[])?;
        let tracing_on =
            fs::read_to_string(format!("{TRACING}/tracing_on")).map_err(|e| e.to_string())?;
        let limit = format!("/sys/block/{}/queue/max_sectors_kb", device.name());
        let limit = fs::read_to_string(&limit).map_err(|e| format!("{limit}: {e}"))?;
        let traced = Self { device, tracing_on, limit, _image: folder };
        let device = traced.device.node();
        run("addpart", &[device, "1", &PARTITION_SECTOR.to_string(), "8192"])?;
        if !Path::new(&traced.partition()).exists() {
            return Err(format!("{} does not appear", traced.partition()));
        }
        traced.set("/queue/max_sectors_kb", "64")?;
        traced.set("/trace/enable", "1")?;
        // If the kernel is locked down, blktrace itself is closed to root too.
        for (file, value) in [
            ("current_tracer", "blk"),
            ("trace_options", "bin"),
            ("trace_options", "nocontext-info"),
            ("tracing_on", "1"),
        ] {
            fs::write(format!("{TRACING}/{file}"), value)
                .map_err(|e| format!("{TRACING}/{file}: {e}"))?;
        }
        Ok(traced)
    }

    fn partition(&self) -> String {
        format!("{}p1", self.device.node())
    }

    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        let path = format!("/sys/block/{}{file}", self.device.name());
        fs::write(&path, value).map_err(|e| format!("{path}: {e}"))
    }

    /// The binary records so far.
    fn records(&self) -> Vec<u8> {
        const O_NONBLOCK: i32 = 0o4000;
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(O_NONBLOCK)
            .open(format!("{TRACING}/trace_pipe"));
        let mut records = Vec::new();
        let end = pipe.expect("a pipe of one's own").read_to_end(&mut records);
        assert_eq!(end.expect_err("more may come").kind(), ErrorKind::WouldBlock);
        records
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.set("/trace/enable", "0");
        // The next device of this number would have it.
        let _ = self.set("/queue/max_sectors_kb", &self.limit);
        for (file, value) in [
            ("tracing_on", &*self.tracing_on),
            ("trace_options", "nobin"),
            ("trace_options", "context-info"),
            ("current_tracer", "nop"),
        ] {
            let _ = fs::write(format!("{TRACING}/{file}"), value);
        }
        let _ = run("delpart", &[self.device.node(), "1"]);
    }
}

/// Direct and buffered accesses of a partition, some larger than the request limit, a flush and a
/// discard: each is read once, at its place on the disk.
// Promises: Traces 20.
#[test]
fn the_accesses_of_a_kernel_to_a_partition_are_read() {
    if blkparse(b"", &["-i", "-"]).is_none() {
        return;
    }
    let traced = Traced::new().map_err(|lacking| lacking.trim().replace('\n', " "));
    let Some(traced) = or_skip(traced) else { return };
    let (to, from) = (format!("of={}", traced.partition()), format!("if={}", traced.partition()));
    let dd = |arguments: &[&str]| run("dd", &[&["status=none"], arguments].concat()).unwrap().0;
    let base = PARTITION_SECTOR * SECTOR_BYTES;
    let file = FileId(0);
    let sync = Action::Sync { file, offset: 0, len: u64::MAX, data_only: false };
    let write =
        |offset, len| Action::Write { open: None, file, offset: base + offset, len, sync: true };
    let pids_and_truth = [
        (
            dd(&["if=/dev/zero", &to, "bs=1M", "seek=1", "count=2", "oflag=direct"]),
            vec![write(1 << 20, 2 << 20)],
        ),
        (
            dd(&[&from, "of=/dev/null", "bs=8k", "skip=3", "count=2", "iflag=direct"]),
            vec![Action::Read { open: None, file, offset: base + (24 << 10), len: 16 << 10 }],
        ),
        (
            dd(&["if=/dev/zero", &to, "bs=4k", "seek=8", "count=20", "conv=fsync"]),
            vec![write(32 << 10, 80 << 10), sync],
        ),
        (
            run("blkdiscard", &["-f", "-o", "2M", "-l", "1M", &traced.partition()]).unwrap().0,
            vec![Action::Punch { file, offset: base + (2 << 20), len: 1 << 20 }],
        ),
    ];
    let records = traced.records();
    drop(traced);
    let text = blkparse(&records, &["-i", "-"]).expect("it was there before");
    let shown = String::from_utf8_lossy(&text);
    let (events, outcome) = read(&text).unwrap();
    assert_eq!(outcome.skipped.damaged(), 0, "{}\n{shown}", outcome.skipped);
    assert!(shown.contains(" A ") && shown.contains(" X "), "remapped and split:\n{shown}");
    for (pid, truth) in pids_and_truth {
        let mut merged: Vec<Action<'static>> = Vec::new();
        for (by, action) in &events {
            let access = !matches!(action, Action::Bind { .. } | Action::Process { .. });
            if *by == pid && access && !merged.last_mut().is_some_and(|last| joined(last, action)) {
                merged.push(action.clone());
            }
        }
        assert_eq!(merged, truth, "{pid}:\n{shown}");
    }
}

/// Extends `last` by an access of the same kind directly after it. The kernel decides how many such
/// accesses make up one call.
fn joined(last: &mut Action, next: &Action) -> bool {
    match (last, next) {
        (Action::Read { offset, len, .. }, Action::Read { offset: at, len: more, .. })
        | (Action::Write { offset, len, .. }, Action::Write { offset: at, len: more, .. })
        | (Action::Punch { offset, len, .. }, Action::Punch { offset: at, len: more, .. })
            if *offset + *len == *at =>
        {
            *len += more;
            true
        }
        _ => false,
    }
}
