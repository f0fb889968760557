//! The read-ahead that the tuning paper describes (Liang et al., "Boosting Read-ahead Efficiency
//! for Improved User Experience on Mobile Devices", sections 2.2, 2.4 and 4.1).
//!
//! Each sequential request for a page prefetches the pages behind it, hit or miss. The size begins
//! at 2 or 4 times the request, doubles at a hit, up to the maximum, and falls by 2 pages at a
//! miss, down to 4. A hit finds a page that was prefetched; with `hit=resident` also one that the
//! cache holds for another reason. A request out of order ends the sequence and prefetches nothing.
//! Neither does the first request of an open file if it does not begin at page 0.
//!
//! Sizes are counted as the paper does: as asked for, not cut at the end of the file. Its
//! efficiency is hits / pages of all prefetches, where the first request of a sequence counts as a
//! hit: in section 2.4, 7 pages read of 156 prefetched are 4.5 %.

use super::{FilePages, ReadAheadSpec, ReadRequest, Window, linux::first_size, param};
use flashsift_events::params::{Param, ParamKind, Params};

pub(super) const SPEC: ReadAheadSpec = ReadAheadSpec {
    name: "paper",
    paper: "Liang et al., Boosting Read-ahead Efficiency, section 2.2",
    what: "one prefetch for each sequential page request, from 4 pages to the maximum",
    params: PARAMS,
    bare: "pages",
};

const PARAMS: &[Param] = &[
    Param {
        name: "pages",
        what: "maximum in pages (MSR)",
        kind: ParamKind::Number { default: 32.0, min: 4.0, max: 4096.0 },
    },
    Param {
        name: "hit",
        what: "whether a hit finds a page that was prefetched, or any page",
        kind: ParamKind::Word(&["prefetched", "resident"]),
    },
];

/// Least size of a prefetch, pages (16 KiB).
const PAGES_MIN: u64 = 4;

/// The paper's read-ahead with its maximum.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Maximum size of a prefetch, pages (MSR).
    pub pages_max: u64,
    /// Any page that the cache holds is a hit.
    pub resident_hits: bool,
}

/// The sequence that an open file is read in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequence {
    /// The page requested last.
    last: Option<u64>,
    /// Pages of the last prefetch; 0 outside a sequence.
    size: u64,
}

impl Paper {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            pages_max: param(params, PARAMS, "pages") as u64,
            resident_hits: params.word(PARAMS, "hit") == "resident",
        }
    }

    /// Decides on the prefetches of a read, which consists of one request for each page.
    pub fn read(&self, sequence: &mut Sequence, request: ReadRequest, cache: &mut impl FilePages) {
        for page in request.first..request.end.min(request.file_pages) {
            // A read that begins in the page in which the last one ended requests it once.
            if sequence.last == Some(page) {
                continue;
            }
            let is_next = page == sequence.last.map_or(0, |last| last + 1);
            sequence.last = Some(page);
            let has = cache.has(page);
            let hit = if self.resident_hits { has } else { cache.is_prefetched(page) };
            if !has {
                cache.add(page, 0, false);
            }
            if !is_next {
                sequence.size = 0;
                continue;
            }
            if hit || sequence.size == 0 {
                cache.sequence_hit();
            }
            sequence.size = match (sequence.size, hit) {
                (0, _) => first_size(1, self.pages_max).max(PAGES_MIN),
                (size, true) => (2 * size).min(self.pages_max),
                (size, false) => size.saturating_sub(2).max(PAGES_MIN),
            };
            let start = page + 1;
            cache.window(Window { start, pages: sequence.size, async_pages: 0, order: 0 });
            for page in start..(start + sequence.size).min(request.file_pages) {
                if !cache.has(page) {
                    cache.add_ahead(page);
                }
            }
        }
    }
}
