//! Opening a trace, from a path or standard input to events. Of the readers' code, only this module
//! accesses files.
//!
//! Gzip, zstd, xz and lzma are recognised by their first bytes, not by the ending of the name, and
//! decompressed while reading; a trace that is compressed twice is not recognised. Memory is
//! bounded for any input: a decompressor's window by its own limits, the output by a ratio that no
//! real trace reaches. Text in UTF-16, of a zlib stream and in JSON is converted.

mod wrapping;

use crate::{
    Error, ahead,
    annotations::Split,
    events::{Events, Origin, Sink, Skipped},
    format::{self, FormatSpec, HEAD_BYTES, Merged},
    input::Input,
};
use flashsift_events::event::About;
use std::{
    collections::BTreeSet,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    num::NonZero,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};
use wrapping::Wrapping;

/// The result of reading a trace.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The description of the trace.
    pub about: About,
    /// The lines or records that were left out, by reason.
    pub skipped: Skipped,
    /// Events passed on.
    pub events: u64,
    /// Reads and writes among them.
    pub accesses: u64,
    /// Events that were earlier than their predecessor and got its time.
    pub late: u64,
    /// The format's name in [`format::ALL`].
    pub format: &'static str,
    /// The compression of the trace.
    pub compression: Compression,
    /// Decompressed bytes.
    pub bytes: u64,
    /// The origin of a stored trace.
    pub origin: Option<Origin>,
}

impl Outcome {
    /// Returns the part of the traces that a stored trace belongs to, if it is noted.
    pub fn split(&self) -> Option<Split> {
        self.origin.as_ref().and_then(|origin| origin.annotations.split)
    }
}

/// The compression of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
    Lzma,
}

impl Compression {
    /// Number of bytes at the start by which a compression is recognised.
    pub const HEAD_BYTES: usize = 14;

    /// Recognises the compression by the first [`Self::HEAD_BYTES`] bytes.
    pub fn new(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A zstd file may begin with a skippable frame (pzstd's does).
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ if is_lzma(head) => Self::Lzma,
            _ => Self::None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Lzma => "lzma",
        })
    }
}

/// Whether a file begins as one of the `lzma` program, which has no magic number: the settings that
/// all its levels use, a usual size of the dictionary, an unknown or possible size, and the first
/// byte of the range coder, which is 0.
fn is_lzma(head: &[u8]) -> bool {
    const DICTIONARY_BYTES_MIN: u32 = 4096;
    const SIZE_BYTES_MAX: u64 = 1 << 38;
    let Some(&[0x5d, d0, d1, d2, d3, s0, s1, s2, s3, s4, s5, s6, s7, 0]) = head.first_chunk()
    else {
        return false;
    };
    let dictionary_bytes = u32::from_le_bytes([d0, d1, d2, d3]);
    let size_bytes = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    // 2^n or 2^n + 2^(n-1).
    let usual = [1, 3].contains(&(dictionary_bytes >> dictionary_bytes.trailing_zeros().min(31)));
    usual
        && dictionary_bytes >= DICTIONARY_BYTES_MIN
        && (size_bytes == u64::MAX || size_bytes < SIZE_BYTES_MAX)
}

/// The progress of reading, in bytes of the file on disk. Another thread may read it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Returns the number of bytes read so far.
    pub fn done_bytes(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Returns the file's size; 0 while it is unknown, and for a pipe.
    pub fn total_bytes(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

/// Limits that keep hostile input from exhausting the machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// An archive may expand at most this many times …
    pub ratio_max: u64,
    /// … after it has given this many bytes.
    pub ratio_from_bytes: u64,
    /// Memory that one decompressor may take.
    pub window_bytes_max: u64,
    /// Receives the progress of reading.
    pub progress: Arc<Progress>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ratio_max: 500,
            ratio_from_bytes: 64 << 20,
            window_bytes_max: 256 << 20,
            progress: Arc::default(),
        }
    }
}

const BUFFER_BYTES: usize = 64 << 10;

/// JSON in UTF-16 is wrapped twice.
const WRAPPINGS_MAX: usize = 2;

/// Reads the trace at `path` (`-` is standard input) into `sink`.
///
/// # Errors
///
/// The trace cannot be opened or read, or the sink fails. Every error names the path.
pub fn read(
    path: &Path,
    format: Option<&str>,
    sink: &mut dyn Sink,
    limits: &Limits,
) -> Result<Outcome, Error> {
    read_named(path, format, sink, limits, false)
}

