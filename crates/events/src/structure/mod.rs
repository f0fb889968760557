//! Data structures of policies and sifters: linked lists over an array, queues of ghosts, an
//! ordered set of small integers, their order of last use, an order of counts, an order of
//! addresses, the parts of a file, a set to draw from, and the sizes of objects.

mod bit_tree;
mod counts;
pub mod extents;
mod ghosts;
mod lists;
mod place_order;
mod recency;
mod resident;
mod weights;

pub use bit_tree::BitTree;
pub use counts::CountOrder;
pub use extents::Extents;
pub use ghosts::Ghosts;
pub use lists::Lists;
pub use place_order::PlaceOrder;
pub use recency::Recency;
pub use resident::{Resident, random};
pub use weights::Weights;
