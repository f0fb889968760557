//! Converts kernel tracepoints to events.
//!
//! The conversion is a state machine without I/O. Its input is [`Point`]s in the order of their
//! times, from a ring buffer, the text of ftrace, or Perfetto. File names from fanotify and the
//! file system enter through [`TracepointMachine::name`]. Its output is events. [`ALL`] is the one
//! list of the tracepoints that it understands.
//!
//! Each kind of event is derived as follows (checked on Linux 6.18 and 6.1, ext4 and F2FS):
//!
//! - **Reads** come from `mm_filemap_get_pages`, hits and misses alike. A long or cold read shows
//!   several of them, each with a later first page and all with the same last page: they form one
//!   access (`reads`). The kernel rounds to whole pages and does not stop at the end of the file,
//!   so the machine tracks the size of each file.
//! - **Writes**: `write_end` gives the bytes copied and `write_begin` the bytes left in the call,
//!   which joins the pieces of one call to one access.
//! - **Mappings**: the address of a page fault and the memory map of the process give the page, and
//!   whether a store reaches the file (`maps`). Later reads of pages that the kernel maps by
//!   fault-around stay invisible.
//! - **Files**: a file begins with `allocate_inode` and ends with `evict_inode` at a link count of
//!   0 (`inodes`).
//! - **Places**: ext4 tells which blocks it allocates to a file's data, F2FS where it writes each
//!   page (`places`). At the end of a recording, the recorder adds the extents of each file.
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

pub use calls::{EnteredCall, Pointer};
pub use machine::{FOLIO_WINDOW_PAGES, Host, NoHost, Survivor, TracepointMachine};
pub use maps::Mapping;
pub use names::{Handle, Name, NameKind};
pub use point::{Dev, Inode, Point, What};
pub use spec::{ALL, Need, TracepointSpec, Values};
pub use tasks::is_interpreter;
