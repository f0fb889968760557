//! The kinds of [`Back`](flashsift_caches::back::Back): plain [`Storage`], and a write buffer in
//! non-volatile memory over it.

mod clusters;
pub(crate) mod flush_nvm;
pub(crate) mod hybrid_flush;
mod nvm_buffer;
mod nvm_order;
pub(crate) mod storage;

pub use nvm_buffer::NvmBuffer;
pub use nvm_order::Order;
pub use storage::{Nowhere, Sink, Storage};
