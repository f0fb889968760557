//! Linux's read-ahead (`mm/readahead.c`, `mm/filemap.c`): on demand, one state for each open file.
//!
//! A read that finds its page missing reads a window of pages at once (synchronous). One page of
//! the window carries a marker; the read that reaches it starts the next window (asynchronous), so
//! that a sequential reader never waits again. Sizes grow by 2 or 4 up to the maximum of the
//! device.
//!
//! Three generations differ in the windows that they choose: Linux before 6.11
//! (`ondemand_readahead`), 6.11 to 6.15 (two functions, and a first window that is halved if the
//! request fills it), and 6.16 and later (windows end at multiples of their folios' size). Files
//! whose file system supports large folios are read in folios of 2^order pages: ext4 does so since
//! 6.16.

use super::{DESCRIPTOR_UNREAD, FilePages, ReadAheadSpec, ReadRequest, Window, param};
use flashsift_events::params::{Param, ParamKind, Params};

pub(super) const SPEC: ReadAheadSpec = ReadAheadSpec {
    name: "linux",
    paper: "Linux, mm/readahead.c",
    what: "on-demand read-ahead of the kernel: windows grow from 16 KiB to the maximum, the next \
           one is read before the last one is used up",
    params: PARAMS,
    bare: "kib",
};

const PARAMS: &[Param] = &[
    Param {
        name: "kib",
        what: "maximum in KiB (read_ahead_kb of the device)",
        kind: ParamKind::Number { default: 128.0, min: 4.0, max: 16_384.0 },
    },
    Param {
        name: "kernel",
        what: "generation: 6.16 and later, 6.11 to 6.15, or earlier",
        kind: ParamKind::Word(&["6.18", "6.12", "6.1"]),
    },
    Param {
        name: "folios",
        what: "whether the file system supports large folios; auto: with kernel=6.18",
        kind: ParamKind::Word(&["auto", "large", "small"]),
    },
    Param {
        name: "io-kib",
        what: "largest request of the device in KiB (max_sectors_kb), which bounds longer reads",
        kind: ParamKind::Number { default: 1280.0, min: 4.0, max: 65_536.0 },
    },
];

/// The generations of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// Before 6.11.
    V6_1,
    /// 6.11 to 6.15.
    V6_12,
    /// 6.16 and later.
    V6_18,
}

/// Linux's read-ahead with its settings.
#[derive(Clone, Copy, Debug)]
pub struct Linux {
    /// The generation.
    pub kernel: Kernel,
    /// The file system supports large folios.
    pub large_folios: bool,
    /// Maximum of a window, pages (`read_ahead_kb`).
    pub pages_max: u64,
    /// Largest request of the device, pages (`io_pages`).
    pub io_pages: u64,
}

/// AccessAdvice of an application on an open file (`posix_fadvise`) or a mapping (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessAdvice {
    /// None.
    Normal,
    /// Reads come in no order: only what is asked for is read.
    Random,
    /// Reads go forward: windows are twice as large.
    Sequential,
}

/// A part of a file that a process has mapped.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Advice on it.
    pub advice: AccessAdvice,
    /// It holds code (`PROT_EXEC`).
    pub is_executable: bool,
    /// The first page of the file in it.
    pub first: u64,
    /// The page behind the last one.
    pub end: u64,
}

impl Mapping {
    /// A mapping of a whole file as data, without advice.
    pub const PLAIN: Self =
        Self { advice: AccessAdvice::Normal, is_executable: false, first: 0, end: u64::MAX };
}

/// The read-ahead state of an open file (`file_ra_state`).
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// First page of the last window.
    start: u64,
    /// Its pages.
    size: u64,
    /// Pages of it that are behind its marker, with the marked one.
    async_size: u64,
    /// Page in which the last read ended, or the next one if it ended at a boundary.
    prev_page: u64,
    /// Order of the folios of the last window.
    order: u32,
    /// Faults that found no page, less those that found one.
    mmap_miss: u32,
    advice: AccessAdvice,
}

