//! Rejects impossible numbers, which occur in damaged traces.

use super::What;
use flashsift_events::page::PAGE_BYTES;

/// Largest file offset in bytes.
const END: u64 = i64::MAX.cast_unsigned();
const PAGES: u64 = END / PAGE_BYTES;

impl What {
    /// Whether its offsets, lengths and pages are possible in a file. The machine takes no other
    /// points.
    pub fn is_possible(&self) -> bool {
        let span = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= END);
        match *self {
            Self::Pages { first, last, .. } | Self::FaultAround { first, last, .. } => {
                first <= last && last < PAGES
            }
            Self::Added { first, pages, .. } | Self::Removed { first, pages, .. } => {
                first.saturating_add(pages) < PAGES
            }
            Self::Placed { block, blocks, at, .. } => {
                [block, at].iter().all(|first| first.saturating_add(blocks) < PAGES)
            }
            Self::Fault { page, .. } | Self::Dirtied { page, .. } => page < PAGES,
            Self::WriteBegin { offset, len, .. }
            | Self::Written { offset, len, .. }
            | Self::DirectStep { offset, len, .. }
            | Self::Allocate { offset, len, .. }
            | Self::Punch { offset, len, .. } => span(offset, len),
            Self::WriteEnd { offset, copied, .. } => span(offset, copied),
            Self::CallEnd { offset, moved, .. } => span(offset, moved.max(0).cast_unsigned()),
            Self::DirectEnd { end, moved, .. } => end <= END && moved.max(0).cast_unsigned() <= end,
            Self::CallBegin { size, offset, .. } => size.max(offset) <= END,
            Self::TruncateBegin { size: Some(size), .. } => size <= END,
            _ => true,
        }
    }
}
