//! Our own store ([`crate::store`]). Parquet's index is at its end, so the reader uses the file
//! itself where there is one, and else (a pipe, an archive) a copy in memory.

use super::{Confidence, FormatSpec};
use crate::{Error, events::Events, input::Input, open::Seekable, store};
use bytes::Bytes;
use parquet::{
    errors::{ParquetError, Result},
    file::reader::{ChunkReader, Length},
};
use std::fs::File;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "parquet",
    what: "flashsift's own store, as `import` and `record` write it",
    detect: |head| if head.starts_with(b"PAR1") { Confidence::Certain } else { Confidence::No },
    read,
    ahead: true,
    sample: store::sample,
};

const MEMORY_BYTES_MAX: u64 = 4 << 30;

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    match input.take_file() {
        Some(file) => store::read(file, events),
        None => store::read(Bytes::from(input.rest(MEMORY_BYTES_MAX)?), events),
    }
}

impl Length for Seekable {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Seekable {
    type T = <File as ChunkReader>::T;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.file.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // The check precedes the allocation.
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} of a file of {}",
                self.bytes
            )));
        }
        self.used(length);
        self.file.get_bytes(start, length)
    }
}