/// The same with a thread of its own that reads and decompresses, some batches ahead of `sink`, if
/// that is worthwhile for the format and the machine has another processor. The wall clock then
/// counts the slower of the two.
///
/// # Errors
///
/// As of [`read`].
pub fn read_ahead(
    path: &Path,
    format: Option<&str>,
    sink: &mut dyn Sink,
    limits: &Limits,
) -> Result<Outcome, Error> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    read_named(path, format, sink, limits, processors > 1)
}

fn read_named(
    path: &Path,
    format: Option<&str>,
    sink: &mut dyn Sink,
    limits: &Limits,
    ahead: bool,
) -> Result<Outcome, Error> {
    read_unnamed(path, format, sink, limits, ahead).map_err(|error| match error {
        Error::At { .. } | Error::NoSuchFormat(_) | Error::Options(_) | Error::Sink(_) => error,
        error => at(path, error),
    })
}

fn read_unnamed(
    path: &Path,
    format: Option<&str>,
    sink: &mut dyn Sink,
    limits: &Limits,
    ahead: bool,
) -> Result<Outcome, Error> {
    let format = format.map(format::chosen).transpose()?;
    let format = format.as_ref().map(|(spec, options)| (*spec, &**options));
    if path == Path::new("-") {
        return read_with(io::stdin(), None, format, sink, limits, ahead);
    }
    let file = File::open(path);
    if file.as_ref().map_or(true, |file| file.metadata().is_ok_and(|about| about.is_dir())) {
        let files = files_of_threads(path)?;
        if !files.is_empty() {
            return read_with(merged(files, limits)?, None, format, sink, limits, ahead);
        }
    }
    let file = file.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => at(path, "there is no such file"),
        io::ErrorKind::PermissionDenied => at(path, "no permission to read it"),
        _ => at(path, e),
    })?;
    let metadata = file.metadata().map_err(|e| at(path, e))?;
    if metadata.is_dir() {
        return Err(at(
            path,
            "is a directory; give a trace file, or a directory of the files that strace -ff wrote",
        ));
    }
    limits.progress.total.store(metadata.len(), Relaxed);
    let seekable = match metadata.is_file() {
        true => Some(Seekable {
            file: file.try_clone().map_err(|e| at(path, e))?,
            bytes: metadata.len(),
            progress: limits.progress.clone(),
        }),
        false => None,
    };
    read_with(file, seekable, format, sink, limits, ahead)
}

/// Returns the files that `strace -ff -o PATH` wrote, `PATH.THREAD`, with their threads. If `path`
/// is a directory, they are those in it. Each may be compressed.
fn files_of_threads(path: &Path) -> Result<Vec<(u32, PathBuf)>, Error> {
    let own = path.file_name().filter(|_| !path.is_dir()).map(Path::new);
    let folder = match own {
        Some(_) => path.parent().filter(|folder| !folder.as_os_str().is_empty()),
        None => Some(path),
    };
    let Ok(folder) = folder.unwrap_or(Path::new(".")).read_dir() else { return Ok(Vec::new()) };
    let (mut files, mut traces) = (Vec::new(), BTreeSet::new());
    for entry in folder.flatten() {
        let name = PathBuf::from(entry.file_name());
        let packed =
            ["gz", "zst", "xz", "lzma"].iter().any(|end| name.extension() == Some(end.as_ref()));
        let name = if packed { name.with_extension("") } else { name };
        let tid = name.extension().and_then(|tid| tid.to_str()?.parse().ok());
        let trace = name.with_extension("");
        if let Some(tid) = tid
            && own.is_none_or(|own| own == trace)
            && entry.path().is_file()
        {
            files.push((tid, entry.path()));
            traces.insert(trace);
        }
    }
    match traces.iter().map(|trace| path.join(trace)).collect::<Vec<_>>().as_slice() {
        [one, other, ..] => {
            let (one, other) = (one.display(), other.display());
            let several = format!("is a directory of several traces: give one, {one} or {other}");
            Err(at(path, several))
        }
        _ => Ok(files),
    }
}

