//! Where a file's bytes are, and how they move while it is used.

use parking_lot::{RwLock, RwLockReadGuard};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What readers, writers and the move share. Locks are taken in this order: `gate`, the table, `place`.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Whoever changes a file in RAM passes it; closed where a move has failed so often that its writers have to wait.
    pub(crate) gate: RwLock<()>,
    pub(crate) place: RwLock<Place>,
    /// Held while bytes change, until the event is queued; a read of a file in RAM shares it. Taken last.
    pub(crate) order: RwLock<()>,
    changes: AtomicU64,
}

/// Where it is open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// `None` while nobody has it open.
    pub(crate) file: Option<Arc<File>>,
    /// On flash, for good.
    pub(crate) settled: bool,
}

impl Content {
    pub(crate) fn new(place: Place) -> Content {
        Content { place: RwLock::new(place), ..Content::default() }
    }

    /// The open file; where it lives in RAM, with what keeps it there meanwhile. A settled one does not move: who opens or closes it need not wait
    /// for a slow device.
    pub(crate) fn open(&self) -> Result<(Arc<File>, Option<RwLockReadGuard<'_, Place>>)> {
        let place = self.place.read();
        let file = place.file.clone().ok_or(Errno::BADF)?;
        Ok((file, (!place.settled).then_some(place)))
    }

    /// What was changed is there to be seen. It is counted afterwards, with `place` still held: a copy that counted before
    /// it began has either seen it, or is told by the count that it has not.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How often it was changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}
