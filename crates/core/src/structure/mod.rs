//! The two structures that policies are made of: linked lists over an array, and an ordered set of small integers.

mod bit_tree;
mod lists;

pub use bit_tree::BitTree;
pub use lists::Lists;
