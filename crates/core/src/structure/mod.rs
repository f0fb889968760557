//! What policies are made of: linked lists over an array, queues of ghosts, an ordered set of small integers.

mod bit_tree;
mod ghosts;
mod lists;

pub use bit_tree::BitTree;
pub use ghosts::Ghosts;
pub use lists::Lists;