impl Default for Descriptor {
    fn default() -> Self {
        Self {
            start: 0,
            size: 0,
            async_size: 0,
            prev_page: DESCRIPTOR_UNREAD,
            order: 0,
            mmap_miss: 0,
            advice: AccessAdvice::Normal,
        }
    }
}

impl Descriptor {
    /// Takes advice on later reads.
    pub fn advise(&mut self, advice: AccessAdvice) {
        self.advice = advice;
    }

    /// Notes the end of a read, which tells sequential reads from others.
    #[inline(always)]
    pub fn read_until(&mut self, page: u64) {
        self.prev_page = page;
    }
}

/// Faults that miss by more than this number end read-ahead of a mapping (`MMAP_LOTSAMISS`).
const LOTS_OF_MISSES: u32 = 100;
/// Largest order of a folio (2 MiB).
const ORDER_MAX: u32 = 9;

impl Linux {
    pub(super) fn new(params: &Params) -> Self {
        let kernel = match params.word(PARAMS, "kernel") {
            "6.1" => Kernel::V6_1,
            "6.12" => Kernel::V6_12,
            _ => Kernel::V6_18,
        };
        let large_folios = match params.word(PARAMS, "folios") {
            "large" => true,
            "small" => false,
            _ => kernel >= Kernel::V6_18,
        };
        let pages = |name| (param(params, PARAMS, name) / 4.0) as u64;
        Self { kernel, large_folios, pages_max: pages("kib"), io_pages: pages("io-kib") }
    }

    /// Decides on the windows of a read, page by page as the kernel goes through it.
    pub fn read(
        &self,
        descriptor: &mut Descriptor,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        let ReadRequest { first, end, .. } = request;
        for page in first..end.min(request.file_pages) {
            if !cache.has(page) {
                self.missing(descriptor, page, request, cache);
                if !cache.has(page) {
                    cache.add(page, 0, false);
                }
            }
            if cache.is_marked(page) {
                let order = cache.order(page);
                let folio = page >> order << order;
                self.marked(descriptor, (folio, page, order), end - folio, request, cache);
            }
        }
        descriptor.read_until(request.prev_page);
    }

    /// Decides on the windows of a fault at page `request.first` of a mapping. Returns whether the
    /// fault is handled anew once the pages are read, which then maps cached pages around it
    /// ([`Self::mapped_around`]).
    pub fn fault(
        &self,
        descriptor: &mut Descriptor,
        mapping: &Mapping,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) -> bool {
        let page = request.first;
        if page >= request.file_pages {
            return false;
        }
        let pages_max = self.pages_max_for(descriptor);
        if cache.has(page) {
            if mapping.advice == AccessAdvice::Random || pages_max == 0 {
                return false;
            }
            descriptor.mmap_miss = descriptor.mmap_miss.saturating_sub(1);
            let is_marked = cache.is_marked(page);
            if is_marked {
                let order = cache.order(page);
                self.marked(descriptor, (page, page, order), pages_max, request, cache);
            }
            return is_marked;
        }
        // Code is read ahead in each case, since 6.16.
        let is_code = mapping.is_executable && self.kernel >= Kernel::V6_18;
        let retried = match mapping.advice {
            _ if pages_max == 0 => false,
            AccessAdvice::Random if !is_code => false,
            AccessAdvice::Sequential => {
                let request = ReadRequest { end: page + pages_max, ..request };
                self.missing(descriptor, page, request, cache);
                true
            }
            AccessAdvice::Normal | AccessAdvice::Random => {
                descriptor.mmap_miss = (descriptor.mmap_miss + 1).min(10 * LOTS_OF_MISSES);
                let reads_around = descriptor.mmap_miss <= LOTS_OF_MISSES;
                if reads_around && is_code {
                    descriptor.start = page.max(mapping.first);
                    let end = (descriptor.start + pages_max).min(mapping.end);
                    descriptor.size = end - descriptor.start;
                    descriptor.async_size = 0;
                    descriptor.order = 0;
                    self.submit(descriptor, request, cache);
                } else if reads_around {
                    descriptor.start = page.saturating_sub(pages_max / 2);
                    descriptor.size = pages_max;
                    descriptor.async_size = pages_max / 4;
                    descriptor.order = 0;
                    self.submit(descriptor, request, cache);
                }
                reads_around
            }
        };
        if !cache.has(page) {
            cache.add(page, 0, false);
        }
        retried
    }

