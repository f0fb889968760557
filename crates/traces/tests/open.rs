//! From a path to events: every compression, and every kind of unreadable file.

use flashsift_events::event::Action;
use flashsift_traces::{
    Error,
    events::Kept,
    format,
    open::{self, Compression, Limits},
};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

const TRACE: &str = "r 8\nw 16\nw 24\n# the end\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut zstd = zstd::Encoder::new(Vec::new(), 3).unwrap();
    // As the command line tool does.
    zstd.include_checksum(true).unwrap();
    zstd.write_all(bytes).unwrap();
    zstd.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(bytes).unwrap();
    xz.finish().unwrap()
}

/// As `lzma` and `xz --format=lzma` do, without a size in the head.
fn lzma(bytes: &[u8]) -> Vec<u8> {
    let options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
    let stream = liblzma::stream::Stream::new_lzma_encoder(&options).unwrap();
    let mut lzma = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    lzma.write_all(bytes).unwrap();
    lzma.finish().unwrap()
}

type Pack = fn(&[u8]) -> Vec<u8>;
const PACKED: [(Compression, Pack); 3] =
    [(Compression::Gzip, gzip), (Compression::Zstd, zstd), (Compression::Xz, xz)];

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// Reads on this thread and ahead of it, which gives the same events, counts and errors.
fn read(path: &Path) -> Result<(Kept, open::Outcome), Error> {
    let (mut kept, mut ahead) = (Kept::default(), Kept::default());
    let outcome = open::read(path, None, &mut kept, &Limits::default());
    let outcome_ahead = open::read_ahead(path, None, &mut ahead, &Limits::default());
    assert_eq!(format!("{outcome_ahead:?}"), format!("{outcome:?}"));
    assert_eq!((ahead.about, &ahead.events), (kept.about, &kept.events));
    Ok((kept, outcome?))
}

fn error(path: &Path) -> String {
    read(path).map(|(_, outcome)| outcome).unwrap_err().to_string()
}

// Promises: Traces 2.
#[test]
fn every_compression_gives_the_same_events() {
    let folder = Folder::new();
    let (plain, outcome) = read(&folder.file("plain", TRACE.as_bytes())).unwrap();
    assert_eq!((outcome.compression, outcome.bytes), (Compression::None, TRACE.len() as u64));
    for (compression, pack) in PACKED {
        // The name does not show the compression.
        let (kept, outcome) = read(&folder.file("t.csv", &pack(TRACE.as_bytes()))).unwrap();
        assert_eq!(kept.events, plain.events);
        assert_eq!((outcome.compression, outcome.bytes), (compression, TRACE.len() as u64));

        let (first, second) = TRACE.as_bytes().split_at(10);
        let (kept, _) = read(&folder.file("two", &[pack(first), pack(second)].concat())).unwrap();
        assert_eq!(kept.events, plain.events, "{compression}: two members one after the other");

        let twice = folder.file("twice", &pack(&pack(TRACE.as_bytes())));
        assert!(
            error(&twice).contains("no trace format"),
            "{compression}: what is packed twice is not followed"
        );
    }
}

/// Files of the older lzma program have no magic number and were once refused as "no trace format".
#[test]
fn every_format_is_read_ahead_alike() {
    let folder = Folder::new();
    for spec in format::ALL {
        let mut sample = (spec.sample)();
        read(&folder.file("plain", &sample)).unwrap();
        read(&folder.file("packed", &gzip(&sample))).unwrap();
        // Broken in the middle, and cut off.
        let middle = sample.len() / 2;
        sample[middle..].fill(0xff);
        let _ = read(&folder.file("broken", &sample));
        let _ = read(&folder.file("cut", &sample[..middle]));
    }
    let long: String = (0..100_000).map(|n| format!("w {n}\n")).collect();
    let (kept, _) = read(&folder.file("long", long.as_bytes())).unwrap();
    assert_eq!(kept.events.len(), 100_000);
}

