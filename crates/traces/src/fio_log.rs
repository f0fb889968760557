//! Requests to a device as an iolog of fio, version 3, which `fio --read_iolog` replays.

use crate::{Error, format::fio::HEADER_3};
use flashsift_events::{
    event::Knows,
    io::{Io, IoOp},
    page::PAGE_BYTES,
};
use std::io::{self, Write};

/// fio allocates a buffer as long as the longest request, so longer ones are split, also discards.
const REQUEST_PAGES_MAX: u32 = 4096;

/// Writes the log of one file or device.
///
/// A flush is a `datasync`, a discard a `trim`, which fio performs on block devices only.
#[derive(Debug)]
pub struct FioLog<W> {
    log: W,
    target: String,
    at_us: u64,
}

impl<W: Write> FioLog<W> {
    /// Writes to `log`; fio will open `target`.
    ///
    /// # Errors
    ///
    /// The trace has no times, fio cannot read the name of the target, or writing failed.
    pub fn new(mut log: W, target: &str, knows: Knows) -> Result<Self, Error> {
        if !knows.times {
            return Err(Error::Lacks(
                "the trace has no times and a fio log needs them; --rate N spreads N requests over \
                each second"
                    .into(),
            ));
        }
        if target.is_empty()
            || target.len() > 255
            || target.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            return Err(Error::Lacks(format!(
                "fio cannot read the file name \"{target}\" in a log: it must have 1 to 255 bytes \
                and no space"
            )));
        }
        write!(log, "{HEADER_3}\n0 {target} add\n0 {target} open\n").map_err(stopped)?;
        Ok(Self { log, target: target.to_owned(), at_us: 0 })
    }

    /// Writes one request. A time before that of the previous request is raised to it.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn request(&mut self, io: &Io) -> Result<(), Error> {
        self.at_us = self.at_us.max(io.at_us);
        let name = match io.op {
            IoOp::Read => "read",
            IoOp::Write => "write",
            IoOp::Discard => "trim",
            IoOp::Flush => {
                return writeln!(self.log, "{} {} datasync 0 0", self.at_us, self.target)
                    .map_err(stopped);
            }
        };
        let mut done = 0;
        while done < io.pages {
            let pages = (io.pages - done).min(REQUEST_PAGES_MAX);
            let (offset, len) =
                ((io.lba + u64::from(done)) * PAGE_BYTES, u64::from(pages) * PAGE_BYTES);
            writeln!(self.log, "{} {} {name} {offset} {len}", self.at_us, self.target)
                .map_err(stopped)?;
            done += pages;
        }
        Ok(())
    }

    /// Closes the file in the log and returns the stream.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn finish(mut self) -> Result<W, Error> {
        writeln!(self.log, "{} {} close", self.at_us, self.target).map_err(stopped)?;
        self.log.flush().map_err(stopped)?;
        Ok(self.log)
    }
}

fn stopped(error: io::Error) -> Error {
    Error::Sink(format!("writing the fio log failed: {error}"))
}