/// Returns the lines of the files that strace wrote for each thread, in order.
fn merged(files: Vec<(u32, PathBuf)>, limits: &Limits) -> Result<impl Read + Send + use<>, Error> {
    let bytes = files.iter().map(|(_, file)| file.metadata().map_or(0, |about| about.len())).sum();
    limits.progress.total.store(bytes, Relaxed);
    let limits = limits.clone();
    let open = move |path: &PathBuf| {
        // The bytes of the merged text count, and each archive expands for itself.
        let limits = Limits { progress: Arc::default(), ..limits.clone() };
        Ok(decompressed(File::open(path)?, &limits)?.0 as Box<dyn BufRead + Send>)
    };
    Merged::new(files, open)
}

/// Reads a trace from any stream. `file` is the same trace to seek in, if it can be.
///
/// # Errors
///
/// The trace cannot be read, or the sink fails.
pub fn read_stream(
    stream: impl Read + Send,
    file: Option<Seekable>,
    format: Option<&'static FormatSpec>,
    sink: &mut dyn Sink,
    limits: &Limits,
) -> Result<Outcome, Error> {
    read_with(stream, file, format.map(|spec| (spec, "")), sink, limits, false)
}

/// The same with options of the format.
fn read_with(
    stream: impl Read + Send,
    file: Option<Seekable>,
    format: Option<(&'static FormatSpec, &str)>,
    sink: &mut dyn Sink,
    limits: &Limits,
    ahead: bool,
) -> Result<Outcome, Error> {
    let (mut bytes, compression) = decompressed(stream, limits).map_err(|e| stopped(0, e))?;
    let mut head = head_of(&mut bytes)?;
    if head.is_empty() {
        return Err(Error::Empty);
    }
    let mut wrapped = false;
    for _ in 0..WRAPPINGS_MAX {
        let Some(wrapping) = Wrapping::new(&head) else { break };
        bytes = wrapping.open(head, bytes, limits);
        head = head_of(&mut bytes)?;
        wrapped = true;
        if head.is_empty() {
            return Err(wrapping.empty());
        }
    }
    let (spec, options) = match format {
        Some(chosen) => chosen,
        None => (format::detected(&head)?, ""),
    };
    let bytes = Cursor::new(head).chain(bytes);
    let file = file.filter(|_| compression == Compression::None && !wrapped);
    let ahead = ahead && (spec.ahead || compression != Compression::None);
    let read =
        |sink: &mut dyn Sink| decompressed_into(sink, bytes, file, compression, (spec, options));
    if ahead { ahead::read(sink, read) } else { read(sink) }
}

/// Returns the first bytes, of which the readers see all but a byte-order mark, which some editors
/// put before a text.
fn head_of(bytes: &mut dyn BufRead) -> Result<Vec<u8>, Error> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let read = bytes.take(HEAD_BYTES as u64).read_to_end(&mut head);
    read.map_err(|e| stopped(head.len() as u64, e))?;
    if head.starts_with(MARK) {
        head.drain(..MARK.len());
    }
    Ok(head)
}

