//! The input of a reader: decompressed bytes or lines, each with its position for messages.

use crate::{Error, open::Seekable};
use std::io::{self, BufRead, Read};

/// The longest line of any text format. A longer line is skipped and counted, never buffered whole.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Bytes that are read from the stream at once. The stream's own calls are virtual and cost as much
/// as the parsing of a short line, so there is one for many lines.
const WINDOW_BYTES: usize = 64 << 10;

/// Bytes of the window behind those that were read. A parser of many bytes at once need not know
/// where they end before it has parsed a line.
pub(crate) const SLACK_BYTES: usize = 1024;

/// A stream of decompressed bytes that counts its position.
pub struct Input<'a> {
    bytes: &'a mut dyn BufRead,
    file: Option<Seekable>,
    offset: u64,
    line: u64,
    /// Bytes that were read from the stream. Those from `begin` to `end` have yet to be used.
    window: Vec<u8>,
    begin: usize,
    end: usize,
    /// Bytes that the last result showed. They are used up by the next read.
    shown: usize,
    options: String,
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
    /// Returns an input that reads from `bytes`.
    pub fn new(bytes: &'a mut dyn BufRead) -> Self {
        Self {
            bytes,
            file: None,
            offset: 0,
            line: 0,
            window: Vec::new(),
            begin: 0,
            end: 0,
            shown: 0,
            options: String::new(),
        }
    }

    /// Returns an input that also offers the bytes as a seekable file, for formats that cannot be
    /// streamed.
    pub fn with_file(bytes: &'a mut dyn BufRead, file: Seekable) -> Self {
        Self { file: Some(file), ..Self::new(bytes) }
    }

    /// Sets the options of the format, which its name has after a colon.
    #[must_use]
    pub fn with_options(mut self, options: &str) -> Self {
        options.clone_into(&mut self.options);
        self
    }

    /// Returns the options of the format; empty without any.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Returns the trace as a seekable file, if it is one. The caller then ignores the stream.
    pub fn take_file(&mut self) -> Option<Seekable> {
        let file = self.file.take()?;
        file.rewound();
        self.offset = file.bytes;
        Some(file)
    }

    /// Returns the number of bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of lines returned so far.
    pub fn lines(&self) -> u64 {
        self.line
    }

    /// Returns the next line, `None` at the end.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or decompressed.
    #[inline]
    pub fn line(&mut self) -> Result<Option<Line<'_>>, Error> {
        self.begin += std::mem::take(&mut self.shown);
        let Some(bytes) = memchr::memchr(b'\n', &self.window[self.begin..self.end]) else {
            return self.line_across_reads();
        };
        self.shown = bytes + 1;
        Ok(Some(self.shown_line(bytes)))
    }

    /// Returns the window from the first byte that was not used, the number of bytes that were read
    /// of it, and the number of the line that begins there. [`SLACK_BYTES`] of any content are
    /// behind those that were read, unless nothing was.
    pub(crate) fn window(&mut self) -> (&[u8], usize, u64) {
        self.begin += std::mem::take(&mut self.shown);
        (&self.window[self.begin..], self.end - self.begin, self.line + 1)
    }

    /// Takes this many bytes of the window, which are so many lines with their ends.
    pub(crate) fn used(&mut self, bytes: usize, lines: u64) {
        self.begin += bytes;
        self.offset += bytes as u64;
        self.line += lines;
    }

    /// Returns the line of which this many bytes come next, and which is shown with its end.
    #[inline]
    fn shown_line(&mut self, bytes: usize) -> Line<'_> {
        self.line += 1;
        self.offset += self.shown as u64;
        let bytes = &self.window[self.begin..self.begin + bytes];
        let too_long = bytes.len() > LINE_BYTES_MAX;
        let bytes = without_cr(&bytes[..bytes.len().min(LINE_BYTES_MAX)]);
        Line { number: self.line, bytes, too_long }
    }

    /// Returns a line of which only the beginning has been read.
    #[cold]
    fn line_across_reads(&mut self) -> Result<Option<Line<'_>>, Error> {
        let mut searched = self.end - self.begin;
        // Bytes of a line that is too long, which are not kept.
        let mut dropped = 0;
        loop {
            // One byte more than the longest line shows that a line is longer.
            let surplus = (self.end - self.begin).saturating_sub(LINE_BYTES_MAX + 1);
            self.end -= surplus;
            dropped += surplus;
            searched = searched.min(self.end - self.begin);
            let ended = self.read_more()? == 0;
            let found = memchr::memchr(b'\n', &self.window[self.begin + searched..self.end]);
            let bytes = match found {
                Some(at) => searched + at,
                None if ended && self.begin == self.end => return Ok(None),
                None if ended => self.end - self.begin,
                None => {
                    searched = self.end - self.begin;
                    continue;
                }
            };
            self.offset += dropped as u64;
            self.shown = bytes + usize::from(found.is_some());
            return Ok(Some(self.shown_line(bytes)));
        }
    }

    /// Passes all remaining bytes on as records of `N` bytes, many at a time, straight from the
    /// stream's buffer. A partial record at the end is an error with its offset.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or decompressed, ends inside a record, or `each` failed.
    pub fn records<const N: usize>(
        &mut self,
        mut take: impl FnMut(&[[u8; N]]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // The beginning of a record that ends in the next buffer.
        let mut cut = [0; N];
        let mut have = 0;
        loop {
            let chunk = self.fill()?;
            let size = chunk.len();
            if size == 0 {
                break;
            }
            let head = if have > 0 { (N - have).min(size) } else { 0 };
            cut[have..have + head].copy_from_slice(&chunk[..head]);
            have += head;
            if have == N {
                take(&[cut])?;
                have = 0;
            }
            if have == 0 {
                let (records, tail) = chunk[head..].as_chunks::<N>();
                take(records)?;
                cut[..tail.len()].copy_from_slice(tail);
                have = tail.len();
            }
            self.shown = size;
            self.offset += size as u64;
        }
        if have > 0 {
            let what = format!(
                "the trace ends inside a record ({have} of {N} bytes): it is truncated; copy it \
                 again, or cut it to a multiple of {N} bytes",
            );
            return Err(Error::Malformed { what, offset: self.offset - have as u64 });
        }
        Ok(())
    }

    /// Returns the next byte, `None` at the end.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or decompressed.
    pub fn byte(&mut self) -> Result<Option<u8>, Error> {
        let byte = self.fill()?.first().copied();
        self.shown = usize::from(byte.is_some());
        self.offset += self.shown as u64;
        Ok(byte)
    }

    /// Reads the next `len` bytes into `into`, replacing its content. Returns their number, which
    /// is less than `len` only at the end.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or decompressed.
    pub fn bytes(&mut self, len: u64, into: &mut Vec<u8>) -> Result<u64, Error> {
        into.clear();
        let kept = self.fill()?;
        let kept = &kept[..kept.len().min(usize::try_from(len).unwrap_or(usize::MAX))];
        into.extend_from_slice(kept);
        self.begin += into.len();
        let offset = self.offset;
        let read = (&mut self.bytes).take(len - into.len() as u64).read_to_end(into);
        read.map_err(|source| Error::Io { offset, source })?;
        self.offset += into.len() as u64;
        Ok(into.len() as u64)
    }

    /// Returns the next `len` bytes, fewer only at the end, without taking them.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or decompressed.
    pub fn peek(&mut self, len: usize) -> Result<&[u8], Error> {
        self.begin += std::mem::take(&mut self.shown);
        while self.end - self.begin < len && self.read_more()? > 0 {}
        Ok(&self.window[self.begin..self.end.min(self.begin + len)])
    }

    /// Returns all remaining bytes, for formats that cannot be streamed (Parquet). More than
    /// `bytes_max` bytes are an error.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or decompressed, or has more than `bytes_max` bytes.
    pub fn rest(&mut self, bytes_max: u64) -> Result<Vec<u8>, Error> {
        let mut all = self.fill()?.to_vec();
        self.begin = self.end;
        let offset = self.offset;
        (&mut self.bytes)
            .take((bytes_max + 1).saturating_sub(all.len() as u64))
            .read_to_end(&mut all)
            .map_err(|source| Error::Io { offset, source })?;
        if all.len() as u64 > bytes_max {
            return Err(Error::TooLarge(format!("the trace is larger than {bytes_max} bytes")));
        }
        self.offset += all.len() as u64;
        Ok(all)
    }

    /// Returns the bytes that come next, empty at the end.
    fn fill(&mut self) -> Result<&[u8], Error> {
        self.begin += std::mem::take(&mut self.shown);
        if self.begin == self.end {
            self.read_more()?;
        }
        Ok(&self.window[self.begin..self.end])
    }

    /// Reads behind the bytes that have yet to be used. Returns the number of bytes, 0 at the end.
    fn read_more(&mut self) -> Result<usize, Error> {
        self.window.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.window.len() < self.end + WINDOW_BYTES + SLACK_BYTES {
            self.window.resize(self.end + WINDOW_BYTES + SLACK_BYTES, 0);
        }
        let slack = self.window.len() - SLACK_BYTES;
        loop {
            match self.bytes.read(&mut self.window[self.end..slack]) {
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(bytes);
                }
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Io { offset: self.offset, source }),
            }
        }
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn lines_do_not_depend_on_the_buffer_size() {
        let text = b"one\r\ntwo\n\nfour, the last, has no end";
        for capacity in 1..text.len() + 2 {
            let mut bytes = BufReader::with_capacity(capacity, &text[..]);
            let mut input = Input::new(&mut bytes);
            let mut lines = Vec::new();
            while let Some(line) = input.line().unwrap() {
                assert_eq!(line.number, lines.len() as u64 + 1);
                lines.push(line.bytes.to_vec());
            }
            assert_eq!(
                lines,
                [&b"one"[..], b"two", b"", b"four, the last, has no end"],
                "capacity {capacity}"
            );
            assert_eq!((input.offset(), input.lines()), (text.len() as u64, 4));
        }
    }

    // Promises: Traces 4.
    #[test]
    fn a_line_that_is_too_long_is_cut_and_the_next_is_whole() {
        for capacity in [4096, 4 * LINE_BYTES_MAX] {
            let text = [vec![b'x'; 3 * LINE_BYTES_MAX], b"\nnext\n".to_vec()].concat();
            let mut bytes = BufReader::with_capacity(capacity, &text[..]);
            let mut input = Input::new(&mut bytes);
            assert!(input.line().unwrap().unwrap().too_long);
            assert_eq!(input.line().unwrap().unwrap().bytes, b"next");
            assert!(input.line().unwrap().is_none());
        }
    }

    #[test]
    fn records_do_not_depend_on_the_buffer_size() {
        let bytes: Vec<u8> = (0..70).collect();
        for capacity in 1..80 {
            let mut whole = BufReader::with_capacity(capacity, &bytes[..]);
            let mut seen = Vec::new();
            let cut = Input::new(&mut whole).records::<7>(|records| {
                seen.extend(records.iter().flatten().copied());
                Ok(())
            });
            cut.unwrap();
            assert_eq!(seen, bytes, "capacity {capacity}");

            let mut cut = BufReader::with_capacity(capacity, &bytes[..66]);
            let error = Input::new(&mut cut).records::<7>(|_| Ok(())).unwrap_err();
            assert!(error.to_string().contains("(3 of 7 bytes)"), "{error}");
            assert!(error.to_string().ends_with("at byte 63"), "{error}");
        }
    }
}