// Promises: Traces 2.
#[test]
fn an_lzma_file_is_opened() {
    let folder = Folder::new();
    let (plain, _) = read(&folder.file("plain", TRACE.as_bytes())).unwrap();
    let packed = lzma(TRACE.as_bytes());
    let (kept, outcome) = read(&folder.file("t", &packed)).unwrap();
    assert_eq!((kept.events, outcome.compression), (plain.events.clone(), Compression::Lzma));
    // The size in the head instead of a mark at the end, as the first lzma program wrote it.
    let mut sized = packed.clone();
    sized[5..13].copy_from_slice(&(TRACE.len() as u64).to_le_bytes());
    let (kept, _) = read(&folder.file("sized", &sized)).unwrap();
    assert_eq!(kept.events, plain.events);

    for keep in [20, packed.len() / 2, packed.len() - 1] {
        let error = error(&folder.file("cut", &packed[..keep]));
        assert!(error.contains("reading stopped"), "{keep}: {error}");
    }
    let two = error(&folder.file("two", &packed.repeat(2)));
    assert!(two.contains("bytes follow the end of the lzma archive"), "{two}");
    let comment = String::from("#").repeat(4000) + "\n";
    let bomb = lzma(&[b"r 8\n".to_vec(), comment.repeat(20_000).into_bytes()].concat());
    let bomb = error(&folder.file("bomb", &bomb));
    assert!(bomb.contains("decompress it yourself"), "{bomb}");
}

/// A file of another tool gets the command that turns it into a trace; trace-cmd's own was once
/// "no trace format recognises this input", without a word on `trace-cmd report`.
#[test]
fn a_foreign_file_names_the_command_that_converts_it() {
    let folder = Folder::new();
    for (bytes, says) in [
        (&b"\x17\x08Dtracing6\0"[..], "trace-cmd report"),
        (b"PERFILE2\x68\0\0\0", "perf script"),
        (b"\x07tae\x01\0\0\0", "blkparse -i NAME"),
        (b"eat\x07\0\0\0\x01", "blkparse -i NAME"),
        (b"BZh91AY&SY", "bzip2 -dc"),
        (b"\x04\x22\x4d\x18dd", "lz4 -dc"),
        (b"PK\x03\x04\x14\0", "unzip -p"),
        (b"7z\xbc\xaf\x27\x1c", "7z x -so"),
    ] {
        let error = error(&folder.file("foreign", bytes));
        assert!(error.contains(says) && error.contains("foreign"), "{error}");
    }
}

/// `>` of Windows PowerShell writes UTF-16, of which no format was recognised.
// Promises: Traces 1.
#[test]
fn utf_16_of_every_text_format_is_read() {
    let folder = Folder::new();
    for spec in format::ALL {
        let Ok(text) = String::from_utf8((spec.sample)()) else { continue };
        if text.contains('\0') {
            continue;
        }
        let (plain, _) = read(&folder.file("plain", text.as_bytes())).unwrap();
        for (mark, big) in [("\u{feff}", false), ("\u{feff}", true), ("", false)] {
            let units = mark.encode_utf16().chain(text.encode_utf16());
            let bytes = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
            let wide: Vec<u8> = units.flat_map(bytes).collect();
            let (kept, outcome) = read(&folder.file("wide", &wide)).unwrap();
            assert_eq!((outcome.format, &kept.events), (spec.name, &plain.events));
            let (kept, _) = read(&folder.file("packed", &gzip(&wide))).unwrap();
            assert_eq!(kept.events, plain.events, "{}", spec.name);
        }
    }
}

