//! A disk that logs its writes and flushes in order, and its state after a power cut at any moment.
//!
//! A FUSE file system shows one file. A loop device with direct I/O on that file is the disk. The
//! kernel sends each write of the disk as a write of the file and each flush as an fsync, and both
//! go to a log. After a power cut, a disk holds every write before its last flush. Of the later
//! writes it may hold any, whole or in part.

use crate::power_cuts::{FileSystem, Random};
use flashsift_testbed::{Loop, started, unmount_lazily};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use rustix::fs::{FallocateFlags, SeekFrom};
use std::{
    collections::HashMap,
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, UNIX_EPOCH},
};

/// Tells a copy of the test program to be the device in this folder.
const SERVE: &str = "FLASHSIFT_TEST_DEVICE";
/// Names in a device's folder.
const FILE: &str = "disk";
const LOG: &str = "log";
const SHOWN: &str = "device";

const DISK: INodeNo = INodeNo(2);
const FOREVER: Duration = Duration::from_secs(1 << 30);
const PAGE: u64 = 4096;

/// A record of the log: its kind, offset and length, as little-endian words. The bytes of a write
/// follow.
const HEADER: usize = 24;
const WRITE: u64 = 1;
const ZERO: u64 = 2;
const FLUSH: u64 = 3;

/// Serves the file. One thread answers, so the log has the order of the answers.
struct Disk {
    file: File,
    log: File,
    bytes: u64,
}

impl Disk {
    fn record(&self, kind: u64, offset: u64, len: u64, data: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(HEADER + data.len());
        for word in [kind, offset, len] {
            record.extend(word.to_le_bytes());
        }
        record.extend(data);
        (&self.log).write_all(&record)
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let kind = if ino == DISK { FileType::RegularFile } else { FileType::Directory };
        FileAttr {
            ino,
            size: self.bytes,
            blocks: self.bytes / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE as u32,
            flags: 0,
        }
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from(error)
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == FILE {
            true => reply.entry(&FOREVER, &self.attr(DISK), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; u64::from(size).min(self.bytes.saturating_sub(offset)) as usize];
        match self.file.read_exact_at(&mut data, offset) {
            Ok(()) => reply.data(&data),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let done = self.file.write_all_at(data, offset);
        match done.and_then(|()| self.record(WRITE, offset, data.len() as u64, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.record(FLUSH, 0, 0, &[]) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Discards and writes of zeros. A discarded range reads as zeros.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        if !mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let done = rustix::fs::fallocate(&self.file, hole, offset, length).map_err(io::Error::from);
        match done.and_then(|()| self.record(ZERO, offset, length, &[])) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }
}

/// Is the device until standard input ends, where the environment says so.
///
/// The device has a process of its own. If the test dies while one of its threads waits for the
/// disk, the device still answers and then goes, and the thread can end.
pub(crate) fn serve() {
    let Some(folder) = env::var_os(SERVE).map(PathBuf::from) else { return };
    let open = |name| File::options().read(true).write(true).open(folder.join(name)).unwrap();
    let file = open(FILE);
    let bytes = file.metadata().unwrap().len();
    let log = File::options().append(true).open(folder.join(LOG)).unwrap();
    let shown = folder.join(SHOWN);
    let session =
        fuser::spawn_mount(Disk { file, log, bytes }, &shown, &fuser::Config::default()).unwrap();
    eprintln!("the device is ready");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    unmount_lazily(&shown);
    drop(session);
}

/// A disk in a folder, and its log.
pub(crate) struct Device {
    folder: PathBuf,
    /// `None` when it has ended.
    server: Option<Child>,
    device: Option<Loop>,
    base: Pages,
    bytes: u64,
}

impl Device {
    /// Makes a disk with a file system.
    pub(crate) fn new(folder: &Path, file_system: &FileSystem) -> Result<Self, String> {
        fs::create_dir_all(folder.join(SHOWN)).unwrap();
        let file = folder.join(FILE);
        file_system.made.make(&file)?;
        let base = Pages::new(&file);
        File::create(folder.join(LOG)).unwrap();

        let mut server = Command::new(env::current_exe().unwrap());
        server
            .args(["--ignored", "--exact", "power_cuts::the_device", "--nocapture"])
            .env(SERVE, folder);
        server.stdin(Stdio::piped()).stdout(Stdio::null());
        let (server, mut said) = started(&mut server, "ready");
        std::thread::spawn(move || io::copy(&mut said, &mut io::stderr()));
        let bytes = file_system.made.bytes;
        let mut device =
            Self { folder: folder.to_owned(), server: Some(server), device: None, base, bytes };
        let sector = file_system.sector.to_string();
        let options = ["--direct-io=on", "--sector-size", &sector];
        device.device = Some(Loop::new(&folder.join(SHOWN).join(FILE), &options)?);
        Ok(device)
    }

    pub(crate) fn node(&self) -> &str {
        self.device.as_ref().expect("the device has ended").node()
    }

    /// The length of the log. A cut at this position takes nothing that was written and flushed
    /// before.
    pub(crate) fn position(&self) -> u64 {
        fs::metadata(self.folder.join(LOG)).unwrap().len()
    }

    /// Ends the device, from which everything is unmounted.
    pub(crate) fn ended(mut self) -> Log {
        self.end();
        let bytes = fs::read(self.folder.join(LOG)).unwrap();
        for name in [LOG, FILE] {
            fs::remove_file(self.folder.join(name)).unwrap();
        }
        Log::new(std::mem::take(&mut self.base), bytes, self.bytes)
    }

    fn end(&mut self) {
        self.device = None;
        if let Some(mut server) = self.server.take() {
            drop(server.stdin.take());
            let _ = server.wait();
        }
        unmount_lazily(&self.folder.join(SHOWN));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.end();
    }
}

/// The content of a disk; a page that is absent holds zeros.
#[derive(Clone, Default)]
pub(crate) struct Pages(HashMap<u64, Box<[u8; PAGE as usize]>>);

impl Pages {
    fn new(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let end = file.metadata().unwrap().len();
        let mut pages = Self::default();
        let mut at = 0;
        while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
            at = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap().min(end);
            let mut bytes = vec![0; (at - data) as usize];
            file.read_exact_at(&mut bytes, data).unwrap();
            pages.write(data, &bytes);
        }
        pages
    }

    fn write(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let within = (at % PAGE) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(PAGE as usize - within));
            let page = self.0.entry(at / PAGE).or_insert_with(|| Box::new([0; PAGE as usize]));
            page[within..within + now.len()].copy_from_slice(now);
            (at, bytes) = (at + now.len() as u64, later);
        }
    }

    fn zero(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / PAGE + 1) * PAGE);
            if end - at == PAGE {
                self.0.remove(&(at / PAGE));
            } else if let Some(page) = self.0.get_mut(&(at / PAGE)) {
                let within = (at % PAGE) as usize;
                page[within..within + (end - at) as usize].fill(0);
            }
            at = end;
        }
    }

    /// Writes a sparse image.
    pub(crate) fn save(&self, path: &Path, bytes: u64) {
        let image = File::create(path).unwrap();
        image.set_len(bytes).unwrap();
        for (page, content) in &self.0 {
            image.write_all_at(&content[..], page * PAGE).unwrap();
        }
    }
}

