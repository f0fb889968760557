//! Caches in place of the page cache: of DRAM and non-volatile memory.

use flashsift_events::page::Frame;

mod facts;
pub(crate) mod fslru;
pub(crate) mod nvlru;

pub use fslru::{Fslru, OldVersions, Settings};
pub use nvlru::Nvlru;

/// Checks that each frame below `frames` is in exactly one of the sets.
///
/// # Panics
/// If one is in none or in two.
fn assert_partition(frames: usize, sets: &[&[Frame]]) {
    let mut seen = vec![0; frames];
    for frame in sets.iter().copied().flatten() {
        seen[frame.0 as usize] += 1;
    }
    assert!(seen.iter().all(|seen| *seen == 1), "a frame is in use, free or reserved: {seen:?}");
}

#[cfg(test)]
mod testing;
