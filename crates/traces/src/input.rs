//! The way in to a reader: decompressed bytes or lines, each with its place for messages.

use crate::Error;
use std::io::{self, BufRead, Read};

/// No line of any text format is longer; one that is gets skipped and counted, never buffered whole.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A stream of decompressed bytes that knows where it is.
pub struct Input<'a> {
    bytes: &'a mut dyn BufRead,
    offset: u64,
    line: u64,
    buffer: Vec<u8>,
}

/// One line without its end.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// 1-based.
    pub number: u64,
    /// Without `\n` and a `\r` before it. May hold any bytes.
    pub bytes: &'a [u8],
    /// Longer than [`LINE_BYTES_MAX`]: `bytes` holds only its beginning.
    pub too_long: bool,
}

impl<'a> Input<'a> {
    /// Reads from `bytes`.
    pub fn new(bytes: &'a mut dyn BufRead) -> Self {
        Self { bytes, offset: 0, line: 0, buffer: Vec::new() }
    }

    /// Bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line, `None` at the end.
    pub fn line(&mut self) -> Result<Option<Line<'_>>, Error> {
        self.buffer.clear();
        let mut too_long = false;
        let mut any = false;
        loop {
            let chunk = match self.bytes.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::Io { offset: self.offset, source }),
            };
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = memchr::memchr(b'\n', chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let room = LINE_BYTES_MAX - self.buffer.len();
            too_long |= part.len() > room;
            self.buffer.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.bytes.consume(used);
            self.offset += used as u64;
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        self.line += 1;
        Ok(Some(Line { number: self.line, bytes: &self.buffer, too_long }))
    }

    /// Fills `record` whole; `false` at a clean end. A partial record is an error that says where.
    pub fn record(&mut self, record: &mut [u8]) -> Result<bool, Error> {
        let mut filled = 0;
        while filled < record.len() {
            match self.bytes.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Io { offset: self.offset + filled as u64, source }),
            }
        }
        if filled > 0 && filled < record.len() {
            let what = format!(
                "the trace ends inside a record ({filled} of {size} bytes): it is truncated; copy it again, or cut it to a \
                 multiple of {size} bytes",
                size = record.len()
            );
            return Err(Error::Malformed { what, offset: self.offset });
        }
        self.offset += filled as u64;
        Ok(filled > 0)
    }

    /// Everything that is left, for formats that cannot be streamed (Parquet): refuses above `bytes_max`.
    pub fn rest(&mut self, bytes_max: u64) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        let offset = self.offset;
        (&mut self.bytes)
            .take(bytes_max + 1)
            .read_to_end(&mut all)
            .map_err(|source| Error::Io { offset, source })?;
        if all.len() as u64 > bytes_max {
            return Err(Error::TooLarge(format!("the trace is larger than {bytes_max} bytes")));
        }
        self.offset += all.len() as u64;
        Ok(all)
    }
}