#[derive(Clone, Copy)]
enum Record {
    /// Disk offset, and the place of the bytes in the log.
    Write {
        offset: u64,
        at: usize,
        len: usize,
    },
    Zero {
        offset: u64,
        len: u64,
    },
    Flush,
}

impl Record {
    fn extent(&self) -> Range<u64> {
        match *self {
            Self::Write { offset, len, .. } => offset..offset + len as u64,
            Self::Zero { offset, len } => offset..offset + len,
            Self::Flush => 0..0,
        }
    }
}

/// The requests to a disk whose content was `base`, in order.
pub(crate) struct Log {
    base: Pages,
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// The log's length after each record.
    ends: Vec<u64>,
    disk_bytes: u64,
}

/// How a disk treats a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushes {
    Obeyed,
    /// As a disk that answers a flush without having written.
    Ignored,
}

/// A moment at which power fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cut {
    /// So many records reached the disk or its cache.
    records: usize,
    /// The length of the log then.
    pub(crate) position: u64,
}

impl Log {
    fn new(base: Pages, bytes: Vec<u8>, disk_bytes: u64) -> Self {
        let mut log = Self { base, bytes, records: Vec::new(), ends: Vec::new(), disk_bytes };
        let word = |at: usize| u64::from_le_bytes(log.bytes[at..at + 8].try_into().unwrap());
        let mut at = 0;
        while at < log.bytes.len() {
            let (kind, offset, len) = (word(at), word(at + 8), word(at + 16));
            at += HEADER;
            log.records.push(match kind {
                WRITE => {
                    at += len as usize;
                    Record::Write { offset, at: at - len as usize, len: len as usize }
                }
                ZERO => Record::Zero { offset, len },
                FLUSH => Record::Flush,
                other => panic!("a record of kind {other} in the log of the device"),
            });
            log.ends.push(at as u64);
        }
        log
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Records and flushes among them.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let flushes = self.records.iter().filter(|record| matches!(record, Record::Flush));
        (self.records.len(), flushes.count())
    }

