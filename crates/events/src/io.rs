//! Requests to a device.

use crate::{address::Lba, page::Page};

/// A request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Time of the request, in microseconds from the trace's beginning.
    pub at_us: u64,
    /// Read or write.
    pub op: IoOp,
    /// First address, in units of 4 KiB.
    pub lba: Lba,
    /// Length in pages; a flush has none.
    pub pages: u32,
    /// A sync caused the write. The flush that follows makes it durable.
    pub sync: bool,
    /// A process waits until the request is done: it reads, it needs the frame of a dirty page, it
    /// writes past the cache, or it waits for a flush, which ends after all writes before it.
    pub awaited: bool,
    /// Process and page.
    pub cause: Cause,
}

/// The process that needs a request, and its first page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// 0 for the kernel's own write-back, and for a trace without the table of owners.
    pub process: u32,
    /// The page at the request's first address. `None` for a flush, a discard, and blocks of the
    /// file system itself. The pages of one request may belong to several files.
    pub page: Option<Page>,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// Everything written before becomes durable.
    Flush,
    /// The content of these places is no longer needed.
    Discard,
}
