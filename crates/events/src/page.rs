//! Dense pages and frames: the units that the simulator counts in.

/// Size of a page in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// The most pages of a step of a trace: a longer request is cut to 4 GiB. That is twice the limit
/// of readers, which only objects exceed.
pub const PAGES_MAX: u32 = (1 << 20) - 1;

/// A page of a trace: its rank in (file, page) order. The order of pages is that of integers, and a
/// table by page is an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Page(pub u32);

/// A slot of the cache. The cache owns the map of pages to frames; a policy owns the order of
/// frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame(pub u32);

/// The effect of an access on its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The page's content is read.
    Read,
    /// The page is changed in the cache; write-back takes it to storage.
    Write,
}

/// One access to one page, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page accessed.
    pub page: Page,
    /// Read or write.
    pub op: Op,
    /// The page was resident and dirty before this access. The cache sets the dirty bit of a write
    /// after the access.
    pub was_dirty: bool,
    /// Position, in page accesses from the trace's beginning, of the page's next access before it
    /// is removed. [`NEVER`] if there is none, and for policies that are not offline.
    pub next_use: u32,
    /// Bytes of what is accessed: of the object, in a cache of objects with sizes; else of a page.
    pub bytes: u32,
}

impl Access {
    /// Returns an access to a clean page without a known future.
    #[inline(always)]
    pub fn new(page: Page, op: Op) -> Self {
        Self { page, op, was_dirty: false, next_use: NEVER, bytes: PAGE_BYTES as u32 }
    }
}

/// [`Access::next_use`] of a page that is not accessed again.
pub const NEVER: u32 = u32::MAX;

/// An identifier that stands for a small integer: lists and sets hold such identifiers.
pub trait Id: Copy + Eq {
    /// Returns the integer.
    fn index(self) -> u32;
    /// Returns the identifier with this integer.
    fn from_index(index: u32) -> Self;
}

impl Id for Page {
    #[inline(always)]
    fn index(self) -> u32 {
        self.0
    }
    #[inline(always)]
    fn from_index(index: u32) -> Self {
        Page(index)
    }
}

impl Id for Frame {
    #[inline(always)]
    fn index(self) -> u32 {
        self.0
    }
    #[inline(always)]
    fn from_index(index: u32) -> Self {
        Frame(index)
    }
}
