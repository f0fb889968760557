//! Dense pages and frames: what the simulator counts in.

/// Size of a page in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// A page of a trace: its rank in (file, page) order, so that order is integer order and tables are
/// arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Page(pub u32);

/// A slot of the cache. The cache owns page ↔ frame; a policy owns the order of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame(pub u32);

/// What an access does to its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The page's content is wanted.
    Read,
    /// The page is changed in cache; it reaches storage by write-back.
    Write,
}

/// One access to one page, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which page.
    pub page: Page,
    /// Read or write.
    pub op: Op,
    /// The page was resident and dirty before this access. (The cache sets the dirty bit of a write
    /// afterwards.)
    pub was_dirty: bool,
    /// Position, in page accesses from the trace's beginning, of the page's next access before it
    /// is removed; [`NEVER`] if there is none, and for policies that are not offline.
    pub next_use: u32,
}

/// [`Access::next_use`] of a page that is not accessed again.
pub const NEVER: u32 = u32::MAX;

/// What lists and sets can hold: something that stands for a small integer.
pub trait Id: Copy + Eq {
    /// The integer.
    fn index(self) -> u32;
    /// Back from it.
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