    /// Notes that a fault mapped so many cached pages around it (`filemap_map_pages`).
    pub fn mapped_around(&self, descriptor: &mut Descriptor, pages: u32) {
        descriptor.mmap_miss = descriptor.mmap_miss.saturating_sub(pages);
    }

    /// Reads pages that an application announced (`POSIX_FADV_WILLNEED`, `readahead`). Traces lack
    /// that; the recordings of real readers have it.
    #[cfg(test)]
    pub(super) fn will_need(
        &self,
        descriptor: &Descriptor,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        self.forced(descriptor, request.first, request.end - request.first, request, cache);
    }

    fn pages_max_for(&self, descriptor: &Descriptor) -> u64 {
        match descriptor.advice {
            AccessAdvice::Sequential => 2 * self.pages_max,
            _ => self.pages_max,
        }
    }

    /// The maximum for a request: a longer one may be as long as the device's requests.
    fn window_max(&self, descriptor: &Descriptor, pages: u64) -> u64 {
        let pages_max = self.pages_max_for(descriptor);
        match pages > pages_max && self.io_pages > pages_max {
            true => pages.min(self.io_pages),
            false => pages_max,
        }
    }

    /// The page at `index` is missing (`page_cache_sync_ra`, `ondemand_readahead`).
    fn missing(
        &self,
        descriptor: &mut Descriptor,
        index: u64,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        let wanted = request.end - index;
        // Without read-ahead each page is read alone.
        if self.pages_max == 0 {
            return self.pages(index, 1, 0, request, cache);
        }
        if descriptor.advice == AccessAdvice::Random {
            return self.forced(descriptor, index, wanted, request, cache);
        }
        let max = self.window_max(descriptor, wanted);
        let is_next = index.wrapping_sub(descriptor.prev_page) <= 1;
        let window_end = descriptor.start + descriptor.size;
        let is_expected = index == self.expected(descriptor, 0) || index == window_end;
        if self.kernel == Kernel::V6_1 && index != 0 && is_expected {
            return self.advance(descriptor, index, max, request, cache);
        }
        if index == 0 || wanted > max || is_next {
            self.first_window(descriptor, index, wanted, max);
        } else {
            let hole = hole_before(index - 1, max, cache);
            let before = index.wrapping_sub(hole).wrapping_sub(1);
            if before <= wanted {
                return self.pages(index, wanted, 0, request, cache);
            }
            // The file is cached from its first page on.
            let before = if hole == u64::MAX { 2 * before } else { before };
            descriptor.start = index;
            descriptor.size = (before + wanted).min(max);
            descriptor.async_size = 1;
        }
        descriptor.order = 0;
        self.read_window(descriptor, index, max, request, cache);
    }

    /// A page of a marked folio is needed (`page_cache_async_ra`). `index`: the page that the
    /// kernel takes as the marker's; `page`: one of the folio that is cached.
    fn marked(
        &self,
        descriptor: &mut Descriptor,
        (index, page, order): (u64, u64, u32),
        wanted: u64,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        if self.pages_max == 0 {
            return;
        }
        cache.unmark(page);
        let max = self.window_max(descriptor, wanted);
        let window_end = descriptor.start + descriptor.size;
        let is_expected = index == self.expected(descriptor, order)
            || (self.kernel == Kernel::V6_1 && index == window_end);
        if self.kernel == Kernel::V6_1 && index == 0 {
            self.first_window(descriptor, index, wanted, max);
            return self.read_window(descriptor, index, max, request, cache);
        }
        if is_expected {
            return self.advance(descriptor, index, max, request, cache);
        }
        let start = match hole_behind(index + 1, max, cache) {
            Some(start) if start - index <= max => start,
            // Before 6.11 the search without a hole returned its last page.
            None if self.kernel == Kernel::V6_1 => index + max,
            _ => return,
        };
        descriptor.start = start;
        descriptor.size = next_size(start - index + wanted, max);
        self.align(descriptor, max);
        descriptor.async_size = descriptor.size;
        self.read_window(descriptor, index, max, request, cache);
    }

