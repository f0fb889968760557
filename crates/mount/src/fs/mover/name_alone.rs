//! The fsync of a directory while a file in it is being written.
//!
//! ext4 then makes the file's name durable, and writes its bytes when they are old. A database that
//! syncs its directory while its log grows would have each part of the log on flash otherwise, and
//! deletes the log soon. So such a file gets its name in BACKING as it was when it was created,
//! with no bytes, and stays in RAM.

use super::{Batch, Job, Mover, Outcome, Staged};
use crate::fs::copying::copy_rights;
use crate::fs::failures::{Failed, In, Step};
use crate::fs::namespace::Namespace;
use crate::fs::residence::{NAME_ALONE, Residence};
use crate::fs::types::Ino;
use std::sync::Arc;

impl Mover {
    /// Gives a file in RAM its name in BACKING, with no bytes. `false`: it has to be written back,
    /// since it is not being created, or this way is not possible.
    pub(crate) fn place_name_alone(&self, ino: Ino) -> bool {
        // Elsewhere a name is durable with the fsync of its file.
        self.backing.volume.one_sync_covers_earlier()
            && matches!(self.try_name_alone(ino), Ok(Outcome::Kept))
    }

    fn try_name_alone(&self, ino: Ino) -> Result<Outcome, Failed> {
        let (parent, file_state) = {
            let mut table = self.table();
            match self.named_alone(&table, ino) {
                Some((_, true)) => return Ok(Outcome::Kept),
                Some((parent, false)) if self.store.stat(ino).step(Step::Open)?.st_size > 0 => {
                    (parent, table.share(ino, false))
                }
                _ => return Ok(Outcome::Nothing),
            }
        };
        let Some(file_state) = file_state else { return Ok(Outcome::Nothing) };
        let source = self.store.open_to_copy(ino).step(Step::Open)?;
        let (temp, file) = self.create_copy(Some(parent), true).step(Step::Open)?;
        let copied = rustix::fs::fstat(&source)
            .and_then(|stat| copy_rights(&source, &stat, &file))
            .step(Step::Copy);
        let job = Job { keep: true, ..Job::durable(ino) };
        let copy = Staged {
            job,
            file_state,
            temp,
            file: Arc::new(file),
            changes: NAME_ALONE,
            bytes: 0,
            itself: false,
            flushed: true,
            nameless: false,
        };
        match copied {
            Ok(()) => self.place(copy, &mut Batch::default()),
            Err(error) => {
                self.discard(copy);
                Err(error)
            }
        }
    }

    /// The directory of a file in RAM that is being created, or was at an earlier sync of the
    /// directory; and whether it has its name in BACKING already. Then its bytes wait as those do
    /// which a file on flash is given.
    pub(super) fn named_alone(&self, table: &Namespace, ino: Ino) -> Option<(Ino, bool)> {
        let node = table.node(ino)?;
        let Residence::Ram(copy) = node.residence() else { return None };
        let [(parent, name)] = &node.names[..] else { return None };
        let below = table.in_ram(*parent, name)?.hides;
        match (below, copy) {
            (None, None) if node.file_state()?.is_being_created() => Some((*parent, false)),
            (Some(below), Some(copy))
                if copy.changes == NAME_ALONE && copy.backing_ino == below.get() =>
            {
                Some((*parent, true))
            }
            _ => None,
        }
    }
}