/// `atrace -z` was taken for ftrace's text in which no line makes sense, and a JSON trace for one
/// without a read or write.
// Promises: Traces 1.
#[test]
fn ftrace_is_found_in_a_zlib_stream_and_in_json() {
    let folder = Folder::new();
    let sample = (format::named("ftrace").unwrap().sample)();
    let (plain, _) = read(&folder.file("plain", &sample)).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    zlib.write_all(&sample).unwrap();
    let zlib = zlib.finish().unwrap();
    for start in ["TRACE:\n", "capturing trace... done\nTRACE:\n"] {
        let atrace = [start.as_bytes(), &zlib].concat();
        let (kept, outcome) = read(&folder.file("atrace", &atrace)).unwrap();
        assert_eq!((outcome.format, kept.events), ("ftrace", plain.events.clone()));
        let cut = error(&folder.file("cut", &atrace[..atrace.len() - 9]));
        assert!(cut.contains("reading stopped"), "{cut}");
    }

    let text = String::from_utf8(sample).unwrap().replace('"', "\\\"").replace('\n', "\\n");
    // All on one line, longer than any line of text.
    let other = "{\"ph\": \"X\"},".repeat(200_000);
    let json = format!(
        "{{\"traceEvents\": [{other}{{}}], \"systemTraceEvents\": \"{text}\", \"more\": 1}}"
    );
    let (kept, outcome) = read(&folder.file("trace.json", json.as_bytes())).unwrap();
    assert_eq!((outcome.format, kept.events), ("ftrace", plain.events));
    let none = error(&folder.file("none.json", b"{\"traceEvents\": []}"));
    assert!(none.contains("without ftrace's text (systemTraceEvents)"), "{none}");
    let wide: Vec<u8> = json.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read(&folder.file("wide.json", &wide)).unwrap().1.format, "ftrace");

    let comment = String::from("#").repeat(4000) + "\n";
    let mut bomb = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&[b"r 8\n".to_vec(), comment.repeat(20_000).into_bytes()].concat()).unwrap();
    let bomb = error(&folder.file("bomb", &[b"TRACE:\n", &bomb.finish().unwrap()[..]].concat()));
    assert!(bomb.contains("decompress it yourself"), "{bomb}");
}

// Promises: Traces 10.
#[test]
fn archives_cut_short_are_errors() {
    let folder = Folder::new();
    let text: String = (0..20_000).map(|n| format!("r {}\n", n * 7919 % 100_003)).collect();
    for (compression, pack) in PACKED {
        let packed = pack(text.as_bytes());
        for keep in [packed.len() / 2, packed.len() - 9, packed.len() - 1] {
            let error = error(&folder.file("cut", &packed[..keep]));
            assert!(
                error.contains("cut") && error.contains("reading stopped"),
                "{compression}, {keep}: {error}"
            );
        }
        let mut flipped = packed.clone();
        flipped[packed.len() / 2] ^= 0x55;
        let error = error(&folder.file("flipped", &flipped));
        assert!(error.contains("flipped"), "{compression}: {error}");
    }
}

// Promises: Traces 4.
#[test]
fn bombs_are_refused() {
    let folder = Folder::new();
    let comments =
        [b"r 8\n".to_vec(), (String::from("#").repeat(4000) + "\n").repeat(20_000).into_bytes()]
            .concat();
    for (compression, pack) in PACKED {
        let bomb = folder.file("bomb", &pack(&comments));
        let error = error(&bomb);
        assert!(
            error.contains("500 times") && error.contains("decompress it yourself"),
            "{compression}: {error}"
        );
        let limits = Limits { ratio_max: 100_000, ..Limits::default() };
        let outcome = open::read(&bomb, None, &mut Kept::default(), &limits).unwrap();
        assert_eq!(
            outcome.bytes,
            comments.len() as u64,
            "{compression}: a higher limit admits the whole archive"
        );
    }
}

/// `strace -ff -o PATH` writes PATH.THREAD. Each was once a trace of its own: a child's descriptors
/// were unknown.
#[test]
fn the_files_of_threads_are_one_trace() {
    let folder = Folder::new();
    let parent = "1700000000.000001 openat(AT_FDCWD, \"/f\", O_RDWR|O_CREAT, 0644) = 3\n\
                  1700000000.000002 fork() = 12\n1700000000.000009 read(3, \"\", 9) = 4\n";
    let child = "1700000000.000005 write(3, \"abc\", 3) = 3\n1700000000.000006 +++ exited with 0 \
                 +++\n";
    folder.file("app.trace.11", parent.as_bytes());
    folder.file("app.trace.12.gz", &gzip(child.as_bytes()));
    folder.file("notes.txt", b"no trace");
    folder.file("app.trace.13", b"");
    let path = folder.0.path();
    for path in [path.to_owned(), path.join("app.trace")] {
        let mut kept = Kept::default();
        let outcome = open::read(&path, None, &mut kept, &Limits::default()).unwrap();
        assert_eq!((outcome.format, outcome.skipped.damaged()), ("strace", 0));
        let accesses = kept.events.iter().filter_map(|event| match event.action {
            Action::Read { file, offset, len, .. } => Some((event.pid, false, file.0, offset, len)),
            Action::Write { file, offset, len, .. } => Some((event.pid, true, file.0, offset, len)),
            _ => None,
        });
        assert_eq!(accesses.collect::<Vec<_>>(), [(12, true, 0, 0, 3), (11, false, 0, 3, 4)]);
    }
    folder.file("other.21", parent.as_bytes());
    let several = error(path);
    assert!(several.contains("app.trace or ") && several.ends_with("other"), "{several}");
    assert!(
        open::read(&path.join("other"), None, &mut Kept::default(), &Limits::default()).is_ok()
    );
    folder.file("other.22", b"close(3) = 0\n");
    let untimed = error(&path.join("other"));
    assert!(untimed.ends_with("record with strace -ff -ttt"), "{untimed}");
}

