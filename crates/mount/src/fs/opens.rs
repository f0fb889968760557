//! Opens of files by number: the state behind each open file description.
//!
//! A lookup takes no lock but that of its own slot, so that reads of different opens never meet.
//! Slots live in segments that double in size and never move.

use super::residence::FileState;
use super::types::Ino;
use flashsift_events::event::{FileId, OpenId};
use parking_lot::{Mutex, RwLock};
use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Slots of the first segment.
const FIRST: usize = 64;
/// Segments for all 32-bit numbers.
const SEGMENTS: usize = 26;

/// One open file description.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) ino: Ino,
    pub(crate) file: FileId,
    pub(crate) file_state: Arc<FileState>,
    /// It may write.
    pub(crate) writes: bool,
    /// The kernel reads and writes this open by itself.
    pub(crate) passthrough: AtomicBool,
}

type Slot = RwLock<Option<Arc<Open>>>;

/// All opens.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    segments: [OnceLock<Box<[Slot]>>; SEGMENTS],
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    slots: Vec<u32>,
    /// Slots from here on have never been used.
    next: u32,
}

/// Segment of a slot, and its place in it.
fn split(slot: u32) -> (usize, usize) {
    let n = slot as usize + FIRST;
    let segment = (n.ilog2() - FIRST.ilog2()) as usize;
    (segment, n - (FIRST << segment))
}

impl Opens {
    /// Gives it a number that no other open has at the moment.
    pub(crate) fn insert(&self, open: Open) -> OpenId {
        let slot = {
            let mut free = self.free.lock();
            free.slots.pop().unwrap_or_else(|| {
                free.next += 1;
                free.next - 1
            })
        };
        let (segment, at) = split(slot);
        let slots = self.segments[segment]
            .get_or_init(|| (0..FIRST << segment).map(|_| Slot::default()).collect());
        *slots[at].write() = Some(Arc::new(open));
        OpenId(NonZeroU32::MIN.saturating_add(slot))
    }

    fn slot(&self, open: OpenId) -> Option<&Slot> {
        let (segment, at) = split(open.0.get() - 1);
        self.segments.get(segment)?.get()?.get(at)
    }

    pub(crate) fn get(&self, open: OpenId) -> Option<Arc<Open>> {
        self.slot(open)?.read().clone()
    }

    /// Returns whether there is any.
    pub(crate) fn any(&self) -> bool {
        let free = self.free.lock();
        free.next as usize > free.slots.len()
    }

    /// The number may be given again.
    pub(crate) fn remove(&self, open: OpenId) -> Option<Arc<Open>> {
        let removed = self.slot(open)?.write().take()?;
        self.free.lock().slots.push(open.0.get() - 1);
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn slots_fill_segments_without_gaps() {
        let mut next = HashMap::new();
        for slot in 0..10_000 {
            let (segment, at) = split(slot);
            let expected = next.entry(segment).or_insert(0);
            assert_eq!(at, *expected, "slot {slot}");
            *expected += 1;
        }
        assert_eq!((next[&0], next[&1], next[&2]), (64, 128, 256));
        assert!(split(u32::MAX - 1).0 < SEGMENTS + 1);
    }

    #[test]
    fn numbers_are_unique_among_those_that_are_open() {
        let opens = Opens::default();
        let open = |ino| Open {
            ino,
            file: FileId(ino),
            file_state: Arc::new(FileState::default()),
            writes: false,
            passthrough: AtomicBool::new(false),
        };
        let ids: Vec<_> = (0..1000).map(|ino| opens.insert(open(ino))).collect();
        for (ino, id) in ids.iter().enumerate() {
            assert_eq!(opens.get(*id).unwrap().ino, ino as u64);
        }
        assert_eq!(opens.remove(ids[7]).unwrap().ino, 7);
        assert!(opens.get(ids[7]).is_none() && opens.remove(ids[7]).is_none());
        assert_eq!(opens.insert(open(2000)), ids[7]);
    }
}