/// Reads decompressed bytes of a known format.
fn decompressed_into(
    sink: &mut dyn Sink,
    mut bytes: impl BufRead,
    file: Option<Seekable>,
    compression: Compression,
    (spec, options): (&'static FormatSpec, &str),
) -> Result<Outcome, Error> {
    let mut input = match file {
        Some(file) => Input::with_file(&mut bytes, file),
        None => Input::new(&mut bytes),
    }
    .with_options(options);
    let mut events = Events::new(sink);
    (spec.read)(&mut input, &mut events).map_err(|error| match error {
        Error::Io { offset, source } => stopped(offset, source),
        error => error,
    })?;
    let summary = events.finish()?;
    let damaged = summary.skipped.damaged();
    let total = match input.lines() {
        0 => summary.events + summary.skipped.total(),
        lines => lines,
    };
    if damaged * 2 > total {
        return Err(Error::Unreadable {
            format: spec.name,
            damaged,
            total,
            skipped: summary.skipped,
        });
    }
    let (about, true) = (summary.about, summary.accesses > 0) else {
        return Err(Error::Nothing { skipped: summary.skipped });
    };
    Ok(Outcome {
        about: about.expect("a reader says what its trace is about before its first event"),
        skipped: summary.skipped,
        events: summary.events,
        accesses: summary.accesses,
        late: summary.late,
        format: spec.name,
        compression,
        bytes: input.offset(),
        origin: summary.origin,
    })
}

/// Returns the decompressed bytes of a file of any content.
///
/// # Errors
///
/// The file cannot be opened, or its first bytes cannot be read.
pub fn plain(path: &Path) -> Result<impl Read + use<>, Error> {
    let file = File::open(path).map_err(|e| at(path, e))?;
    Ok(decompressed(file, &Limits::default()).map_err(|e| at(path, e))?.0)
}

fn decompressed<'a>(
    stream: impl Read + Send + 'a,
    limits: &Limits,
) -> io::Result<(Box<dyn BufRead + Send + 'a>, Compression)> {
    let mut stream = BufReader::with_capacity(
        BUFFER_BYTES,
        Counted { stream, progress: limits.progress.clone() },
    );
    // A pipe may deliver its first bytes one by one.
    let mut magic = Vec::new();
    (&mut stream).take(Compression::HEAD_BYTES as u64).read_to_end(&mut magic)?;
    let compression = Compression::new(&magic);
    let stream = Cursor::new(magic).chain(stream);
    let unpacked: Box<dyn Read + Send + 'a> = match compression {
        Compression::None => return Ok((Box::new(stream), compression)),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stream)),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
            decoder.window_log_max(limits.window_bytes_max.ilog2())?;
            Box::new(decoder)
        }
        Compression::Xz => {
            let decoder = liblzma::stream::Stream::new_stream_decoder(
                limits.window_bytes_max,
                liblzma::stream::CONCATENATED,
            )?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(stream, decoder))
        }
        Compression::Lzma => {
            let decoder = liblzma::stream::Stream::new_lzma_decoder(limits.window_bytes_max)?;
            Box::new(Single(liblzma::bufread::XzDecoder::new_stream(stream, decoder)))
        }
    };
    let guarded = Guarded { unpacked, given: 0, limits: limits.clone() };
    Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, guarded)), compression))
}

/// A trace's file for a reader that has to seek; it also reports the progress.
#[derive(Debug)]
pub struct Seekable {
    pub(crate) file: File,
    pub(crate) bytes: u64,
    progress: Arc<Progress>,
}

impl Seekable {
    /// Subtracts the bytes that the stream has read from the progress.
    pub(crate) fn rewound(&self) {
        self.progress.done.store(0, Relaxed);
    }

    /// Adds `bytes` to the progress.
    pub(crate) fn used(&self, bytes: usize) {
        self.progress.done.fetch_add(bytes as u64, Relaxed);
    }
}

/// A reader that reports the progress.
struct Counted<R> {
    stream: R,
    progress: Arc<Progress>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.stream.read(into)?;
        self.progress.done.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

/// A reader of an archive that nothing can follow. Further bytes are an error, not left unread.
struct Single<R>(liblzma::bufread::XzDecoder<R>);

impl<R: BufRead> Read for Single<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(into)?;
        if n == 0 && !into.is_empty() && !self.0.get_mut().fill_buf()?.is_empty() {
            return Err(io::Error::other("bytes follow the end of the lzma archive"));
        }
        Ok(n)
    }
}

/// A reader that stops an archive with an expansion beyond the limits.
struct Guarded<'a> {
    unpacked: Box<dyn Read + Send + 'a>,
    given: u64,
    limits: Limits,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the archive expands more than {ratio_max} times ({packed} bytes gave {given} so far), \
    as no trace does; if it is \
     sound, decompress it yourself and give the plain file"
)]
struct Bomb {
    ratio_max: u64,
    packed: u64,
    given: u64,
}

impl Read for Guarded<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.unpacked.read(into)?;
        self.given += n as u64;
        let Limits { ratio_max, ratio_from_bytes, ref progress, .. } = self.limits;
        let (packed, given) = (progress.done_bytes(), self.given);
        if given > ratio_from_bytes && given / packed.max(1) >= ratio_max {
            return Err(io::Error::other(Bomb { ratio_max, packed, given }));
        }
        Ok(n)
    }
}

fn stopped(offset: u64, source: io::Error) -> Error {
    match source.get_ref() {
        Some(inner) if inner.is::<Bomb>() => Error::TooLarge(inner.to_string()),
        _ => Error::Io { offset, source },
    }
}

fn at(path: &Path, what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let path =
        if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
    Error::At { path, what: what.into() }
}