    /// Extents of the writes, each with the number of flushes before it.
    pub(crate) fn writes(&self) -> Vec<(Range<u64>, usize)> {
        let mut flushes = 0;
        let mut writes = Vec::new();
        for record in &self.records {
            match record {
                Record::Flush => flushes += 1,
                other => writes.push((other.extent(), flushes)),
            }
        }
        writes
    }

    /// Moments between these positions, ascending. Half of them are spread over the requests, the
    /// other half over the flushes: a file system's own writes are few.
    pub(crate) fn cuts(
        &self,
        positions: &Range<u64>,
        count: usize,
        random: &mut Random,
    ) -> Vec<Cut> {
        let before = |position: u64| self.ends.partition_point(|end| *end <= position);
        let (first, last) = (before(positions.start), before(positions.end));
        let flushes: Vec<usize> =
            (first..last).filter(|record| matches!(self.records[*record], Record::Flush)).collect();
        let mut cuts = Vec::new();
        for cut in 0..count {
            let records = if cut % 2 == 0 || flushes.is_empty() {
                first + random.below(last + 1 - first)
            } else {
                let number = random.below(flushes.len());
                let from = number.checked_sub(1).map_or(first, |before| flushes[before]);
                from + random.below(flushes[number] + 1 - from)
            };
            let position = records.checked_sub(1).map_or(0, |last| self.ends[last]);
            cuts.push(Cut { records, position });
        }
        cuts.sort();
        cuts
    }

    /// The disk after power fails at each of these moments, which ascend. Writes of more than
    /// `atomic` bytes may be torn.
    pub(crate) fn after<'a>(
        &'a self,
        cuts: &'a [Cut],
        flushes: Flushes,
        atomic: u64,
        random: &'a mut Random,
    ) -> impl Iterator<Item = (Cut, Pages)> + 'a {
        let mut durable = self.base.clone();
        let mut done = 0;
        cuts.iter().map(move |cut| {
            let is_flush = |record: &Record| matches!(record, Record::Flush);
            let flushed = match flushes {
                Flushes::Obeyed => {
                    self.records[..cut.records].iter().rposition(is_flush).unwrap_or(0)
                }
                // The disk has written older ones by itself.
                Flushes::Ignored => cut.records.saturating_sub(200).max(done),
            };
            for record in &self.records[done..flushed] {
                self.apply(&mut durable, *record, record.extent());
            }
            done = flushed;
            let mut disk = durable.clone();
            self.lose(&mut disk, &self.records[flushed..cut.records], atomic, random);
            (*cut, disk)
        })
    }

    /// Applies those of the unflushed requests that reach the disk. The page of the superblock is
    /// not torn: ext4 writes it in place after deletions, and checks its sum before it reads its
    /// journal. It does not mount with a torn one, without flashsift either.
    fn lose(&self, disk: &mut Pages, unflushed: &[Record], atomic: u64, random: &mut Random) {
        // Nothing, everything, or so many of eight.
        let (of_eight, torn_of_eight) = match random.below(4) {
            0 => (0, 0),
            1 => (8, 0),
            _ => (1 + random.below(8), random.below(5)),
        };
        let mut reach: Vec<Record> =
            unflushed.iter().copied().filter(|_| random.below(8) < of_eight).collect();
        for last in (1..reach.len()).rev() {
            reach.swap(last, random.below(last + 1));
        }
        for record in reach {
            let extent = record.extent();
            if random.below(8) >= torn_of_eight || extent.start < PAGE {
                self.apply(disk, record, extent);
                continue;
            }
            // Either its beginning, or any of its sectors.
            let sectors = (extent.end - extent.start).div_ceil(atomic);
            let beginning = random.below(2) == 0;
            let end = random.below(sectors as usize + 1) as u64;
            for sector in 0..sectors {
                let reaches = if beginning { sector < end } else { random.below(2) == 0 };
                if reaches {
                    let start = extent.start + sector * atomic;
                    self.apply(disk, record, start..extent.end.min(start + atomic));
                }
            }
        }
    }

    /// Applies the part of a request that lies in this range.
    fn apply(&self, disk: &mut Pages, record: Record, range: Range<u64>) {
        match record {
            Record::Write { offset, at, .. } => {
                let from = at + (range.start - offset) as usize;
                let len = (range.end - range.start) as usize;
                disk.write(range.start, &self.bytes[from..from + len]);
            }
            Record::Zero { .. } => disk.zero(range),
            Record::Flush => {}
        }
    }
}
