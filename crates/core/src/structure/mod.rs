//! Data structures of policies: linked lists over an array, queues of ghosts, an ordered set of
//! small integers, and their order of last use.

mod bit_tree;
mod ghosts;
mod lists;
mod recency;

pub use bit_tree::BitTree;
pub use ghosts::Ghosts;
pub use lists::Lists;
pub use recency::Recency;