    /// Sets the window of a sequential reader that begins (`initial_readahead`).
    fn first_window(&self, descriptor: &mut Descriptor, index: u64, wanted: u64, max: u64) {
        descriptor.start = index;
        descriptor.size = first_size(wanted, max);
        descriptor.async_size = match descriptor.size > wanted {
            true => descriptor.size - wanted,
            false if self.kernel == Kernel::V6_1 => descriptor.size,
            false => descriptor.size / 2,
        };
    }

    /// The page at which a sequential reader meets the marker of the last window.
    fn expected(&self, descriptor: &Descriptor, order: u32) -> u64 {
        let marker = (descriptor.start + descriptor.size).wrapping_sub(descriptor.async_size);
        marker >> order << order
    }

    /// Reads the window behind the last one.
    fn advance(
        &self,
        descriptor: &mut Descriptor,
        index: u64,
        max: u64,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        descriptor.start += descriptor.size;
        // A window does not shrink if the maximum did: since 6.13, and in stable kernels before.
        descriptor.size = next_size(descriptor.size, max).max(descriptor.size);
        self.align(descriptor, max);
        descriptor.async_size = descriptor.size;
        self.read_window(descriptor, index, max, request, cache);
    }

    /// Lets a window end at a multiple of its folios' size, since 6.16.
    fn align(&self, descriptor: &mut Descriptor, max: u64) {
        if self.kernel < Kernel::V6_18 {
            return;
        }
        descriptor.order += 2;
        let align = 1 << descriptor.order.min(max.trailing_zeros());
        let end = descriptor.start + descriptor.size;
        let aligned_end = end / align * align;
        if aligned_end > descriptor.start {
            descriptor.size -= end - aligned_end;
        }
    }

    fn read_window(
        &self,
        descriptor: &mut Descriptor,
        index: u64,
        max: u64,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        // The read would meet the window's own marker at once: the next window is part of it.
        let meets_itself = index == descriptor.start && descriptor.size == descriptor.async_size;
        if self.kernel == Kernel::V6_1 && meets_itself {
            let more = next_size(descriptor.size, max);
            if descriptor.size + more <= max {
                descriptor.async_size = more;
                descriptor.size += more;
            } else {
                descriptor.size = max;
                descriptor.async_size = max / 2;
            }
        }
        self.submit(descriptor, request, cache);
    }

    /// Reads the descriptor's window (`page_cache_ra_order`).
    fn submit(
        &self,
        descriptor: &mut Descriptor,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        let Descriptor { start, size, async_size, .. } = *descriptor;
        cache.window(Window {
            start,
            pages: size,
            async_pages: async_size,
            order: descriptor.order,
        });
        if !self.large_folios {
            descriptor.order = 0;
            return self.rest(start, size, async_size, request, cache);
        }
        let Some(limit) = request.file_pages.checked_sub(1) else { return };
        let limit = limit.min(start + size - 1);
        let order = descriptor.order.min(ORDER_MAX).min(size.ilog2());
        descriptor.order = order;
        let marker = (start + size).wrapping_sub(async_size);
        let mut index = start;
        while index <= limit {
            let mut order = order.min(index.trailing_zeros());
            while order > 0 && index + (1 << order) - 1 > limit {
                order -= 1;
            }
            if (index..index + (1 << order)).any(|page| cache.has(page)) {
                return self.rest(index, size - (index - start), async_size, request, cache);
            }
            cache.add(index, order, index == marker >> order << order);
            index += 1 << order;
        }
    }

