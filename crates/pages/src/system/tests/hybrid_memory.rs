//! FSLRU and NVLRU under the replay loop.

use super::*;
use crate::{
    cache::{Fslru, Nvlru, Settings},
    nvm::Counting,
};

fn run(fslru: bool, frames: u32, modes: &str, actions: &[Action]) -> Outcome {
    with_cell(frames, modes, true, |cell| {
        let trace = trace(actions);
        let back = Storage::new(layout_of(cell, &trace), Nowhere);
        let machine = DirtyPages::new(cell.writeback, &trace, frames);
        let settings = Settings { dram_share: 0.3, ..Settings::default() };
        if fslru {
            let memory = Counting::new(frames - Fslru::<Counting>::dram_frames(frames, settings));
            let cache = Fslru::new(trace.pages(), frames, settings, memory);
            System::new(cache, back, machine, NoReadAhead).replay(cell, &trace, None)
        } else {
            let cache = Nvlru::new(trace.pages(), frames, settings, Counting::new(frames));
            System::new(cache, back, machine, NoReadAhead).replay(cell, &trace, None)
        }
    })
}

/// The write-back machine and the cache agree at each step on the dirty pages (`System::check`):
/// also when a page becomes durable as it leaves DRAM, and when an older version of a dirty page is
/// written. No sync writes to storage, and each write to it has a page write behind it.
#[test]
fn the_machine_follows_fslru_and_nvlru() {
    for seed in 0..200 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let actions = history(&mut rng, 150);
        let frames = rng.random_range(3..14);
        let modes = ["evict", "sync", "hf", "linux", "periodic:3s"][rng.random_range(0..5)];
        for fslru in [true, false] {
            let outcome = run(fslru, frames, modes, &actions);
            let case = format!("seed {seed}, {frames} frames, {modes}, FSLRU {fslru}");
            let device = outcome.device;
            assert_eq!((device.sync_writes, outcome.dirty_left), (0, 0), "{case}");
            assert!(device.writes + device.dropped_dirty <= outcome.write_accesses, "{case}");
        }
    }
}
