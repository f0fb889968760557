//! Data structures of policies and sifters: linked lists over an array, queues of ghosts, an
//! ordered set of small integers, their order of last use, and the parts of a file.

mod bit_tree;
pub mod extents;
mod ghosts;
mod lists;
mod recency;

pub use bit_tree::BitTree;
pub use extents::Extents;
pub use ghosts::Ghosts;
pub use lists::Lists;
pub use recency::Recency;