    /// Reads pages one by one, without those that are cached (`do_page_cache_ra`).
    fn rest(
        &self,
        index: u64,
        pages: u64,
        async_size: u64,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        let Some(last) = request.file_pages.checked_sub(1).filter(|last| index <= *last) else {
            return;
        };
        let pages = pages.min(last - index + 1);
        let marker = (async_size > 0).then(|| (index + pages).wrapping_sub(async_size));
        for page in index..index + pages {
            if !cache.has(page) {
                cache.add(page, 0, Some(page) == marker);
            }
        }
    }

    /// Reads what was asked for, and nothing else.
    fn pages(
        &self,
        index: u64,
        pages: u64,
        async_size: u64,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        cache.window(Window { start: index, pages, async_pages: async_size, order: 0 });
        self.rest(index, pages, async_size, request, cache);
    }

    /// Reads what was asked for, in at most one request of the device (`force_page_cache_ra`).
    fn forced(
        &self,
        descriptor: &Descriptor,
        index: u64,
        wanted: u64,
        request: ReadRequest,
        cache: &mut impl FilePages,
    ) {
        let pages = wanted.min(self.io_pages.max(self.pages_max_for(descriptor)));
        self.pages(index, pages, 0, request, cache);
    }
}

/// The size of a first window (`get_init_ra_size`).
pub(super) fn first_size(wanted: u64, max: u64) -> u64 {
    let size = wanted.next_power_of_two();
    if size <= max / 32 {
        4 * size
    } else if size <= max / 4 {
        2 * size
    } else {
        max
    }
}

/// The size of the window behind one of `size` pages (`get_next_ra_size`).
fn next_size(size: u64, max: u64) -> u64 {
    if size < max / 16 {
        4 * size
    } else if size <= max / 2 {
        2 * size
    } else {
        max
    }
}

/// Slots of a node of the tree that holds a file's pages (`XA_CHUNK_SIZE`).
const NODE_PAGES: u64 = 64;

/// Returns the place of the tree's cursor after it looked `page` up: the first slot of its folio.
/// From there the cursor counts pages and slots in step, so that inside one node it looks at slots
/// before the pages that it reports. Folios of a node's size or more have slots of their own.
fn cursor_at(page: u64, cache: &impl FilePages) -> u64 {
    let order = cache.order(page);
    if 1 << order < NODE_PAGES { page >> order << order } else { page }
}

/// Returns the page that the kernel takes for the first hole from `page` on, among `max`
/// (`page_cache_next_miss`).
fn hole_behind(page: u64, max: u64, cache: &impl FilePages) -> Option<u64> {
    if !cache.has(page) {
        return Some(page);
    }
    let (mut reported, mut slot) = (page, cursor_at(page, cache));
    for _ in 1..max {
        reported += 1;
        match (slot + 1).is_multiple_of(NODE_PAGES) {
            true if (reported + 1).is_multiple_of(NODE_PAGES) => {}
            true => slot = slot + 1 + reported % NODE_PAGES,
            false => slot += 1,
        }
        if !cache.has(slot) {
            return Some(reported);
        }
    }
    None
}

/// Returns the page that the kernel takes for the last hole from `page` back, among `max`, or the
/// last page that it looked at; `u64::MAX` if all pages from the first one on are cached
/// (`page_cache_prev_miss`).
fn hole_before(page: u64, max: u64, cache: &impl FilePages) -> u64 {
    if !cache.has(page) {
        return page;
    }
    let (mut reported, mut slot) = (page, cursor_at(page, cache));
    for _ in 1..max {
        reported = reported.wrapping_sub(1);
        match slot.is_multiple_of(NODE_PAGES) {
            true if reported.is_multiple_of(NODE_PAGES) => {}
            true if slot == 0 => return reported,
            true => slot = slot - NODE_PAGES + reported % NODE_PAGES,
            false => slot -= 1,
        }
        if !cache.has(slot) {
            return reported;
        }
    }
    reported
}
