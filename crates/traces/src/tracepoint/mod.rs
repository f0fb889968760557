//! What a kernel's tracepoints tell, so that they become events.
//!
//! A machine without I/O. [`Point`]s go in, in the order of their times, whether they come from a ring buffer, from ftrace's
//! text or from Perfetto; what fanotify and the file system say of names goes in beside them ([`Machine::name`]); events
//! come out. [`ALL`] is the one list of the tracepoints that it understands.
//!
//! What it concludes, and from what (checked on Linux 6.18 and 6.1, ext4 and F2FS):
//!
//! - **Reads**: `mm_filemap_get_pages`, hits and misses alike. A long or cold read shows several, each beginning later and
//!   all ending at the same page: they are one access (`reads`). The kernel rounds to whole pages and does not stop at the
//!   end of the file, so the machine keeps each file's size.
//! - **Writes**: `write_end` says what was copied; `write_begin` how much of the call was left, so that the pieces of one
//!   call become one access.
//! - **Mappings**: a page fault with its address, and the map of the process, give the page and whether a store is meant
//!   for the file (`maps`). Pages that the kernel maps beside the one asked for (fault-around) are then read unseen.
//! - **Files**: an identity begins with `allocate_inode` and ends with `evict_inode` of a file without links (`inodes`).
//! - **System calls**, where they are recorded too, give the exact bytes of a read (`calls`).

mod calls;
mod inodes;
mod machine;
mod maps;
mod names;
mod point;
mod possible;
mod spec;
mod tasks;

pub use calls::{Call, Pointer};
pub use machine::{Host, Machine, NoHost};
pub use maps::Mapping;
pub use names::{Handle, Name, NameKind};
pub use point::{Dev, Inode, Point, What};
pub use spec::{ALL, Need, Spec, Values};