/// A database that uses libaio past the page cache was once a trace without a read or write.
#[test]
fn a_trace_of_direct_requests_holds_accesses() {
    let text = "8 openat(AT_FDCWD, \"/d/t\", O_RDWR|O_DIRECT) = 9\n8 io_submit(0x7f, 1, \
                [{aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=9, aio_buf=\"a\", aio_nbytes=4096, \
                aio_offset=0}]) = 1\n8 fsync(9) = 0\n";
    let folder = Folder::new();
    let path = folder.file("direct", text.as_bytes());
    let outcome = open::read(&path, None, &mut Kept::default(), &Limits::default()).unwrap();
    assert_eq!(outcome.accesses, 1);
}

#[test]
fn errors_name_the_file_that_cannot_be_read() {
    let folder = Folder::new();
    let path = folder.0.path();
    assert!(error(path).contains("is a directory; give a trace file"), "{}", error(path));
    let missing = error(&path.join("missing"));
    assert!(missing.contains("missing") && missing.ends_with("there is no such file"), "{missing}");
    for empty in [folder.file("empty", b""), folder.file("empty.gz", &gzip(b""))] {
        assert!(error(&empty).ends_with("it is empty"), "{}", error(&empty));
    }
    let strange = error(&folder.file("strange", b"Dear diary,\ntoday\n"));
    assert!(
        strange.contains("it begins with \"Dear diary,\"") && strange.contains("--format"),
        "{strange}"
    );
    let strange = error(&folder.file("strange", b"\x7fELF\x01"));
    assert!(strange.contains("the bytes \\x7fELF\\x01"), "{strange}");
}

// Promises: Traces 9.
#[test]
fn a_trace_without_accesses_is_an_error_with_counts() {
    let folder = Folder::new();
    let unmapped = error(&folder.file("unmapped", b"r -1\nw -1\n"));
    assert!(
        unmapped.ends_with("no read or write: 2 × unmapped sector (-1) (first at 1)"),
        "{unmapped}"
    );

    // A trace with half of its lines damaged is read; one with more is refused.
    let mut kept = Kept::default();
    let mut half = |text: &str| {
        let path = folder.file("damaged", text.as_bytes());
        open::read(&path, Some("sectors"), &mut kept, &Limits::default())
            .map(|outcome| outcome.accesses)
    };
    assert_eq!(half("r 8\nx\n").unwrap(), 1);
    let damaged = half("r 8\nx\ny\n").unwrap_err().to_string();
    assert!(damaged.contains("2 of 3 lines") && damaged.contains("--format"), "{damaged}");
    let unknown =
        open::read(Path::new("x"), Some("nonsense"), &mut kept, &Limits::default()).unwrap_err();
    assert!(
        unknown.to_string().contains("no trace format \"nonsense\"; known formats: "),
        "{unknown}"
    );
}

#[test]
fn progress_ends_at_the_file_size() {
    let folder = Folder::new();
    for bytes in [TRACE.as_bytes().to_vec(), gzip(TRACE.as_bytes())] {
        let limits = Limits::default();
        open::read(&folder.file("t", &bytes), None, &mut Kept::default(), &limits).unwrap();
        assert_eq!(limits.progress.done_bytes(), bytes.len() as u64);
        assert_eq!(limits.progress.total_bytes(), bytes.len() as u64);
    }
}
